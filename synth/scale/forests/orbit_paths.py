"""Ways from rank to rank on a fabric, grouped by the orbits of edges they use: what symmetric forests choose from.

    Door   kind tails      one way into a rank from each of the ranks that share it: `kind` numbers the set of orbits
                           used

A torus has a door for each link into a rank; behind a switch all ranks share one door.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.scale.fabric.fabric import Fabric

MOST_WAYS = 3_000_000
MOST_SWITCHES = 7


class Door(NamedTuple):
    """`ways[x]`: the edges from rank x up to the last switch; `last`: the edge into each rank that the door leads
    to."""

    kind: int
    ways: dict[int, tuple[int, ...]]
    last: dict[int, int]


@dataclass(frozen=True, eq=False)
class Doors:
    """`doors`, those that lead into each rank, those that each rank leads into, and the orbits that each kind uses.

    `alike[c]`: whether ways of kind c lead from ranks to ranks of the same orbit.
    """

    doors: tuple[Door, ...]
    into: tuple[tuple[int, ...], ...]
    outof: tuple[tuple[int, ...], ...]
    kinds: tuple[tuple[int, ...], ...]
    alike: tuple[bool, ...]


def doors(fabric: Fabric, orbit: np.ndarray, label: np.ndarray) -> Doors | None:
    """All ways through at most `MOST_SWITCHES` switches, the shortest ones to each switch; None where there are too
    many.

    `orbit[e]` names the orbit of edge e, `label[r]` that of rank r. Ways that use an orbit twice are left out.
    """
    made = _Ways(fabric, orbit.tolist())
    found: list[Door] = []
    kinds: dict[tuple[int, ...], int] = {}
    for node in range(fabric.ranks, fabric.nodes):
        targets: dict[int, dict[int, int]] = {}
        for e in made.leaving[node]:
            if made.dst[e] < fabric.ranks:
                targets.setdefault(made.orbit[e], {})[made.dst[e]] = e
        if not targets:
            continue
        entries = made.entries(node)
        if entries is None:
            return None
        for used, ways in entries.items():
            for o, last in targets.items():
                if o not in used:
                    kind = kinds.setdefault(tuple(sorted((*used, o))), len(kinds))
                    found.append(Door(kind, ways, last))
    ranks = fabric.ranks
    straight: dict[int, int] = {}  # of each orbit its kind, where a way is one edge
    for e, (a, b, o) in enumerate(zip(made.src, made.dst, made.orbit, strict=True)):
        if a < ranks and b < ranks:
            if o not in straight:
                straight[o] = kinds.setdefault((o,), len(kinds))
            found.append(Door(straight[o], {a: ()}, {b: e}))
    into: list[list[int]] = [[] for _ in range(ranks)]
    outof: list[list[int]] = [[] for _ in range(ranks)]
    for i, door in enumerate(found):
        for y in door.last:
            into[y].append(i)
        for x in door.ways:
            outof[x].append(i)
    one = {door.kind: door for door in found}
    alike = tuple(bool(label[next(iter(one[c].ways))] == label[next(iter(one[c].last))]) for c in range(len(kinds)))
    return Doors(tuple(found), tuple(map(tuple, into)), tuple(map(tuple, outof)), tuple(kinds), alike)


class _Ways:
    def __init__(self, fabric: Fabric, orbit: list[int]) -> None:
        self.ranks, self.orbit, self.spent = fabric.ranks, orbit, 0
        self.src, self.dst = fabric.src.tolist(), fabric.dst.tolist()
        self.entering: list[list[int]] = [[] for _ in range(fabric.nodes)]
        self.leaving: list[list[int]] = [[] for _ in range(fabric.nodes)]
        for e, (a, b) in enumerate(zip(self.src, self.dst, strict=True)):
            self.leaving[a].append(e)
            self.entering[b].append(e)

    def entries(self, node: int) -> dict[tuple[int, ...], dict[int, tuple[int, ...]]] | None:
        """Ways from ranks to a switch, by the orbits used; None once `MOST_WAYS` have been seen."""
        found: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
        depth = {node: 0}
        queue: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(node, (), ())]
        for at, path, used in queue:
            far = depth[at]
            self.spent += len(self.entering[at])
            if self.spent > MOST_WAYS:
                return None
            for e in self.entering[at]:
                a, o = self.src[e], self.orbit[e]
                if o in used:
                    continue
                if a < self.ranks:
                    found.setdefault((*used, o), {}).setdefault(a, (e, *path))
                elif far + 1 < MOST_SWITCHES and depth.setdefault(a, far + 1) == far + 1:
                    queue.append((a, (e, *path), (*used, o)))
        return found
