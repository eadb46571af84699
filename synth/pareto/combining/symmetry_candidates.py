"""Groups of symmetries to search a combining schedule with: chunks are the images of representatives under a group.

A search is easier with fewer orbits of routes, over which loads are averaged, and with fewer elements, each of which
makes a chunk.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush

from synth.model.collective import Collective
from synth.model.permutations import Permutation, compose, orbits
from synth.model.symmetry import Generator, subgroups
from synth.model.topology import Network
from synth.solvers.deadline import check_deadline

# Elements of a group, at most: each makes a chunk.
LARGEST = 64
# Elements by which groups are extended.
WALK = 96
# Extensions of a group by an element, at most.
EXTENSIONS = 1_000
# Groups that are tried, at most.
GROUPS = 5

Group = tuple[Generator, ...]  # all elements, the identity first


def symmetry_candidates(network: Network, collective: Collective) -> list[Group]:
    """Return the groups to try, those with the fewest orbits of routes first, the trivial one last.

    Groups are grown from the trivial one and from known subgroups, those with the fewest orbits first, by one more
    element each (cyclic extension, Neubüser 1960). Conjugate groups make equivalent formulas; they are taken for such
    where they have as many orbits and their elements move ranks equally far. Under a time limit
    (`synth.solvers.deadline`) it may raise TimeUp.
    """
    identity = Generator(tuple(range(network.ranks)), tuple(range(len(network.routes))), tuple(range(collective.units)))
    check_deadline()
    known = subgroups(network, collective)
    walk = elements(identity, known[0], WALK) or ()
    distances: dict[Permutation, tuple] = {}

    def moves(permutation: Permutation) -> tuple:
        """Return how far a permutation moves the ranks."""
        if permutation not in distances:
            far = Counter(network.distances[rank][image] for rank, image in enumerate(permutation))
            distances[permutation] = tuple(sorted((d is None, d or 0, n) for d, n in far.items()))
        return distances[permutation]

    seen: set[frozenset[Permutation]] = set()
    classes: set[tuple] = set()
    queue: list[tuple[int, int, int, tuple[Generator, ...], Group]] = []
    best: dict[int, tuple[tuple[int, int], Group]] = {}

    def add(generators: tuple[Generator, ...]) -> None:
        """Enter a group where it is the first of its class: as a candidate, and to be extended."""
        group = elements(identity, generators)
        members = frozenset(g.ranks for g in group or ())
        if group is None or members in seen:
            return
        seen.add(members)
        count = len(set(orbits(len(network.routes), [g.routes for g in generators])))
        key = count, tuple(sorted(map(moves, members)))
        if key in classes:
            return
        classes.add(key)
        heappush(queue, (count, len(members), len(classes), generators, group))

        # of several with as many orbits the smallest is tried, and of those the one that leaves fewest ranks in place
        fixed = 0
        for permutation in members:
            fixed += any(a == b for a, b in enumerate(permutation))
        if count not in best or (len(members), fixed) < best[count][0]:
            best[count] = (len(members), fixed), group

    for generators in [(), *known]:
        add(tuple(generators))
    remaining = EXTENSIONS
    while queue and remaining > 0:
        *_, generators, group = heappop(queue)
        check_deadline()
        members = {g.ranks for g in group}
        for g in walk:
            if g.ranks not in members:
                add((*generators, g))
                remaining -= 1
    ranked = [best[count][1] for count in sorted(best)]
    return [*ranked[: GROUPS - 1], ranked[-1]] if len(ranked) > GROUPS else ranked


def elements(identity: Generator, generators: tuple[Generator, ...], walk: int | None = None) -> Group | None:
    """Return the group that `generators` generate, the identity first; None for more than `LARGEST` elements.

    With `walk` only so many elements besides the identity, in breadth-first order.
    """
    seen = {identity.ranks}
    group = [identity]
    for element in group:
        for g in generators:
            ranks = compose(element.ranks, g.ranks)
            if ranks in seen:
                continue
            if walk is None and len(seen) == LARGEST:
                return None
            if walk is not None and len(seen) > walk:
                return tuple(group)
            seen.add(ranks)
            group.append(Generator(ranks, compose(element.routes, g.routes), compose(element.units, g.units)))
    return tuple(group)
