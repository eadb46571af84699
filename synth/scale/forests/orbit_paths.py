"""Paths from rank to rank on a fabric, grouped by the orbits of edges that they use: the choices of symmetric forests.

    PathEntry   kind paths last    an edge into a rank, and the paths to it from the ranks that share them

`kind` numbers the set of orbits that a path uses. A torus has an entry for each link into a rank. Behind a switch all
ranks share one entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from synth.scale.fabric.fabric import Fabric

# Limit on the edges that are followed backwards in search of paths: some seconds of work.
MOST_STEPS = 3_000_000
# Limit on the switches on a path.
MOST_SWITCHES = 7


class PathEntry(NamedTuple):
    """Paths of one kind: ``(*paths[x], last[y])`` leads from rank x to rank y.

    `paths[x]`: the edges from rank x to the last switch. `last[y]`: the edge from this switch into rank y.
    """

    kind: int
    paths: dict[int, tuple[int, ...]]
    last: dict[int, int]


@dataclass(frozen=True, eq=False)
class PathEntries:
    """All entries, and the orbits of edges that each kind uses.

    `into[y]` lists the entries that lead to rank y, `outof[x]` those with a path from rank x. `alike[c]` is True where
    paths of kind c join ranks of the same orbit.
    """

    entries: tuple[PathEntry, ...]
    into: tuple[tuple[int, ...], ...]
    outof: tuple[tuple[int, ...], ...]
    kinds: tuple[tuple[int, ...], ...]
    alike: tuple[bool, ...]


def path_entries(fabric: Fabric, orbit: np.ndarray, label: np.ndarray) -> PathEntries | None:
    """Return all paths through at most `MOST_SWITCHES` switches that reach each switch on a shortest path.

    `orbit[e]` names the orbit of edge e, `label[r]` that of rank r. Paths that use an orbit twice are left out. None
    where the paths are too many.
    """
    search = _Search(fabric, orbit.tolist())
    entries: list[PathEntry] = []
    kinds: dict[tuple[int, ...], int] = {}
    for node in range(fabric.ranks, fabric.nodes):
        targets: dict[int, dict[int, int]] = {}
        for e in fabric.leaving[node]:
            if search.dst[e] < fabric.ranks:
                targets.setdefault(search.orbit[e], {})[search.dst[e]] = e
        if not targets:
            continue
        paths_by_orbits = search.paths_to(node)
        if paths_by_orbits is None:
            return None
        for used, paths in paths_by_orbits.items():
            for o, last in targets.items():
                if o not in used:
                    kind = kinds.setdefault(tuple(sorted((*used, o))), len(kinds))
                    entries.append(PathEntry(kind, paths, last))
    ranks = fabric.ranks
    kind_of_orbit: dict[int, int] = {}  # kinds of the paths that are a single edge
    for e, (a, b, o) in enumerate(zip(search.src, search.dst, search.orbit, strict=True)):
        if a < ranks and b < ranks:
            if o not in kind_of_orbit:
                kind_of_orbit[o] = kinds.setdefault((o,), len(kinds))
            entries.append(PathEntry(kind_of_orbit[o], {a: ()}, {b: e}))
    into: list[list[int]] = [[] for _ in range(ranks)]
    outof: list[list[int]] = [[] for _ in range(ranks)]
    for i, entry in enumerate(entries):
        for y in entry.last:
            into[y].append(i)
        for x in entry.paths:
            outof[x].append(i)
    example = {entry.kind: entry for entry in entries}
    alike = []
    for c in range(len(kinds)):
        start, end = next(iter(example[c].paths)), next(iter(example[c].last))
        alike.append(bool(label[start] == label[end]))
    return PathEntries(tuple(entries), tuple(map(tuple, into)), tuple(map(tuple, outof)), tuple(kinds), tuple(alike))


class _Search:
    """Breadth-first search backwards from a switch; `steps` counts the edges followed for all switches."""

    def __init__(self, fabric: Fabric, orbit: list[int]) -> None:
        self.ranks, self.orbit, self.steps = fabric.ranks, orbit, 0
        self.src, self.dst = fabric.src.tolist(), fabric.dst.tolist()
        self.entering = fabric.entering

    def paths_to(self, node: int) -> dict[tuple[int, ...], dict[int, tuple[int, ...]]] | None:
        """Return for each tuple of orbits the paths to a switch that use them, by rank; None beyond `MOST_STEPS`."""
        paths: dict[tuple[int, ...], dict[int, tuple[int, ...]]] = {}
        depth = {node: 0}
        queue: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(node, (), ())]
        for at, path, used in queue:
            distance = depth[at]
            self.steps += len(self.entering[at])
            if self.steps > MOST_STEPS:
                return None
            for e in self.entering[at]:
                a, o = self.src[e], self.orbit[e]
                if o in used:
                    continue
                if a < self.ranks:
                    paths.setdefault((*used, o), {}).setdefault(a, (e, *path))
                elif distance + 1 < MOST_SWITCHES and depth.setdefault(a, distance + 1) == distance + 1:
                    queue.append((a, (e, *path), (*used, o)))
        return paths
