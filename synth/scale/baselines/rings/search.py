"""What NCCL would run on the same links: rings.

A ring is a directed Hamiltonian cycle over links that are there (NCCL makes no ring through a rank that does not take
part). One ring of capacity c runs a broadcast at c units, an allgather at c N/(N-1), an allreduce at c N/(2(N-1)).

Where all cycles can be listed (`ringlist`), an integer program over them says what the rings carry together, and no
rings carry more. Elsewhere rings are searched for, in whole multiples of the width that fills the links best: in pairs,
one each way, where links are alike both ways (`ringpairs`); else on the machine folded by its symmetries first
(`ringsearch`,
`ringexact`). What leaves some set of ranks may then show that no more fit (`ringbound`), or on few ranks a constraint
program that finds no place for one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from synth.model.topology import Network, Topology
from synth.scale.baselines.rings import (
    bidirectional_pairs,
    check,
    cp_sat_circuits,
    cut_bound,
    enumeration,
    folded_network,
    permutation_layers,
    ring_network,
)
from synth.scale.baselines.rings.folded_network import Hops
from synth.scale.baselines.rings.ring_network import Roads
from synth.scale.baselines.rings.rings import Rings, merged
from synth.solvers.processes.deadline import TimeUp

# Ranks up to which the machine is searched unfolded, and up to which it may be proved that no more rings fit.
PLAIN, PROVED = 300, 16
# Rings side by side up to which a constraint program is asked, and its effort: a first look, and a proof.
CIRCUITS = 12
EFFORT = (0.3, 2.0)
# Links of all rings together up to which a proof is tried on more ranks too.
FEW_LINKS = 2_000
# Moves of a first and of a second search, and for each ring of a second one on few nodes, where a move takes little.
MOVES = (4_000, 60_000)
EACH, FEW_NODES, MOST_LONG = 16_000, 32, 20
# The machines (folded in different ways) that a second search is worth.
SECOND = 2
# Exchanges of a first and of a second search for rings in pairs.
PAIRED = (2_000, 8_000)
# Hops above which a second search is tried with few numbers of rings, once each.
MANY = 10_000
# Searches that are tried one after the other on few nodes, the quick ones as long as one ring in so many, or one in
# all, is missing.
SEEDS, NEAR = 3, 8
# Rings side by side in one search.
SIDE_BY_SIDE = 160

Tell = Callable[[str], None]
# What a longer search is ordered by: less what degrees allow, less what a quick one found, which it was; and machine,
# width, number.
Task = tuple[int, int, int, Hops, int, int]


def disjoint(machine: Network | Topology, tell: Tell = lambda text: None, wires: Roads | None = None) -> Rings:
    """The most that rings carry together, as far as it was found. A time limit (`synth.solvers.processes.deadline`)
    leaves what there is by then.

    `wires`: the machine's links, where they were read already. Raises VerificationError where rings found do not fit
    the machine.
    """
    wires = ring_network.of(machine) if wires is None else wires
    if wires.ranks < 2 or not wires.units.any():
        return Rings((), True)
    most = cut_bound.bound(wires)
    best = Rings((), most.units == 0, bound=most)
    if most.units:
        try:
            for found in _ways(wires, most.units, tell):
                if found.units > best.units or (found.most and not best.most):
                    best = replace(found, bound=most, most=found.most or found.units == most.units)
                if best.most:
                    break
        except TimeUp:
            best = replace(best, whole=False)
    check.check(machine, best.rings, best.ways)
    return best


def _ways(wires: Roads, most: int, tell: Tell) -> Iterator[Rings]:
    best = Rings((), False)
    if wires.ranks <= PLAIN:
        listed, every = enumeration.cycles(wires)
        if every:
            yield enumeration.packed(wires, sorted(listed))
            if not wires.parallel:  # else only one of several links between two ranks was reckoned with
                return
        best = enumeration.greedy(wires, listed)
        yield best
    tasks: list[Task] = []
    stages = [
        lambda: _paired(wires, most, best.units, PAIRED[0], tell),
        lambda: _searched(wires, most, best.units, tasks, tell),
        lambda: _thorough(wires, best.units, tasks, tell),
        lambda: _paired(wires, most, best.units, PAIRED[1], tell),
    ]
    if wires.generators:  # folded, the machine is quickly searched
        stages[:2] = reversed(stages[:2])
    for stage in stages:
        for found in stage():
            if found.units > best.units:
                best = found
                yield best
    yield from _proved(wires, best, tell)


def _paired(wires: Roads, most: int, known: int, steps: int, tell: Tell) -> Iterator[Rings]:
    """Rings of more than `known` units, in pairs, one each way, where links are alike both ways."""
    for width, ways in bidirectional_pairs.search(wires, _widths(most), known, most, steps):
        tell(f"rings: {len(ways)} of {width} units in pairs")
        yield merged([(order, links, width) for order, links in ways])


def _searched(wires: Roads, most: int, best: int, tasks: list[Task], tell: Tell) -> Iterator[Rings]:
    """Rings of more than `best` units, each time more of them, by quick searches; `tasks` is filled with what is worth
    another one."""
    widths = _widths(most)
    for hops in _machines(wires):
        tell(f"rings: on {hops.nodes} nodes, each {hops.order} ranks")
        fits: dict[int, int] = {}
        for w in widths:
            fits[w] = permutation_layers.fitting(hops, most // w, w)
            if fits[w] * w == most:
                break
        width = max(fits, key=lambda w: (fits[w] * w, w))
        if fits[width] * width <= best:
            continue
        layers, moves = [], max(MOVES[0], 20 * hops.nodes * fits[width])
        for seed in range(SEEDS if hops.nodes <= FEW_NODES else 1):
            layers = max(layers, permutation_layers.rings(hops, fits[width], width, moves, seed), key=len)
            if not 1 <= fits[width] - len(layers) <= max(1, fits[width] // NEAR):
                break
        tasks.append((-width * fits[width], -width * len(layers), len(tasks), hops, width, fits[width]))
        if len(layers) < fits[width] <= CIRCUITS and hops.nodes <= PROVED:
            layers = cp_sat_circuits.fit(hops, fits[width], width, EFFORT[0]) or layers
        if len(layers) * width > best:
            best = len(layers) * width
            yield _rings(wires, hops, width, layers)


def _thorough(wires: Roads, best: int, tasks: list[Task], tell: Tell) -> Iterator[Rings]:
    """Rings of more than `best` units, each time more of them, by longer searches."""
    for *_, hops, width, count in sorted(tasks, key=lambda task: task[:3])[:SECOND]:
        less = 0
        while (wanted := count - less) * width > best and less < (
            4 if len(hops.src) > MANY else count
        ):  # many that are short of room are hard to find, a few less may be easy
            tell(f"rings: {wanted} of {width} units on {hops.nodes} nodes, each {hops.order} ranks")
            long = not less and hops.nodes <= FEW_NODES and count <= MOST_LONG
            moves = max(MOVES[1], EACH * count) if long else MOVES[1]
            layers = []
            for seed in range(1, 2 if len(hops.src) >= MANY else SEEDS + 1 if long else 3):
                layers = max(layers, permutation_layers.rings(hops, wanted, width, moves, seed), key=len)
                if len(layers) == wanted:
                    break
            if len(layers) * width > best:
                best = len(layers) * width
                yield _rings(wires, hops, width, layers)
            less = max(1, 2 * less)


def _proved(wires: Roads, found: Rings, tell: Tell) -> Iterator[Rings]:
    """One unit more, as long as it fits: on few ranks or links that is decided."""
    hops = folded_network.plain(wires) if wires.ranks <= PLAIN else None
    while (
        hops is not None
        and found.units < CIRCUITS
        and (wires.ranks <= PROVED or len(hops.src) * (found.units + 1) <= FEW_LINKS)
    ):
        tell(f"rings: whether {found.units + 1} units fit")
        layers = cp_sat_circuits.fit(hops, found.units + 1, 1, EFFORT[1])
        if layers is None:
            return
        if not layers and len(hops.src) < np.count_nonzero(wires.units):
            return  # some of several links between two ranks were left out
        found = replace(found, most=True) if not layers else _rings(wires, hops, 1, layers)
        yield found
        if not layers:
            return


def _machines(wires: Roads) -> Iterator[Hops]:
    yield from folded_network.folded(wires)
    if wires.ranks <= PLAIN:
        made = folded_network.plain(wires)
        if made is not None:
            yield made


def _widths(most: int) -> list[int]:
    """Widths of rings to try: parts of what rings carry at most, whole ones first, the widest of each first."""
    parts = sorted(
        {most // n for n in (*range(1, 9), 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 160) if n <= most}, reverse=True
    )
    if most <= SIDE_BY_SIDE:
        parts = sorted({*parts, 1}, reverse=True)
    return [w for w in parts if most % w == 0] + [w for w in parts if most % w]


def _rings(wires: Roads, hops: Hops, width: int, layers: list[list[int]]) -> Rings:
    """The rings that closed walks of hops stand for."""
    made = []
    for layer in layers:
        order = hops.unfold(layer)
        links = np.array([hops.link[h] for h in layer]) if hops.order == 1 else wires.find(order, np.roll(order, -1))
        made.append((order, links, width))
    return merged(made)


def widest(machine: Network | Topology, known: Rings, wires: Roads | None = None) -> int:
    """Units of the widest single ring found, at least that of the rings that are `known`; 0 where none was found."""
    wires = ring_network.of(machine) if wires is None else wires
    least = max((units for _, units in known.rings), default=0)
    most = 0 if known.bound is None else known.bound.units
    every = {*np.unique(wires.units).tolist(), *wires.room.tolist(), most}
    widths = sorted(w for w in every if least < w <= most and wires.connected(w))
    while widths:
        at = len(widths) // 2
        if any(permutation_layers.rings(hops, 1, widths[at], MOVES[0]) for hops in _machines(wires)):
            least, widths = widths[at], widths[at + 1 :]
        else:
            widths = widths[:at]
    return least
