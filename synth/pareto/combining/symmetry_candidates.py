"""Symmetries to search a combining schedule with: translations of representatives, and a stabilizer of each.

Chunks are the images of representatives under the `translations` of a `SymmetryCandidate`. Each representative is
invariant under its `stabilizer_group` (generators of a group of `order` elements). There are `orbits` orbits of routes.

A search is easier with fewer orbits of routes, over which loads are averaged, and with fewer translations, each of
which makes a chunk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from synth.model.collective import Collective
from synth.model.symmetry import Generator, subgroups
from synth.model.symmetry.permutations import Permutation, compose, orbits
from synth.model.topology import Network
from synth.solvers.processes.deadline import check_deadline


@dataclass(frozen=True)
class SymmetryCandidateSettings:
    """Limits of the search for groups of symmetries.

    Attributes:
        largest: Maximum number of elements of a group of translations. Each of them makes a chunk.
        walk: Number of group elements by which subgroups are extended.
        extensions: Maximum number of extensions of a subgroup by an element.
        outer: Maximum number of groups of translations.
    """

    largest: int = 64
    walk: int = 96
    extensions: int = 1_000
    outer: int = 5


SETTINGS = SymmetryCandidateSettings()


@dataclass(frozen=True)
class SymmetryCandidate:
    """A pair of groups (see the module). `order` is the number of elements of the stabilizer group."""

    stabilizer_group: tuple[Generator, ...]
    translations: tuple[Generator, ...]
    orbits: int
    order: int = 1


@dataclass(frozen=True)
class _Subgroup:
    """A group by its generators and the rank permutations of its elements; `orbits` counts its orbits of routes."""

    generators: tuple[Generator, ...]
    members: frozenset[Permutation]
    orbits: int


def symmetry_candidates(network: Network, collective: Collective) -> tuple[SymmetryCandidate, ...]:
    """Return the symmetries to try, those with the fewest orbits and the smallest representatives first.

    The trivial one comes last. Under a time limit (`synth.solvers.processes.deadline`) it may raise TimeUp.
    """
    identity = Generator(tuple(range(network.ranks)), tuple(range(len(network.routes))), tuple(range(collective.units)))
    classes = _Classes(network, identity)
    check_deadline()
    known = subgroups(network, collective)
    full = known[0]
    outer: list[tuple[int, tuple[Generator, ...]]] = []
    for group in _outer(classes.extend(_walk(identity, full), known), classes):
        outer.append((group.orbits, elements(identity, group.generators)))
    candidates = [SymmetryCandidate((), group, count) for count, group in outer]
    if collective.units == 1:
        for count, group in outer:
            candidates += _with_inner(group, count, classes)
    return tuple(candidates)


class _Classes:
    """Subgroups of the automorphisms of a network, one of each class.

    Conjugate groups make equivalent formulas. Groups are taken for conjugate where they have as many orbits of routes
    and their elements move ranks equally far.
    """

    def __init__(self, network: Network, identity: Generator) -> None:
        self.distances, self.identity = network.distances, identity
        self._moves: dict[Permutation, int] = {}
        self._numbers: dict[frozenset[tuple[int | None, int]], int] = {}

    def moves(self, permutation: Permutation) -> int:
        """Return a number for the distances over which a permutation moves the ranks."""
        if permutation not in self._moves:
            counts = Counter(self.distances[rank][image] for rank, image in enumerate(permutation))
            self._moves[permutation] = self._numbers.setdefault(frozenset(counts.items()), len(self._numbers))
        return self._moves[permutation]

    def fixes(self, permutation: Permutation) -> bool:
        """Return True where a permutation leaves a rank in its place."""
        return any(a == b for a, b in enumerate(permutation))

    def extend(
        self,
        pool: Sequence[Generator],
        known: Iterable[Sequence[Generator]] = (),
        admits: Callable[[Permutation], bool] = lambda permutation: True,
    ) -> list[_Subgroup]:
        """Return subgroups of at most `SETTINGS.largest` elements, one of each class, the trivial one among them.

        Those that `known` generates come first. Then the subgroup with the fewest orbits of routes is extended by
        each element of `pool`, again and again (cyclic extension, Neubüser 1960). All elements but the identity are
        admitted ones.
        """
        groups: dict[tuple, _Subgroup] = {}
        seen: set[frozenset[Permutation]] = set()
        queue: list[tuple[int, int, int, _Subgroup]] = []

        def add(gens: tuple[Generator, ...]) -> None:
            members = _members(self.identity.ranks, [g.ranks for g in gens], admits)
            if members is None or members in seen:
                return
            seen.add(members)
            count = len(set(orbits(len(self.identity.routes), [g.routes for g in gens])))
            key = count, tuple(sorted(map(self.moves, members)))
            if key not in groups:
                groups[key] = _Subgroup(gens, members, count)
                heappush(queue, (count, len(members), len(groups), groups[key]))

        for gens in [(), *known]:
            add(tuple(gens))
        remaining = SETTINGS.extensions
        while queue and remaining > 0:
            group = heappop(queue)[-1]
            check_deadline()
            for g in pool:
                if g.ranks not in group.members:
                    add((*group.generators, g))
                    remaining -= 1
        return list(groups.values())


def _members(
    identity: Permutation, gens: Sequence[Permutation], admits: Callable[[Permutation], bool]
) -> frozenset[Permutation] | None:
    """Return the group that `gens` generates, or None where it is too large or has an element that is not admitted."""
    seen = {identity}
    queue = [identity]
    for element in queue:
        for g in gens:
            image = compose(element, g)
            if image not in seen:
                if len(seen) == SETTINGS.largest or not admits(image):
                    return None
                seen.add(image)
                queue.append(image)
    return frozenset(seen)


def _walk(identity: Generator, gens: Sequence[Generator]) -> list[Generator]:
    """Return up to `SETTINGS.walk` elements in breadth-first order from the identity, which is left out."""
    seen = {identity.ranks}
    queue = [identity]
    for element in queue:
        for g in gens:
            ranks = compose(element.ranks, g.ranks)
            if ranks not in seen and len(seen) <= SETTINGS.walk:
                seen.add(ranks)
                queue.append(product(element, g))
    return queue[1:]


def product(first: Generator, then: Generator) -> Generator:
    """Return the product of two elements: `first`, followed by `then`."""
    return Generator(
        compose(first.ranks, then.ranks), compose(first.routes, then.routes), compose(first.units, then.units)
    )


def elements(identity: Generator, gens: Iterable[Generator]) -> tuple[Generator, ...]:
    """Return the group generated by `gens`, the identity first."""
    seen = {identity.ranks}
    queue, gens = [identity], list(gens)
    for element in queue:
        for g in gens:
            ranks = compose(element.ranks, g.ranks)
            if ranks not in seen:
                seen.add(ranks)
                queue.append(product(element, g))
    return tuple(queue)


def _outer(groups: Iterable[_Subgroup], classes: _Classes) -> list[_Subgroup]:
    """Return the smallest group for up to `SETTINGS.outer` numbers of route orbits, the fewest first.

    Of several the one whose elements fix the fewest ranks is taken: more of its subgroups fix none. The trivial group
    is always the last one.
    """

    def size(group: _Subgroup) -> tuple[int, int]:
        return len(group.members), sum(map(classes.fixes, group.members))

    best: dict[int, _Subgroup] = {}
    for group in groups:
        if group.orbits not in best or size(group) < size(best[group.orbits]):
            best[group.orbits] = group
    ranked = [best[count] for count in sorted(best)]
    return [*ranked[: SETTINGS.outer - 1], ranked[-1]] if len(ranked) > SETTINGS.outer else ranked


def _with_inner(group: tuple[Generator, ...], count: int, classes: _Classes) -> list[SymmetryCandidate]:
    """Return candidates with translations in `group` and representatives invariant under a subgroup that fixes no rank.

    There is one for each class of subgroups, the first class of every order before any second one, and so on.
    """
    free = [g for g in group[1:] if not classes.fixes(g.ranks)]
    by_order: dict[int, list[_Subgroup]] = {}
    for k in sorted(classes.extend(free, admits=lambda p: not classes.fixes(p)), key=lambda k: k.orbits):
        if len(k.members) > 1:
            by_order.setdefault(len(k.members), []).append(k)
    ordered: list[_Subgroup] = []
    for place in range(max(map(len, by_order.values()), default=0)):
        for order in sorted(by_order, reverse=True):
            ordered += by_order[order][place : place + 1]
    candidates = []
    for k in ordered:
        stabilizer = elements(group[0], k.generators)
        translations = _cosets(group, stabilizer)
        candidates.append(SymmetryCandidate(stabilizer[1:], translations, count, len(stabilizer)))
    return candidates


def _cosets(group: tuple[Generator, ...], stabilizer: tuple[Generator, ...]) -> tuple[Generator, ...]:
    """Return one element of each coset of `stabilizer`: they carry a representative to distinct images."""
    seen: set[Permutation] = set()
    translations = []
    for g in group:
        if g.ranks not in seen:
            translations.append(g)
            seen |= {compose(k.ranks, g.ranks) for k in stabilizer}
    return tuple(translations)
