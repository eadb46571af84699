"""Rings from an enumeration of Hamiltonian cycles, which is complete where there are few, and their integer program."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from synth.scale.baselines.rings.ring_network import RingNetwork
from synth.scale.baselines.rings.rings import Rings
from synth.solvers.highs import integer

# Steps of the depth-first enumeration. Enumerating all cycles of sparse boxes of 8 ranks takes a few hundred.
MAXIMUM_STEPS = 20_000
# Cycles that are enumerated. More columns make the integer program slow, and fully joined boxes have very many cycles.
MAXIMUM_CYCLES = 600

Cycle = tuple[int, ...]


def cycles(network: RingNetwork) -> tuple[list[Cycle], bool]:
    """Return Hamiltonian cycles from rank 0, in the order of a depth-first search, and True if these are all."""
    found: dict[Cycle, None] = {}
    complete = _enumerate(_neighbors(network), found, MAXIMUM_STEPS, MAXIMUM_CYCLES)
    return list(found), complete


def packed(network: RingNetwork, cycles: Sequence[Cycle]) -> Rings:
    """Pack all Hamiltonian cycles of the network by an integer program, for the most units in all."""
    if not cycles:
        return Rings((), True)

    # the widest of several links between two ranks stands for all of them
    widest = {(int(network.src[i]), int(network.dst[i])): i for i in np.argsort(network.units, kind="stable").tolist()}
    ring_links = []
    for cycle in cycles:
        pairs = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        ring_links.append(tuple(widest[pair] for pair in pairs))
    loads = np.zeros((len(network.src), len(cycles)))
    for c, links in enumerate(ring_links):
        np.add.at(loads[:, c], list(links), 1)
    rows = np.concatenate([loads, *(loads[links].sum(axis=0, keepdims=True) for links in network.members)])
    capacity = np.concatenate([network.units, network.capacity])
    solution = integer(-np.ones(len(cycles)), [(rows, -np.inf, capacity)], mip_rel_gap=0)
    units = np.zeros(len(cycles), int) if solution.x is None else np.rint(solution.x).astype(int)
    used = np.flatnonzero(units).tolist()
    proved = solution.status == 0 and not network.parallel
    rings = tuple((cycles[c], int(units[c])) for c in used)
    return Rings(rings, proved, tuple(ring_links[c] for c in used))


def _neighbors(network: RingNetwork) -> list[list[int]]:
    """The ranks that each rank has a link to, in ascending order."""
    neighbors: list[set[int]] = [set() for _ in range(network.ranks)]
    for a, b, units in zip(network.src.tolist(), network.dst.tolist(), network.units.tolist(), strict=True):
        if units:
            neighbors[a].add(b)
    return [sorted(row) for row in neighbors]


def _enumerate(neighbors: list[list[int]], found: dict[Cycle, None], steps: int, enough: int) -> bool:
    """Add Hamiltonian cycles through rank 0 to `found`, depth first in the order of `neighbors`.

    Stops after `steps` steps or with `enough` cycles; True if the enumeration came to its end before.
    """
    path, visited, stack = [0], {0}, [iter(neighbors[0])]
    while stack:
        steps -= 1
        if steps < 0 or len(found) >= enough:
            return False
        following = next((b for b in stack[-1] if b not in visited), None)
        if following is None:
            stack.pop()
            visited.discard(path.pop())
            continue
        path.append(following)
        visited.add(following)
        if len(path) == len(neighbors):
            if 0 in neighbors[following]:
                found[tuple(path)] = None
            visited.discard(path.pop())
        else:
            stack.append(iter(neighbors[following]))
    return True
