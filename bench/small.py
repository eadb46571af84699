"""Small machines judged from their physical links alone: what the methods of synth are held against. No code is shared
with synth.

    Machine     ranks, physical links with their units, limits as sets of links; read from the form of
                docs/topologies.md
    replay      carry a schedule out, send by send, and count what crosses each link and limit
    infimum     the least R/C of any number of steps and chunks, by a linear program with one flow for each destination
    fewest      the least R for so many steps and chunks, by dynamic programming over who holds what

A way is the tuple of physical links that a send crosses. A limit counts every crossing of each of its links.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

Way = tuple[int, ...]
Move = tuple[int, Way, str]  # chunk, way, kind as in synth.model.schedule
ROOTED = ("broadcast", "reduce", "scatter", "gather")
REVERSALS = {"reduce-scatter": "allgather", "reduce": "broadcast"}


class Wrong(Exception):
    """A schedule that does not do what it says."""


@dataclass(frozen=True)
class Machine:
    """`links[i]` is (tail, head, units); ends below `ranks` are ranks. `limits[k]` is (links, units)."""

    ranks: int
    links: tuple[tuple[int, int, int], ...]
    limits: tuple[tuple[frozenset[int], int], ...]
    switches: tuple[str, ...] = ()

    @staticmethod
    def read(doc: dict) -> Machine:
        """From a document with whole bandwidths; parallel links between the same ends add up."""
        names = {name: doc["ranks"] + i for i, name in enumerate(doc.get("switches", []))}
        widths: dict[tuple[int, int], int] = {}
        for row in doc["links"]:
            a, b = (names.get(row[end], row[end]) for end in ("src", "dst"))
            for ends in ((a, b), (b, a)) if row.get("both") else ((a, b),):
                widths[ends] = widths.get(ends, 0) + row["bandwidth"]
        place = {ends: i for i, ends in enumerate(widths)}
        limits = [
            (frozenset(place[names.get(a, a), names.get(b, b)] for a, b in row["links"]), row["bandwidth"])
            for row in doc.get("limits", [])
        ]
        unit = math.gcd(*widths.values(), *(units for _, units in limits))
        links = tuple((a, b, units // unit) for (a, b), units in widths.items())
        return Machine(doc["ranks"], links, tuple((inside, units // unit) for inside, units in limits), tuple(names))

    def reversed(self) -> Machine:
        """Every link turned round."""
        return Machine(self.ranks, tuple((b, a, units) for a, b, units in self.links), self.limits, self.switches)

    @cached_property
    def every_way(self) -> dict[tuple[int, int], list[Way]]:
        """From rank to rank: the link between them, and all ways through switches that pass none twice."""
        found: dict[tuple[int, int], list[Way]] = defaultdict(list)
        level: list[Way] = [(i,) for i, (a, _, _) in enumerate(self.links) if a < self.ranks]
        while level:
            following: list[Way] = []
            for way in level:
                passed = [self.links[i][0] for i in way]
                start, end = passed[0], self.links[way[-1]][1]
                if end < self.ranks and end != start:
                    found[start, end].append(way)
                elif end >= self.ranks and end not in passed:
                    following += [(*way, i) for i, (a, _, _) in enumerate(self.links) if a == end]
            level = following
        return dict(found)

    @cached_property
    def ways(self) -> dict[tuple[int, int], list[Way]]:
        """The ways of the model: the link between two ranks, and of the ways through switches the shortest."""
        found = {}
        for ends, ways in self.every_way.items():
            least = min((len(way) for way in ways if len(way) > 1), default=1)
            found[ends] = [way for way in ways if len(way) in (1, least)]
        return found

    @cached_property
    def capacities(self) -> list[int]:
        """Units of the links, then of the limits."""
        return [units for _, _, units in self.links] + [units for _, units in self.limits]

    def crossings(self, way: Iterable[int]) -> Counter[int]:
        """Count the crossings of a path with each link and, numbered after the links, each limit."""
        count: Counter[int] = Counter(way)
        for k, (inside, _) in enumerate(self.limits):
            times = sum(n for i, n in count.items() if i < len(self.links) and i in inside)
            if times:
                count[len(self.links) + k] = times
        return count

    def rounds(self, ways: Iterable[Way]) -> int:
        """The fewest rounds in which all these sends are carried, at least one."""
        load: Counter[int] = Counter()
        for way in ways:
            load.update(self.crossings(way))
        return max([1, *(-(-n // self.capacities[k]) for k, n in load.items())])

    def way(self, src: int, dst: int, via: Sequence[str]) -> Way:
        """The links from `src` to `dst` through the named switches. Raises Wrong where there is none."""
        stops = [src, *(self.ranks + self.switches.index(name) for name in via), dst]
        ends = {(a, b): i for i, (a, b, _) in enumerate(self.links)}
        try:
            return tuple(ends[pair] for pair in pairwise(stops))
        except KeyError as missing:
            raise Wrong(f"there is no link {missing}") from None


def units(name: str, ranks: int, root: int) -> list[tuple[frozenset[int], frozenset[int]]]:
    """Who has each unit of data before (whose contributions, of a sum) and who must have it after."""
    everyone = frozenset(range(ranks))
    one = [frozenset((r,)) for r in range(ranks)]
    return {
        "broadcast": [(one[root], everyone)],
        "reduce": [(everyone, one[root])],
        "allreduce": [(everyone, everyone)],
        "scatter": [(one[root], one[r]) for r in range(ranks)],
        "gather": [(one[r], one[root]) for r in range(ranks)],
        "allgather": [(one[r], everyone) for r in range(ranks)],
        "reduce-scatter": [(everyone, one[r]) for r in range(ranks)],
        "alltoall": [(one[a], one[b]) for a in range(ranks) for b in range(ranks)],
    }[name]


def combining(name: str) -> bool:
    """True if the collective sums."""
    return name in ("reduce", "reduce-scatter", "allreduce")


def replay(machine: Machine, name: str, root: int, chunks: int, steps: Sequence[tuple[int, Sequence[Move]]]) -> None:
    """Carry ``[(rounds, sends), ...]`` out. Raises Wrong for the first thing that does not hold."""
    task = units(name, machine.ranks, root)
    sums = combining(name)
    held: dict[tuple[int, int], frozenset[int]] = {}
    for u, (before, _) in enumerate(task):
        for chunk in range(u * chunks, (u + 1) * chunks):
            for rank in before:
                held[chunk, rank] = frozenset((rank,)) if sums else frozenset()
    start = dict(held)
    for t, (rounds, moves) in enumerate(steps):
        needed = machine.rounds(way for _, way, _ in moves if way)
        if rounds < needed:
            raise Wrong(f"step {t} has {rounds} rounds and needs {needed}")
        after = dict(held)
        arriving: list[tuple[str, tuple[int, int], frozenset[int]]] = []
        for chunk, way, kind in moves:
            source, target = machine.links[way[0]][0], machine.links[way[-1]][1]
            table = start if kind.endswith("-input") else held
            if (chunk, source) not in table:
                raise Wrong(f"step {t}: rank {source} sends chunk {chunk}, which it does not have")
            arriving.append((kind, (chunk, target), table[chunk, source]))
        after |= {at: value for kind, at, value in arriving if kind.startswith("copy")}
        for kind, at, value in arriving:
            if kind.startswith("reduce"):
                mine = after.get(at, frozenset())
                if mine & value:
                    raise Wrong(f"step {t}: contributions to chunk {at[0]} at rank {at[1]} count twice")
                after[at] = mine | value
        held = after
    for u, (before, wanted) in enumerate(task):
        for chunk in range(u * chunks, (u + 1) * chunks):
            for rank in wanted:
                if held.get((chunk, rank)) != (before if sums else frozenset()):
                    raise Wrong(f"chunk {chunk} is not at rank {rank} in the end")


def farthest(machine: Machine, name: str, root: int) -> int | None:
    """The most sends that something is away from where it must be; None where it cannot get there."""
    near: dict[int, set[int]] = defaultdict(set)
    for a, b in machine.ways:
        near[a].add(b)
    most = 0
    for start in range(machine.ranks):
        far, queue = {start: 0}, [start]
        for at in queue:
            for to in near[at] - far.keys():
                far[to] = far[at] + 1
                queue.append(to)
        wanted = {b for before, after in units(name, machine.ranks, root) if start in before for b in after}
        if not wanted <= far.keys():
            return None
        most = max([most, *(far[b] for b in wanted)])
    return most


def infimum(machine: Machine, name: str, root: int, *, every: bool = False) -> float | None:
    """The least R/C of any schedule, whatever its steps and chunks; None for an allreduce, which is no flow.

    Per unit of data a load on each way that carries a flow of one to every destination; by Edmonds' theorem such loads
    are mixtures of trees. With `every`, ways through switches need not be the shortest.
    """
    import numpy as np
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    if name == "allreduce":
        return None
    if name in REVERSALS:
        return infimum(machine.reversed(), REVERSALS[name], root, every=every)
    arcs = [(a, b, way) for (a, b), ways in (machine.every_way if every else machine.ways).items() for way in ways]
    rows, columns, values = [], [], []
    equal_rows, equal_columns, equal_values, equal = [], [], [], []
    size, row = 1, len(machine.capacities)

    def enter(where: tuple[list, list, list], *entry: float) -> None:
        for part, value in zip(where, entry, strict=True):
            part.append(value)

    upper, even = (rows, columns, values), (equal_rows, equal_columns, equal_values)
    for k, units_ in enumerate(machine.capacities):
        enter(upper, k, 0, -units_)
    used = [machine.crossings(way) for _, _, way in arcs]
    for before, wanted in units(name, machine.ranks, root):
        source = min(before)
        if wanted <= before:
            continue
        load, size = size, size + len(arcs)
        for i, crossed in enumerate(used):
            for k, times in crossed.items():
                enter(upper, k, load + i, times)
        for target in wanted - before:
            flow, size = size, size + len(arcs)
            for i, (a, b, _) in enumerate(arcs):
                enter(upper, row, flow + i, 1)
                enter(upper, row, load + i, -1)
                row += 1
                enter(even, len(equal) + a, flow + i, -1)
                enter(even, len(equal) + b, flow + i, 1)
            equal += [1.0 if n == target else -1.0 if n == source else 0.0 for n in range(machine.ranks)]
    if size == 1:
        return 0.0
    found = linprog(
        np.eye(1, size)[0],
        A_ub=csr_array((values, (rows, columns)), shape=(row, size)),
        b_ub=np.zeros(row),
        A_eq=csr_array((equal_values, (equal_rows, equal_columns)), shape=(len(equal), size)),
        b_eq=equal,
        method="highs",
    )
    return float(found.fun) if found.status == 0 else math.inf


def fewest(machine: Machine, name: str, root: int, steps: int, chunks: int, work: int = 20_000) -> Fraction | None:
    """The least R/C of `steps` steps and `chunks` chunks, infinite where there is none; None where more than `work`
    steps would be tried.

    Every subset of what can arrive in a step, over every way: for what copies and what is the reversal of that.
    """
    if name == "allreduce":
        return None
    if name in REVERSALS:
        return fewest(machine.reversed(), REVERSALS[name], root, steps, chunks, work)
    task = [pair for pair in units(name, machine.ranks, root) for _ in range(chunks)]
    start = frozenset((c, r) for c, (before, _) in enumerate(task) for r in before)
    goal = frozenset((c, r) for c, (_, wanted) in enumerate(task) for r in wanted)
    reached: dict[frozenset, int] = {start: 0}
    for t in range(steps):
        last = t == steps - 1
        following: dict[frozenset, int] = {}
        for state, spent in reached.items():
            choices = [
                (item, ways)
                for item in ((c, r) for c in range(len(task)) for r in range(machine.ranks))
                if item not in state and (not last or item in goal)
                if (
                    ways := [
                        way
                        for a in range(machine.ranks)
                        if (item[0], a) in state
                        for way in machine.ways.get((a, item[1]), [])
                    ]
                )
            ]
            if last and any(item not in state and item not in dict(choices) for item in goal):
                continue
            work -= math.prod(len(ways) + (not last) for _, ways in choices)
            if work < 0:
                return None
            for chosen in _selections(choices, last):
                after = state | {item for item, _ in chosen}
                rounds = spent + machine.rounds(way for _, way in chosen)
                if rounds < following.get(after, rounds + 1):
                    following[after] = rounds
        reached = following
    least = min((rounds for state, rounds in reached.items() if goal <= state), default=None)
    return Fraction(0) if least is None else Fraction(least, chunks)


def _selections(
    choices: Sequence[tuple[tuple[int, int], list[Way]]], every: bool
) -> Iterator[list[tuple[tuple[int, int], Way]]]:
    """One way for each item, or, unless `every` item must come, none."""
    if not choices:
        yield []
        return
    (item, ways), rest = choices[0], choices[1:]
    for tail in _selections(rest, every):
        if not every:
            yield tail
        for way in ways:
            yield [(item, way), *tail]
