"""Lower bounds in time for one size, from the links, limits and latencies of a topology; no solver.

A transfer of b bytes leaves a rank not before they are there, occupies its route for b / bandwidth, shares each limit
of its links, and arrives the latency of the route after its last byte has left.

``time-cut``: a cut of the nodes, ranks inside that are `sources` and ranks outside that are `targets`. Units that only
sources can provide and some target wants must cross. No byte crosses over a link before it can have come from a source
to the rank that sends it, nor so late that it cannot come to a target in time. So a link carries bytes in a window of
the time T alone, and the windows' bytes add up to those that cross.

``time-rate``: a certificate of bytes per second for any schedule; the last byte arrives the least latency later.

The arguments are in docs/proofs.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import lcm
from typing import NamedTuple

import numpy as np

from synth.checker.certificates import cuts, partition, path_lengths, throughput_cuts
from synth.checker.exact_sums import MAX_SUM, check_fits
from synth.checker.fields import mapping, need
from synth.checker.schedule.collective import ReplayCollective
from synth.errors import UncheckedError, VerificationError, malformed
from synth.model.documents.json_reader import items, number
from synth.model.link_table import LinkTable, ends, members
from synth.model.topology import Topology

KEYS = {
    "time-cut": {"kind", "inside", "sources", "targets", "limits"},
    "time-rate": {"kind", "rate"},
}
# Certificates about the topology itself, by kind, and the collective of those that name none.
RATES = {"alltoall-lengths": path_lengths.check, "allreduce-parts": partition.check}
_COLLECTIVE_OF = {"alltoall-lengths": "alltoall", "allreduce-parts": "allreduce"}
# Collectives of any number of ranks that a document may name instead of listing what each rank has and wants.
NAMED = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
ROOTED = ("broadcast", "reduce")
FAR = MAX_SUM // 4  # more than the latency of any path; sums of three such numbers fit an int64
MOST_WORK = 1 << 29  # relaxations of links in one search for least latencies, after which the check is given up


class CollectiveData(NamedTuple):
    """The data of a collective.

    `name`, `root`: those of a collective of `NAMED`, else None. `share`: bytes of a unit by the size.
    `crossing(sources, targets)`: the number of units that some of `targets` must get from `sources` alone, both
    Boolean arrays by rank. `document`: the collective with one chunk a unit, where it is written out.
    """

    name: str | None
    root: int | None
    share: Fraction
    crossing: Callable[[np.ndarray, np.ndarray], int]
    document: dict | None = None


def named_demand(name: str, ranks: int, root: int | None) -> CollectiveData:
    """Return the data of a collective of `NAMED`; `root` is None where it has none."""

    def crossing(sources: np.ndarray, targets: np.ndarray) -> int:
        from_ranks, to_ranks = int(sources.sum()), int(targets.sum())
        match name:
            case "allgather":
                return from_ranks if to_ranks else 0
            case "reduce-scatter":
                return to_ranks if from_ranks else 0
            case "alltoall":
                return from_ranks * to_ranks
            case "broadcast":
                return int(sources[root] and to_ranks > 0)
            case "reduce":
                return int(from_ranks > 0 and targets[root])
            case _:
                return int(from_ranks > 0 and to_ranks > 0)

    share = Fraction(1, ranks) if name in ("allgather", "reduce-scatter", "alltoall") else Fraction(1)
    return CollectiveData(name, root, share, crossing)


def written_demand(document: dict, ranks: int, place: str) -> CollectiveData:
    """Return the data of a collective that is written out, one chunk a unit. Raises VerificationError."""
    task = ReplayCollective.read(document, 1, ranks, place)
    holders: list[set[int]] = [set() for _ in range(task.chunks)]
    held, ends_with = [0] * ranks, [0] * ranks
    for at in task.pre:
        holders[at // ranks].add(at % ranks)
        held[at % ranks] += 1
    wants: list[tuple[int, int, list[int]]] = []
    for at, want in task.post.items():
        unit, rank = divmod(at, ranks)
        ends_with[rank] += 1
        wants.append((unit, rank, sorted(holders[unit] if want is None else want)))

    def crossing(sources: np.ndarray, targets: np.ndarray) -> int:
        units = set()
        for unit, rank, providers in wants:
            inside = [bool(sources[r]) for r in providers]
            if targets[rank] and inside and (any(inside) if task.combining else all(inside)):
                units.add(unit)
        return len(units)

    return CollectiveData(None, None, Fraction(1, max(*held, *ends_with, 1)), crossing, document)


class MachineArrays:
    """A topology as arrays: ends and bandwidths of links, latencies as multiples of 1 / `scale` µs."""

    def __init__(self, topology: Topology) -> None:
        self.topology, self.ranks = topology, topology.ranks
        self.nodes = topology.ranks + len(topology.switches)
        table = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(topology.links)
        self.src, self.dst = ends(table)
        self.sort, self.bandwidths = table.sort, [sort.bandwidth for sort in table.sorts]
        need(all(b >= 0 for b in self.bandwidths), "has a negative bandwidth", "topology")
        need(all(limit.bandwidth >= 0 for limit in topology.limits), "has a negative bandwidth", "topology")
        need(all(sort.latency >= 0 for sort in table.sorts), "has a negative latency", "topology")
        self.scale = lcm(*(sort.latency.denominator for sort in table.sorts))
        latencies = [int(sort.latency * self.scale) for sort in table.sorts]
        check_fits(8 * self.nodes * max(latencies, default=0), "the latencies of a path", "topology")
        self.latency = np.array(latencies or [0], np.int64)[self.sort]
        self.switch = np.arange(self.nodes) >= self.ranks
        self.limits = members(topology.limits)

    def distances(self, start: np.ndarray, links: np.ndarray, weights: np.ndarray, back: bool = False) -> np.ndarray:
        """Return the least `start[n] + weights` of a path over `links` from some node n to each node.

        Nodes that no path reaches have `MAX_SUM` or more. With `back` the paths lead from the node to n.
        """
        tails, heads = (self.dst[links], self.src[links]) if back else (self.src[links], self.dst[links])
        weights, far = weights[links], start.copy()
        for _ in range(0, MOST_WORK, len(tails) + 1):
            nearer = far.copy()
            np.minimum.at(nearer, heads, np.minimum(far[tails] + weights, MAX_SUM))
            if (nearer == far).all():
                return far
            far = nearer
        raise UncheckedError("is too large to check", "$")


def check(certificate: dict, topology: Topology, demand: CollectiveData, size: int) -> Fraction:
    """Return the bound that the certificate proves: µs that the collective takes for `size` bytes.

    It holds for every program whose transfers take the time above, with any number and size of messages. Raises
    VerificationError, with the place, for anything that proves no bound.
    """
    try:
        kind = mapping(certificate, "$")["kind"]
        need(isinstance(kind, str) and kind in KEYS, f"unknown kind {str(kind)[:40]!r}", "kind")
        need(certificate.keys() == KEYS[kind], f"expected the keys {', '.join(sorted(KEYS[kind]))}", "$")
        machine = MachineArrays(topology)
        if kind == "time-rate":
            seconds = _seconds_per_gb(certificate["rate"], topology, demand)
            need(seconds > 0, "proves nothing: perhaps nothing has to move, and no latency is waited for", "rate")
            return seconds * size * demand.share / 1000 + _first(machine)
        return _cut(certificate, machine, demand, size)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise VerificationError(malformed(error, "certificate")) from None


def _seconds_per_gb(rate: dict, topology: Topology, demand: CollectiveData) -> Fraction:
    """Return the seconds per GB of a unit that the certificate `rate` proves for any schedule."""
    kind = mapping(rate, "rate")["kind"]
    if kind in cuts.KEYS:
        need(demand.document is not None, "is for a collective that is written out", "rate.kind")
        need(kind not in ("distance", "unreachable", "too-few-steps"), "bounds no rate", "rate.kind")
        network = topology.network().without_parallel_routes()  # which can do no less
        return cuts.check(rate, network, demand.document or {}) / network.unit
    need(demand.name is not None, "is for a collective known by its name", "rate.kind")
    need(_COLLECTIVE_OF.get(kind, rate.get("collective")) == demand.name, "is for another collective", "rate")
    need(rate.get("root") == demand.root, "is for another root", "rate")
    return RATES.get(kind, throughput_cuts.check)(rate, topology)


def _first(machine: MachineArrays) -> Fraction:
    """Return the least latency, µs, from a rank to a rank over a link or through switches."""
    start = np.where(machine.switch, MAX_SUM, 0)
    onward = machine.distances(start, np.flatnonzero(machine.switch[machine.src]), machine.latency, back=True)
    leaving = np.flatnonzero(~machine.switch[machine.src])
    need(len(leaving), "has no link from a rank", "topology")
    return Fraction(int((machine.latency[leaving] + onward[machine.dst[leaving]]).min()), machine.scale)


def _mask(rows: object, count: int, place: str) -> np.ndarray:
    """Return the Boolean array of `count` numbers that is true in the stretches `rows`, each [first, last]."""
    mask = np.zeros(count, bool)
    for i, row in enumerate(items(rows, place)):
        need(type(row) is list and len(row) == 2, "expected [first, last]", f"{place}[{i}]")
        first = number(row[0], f"{place}[{i}]", 0, count)
        mask[first : number(row[1], f"{place}[{i}]", first, count) + 1] = True
    need(mask.any(), "is empty", place)
    return mask


def _cut(certificate: dict, machine: MachineArrays, demand: CollectiveData, size: int) -> Fraction:
    """Return the µs that a ``time-cut`` proves."""
    nodes, ranks = machine.nodes, machine.ranks
    inside = _mask(certificate["inside"], nodes, "inside")
    sources = _mask(certificate["sources"], ranks, "sources")
    targets = _mask(certificate["targets"], ranks, "targets")
    need(inside[:ranks][sources].all(), "holds a rank outside the cut", "sources")
    need(not inside[:ranks][targets].any(), "holds a rank inside the cut", "targets")
    crossing_units = demand.crossing(sources, targets)
    need(crossing_units > 0, "want nothing that only the sources provide", "targets")
    everything, no_switch = np.arange(len(machine.src)), np.full(nodes - ranks, MAX_SUM)
    at_source = np.concatenate([np.where(sources, 0, MAX_SUM), no_switch])
    at_target = np.concatenate([np.where(targets, 0, MAX_SUM), no_switch])
    earliest = machine.distances(at_source, everything, machine.latency)
    onward = machine.distances(at_target, everything, machine.latency, back=True)
    # A transfer begins at a rank inside. Before the first link that crosses it passes switches inside alone.
    within = np.flatnonzero(inside[machine.src] & inside[machine.dst] & machine.switch[machine.dst])
    at_rank = inside & ~machine.switch
    begins = machine.distances(np.where(at_rank, earliest, MAX_SUM), within, np.zeros_like(machine.latency))
    before = machine.distances(np.where(at_rank, 0, MAX_SUM), within, machine.latency)
    crossing = np.flatnonzero(inside[machine.src] & ~inside[machine.dst])
    begin = begins[machine.src[crossing]]
    remains = np.minimum(before[machine.src[crossing]], FAR) + machine.latency[crossing]
    remains += np.minimum(onward[machine.dst[crossing]], FAR)
    useful = (begin < FAR) & (remains < FAR)
    windows = _windows(certificate["limits"], machine, crossing[useful], begin[useful], remains[useful])
    return _least_time(windows, crossing_units * demand.share * size / 1000)


def _windows(
    limits: object, machine: MachineArrays, crossing: np.ndarray, begin: np.ndarray, remains: np.ndarray
) -> list[tuple[Fraction, Fraction]]:
    """Return (µs outside the window, GB/s) of each limit in `limits`, and of the links that cross in none of them.

    A transfer over link `crossing[i]` begins at `begin[i]` or later, and ends `remains[i]` or more before the end.
    """
    windows: dict[tuple[int, Fraction], int] = {}
    free = np.ones(len(crossing), bool)
    place = np.full(len(machine.src), -1, np.int64)
    place[crossing] = np.arange(len(crossing))
    named: set[int] = set()
    for i, k in enumerate(items(limits, "limits")):
        need(number(k, f"limits[{i}]", 0, len(machine.limits)) not in named, "is named again", f"limits[{i}]")
        named.add(k)
        covered = place[machine.limits[k]]
        covered = covered[covered >= 0]
        covered = covered[free[covered]]
        if len(covered):
            free[covered] = False
            window = int(begin[covered].min() + remains[covered].min()), machine.topology.limits[k].bandwidth
            windows[window] = windows.get(window, 0) + 1
    pairs = np.stack([(begin + remains)[free], machine.sort[crossing[free]]], axis=1)
    for (offset, sort), count in zip(*_counted(pairs), strict=True):
        window = offset, machine.bandwidths[sort]
        windows[window] = windows.get(window, 0) + count
    return [(Fraction(offset, machine.scale), gbps * count) for (offset, gbps), count in sorted(windows.items())]


def _counted(pairs: np.ndarray) -> tuple[list, list]:
    """Return the different rows of `pairs`, and how often each occurs."""
    rows, counts = np.unique(pairs, axis=0, return_counts=True)
    return rows.tolist(), counts.tolist()


def _least_time(windows: list[tuple[Fraction, Fraction]], kilobytes: Fraction) -> Fraction:
    """Return the least T at which Σ GB/s · (T - µs outside) over the windows that have begun is 1000 bytes each."""
    need(any(gbps for _, gbps in windows), "is never crossed: the collective is impossible, not slow", "$")
    capacity, missing = Fraction(0), kilobytes
    time = Fraction(0)
    for i, (offset, gbps) in enumerate(windows):
        capacity += gbps
        missing += gbps * offset
        if capacity:
            time = missing / capacity
            if i + 1 == len(windows) or time <= windows[i + 1][0]:
                break
    return time
