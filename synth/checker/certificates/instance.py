"""The problem that a certificate is about, read from documents with every number checked."""

from __future__ import annotations

from collections import deque
from itertools import combinations

from synth.checker.fields import need
from synth.checker.schedule.machine import machine_of
from synth.errors import UncheckedError
from synth.model.documents.json_reader import number
from synth.model.gc_pause import collector_off
from synth.model.topology import Network

# Maximum number of elementary sums and comparisons for one certificate, as `Instance.spend` counts them.
MOST_WORK = 4_000_000


class Instance:
    """A problem: links, limits, and for each unit the ranks that have it and that want it.

    Raises VerificationError for documents that make no sense.

    Attributes:
        digest: fingerprint of the problem.
        links: (source, destination, units) of each link. `names`: its number by ends and switches.
        links_into, links_out: numbers of the links into, and out of, each rank.
        peers: the ranks that links, or switches that multicast, lead to from each rank.
        limits: (numbers of links, units) of each limit; a link counts as often as it is listed.
        pre: the ranks that hold, or contribute to, each unit.
        post: `post[unit][rank]` is the set of contributions wanted there, None for all of them, or where units do not
            combine.
        special: some rank wants only a part of the contributions.
        switches: the switches that multicast.
        work: what is left of `MOST_WORK`.
    """

    @collector_off()
    def __init__(self, topology: Network | dict, collective: dict) -> None:
        machine = machine_of(topology, "topology")
        self.digest = machine.problem_fingerprint(collective)
        self.work = MOST_WORK
        self.ranks = n = number(machine.ranks, "topology.ranks", 1, 1 << 16)
        number(collective["ranks"], "collective.ranks", n, n + 1)
        need(type(collective["combining"]) is bool, "expected true or false", "collective.combining")

        self.names, self.limits, self.switches = machine.links, machine.limits, list(machine.switches.values())
        self.links, self.links_into, self.links_out, self.peers = machine.ends
        self.combining = collective["combining"]
        self._hops: dict[frozenset[int], list[float]] = {}

        # what each rank has of each unit, and wants of it
        units = number(collective["chunks"], "collective.chunks", 0, 1 << 21)
        held: list[set[int]] = [set() for _ in range(units)]
        self.post: list[dict[int, frozenset[int] | None]] = [{} for _ in range(units)]
        for unit, rank in collective["pre"]:
            held[number(unit, "collective.pre", 0, units)].add(number(rank, "collective.pre", 0, n))
        self.pre = [frozenset(rows) for rows in held]
        for unit, rank, *want in collective["post"]:
            rows = self.post[number(unit, "collective.post", 0, units)]
            need(
                number(rank, "collective.post", 0, n) not in rows,
                f"rank {rank} appears twice for {unit}",
                "collective.post",
            )
            rows[rank] = self._sum(want, unit, n) if want else None
        self.special = any(want is not None for rows in self.post for want in rows.values())

    def _sum(self, want: list, unit: int, n: int) -> frozenset[int]:
        """Read the contributions that a rank wants where it does not want them all."""
        some = [number(i, "collective.post", 0, n) for i in want[0]]
        good = self.combining and len(want) == 1 and len(set(some)) == len(some) > 0
        need(
            good and self.pre[unit].issuperset(some),
            f"expected a list of contributors to unit {unit}",
            "collective.post",
        )
        return frozenset(some)

    def spend(self, work: int) -> None:
        """Count `work`, and raise UncheckedError where one certificate has taken more than `MOST_WORK` in all."""
        self.work -= work
        if self.work < 0:
            raise UncheckedError("is too large to check", "$")

    def sources(self, unit: int, dst: int) -> list[frozenset[int]]:
        """Return the sets of ranks from each of which data must reach `dst`: the holders, or each wanted contributor.

        Data that nobody holds have one empty set of holders, which reaches no rank. A sum of nothing has no set.
        """
        if not self.combining:
            return [self.pre[unit]]
        want = self.post[unit][dst]
        contributors = self.pre[unit] if want is None else want & self.pre[unit]
        return [frozenset((i,)) for i in contributors]

    def wants(self, unit: int, dst: int, contributor: int) -> bool:
        """Return True where `dst`, a destination of `unit`, must end with the contribution of rank `contributor`."""
        want = self.post[unit][dst]
        return want is None or contributor in want

    def symmetric(self, unit: int) -> bool:
        """Return True where `unit` is summed as in an allreduce: those who contribute are those who want the sum."""
        return self.combining and not self.special and self.pre[unit] == frozenset(self.post[unit])

    def hops(self, start: frozenset[int]) -> list[float]:
        """Return the distance, in links, of each rank from the nearest of `start`; infinite where there is no path."""
        if start not in self._hops:
            self.spend(self.ranks + len(self.links))
            far, queue = self._hops.setdefault(start, [float("inf")] * self.ranks), deque(start)
            for s in start:
                far[s] = 0
            while queue:
                u = queue.popleft()
                for v in self.peers[u]:
                    if far[v] == float("inf"):
                        far[v] = far[u] + 1
                        queue.append(v)
        return self._hops[start]

    def needs(self, unit: int, side: str, rank: int, time: int, sends: int, steps: int) -> bool:
        """Return True where each chunk of `unit` takes at least `sends` sends into `rank` after step `time`.

        With `side` "out" instead of "in": out of `rank` by step `time`. So it is where no smaller set of neighbours can
        bring, or pass on, in `steps` steps all data that cannot have come, or gone, otherwise.
        """
        if side == "in":
            need(rank in self.post[unit], "is no destination", "covers")
            missing = [s for s in self.sources(unit, rank) if self.hops(s)[rank] > time]
            brings = []
            for b in [b for b in range(self.ranks) if rank in self.peers[b]]:
                brings.append({s for s in missing if self.hops(s)[b] <= steps - 1})
        else:
            own = self.hops(frozenset((rank,)))
            far = [d for d in self.post[unit] if own[d] > steps - time]
            missing = [d for d in far if frozenset((rank,)) in self.sources(unit, d)]
            brings = []
            for b in self.peers[rank]:
                distances = self.hops(frozenset((b,)))
                brings.append({d for d in missing if distances[d] <= steps - 1})
        for size in range(min(sends, len(brings) + 1)):
            for some in combinations(brings, size):
                self.spend(1 + len(missing))
                if len(set().union(*some)) == len(set(missing)):
                    return False
        return True
