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
from typing import Any, NamedTuple

import numpy as np

from synth.model.topology import Network, Topology
from synth.solvers.cp_sat import new_program, solve_program
from synth.solvers.deadline import TimeUp, current_deadline

Ring = tuple[tuple[int, ...], int]  # ranks in order, units
Arc = tuple[int, int, bool]  # place, place, True if it leads to the next box
Progress = Callable[[str], None]

# Rings of one search. NCCL has at most 32 channels. A model with more circuits takes CP-SAT more than a second.
MAXIMUM_RINGS = 16
# Ranks of one model, about: a search ends within seconds.
MAXIMUM_RANKS = 128
# Arcs of a model out of one place, those to the next places first: many ranks on one switch need no more.
MAXIMUM_ARCS = 24
# CP-SAT's deterministic seconds for the rings of one width.
MODEL_SECONDS = 2.0


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


def disjoint_rings(
    machine: Network | Topology, nodes: Sequence[int] = (), progress: Progress = lambda text: None
) -> Rings:
    """Return rings that fit the links of a machine together. The answer is the same on every computer.

    `nodes`: the box of each rank; () where a Topology says it or latencies do. The ambient time limit leaves the rings
    found by then.
    """
    if isinstance(machine, Topology):
        machine, nodes = machine.network(), nodes or machine.nodes
    everyone = list(range(machine.ranks))
    boxes = _boxes(machine, nodes)
    best = Rings((), *_cut_bound(machine, boxes[0]))
    models = [boxes]
    if len(boxes) > 1:
        models.append([everyone])
    for parts in models:
        if not best.proved_maximum and len(parts[0]) <= MAXIMUM_RANKS:
            try:
                best = _search(_box_model(machine, parts), parts, best, progress)
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


def _boxes(network: Network, nodes: Sequence[int]) -> list[list[int]]:
    """Return the ranks of each box, ascending; all ranks as one box where boxes are of unequal sizes or not known."""
    box_of = list(nodes)
    if not box_of:  # ranks are of one box where routes of less than the greatest latency join them
        box_of = list(range(network.ranks))
        for route in network.routes:
            a, b = box_of[route.src], box_of[route.dst]
            if route.latency < network.latency and a != b:
                for rank in [rank for rank, box in enumerate(box_of) if box == b]:
                    box_of[rank] = a
    boxes: defaultdict[int, list[int]] = defaultdict(list)
    for rank, box in enumerate(box_of):
        boxes[box].append(rank)
    sizes = {len(box) for box in boxes.values()}
    return list(boxes.values()) if len(sizes) == 1 and sizes != {1} else [list(range(network.ranks))]


def _cut_bound(network: Network, box: list[int]) -> tuple[int, tuple[int, ...]]:
    """Return the least units that leave or enter a rank of `box`, or the box, and these ranks."""
    src, dst, width = np.array([(r.src, r.dst, r.units) for r in network.routes], np.int64).reshape(-1, 3).T
    sides: list[tuple[int, ...]] = [(rank,) for rank in box]
    if len(box) < network.ranks:
        sides.append(tuple(box))
    best: list[tuple[int, tuple[int, ...]]] = []
    for side in sides:
        inside = np.isin(np.arange(network.ranks), side)
        for crosses in (inside[src] & ~inside[dst], inside[dst] & ~inside[src]):
            # a limit that is narrower than its links replaces them in the sum, each link counted once
            units, total = np.where(crosses, width, 0), 0
            for cap in network.caps:
                members = list(set(cap.routes))
                if units[members].sum() > cap.units:
                    total += cap.units
                    units[members] = 0
            best.append((total + int(units.sum()), side))
    return min(best, key=lambda pair: pair[0])


class _BoxModel(NamedTuple):
    """Capacity of each arc of one box, and limits (arcs with the times that each counts, capacity). `whole`: the arcs
    are all links of the machine."""

    units: dict[Arc, int]
    limits: list[tuple[dict[Arc, int], int]]
    whole: bool


def _box_model(network: Network, boxes: list[list[int]]) -> _BoxModel:
    """Return the links within each box, and from each box to the next one, that all boxes have; parallel ones as
    one."""
    home = {rank: (number, place) for number, box in enumerate(boxes) for place, rank in enumerate(box)}
    arc_of: dict[tuple[int, int], Arc] = {}
    capacity: Counter[tuple[int, int]] = Counter()
    for route in network.routes:
        (here, first), (there, last) = home[route.src], home[route.dst]
        ahead = (there - here) % len(boxes)
        if ahead <= 1 and first != last and route.units:
            arc_of[route.src, route.dst] = first, last, bool(ahead)
            capacity[route.src, route.dst] += route.units

    # the least capacity in all boxes, of not too many arcs out of each place
    widths: defaultdict[Arc, list[int]] = defaultdict(list)
    for pair, arc in arc_of.items():
        widths[arc].append(capacity[pair])
    arcs = [arc for arc in widths if len(widths[arc]) == len(boxes)]
    leaving = Counter(arc[0] for arc in arcs)
    for arc in sorted(arcs, key=lambda arc: (arc[0] - arc[1]) % len(boxes[0])):
        if leaving[arc[0]] > MAXIMUM_ARCS:
            leaving[arc[0]] -= 1
            arcs.remove(arc)
    units = {arc: min(widths[arc]) for arc in arcs}

    # limits: a ring takes one of parallel links, and each link as often as it crosses the limit
    limits: dict[tuple, int] = {}
    for cap in network.caps:
        crossings: dict[tuple[int, int], int] = {}
        for i, times in Counter(cap.routes).items():
            pair = network.routes[i].src, network.routes[i].dst
            crossings[pair] = max(times, crossings.get(pair, 0))
        terms: Counter[Arc] = Counter()
        for pair, times in crossings.items():
            if arc_of.get(pair) in units:
                terms[arc_of[pair]] += times
        if sum(units[arc] * times for arc, times in terms.items()) > cap.units:
            key = tuple(sorted(terms.items()))
            limits[key] = min(cap.units, limits.get(key, cap.units))
    whole = len(boxes) == 1 and len(units) == len(widths)
    return _BoxModel(units, [(dict(terms), most) for terms, most in limits.items()], whole)


def _search(model: _BoxModel, boxes: list[list[int]], best: Rings, progress: Progress) -> Rings:
    """Return the most units of rings of one width each; the widest rings that may meet the bound come first."""
    maximum = best.maximum or 0
    shapes = [(count, maximum // count) for count in range(1, min(maximum, MAXIMUM_RINGS) + 1)]
    for count, width in sorted(shapes, key=lambda shape: (-shape[0] * shape[1], shape[0])):
        if count * width <= best.units:
            break
        progress(f"rings: {count} of {width} units")
        current_deadline().check()
        found, most = _circuits(model, len(boxes), len(boxes[0]), count, width)
        if len(found) * width > best.units:
            rings = []
            for circuit in found:
                rings.append((tuple(box[place] for box in boxes for place in circuit), width))
            best = replace(best, rings=tuple(rings))
        # rings are sums of rings of one unit
        if width == 1 and count == maximum and model.whole and most < maximum:
            best = Rings(best.rings, most)
        if len(found) < most:
            break  # the model is too hard, and so are those of a ring less
    return best


def _circuits(model: _BoxModel, boxes: int, size: int, count: int, width: int) -> tuple[list[list[int]], int]:
    """Return the places in order of the most rings of `width` units found, at most `count`, and a bound on it."""
    arcs = [arc for arc, units in model.units.items() if units >= width]
    starts, ends, _ = zip(*arcs, strict=True) if arcs else ((), (), ())
    if not len(set(starts)) == len(set(ends)) == size:
        return [], 0
    program = new_program()
    used = [program.new_bool_var("") for _ in range(count)]
    taken: list[dict[Arc, Any]] = []
    # each ring is one circuit through all places, with one arc to the next box, or each place is left out by a loop
    for k in range(count):
        taken.append({arc: program.new_bool_var("") for arc in arcs})
        circuit = [(arc[0], arc[1], taken[k][arc]) for arc in arcs]
        program.add_circuit(circuit + [(place, place, ~used[k]) for place in range(size)])
        if boxes > 1:
            program.add(sum(variable for arc, variable in taken[k].items() if arc[2]) == used[k])
    for k in range(1, count):
        program.add_implication(used[k], used[k - 1])
    # the rings together keep to each link and limit
    of_arcs = [({arc: 1}, model.units[arc]) for arc in arcs]
    for terms, capacity in [*of_arcs, *model.limits]:
        loads = []
        for ring in taken:
            loads += [times * ring[arc] for arc, times in terms.items() if arc in ring]
        program.add(sum(loads) <= capacity // width)
    program.maximize(sum(used))
    solver = solve_program(program, min(MODEL_SECONDS, current_deadline().remaining()), seed=0, linearization=0)
    if solver is None:
        return [], count
    circuits = []
    for k in range(count):
        if solver.value(used[k]):
            chosen = [arc for arc, variable in taken[k].items() if solver.value(variable)]
            following = {arc[0]: arc[1] for arc in chosen}
            places = [next((arc[1] for arc in chosen if arc[2]), 0)]
            while len(places) < size:
                places.append(following[places[-1]])
            circuits.append(places)
    return circuits, int(solver.best_objective_bound + 0.001)
