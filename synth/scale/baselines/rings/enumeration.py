"""Rings out of a list of Hamiltonian cycles: all that there are where these are few, and the integer program that packs
them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.scale.baselines.rings.ring_network import Roads
from synth.scale.baselines.rings.rings import Rings
from synth.solvers.highs import integer

# Steps of the depth-first walks for cycles: all cycles of sparse boxes of 8 take a few hundred.
STEPS = 20_000
# More cycles than this make the integer program slow: boxes where all ranks are joined have very many.
COLUMNS = 600
# Cycles that are tried one after the other.
GREEDY = 60

Cycle = tuple[int, ...]


def cycles(wires: Roads) -> tuple[list[Cycle], bool]:
    """Cycles through all ranks, from rank 0, in the order in which a walk finds them; and whether these are all."""
    found: dict[Cycle, None] = {}
    whole = _walk(_peers(wires), found, STEPS, COLUMNS)
    return list(found), whole


def greedy(wires: Roads, cycles: Sequence[Cycle]) -> Rings:
    """One cycle after the other, as many units of each as there is room for."""
    units, room = wires.units.copy(), wires.room.copy()
    first, which = wires.limits
    rings: list[tuple[Cycle, int]] = []
    ways = []
    for ring in cycles[:GREEDY]:
        links = wires.find(np.array(ring), np.roll(ring, -1))
        limits, times = np.unique(
            np.concatenate([which[first[i] : first[i + 1]] for i in links.tolist()]), return_counts=True
        )
        most = int(min([units[links].min(), *(room[limits] // times)]))
        if most > 0:
            units[links] -= most
            room[limits] -= most * times
            rings.append((ring, most))
            ways.append(tuple(links.tolist()))
    return Rings(tuple(rings), False, tuple(ways))


def packed(wires: Roads, cycles: Sequence[Cycle]) -> Rings:
    """The most that the cycles, which are all there are, carry together: a small integer program."""
    if not cycles:
        return Rings((), True)

    # the widest of several links between two ranks stands for them
    link = {(int(wires.src[i]), int(wires.dst[i])): i for i in np.argsort(wires.units, kind="stable").tolist()}
    ways = [tuple(link[hop] for hop in zip(ring, (*ring[1:], ring[0]), strict=True)) for ring in cycles]
    takes = np.zeros((len(wires.src), len(cycles)))
    for c, way in enumerate(ways):
        np.add.at(takes[:, c], list(way), 1)
    rows = np.concatenate([takes, *(takes[m].sum(axis=0, keepdims=True) for m in wires.members)])
    room = np.concatenate([wires.units, wires.room])
    found = integer(-np.ones(len(cycles)), [(rows, -np.inf, room)], mip_rel_gap=0)
    times = np.rint(found.x).astype(int) if found.x is not None else np.zeros(len(cycles), int)
    chosen = [c for c, n in enumerate(times) if n]
    proved = found.status == 0 and not wires.parallel
    return Rings(tuple((cycles[c], int(times[c])) for c in chosen), proved, tuple(ways[c] for c in chosen))


def _peers(wires: Roads) -> list[list[int]]:
    peers: list[set[int]] = [set() for _ in range(wires.ranks)]
    for a, b, n in zip(wires.src.tolist(), wires.dst.tolist(), wires.units.tolist(), strict=True):
        if n:
            peers[a].add(b)
    return [sorted(row) for row in peers]


def _walk(peers: list[list[int]], found: dict[Cycle, None], steps: int, enough: int) -> bool:
    """Adds cycles through rank 0 to `found`, depth first in the order of `peers`; whether the walk came to its end."""
    path, seen, waiting = [0], {0}, [iter(peers[0])]
    while waiting:
        steps -= 1
        if steps < 0 or len(found) >= enough:
            return False
        step = next((b for b in waiting[-1] if b not in seen), None)
        if step is None:
            waiting.pop()
            seen.discard(path.pop())
            continue
        path.append(step)
        seen.add(step)
        if len(path) == len(peers):
            if 0 in peers[step]:
                found[tuple(path)] = None
            seen.discard(path.pop())
        else:
            waiting.append(iter(peers[step]))
    return True
