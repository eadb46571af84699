"""Declared symmetries, and the check of them: a declared generator is a claim.

`preserves` decides it in time linear in the links, so a wrong one is dropped, not believed.
`AutomorphismTest` does the same in arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.model.topology import Topology
from synth.topologies.builders import LARGE

if TYPE_CHECKING:
    import numpy as np

# Pairs of ranks for each link up to which they are looked up in a table.
DENSE = 4


def is_permutation(pi: Sequence[int], ranks: int) -> bool:
    """True if `pi` lists each of 0..ranks-1 once."""
    return len(pi) == ranks and set(pi) == set(range(ranks))


def preserves(topology: Topology, pi: Sequence[int]) -> bool:
    """True if the rank permutation `pi` maps links to links of equal bandwidth and limits to equal limits.

    Explicit switches follow their neighbours: any images that make the links agree will do. The answer may be False for
    an automorphism where switches look alike yet are connected differently. It is never True for another permutation.
    """
    if not is_permutation(pi, topology.ranks):
        return False
    image = [*pi, *_switch_images(topology, pi)] if topology.switches else pi
    links = {(k.src, k.dst): (i, k.bandwidth) for i, k in enumerate(topology.links)}
    moved = []
    for link in topology.links:
        target = links.get((image[link.src], image[link.dst]))
        if target is None or target[1] != link.bandwidth:
            return False
        moved.append(target[0])
    if not topology.limits:
        return True
    limits, images = [], []
    for limit in topology.limits:
        limits.append((limit.bandwidth, sorted(limit.links)))
        images.append((limit.bandwidth, sorted(moved[i] for i in limit.links)))
    return sorted(limits) == sorted(images)


def with_generators(topology: Topology, candidates: Iterable[Sequence[int]]) -> Topology:
    """`topology` with those of the candidates that are automorphisms of it declared; the identity and repeats are
    dropped."""
    identity = tuple(range(topology.ranks))
    distinct = {tuple(pi): None for pi in candidates}
    test = AutomorphismTest(topology) if len(topology.links) > LARGE and not topology.switches else None
    keeps = test.preserves if test is not None and test.plain else lambda pi: preserves(topology, pi)
    return replace(topology, generators=tuple(pi for pi in distinct if pi != identity and keeps(pi)))


class AutomorphismTest:
    """`preserves` for a topology of very many links and no switches: the same comparisons, in arrays made once.

    `plain`: no limit is empty or names a link twice; for others it is no judge.
    """

    def __init__(self, topology: Topology) -> None:
        import numpy as np

        from synth.model.link_table import ends, members, widths

        self.np, self.ranks = np, topology.ranks
        _, self.width = widths(topology.links)
        src, dst = ends(topology.links)
        self.src, self.dst = src, dst
        keys = src * self.ranks + dst
        if self.ranks**2 <= DENSE * len(keys):
            self.order = np.full(self.ranks**2, -1, np.int32)  # the link of each pair
            self.order[keys] = np.arange(len(keys), dtype=np.int32)
            self.single = bool((self.order[keys] == np.arange(len(keys))).all())
            self.keys = None
        else:
            self.order = np.argsort(keys, kind="stable")
            self.keys = keys[self.order]
            self.single = bool((np.diff(self.keys) > 0).all())
        number: dict[tuple[int, bytes], int] = {}  # limits alike in width and links, and how many there are of each
        held, times = [], []
        self.plain = True
        for width, links in zip(widths(topology.limits)[1].tolist(), members(topology.limits), strict=True):
            if not (links[1:] > links[:-1]).all():
                links = np.sort(links)
                self.plain &= bool((links[1:] > links[:-1]).all())
            self.plain &= len(links) > 0
            at = number.setdefault((width, links.tobytes()), len(number))
            if at == len(held):
                held.append(links)
                times.append(0)
            times[at] += 1
        self.like = np.array(
            [(width, count) for (width, _), count in zip(number, times, strict=True)], np.int64
        ).reshape(-1, 2)
        self.sizes = np.array([len(m) for m in held], np.int64)
        self.held = held
        self.sides = self._sides(held) if self.plain else []

    def _sides(self, held: list[np.ndarray]) -> list[np.ndarray]:
        """For each link the limits that hold it, one in each array, the last number where none does.

        Limits of what leaves one rank stand in one array, those of what enters one in another, so that moving the ranks
        moves limits within an array; others go where there is room for them.
        """
        np, count = self.np, len(self.src)
        found: list[np.ndarray] = []
        if not held:
            return found
        flat = np.concatenate(held)
        owner = np.repeat(np.arange(len(held), dtype=np.int32), self.sizes)
        starts = np.cumsum(self.sizes) - self.sizes
        left = np.ones(len(held), bool)
        for end in (self.src[flat], self.dst[flat]):
            alone = left & (np.minimum.reduceat(end, starts) == np.maximum.reduceat(end, starts))
            chosen = alone[owner]
            row = np.full(count, len(held), np.int32)
            row[flat[chosen]] = owner[chosen]
            if (row[flat[chosen]] == owner[chosen]).all():
                found.append(row)
                left &= ~alone
        for k in np.flatnonzero(left).tolist():
            row = next((row for row in found if (row[held[k]] == len(held)).all()), None)
            if row is None:
                row = np.full(count, len(held), np.int32)
                found.append(row)
            row[held[k]] = k
        return found

    def preserves(self, pi: Sequence[int]) -> bool:
        """As the function of that name; no where two links have the same ends, or where limits cannot be followed."""
        if not self.single or not is_permutation(pi, self.ranks):
            return False
        np, image = self.np, self.np.array(pi, self.np.int64)
        moved = image[self.src] * self.ranks + image[self.dst]
        if self.keys is not None:
            at = np.minimum(np.searchsorted(self.keys, moved), len(self.keys) - 1)
            if (self.keys[at] != moved).any():
                return False
            moved = at
        target = self.order[moved]
        if (target < 0).any() or (self.width[target] != self.width).any():
            return False
        return not len(self.sizes) or self._limits(target)

    def _limits(self, target: np.ndarray) -> bool:
        """True if each limit goes to an equal one (as many links, as wide, as often declared), no two to the same."""
        np, none = self.np, len(self.sizes)
        goes = np.full(none + 1, none, np.int32)
        image = [row[target] for row in self.sides]
        for row, now in zip(self.sides, image, strict=True):
            goes[row] = now
        goes[none] = none
        if all((goes[row] == now).all() for row, now in zip(self.sides, image, strict=True)):
            goes = goes[:none]
            alike = (
                bool((goes < none).all())
                and (self.sizes[goes] == self.sizes).all()
                and (self.like[goes] == self.like).all()
            )
            if alike and len(np.unique(goes)) == none:
                return True
        return self._sought(target)

    def _sought(self, target: np.ndarray) -> bool:
        """As `_limits`, where limits may move from one array to another: the image of each is sought in all of them."""
        none = len(self.sizes)
        goes: set[int] = set()
        for k, links in enumerate(self.held):
            images = [side[target[links]] for side in self.sides]
            fits = [int(row[0]) for row in images if row[0] < none and (row == row[0]).all()]
            fits = [at for at in fits if self.sizes[at] == self.sizes[k] and (self.like[at] == self.like[k]).all()]
            if not fits:
                return False
            goes.add(fits[0])
        return len(goes) == none


def _switch_images(topology: Topology, pi: Sequence[int]) -> list[int]:
    """Where each switch goes when the ranks move by `pi`: colour refinement of the graph and of its image side by
    side."""
    ranks, ends = topology.ranks, topology.ranks + len(topology.switches)
    near: list[list[tuple[bool, Fraction, int]]] = [[] for _ in range(ends)]
    for link in topology.links:
        near[link.src].append((True, link.bandwidth, link.dst))
        near[link.dst].append((False, link.bandwidth, link.src))
    before = [*pi, *[ranks] * len(topology.switches)]
    after = [*range(ranks), *[ranks] * len(topology.switches)]
    while True:
        known = len(set(after[ranks:]))
        while True:
            names: dict[tuple, int] = {}
            before, after = _refined(before, near, ranks, names), _refined(after, near, ranks, names)
            if len(set(after[ranks:])) == known:
                break
            known = len(set(after[ranks:]))
        if known == len(topology.switches):
            break
        colour = next(c for c in after[ranks:] if after[ranks:].count(c) > 1)
        if colour not in before[ranks:]:
            break
        # Tell apart one switch of the class on either side, and refine again.
        after[after.index(colour, ranks)] = before[before.index(colour, ranks)] = -1
    place = {colour: i for i, colour in enumerate(after) if i >= ranks}
    return [place.get(before[i], ends) for i in range(ranks, ends)]


def _refined(
    colours: list[int], near: list[list[tuple[bool, Fraction, int]]], ranks: int, names: dict[tuple, int]
) -> list[int]:
    fresh = colours[:ranks]
    for i in range(ranks, len(colours)):
        key = (colours[i], tuple(sorted((out, width, colours[end]) for out, width, end in near[i])))
        fresh.append(ranks + names.setdefault(key, len(names)))
    return fresh
