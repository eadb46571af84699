"""Search for maps between networks that preserve units, routes and caps: individualisation and refinement.

After McKay, "Practical graph isomorphism", Congressus Numerantium 30, 1981: one path of individualised vertices down to
a discrete colouring; then, from its end upwards, for each candidate that the group found so far does not reach, a
search for an automorphism that takes the path's vertex to it. Ranks that may be exchanged freely (the GPUs of a switch)
are numbered beforehand, so that their symmetric groups cost nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import gcd
from typing import NamedTuple

from synth.model.collective import Collective
from synth.model.permutations import Permutation, orbits, symmetric_group
from synth.model.symmetry.colour_refinement import EdgeBudget, Graph, Spent, graph, refine, split, twins
from synth.model.topology import Network

# About 0.2 s of CPU; networks of 8 ranks use a small part of it.
SEARCH_BUDGET = 600_000
# Completing the images of switches when those of the ranks are given.
EXTEND_BUDGET = 200_000


class Generator(NamedTuple):
    """An automorphism: where it sends each rank, route (by index) and unit of data (() without a collective)."""

    ranks: Permutation
    routes: Permutation
    units: Permutation


@dataclass(frozen=True)
class _Node:
    """A refined colouring on the path and the vertex to tell apart next (None: ranks and switches are all distinct)."""

    colours: list[int]
    trace: int
    target: int | None


def carry(
    a: Network, b: Network, ranks: Sequence[int], switches: dict[str, str], scales: tuple[int, int] = (1, 1)
) -> Permutation | None:
    """Return the index in `b` of the image of each route of `a`.

    None unless routes map to equal routes, switches that multicast onto such switches, and caps onto caps that hold the
    images of their routes and of their ports. Time linear in routes, ports and members of caps. Units are compared
    after division by `scales`. Routes alike in ends, way and units are interchangeable only if no cap tells them apart;
    they are paired in order. So are switches that multicast among the same ranks.
    """
    if len(a.routes) != len(b.routes) or len(a.caps) != len(b.caps) or sorted(ranks) != list(range(b.ranks)):
        return None
    switch_image = _multicast_image(a, b, ranks)
    if switch_image is None:
        return None

    # Routes of `b` alike in ends, switches and units, to be taken in order.
    places: dict[tuple, list[int]] = {}
    for i in range(len(b.routes) - 1, -1, -1):
        r = b.routes[i]
        places.setdefault((r.src, r.dst, r.via, r.units // scales[1]), []).append(i)

    # Each route of `a` takes the first one that is left; caps then say whether that was right.
    image = []
    for r in a.routes:
        via: tuple[str, ...] = ()
        if r.via:
            via = tuple([switches.get(s, s) for s in r.via])
        found = places.get((ranks[r.src], ranks[r.dst], via, r.units // scales[0]))
        if not found:
            return None
        image.append(found.pop())
    if a.caps:
        unmoved = range(len(b.routes)), range(b.ranks), range(len(b.multicast))
        if _caps(a, image, ranks, switch_image, scales[0]) != _caps(b, *unmoved, scales[1]):
            return None
    return tuple(image)


def _multicast_image(a: Network, b: Network, ranks: Sequence[int]) -> list[int] | None:
    """Return the place in `b.multicast` of the image of each switch of `a` that multicasts, None where it has none."""
    if len(a.multicast) != len(b.multicast):
        return None
    places: dict[tuple, list[int]] = {}
    for i in range(len(b.multicast) - 1, -1, -1):
        switch = b.multicast[i]
        places.setdefault((switch.own, frozenset(port.rank for port in switch.ports)), []).append(i)
    image = []
    for switch in a.multicast:
        found = places.get((switch.own, frozenset(ranks[port.rank] for port in switch.ports)))
        if not found:
            return None
        image.append(found.pop())
    return image


def _caps(
    network: Network, routes: Sequence[int], ranks: Sequence[int], switches: Sequence[int], scale: int
) -> Counter[tuple]:
    """Count the caps of `network` alike in units and in the images of their routes and of their ports' sides."""
    sides: dict[int, list[tuple[int, int, str]]] = {}
    for switch, place in zip(network.multicast, switches, strict=True):
        for port in switch.ports:
            for side, caps in (("up", port.up), ("down", port.down)):
                for k in caps:
                    sides.setdefault(k, []).append((place, ranks[port.rank], side))
    images: Counter[tuple] = Counter()
    for k, cap in enumerate(network.caps):
        members = tuple(sorted([routes[i] for i in cap.routes]))
        images[cap.units // scale, members, tuple(sorted(sides.get(k, ())))] += 1
    return images


class AutomorphismSearch:
    """Maps from `a` to `b` (by default to itself) that also preserve the collective, if one is given, or make it
    `onto`."""

    def __init__(
        self, a: Network, b: Network | None = None, collective: Collective | None = None, onto: Collective | None = None
    ) -> None:  # fmt: skip
        self.a, self.b, self.collective, self.onto = a, b or a, collective, onto
        names: dict[Hashable, int] = {}
        self.scales = (1, 1) if b is None else (_scale(a), _scale(b))
        self.graph_a = graph(a, collective, self.scales[0], names)
        self.graph_b = self.graph_a if b is None else graph(b, onto, self.scales[1], names)
        self.colours = len(names)

    def verified(self, ranks: Sequence[int], switches: dict[str, str]) -> Generator | None:
        """The generator for this map when it is one."""
        routes = carry(self.a, self.b, ranks, switches, self.scales)
        if routes is None:
            return None
        units = self.collective.unit_permutation(ranks, self.onto) if self.collective is not None else ()
        return None if units is None else Generator(tuple(ranks), routes, units)

    def extended(self, ranks: Sequence[int]) -> Generator | None:
        """The generator for a rank permutation, with images of switches that fit; None if it is no automorphism."""
        if sorted(ranks) != list(range(self.a.ranks)):
            return None
        if not self.graph_a.switches:
            return self.verified(ranks, {})
        start, end = list(self.graph_a.colours), list(self.graph_b.colours)
        for r, image in enumerate(ranks):
            start[r] = end[image] = self.colours + r
        try:
            return self._map(start, end, EdgeBudget(EXTEND_BUDGET))
        except Spent:
            return None

    def isomorphism(self, budget: EdgeBudget) -> Generator | None:
        """The lexicographically least map. Raises Spent when the budget runs out first."""
        if self.a.ranks != self.b.ranks or len(self.graph_a.near) != len(self.graph_b.near):
            return None
        sides = []
        for net, task, g in ((self.a, self.collective, self.graph_a), (self.b, self.onto, self.graph_b)):
            classes = [members for members, _ in AutomorphismSearch(net, collective=task).twins(budget)]
            sides.append(_numbered(list(g.colours), classes, self.colours))
        return self._map(sides[0], sides[1], budget)

    def automorphisms(self, known: Sequence[Generator], budget: EdgeBudget) -> list[Generator]:
        """Generators that together with `known` make the whole group, or, when the budget runs out, part of it."""
        g, found = self.graph_a, []
        try:
            classes = self.twins(budget)
            found += [made for _, generators in classes for made in generators]
            base = _numbered(list(g.colours), [members for members, _ in classes], self.colours)
            path = self._path(g, base, budget)
            for level in range(len(path) - 2, -1, -1):
                self._level(path, level, known, found, budget)
        except Spent:
            pass
        return found

    def twins(self, budget: EdgeBudget) -> list[tuple[list[int], list[Generator]]]:
        """Classes of ranks all of whose permutations are automorphisms, each with two generators of these."""
        colours, _ = refine(self.graph_a, self.graph_a.colours, budget)
        kept = []
        for members in twins(self.graph_a, colours, budget):
            budget.spend(2 * self.graph_a.size)
            made = [self.extended(pi) for pi in symmetric_group(members, self.a.ranks)]
            if all(made):
                kept.append((members, [m for m in made if m is not None]))
        return kept

    def _level(
        self, path: list[_Node], level: int, known: Sequence[Generator], found: list[Generator], budget: EdgeBudget
    ) -> None:
        node, ranks = path[level], self.a.ranks
        target = node.target
        if target is None or target >= ranks:
            return

        # Orbits under the permutations so far that fix the path above this level: one try for each orbit is enough.
        targets = [path[i].target for i in range(level)]
        fixed = [t for t in targets if t is not None and t < ranks]
        inside = []  # the known permutations that fix the ranks above this level
        for generator in (*known, *found):
            if all(generator.ranks[t] == t for t in fixed):
                inside.append(generator.ranks)
        group, failed = orbits(ranks, inside), set()
        for v in range(target + 1, ranks):
            if node.colours[v] != node.colours[target] or group[v] == group[target] or group[v] in failed:
                continue
            made = self._try(path, level, node.colours, v, budget)
            if made is None:
                failed.add(group[v])
                continue
            found.append(made)
            inside.append(made.ranks)
            old = group
            group = orbits(ranks, inside)
            failed = {group[v] for v in range(ranks) if old[v] in failed}

    def _path(self, g: Graph, colours: Sequence[int], budget: EdgeBudget) -> list[_Node]:
        refined, trace = refine(g, colours, budget)
        path = []
        while True:
            count = Counter(refined[: g.named])
            target = next((v for v in range(g.named) if count[refined[v]] > 1), None)
            path.append(_Node(refined, trace, target))
            if target is None:
                return path
            refined, trace = split(g, refined, target, budget)

    def _map(self, start: Sequence[int], end: Sequence[int], budget: EdgeBudget) -> Generator | None:
        path = self._path(self.graph_a, start, budget)
        colours, trace = refine(self.graph_b, end, budget)
        return self._down(path, 0, colours, budget) if trace == path[0].trace else None

    def _try(
        self, path: list[_Node], level: int, colours: list[int], vertex: int, budget: EdgeBudget
    ) -> Generator | None:
        refined, trace = split(self.graph_b, colours, vertex, budget)
        return self._down(path, level + 1, refined, budget) if trace == path[level + 1].trace else None

    def _down(self, path: list[_Node], level: int, colours: list[int], budget: EdgeBudget) -> Generator | None:
        # At the end all ranks and switches have colours of their own, and the map is read off.
        node, named = path[level], self.graph_a.named
        if node.target is None:
            budget.spend(self.graph_a.size)
            back = {c: v for v, c in enumerate(colours[:named])}
            image = [back.get(c, named) for c in node.colours[:named]]
            if named in image:
                return None
            ranks, a, b = self.a.ranks, self.graph_a.switches, self.graph_b.switches
            if max(image[:ranks]) >= ranks or min(image[ranks:], default=ranks) < ranks:
                return None
            return self.verified(image[:ranks], {s: b[image[ranks + i] - ranks] for i, s in enumerate(a)})

        # Else each vertex of the target's colour is tried as its image.
        wanted = node.colours[node.target]
        for v in range(named):
            if colours[v] == wanted:
                made = self._try(path, level, colours, v, budget)
                if made is not None:
                    return made
        return None


def _numbered(colours: list[int], classes: list[list[int]], base: int) -> list[int]:
    """`colours` with the members of each class numbered, in a way that depends on nothing but size and order."""
    for members in classes:
        for i, v in enumerate(members):
            colours[v] = base + (colours[v] * (len(colours) + 1) + len(members)) * (len(colours) + 1) + i
    return colours


def _scale(net: Network) -> int:
    return reduce(gcd, [item.units for item in (*net.routes, *net.caps)], 0) or 1
