"""Automorphisms of a network and a collective: generators, orbits, subgroups, and isomorphisms between networks.

Every permutation returned has been checked against routes, caps and the collective; that a set of generators makes the
*whole* group is promised only where the search ends within its budget, and nothing exact rests on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.model.collective import Collective
from synth.model.permutations import Permutation, closure, compose, inverse, orbits
from synth.model.symmetry.automorphisms import SEARCH_BUDGET, AutomorphismSearch, Generator
from synth.model.symmetry.colour_refinement import EdgeBudget, Spent
from synth.model.symmetry.subgroups import chain
from synth.model.topology import Network

__all__ = [
    "Generator",
    "closure",
    "compose",
    "generators",
    "inverse",
    "isomorphism",
    "orbits",
    "renumbering",
    "subgroups",
]

# Networks with more routes and members of caps than this are not searched: their declared generators must do.
SEARCHED_SIZE = 60_000
ISOMORPHISM_BUDGET = 6_000_000
# Groups are listed up to this many ranks times elements to find generators that are not needed.
REDUCED = 1 << 16


def generators(network: Network, collective: Collective | None = None) -> tuple[Generator, ...]:
    """Verified generators of the automorphism group of `network` that preserve `collective`: declared ones, and those a
    search finds.

    They make the whole group where the search (at most about 0.2 s) finishes; () where only the identity is left.
    """
    return _generators(AutomorphismSearch(network, collective=collective))


def _generators(search: AutomorphismSearch) -> tuple[Generator, ...]:
    """Return `generators` of the network and the collective of a search that has found none yet."""
    network = search.a
    # Declared symmetries are tried as any other, then the search looks for what they leave.
    identity = tuple(range(network.ranks))
    declared = {tuple(pi): None for pi in network.generators if tuple(pi) != identity}
    known = [made for made in map(search.extended, declared) if made is not None]
    if search.graph_a.size <= SEARCHED_SIZE:
        known += search.automorphisms(known, EdgeBudget(SEARCH_BUDGET))
    return _reduced(known)


def subgroups(network: Network, collective: Collective | None = None) -> tuple[tuple[Generator, ...], ...]:
    """At most eight subgroups to restrict schedules to, each by generators: the whole group first, () last."""
    search = AutomorphismSearch(network, collective=collective)
    return tuple(chain(_generators(search), network.distances, search.extended))


def isomorphism(a: Network, b: Network) -> Permutation | None:
    """The lexicographically least map of the ranks of `a` to those of `b` that preserves routes, caps and, up to one
    scale, units.

    None where there is none, or where the search exceeds its budget (a few seconds; not met in practice below 100
    ranks).
    """
    found = _least_map(a, b)
    return found.ranks if found else None


def renumbering(a: tuple[Network, Collective], b: tuple[Network, Collective]) -> Generator | None:
    """Where each rank, route and unit of data of `a` is in `b`: the least map that makes one problem the other, units
    as they are.

    None where there is none, or where the search exceeds its budget.
    """
    return _least_map(a[0], b[0], a[1], b[1])


def _least_map(a: Network, b: Network, *tasks: Collective) -> Generator | None:
    if a.ranks != b.ranks or len(a.routes) != len(b.routes) or len(a.caps) != len(b.caps):
        return None
    try:
        search = AutomorphismSearch(a, b, *tasks)
        alike = not tasks or search.scales[0] == search.scales[1]
        return search.isomorphism(EdgeBudget(ISOMORPHISM_BUDGET)) if alike else None
    except Spent:
        return None


def _reduced(found: Sequence[Generator]) -> tuple[Generator, ...]:
    """`found` without repeats and without those that the ones before already make, as far as small groups tell."""
    kept: list[Generator] = []
    group: set[Permutation] | None = set()
    for g in found:
        if any(g.ranks == k.ranks for k in kept) or (group is not None and g.ranks in group):
            continue
        kept.append(g)
        if group is not None:
            listed = closure([k.ranks for k in kept], REDUCED // len(g.ranks))
            group = None if listed is None else set(listed)
    return tuple(kept)
