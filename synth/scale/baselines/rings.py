"""Edge-disjoint rings through all ranks, as many as CP-SAT finds: those that NCCL would run on the same links.

A ring is a directed Hamiltonian cycle over existing links (NCCL makes no ring through a rank that does not take part).
One ring of capacity c runs a broadcast at c units, an allgather at c N/(N-1), an allreduce at c N/(2(N-1)).

The model has one circuit constraint for each ring, all of one width, and the capacity of each link and limit over all
rings together. Of a machine of equal boxes one box is modelled: each ring passes once through it and goes on to the
next box, over links that every box has, so that it repeats in all boxes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from synth.model.link_table import ends, members, widths
from synth.model.topology import Network, Topology
from synth.solvers.cp_sat import new_program, solve_program
from synth.solvers.deadline import TimeUp, current_deadline

Ring = tuple[tuple[int, ...], int]  # ranks in order, units
Arc = tuple[int, int, bool, int]  # place, place, True if it leads to the next box, number among parallel links
Circuit = list[Arc]
Progress = Callable[[str], None]

# Rings of one search. NCCL has at most 32 channels. A model with more circuits takes CP-SAT more than a second.
MAXIMUM_RINGS = 16
# Ranks of one model, about: a search ends within seconds.
MAXIMUM_RANKS = 128
# Arcs of a model out of one place, those to the next places first: many ranks on one switch need no more.
MAXIMUM_ARCS = 24
# CP-SAT's deterministic seconds for the rings of a machine, and for one ring more beside others.
MODEL_SECONDS, EXTRA_SECONDS = 2.0, 0.1


@dataclass(frozen=True)
class Rings:
    """Rings that fit the links together.

    `rings`: directed Hamiltonian cycles ((rank, rank, ..), units). `maximum`: units that no rings exceed together, by
    the links that leave or enter the ranks `side`, or by CP-SAT's proof where `side` is empty. `complete`: False where
    a time limit ended the search.
    """

    rings: tuple[Ring, ...] = ()
    maximum: int | None = None
    side: tuple[int, ...] = ()
    complete: bool = True

    @property
    def units(self) -> int:
        """Units of all rings together."""
        return sum(units for _, units in self.rings)

    @property
    def proved_maximum(self) -> bool:
        """True where it is proved that no other rings carry more."""
        return self.units == self.maximum


@dataclass(frozen=True, eq=False)
class RingLinks:
    """Link i goes from rank `src[i]` to rank `dst[i]` with `units[i]`; the links `limits[k][0]` have `limits[k][1]`."""

    src: np.ndarray
    dst: np.ndarray
    units: np.ndarray
    limits: list[tuple[np.ndarray, int]]


def links_of(machine: Network | Topology) -> RingLinks:
    """Return the links, or routes through switches, of a machine as arrays, so that a million never become objects."""
    if isinstance(machine, Topology) and machine.switches:
        machine = machine.network()
    if isinstance(machine, Network):
        rows = np.array([(r.src, r.dst, r.units) for r in machine.routes], object).reshape(-1, 3)
        limits = [(np.array(cap.routes, np.int64), cap.units) for cap in machine.caps]
        return RingLinks(rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64), rows[:, 2], limits)
    unit = machine.unit_bandwidth()
    distinct, index = widths(machine.links)
    units = np.array([int(width / unit) for width in distinct], object)[index]
    sets = zip(members(machine.limits), machine.limits, strict=True)
    return RingLinks(*ends(machine.links), units, [(links, int(limit.bandwidth / unit)) for links, limit in sets])


def disjoint_rings(
    machine: Network | Topology, nodes: Sequence[int] = (), progress: Progress = lambda text: None
) -> Rings:
    """Return rings that fit the links of a machine together. The answer is the same on every computer.

    `nodes`: the box of each rank; () where a Topology says it or latencies do. The ambient time limit leaves the rings
    found by then.
    """
    boxes = _boxes(machine, nodes or (machine.nodes if isinstance(machine, Topology) else ()))
    links = links_of(machine)
    maximum, side = _cut_bound(links, machine.ranks, boxes[0])
    best = Rings((), maximum, side)
    models = [boxes] if len(boxes) > 1 else []
    if machine.ranks <= MAXIMUM_RANKS:
        models.append([list(range(machine.ranks))])
    for parts in models:
        if best.proved_maximum or len(parts[0]) > MAXIMUM_RANKS:
            continue
        try:
            best = _search(_BoxModel(links, parts), best, progress)
        except TimeUp:
            return replace(best, complete=False)
    return best


@lru_cache(maxsize=64)
def _kept(network: Network, nodes: tuple[int, ...]) -> tuple[Ring, ...]:
    return disjoint_rings(network, nodes).rings


def kept_rings(network: Network, nodes: Sequence[int] = ()) -> tuple[Ring, ...]:
    """Return the rings of `disjoint_rings`. They are kept for later calls, unless a time limit may end the search."""
    if current_deadline().limited:
        return disjoint_rings(network, nodes).rings
    return _kept(network, tuple(nodes))


def _boxes(machine: Network | Topology, nodes: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each box, ascending; all ranks as one box where boxes are of unequal sizes or not known.

    Without `nodes` the ranks of a box are those that routes of less than the greatest latency join.
    """
    box_of = list(nodes)
    if not box_of and isinstance(machine, Network):
        box_of = list(range(machine.ranks))
        for route in machine.routes:
            a, b = box_of[route.src], box_of[route.dst]
            if route.latency < machine.latency and a != b:
                for rank in [rank for rank, box in enumerate(box_of) if box == b]:
                    box_of[rank] = a
    boxes: defaultdict[int, list[int]] = defaultdict(list)
    for rank, box in enumerate(box_of):
        boxes[box].append(rank)
    sizes = {len(box) for box in boxes.values()}
    return list(boxes.values()) if len(sizes) == 1 and sizes != {1} else [list(range(machine.ranks))]


def _cut_bound(links: RingLinks, ranks: int, box: list[int]) -> tuple[int, tuple[int, ...]]:
    """Return the least units that leave or enter a rank of `box`, or the box, and these ranks."""
    limits = [(np.unique(numbers), capacity) for numbers, capacity in links.limits]
    best: tuple[int, tuple[int, ...]] | None = None
    for side in [*((rank,) for rank in box), tuple(box)]:
        inside = np.isin(np.arange(ranks), side)
        for start, end in ((links.src, links.dst), (links.dst, links.src)):
            units = np.where(inside[start] & ~inside[end], links.units, 0)
            if len(side) == ranks:
                continue
            total = units.sum()
            # a limit that is narrower than its links replaces them in the sum, each link counted once
            for numbers, capacity in limits:
                saving = units[numbers].sum() - capacity
                if saving > 0:
                    total -= saving
                    units[numbers] = 0
            if best is None or total < best[0]:
                best = int(total), side
    assert best is not None
    return best


class _BoxModel:
    """Arcs of one box: links within each box, and from each box to the next one, that all boxes have.

    `units[arc]`: its capacity. `complete`: the arcs are all links of the machine. `limits`: (arcs with the times that
    each counts, capacity).
    """

    def __init__(self, links: RingLinks, boxes: list[list[int]]) -> None:
        self.boxes = boxes
        count, ranks = len(boxes), sum(map(len, boxes))
        box_of, place = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
        for number, box in enumerate(boxes):
            box_of[box], place[box] = number, range(len(box))
        ahead = (box_of[links.dst] - box_of[links.src]) % count
        parallel: Counter[tuple[int, int]] = Counter()
        arc_of: dict[int, Arc] = {}
        capacities: defaultdict[Arc, list[int]] = defaultdict(list)
        between = place[links.src] != place[links.dst]
        for i in np.flatnonzero((ahead <= 1) & between & (links.units > 0)).tolist():
            src, dst = int(links.src[i]), int(links.dst[i])
            arc = (int(place[src]), int(place[dst]), bool(ahead[i]), parallel[src, dst])
            parallel[src, dst] += 1
            arc_of[i] = arc
            capacities[arc].append(int(links.units[i]))
        arcs = [arc for arc, units in capacities.items() if len(units) == count]
        crowded = max(Counter(arc[0] for arc in arcs).values(), default=0) > MAXIMUM_ARCS
        if crowded:
            arcs.sort(key=lambda arc: (arc[1] - arc[0]) % len(boxes[0]))
        self.units: dict[Arc, int] = {}
        leaving: Counter[int] = Counter()
        for arc in arcs:
            leaving[arc[0]] += 1
            if leaving[arc[0]] <= MAXIMUM_ARCS:
                self.units[arc] = min(capacities[arc])
        self.complete = count == 1 and not crowded
        limits: dict[tuple, int] = {}
        for numbers, capacity in links.limits:
            times = Counter(arc_of[i] for i in numbers.tolist() if i in arc_of)
            terms = tuple(sorted((arc, n) for arc, n in times.items() if arc in self.units))
            if sum(self.units[arc] * n for arc, n in terms) > capacity:
                limits[terms] = min(capacity, limits.get(terms, capacity))
        self.limits = list(limits.items())

    def rings(
        self, count: int, width: int, seconds: float, others: Sequence[Circuit] = ()
    ) -> tuple[list[Circuit], int]:
        """Return the most rings of `width` units found, at most `count`, beside `others`, and a bound on it."""
        places = range(len(self.boxes[0]))
        arcs = [arc for arc, units in self.units.items() if units >= width]
        sources = {arc[0] for arc in arcs}
        if len(sources) < len(places) or sources != {arc[1] for arc in arcs}:
            return [], 0
        # Rings are interchangeable: those of fewer number take the arcs of higher rank where all rings need one.
        common = [arc for arc in arcs if arc[2] or (len(self.boxes) == 1 and arc[0] == 0)]
        rank_of = {arc: number for number, arc in enumerate(common, 1)}
        model = new_program()
        used = [model.new_bool_var("") for _ in range(count)]
        taken: list[dict[Arc, Any]] = []
        # ring k is one circuit through all places, or each place is left out by a loop
        for k in range(count):
            arc_taken = {arc: model.new_bool_var("") for arc in arcs}
            circuit = [(arc[0], arc[1], arc_taken[arc]) for arc in arcs]
            model.add_circuit(circuit + [(v, v, ~used[k]) for v in places])
            if len(self.boxes) > 1:
                model.add(sum(arc_taken[arc] for arc in arcs if arc[2]) == used[k])
            if k:
                model.add_implication(used[k], used[k - 1])
                mine = sum(n * arc_taken[arc] for arc, n in rank_of.items())
                model.add(mine <= sum(n * taken[k - 1][arc] for arc, n in rank_of.items()))
            taken.append(arc_taken)
        # the rings together keep to each link and limit
        of_links = [(((arc, 1),), self.units[arc]) for arc in arcs]
        for terms, capacity in [*of_links, *self.limits]:
            left, loads = capacity // width, []
            for arc, times in terms:
                left -= times * sum(arc in other for other in others)
                loads += [times * arc_taken[arc] for arc_taken in taken if arc in arc_taken]
            model.add(sum(loads) <= left)
        model.maximize(sum(used))
        solver = solve_program(model, seconds, seed=0, linearization=0)
        if solver is None:
            return [], count
        found = []
        for k in range(count):
            if solver.value(used[k]):
                found.append([arc for arc in arcs if solver.value(taken[k][arc])])
        return found, int(solver.best_objective_bound + 0.001)

    def ranks(self, circuit: Circuit) -> tuple[int, ...]:
        """Return the ranks of the ring whose arcs in each box are those of `circuit`."""
        following = {arc[0]: arc[1] for arc in circuit}
        at = next((arc[1] for arc in circuit if arc[2]), 0)
        order = []
        for _ in following:
            order.append(at)
            at = following[at]
        return tuple(box[v] for box in self.boxes for v in order)


def _search(model: _BoxModel, best: Rings, progress: Progress) -> Rings:
    """Return the most units of rings of one width each; the widest rings that may meet the bound come first."""
    maximum = best.maximum or 0
    shapes = [(count, maximum // count) for count in range(1, min(maximum, MAXIMUM_RINGS) + 1)]
    for count, width in sorted(shapes, key=lambda shape: (-shape[0] * shape[1], shape[0])):
        if count * width <= best.units:
            break
        progress(f"rings: {count} of {width} units")
        current_deadline().check()
        limit = min(MODEL_SECONDS, current_deadline().remaining())
        found, bound = model.rings(count, width, limit)
        hard = len(found) < bound
        if hard:
            # The model is too hard, and so are those of a ring less: rings are added one by one.
            while len(found) < bound and (more := model.rings(1, width, EXTRA_SECONDS, found)[0]):
                found += more
        if len(found) * width > best.units:
            best = replace(best, rings=tuple((model.ranks(circuit), width) for circuit in found))
        # rings are sums of rings of one unit
        if width == 1 and count == maximum and model.complete and bound < maximum:
            best = Rings(best.rings, bound)
        if hard:
            break
    return best
