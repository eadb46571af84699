"""Isomorphic problems, equal up to the numbering of their ranks: an invariant that selects candidates, and an exact
map.

The invariant is colour refinement (Weisfeiler and Leman, 1968) over ranks, links, limits and units of data; the map is
the search of `synth.model.symmetry`, and is checked link by link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from synth.model import symmetry
from synth.model.canonical_json import canonical
from synth.model.collective import Collective
from synth.model.topology import Cap, Network

# Rounds of colour refinement. Three separate problems that differ within three links of a rank; the exact search
# decides the remaining cases.
ROUNDS = 3


class Relabelling(NamedTuple):
    """An isomorphism from a source problem to a target problem: the target's rank, route and unit of data (by index)
    for each rank, route and unit of the source."""

    ranks: tuple[int, ...]
    routes: tuple[int, ...]
    units: tuple[int, ...]


def relabelling(source: tuple[Network, Collective], target: tuple[Network, Collective]) -> Relabelling | None:
    """Return the least isomorphism from `source` to `target`, which keeps link capacities; None where none is found."""
    isomorphism = symmetry.renumbering(source, target)
    return None if isomorphism is None else Relabelling(isomorphism.ranks, isomorphism.routes, isomorphism.units)


def invariant(network: Network, collective: Collective, options: Mapping[str, str] | None = None) -> str:
    """Return a digest that is equal for isomorphic problems, and almost always different for other ones."""
    ranks = range(network.ranks)
    colours = [""] * network.ranks
    wants = [dict(row) for row in collective.wants or [()] * len(collective.pre)]
    caps: list[str] = []
    units: list[str] = []
    for _ in range(ROUNDS):
        caps = [_cap_colour(network, cap, colours) for cap in network.caps]
        rows = zip(collective.pre, collective.post, wants, strict=True)
        units = [_unit_colour(pre, post, want, colours) for pre, post, want in rows]
        # The new colour of a rank: its old one, and the multiset of its links and units of data with their colours.
        neighbours: list[list[str]] = [[] for _ in ranks]
        for i, route in enumerate(network.routes):
            link = _word(route.units, len(route.via), sorted(caps[k] for k in network.caps_of[i]))
            neighbours[route.src].append(f"out {link} {colours[route.dst]}")
            neighbours[route.dst].append(f"in {link} {colours[route.src]}")
        for word, pre, post in zip(units, collective.pre, collective.post, strict=True):
            for r in pre:
                neighbours[r].append(f"has {word}")
            for r in post:
                neighbours[r].append(f"wants {word}")
        colours = [_word(colours[r], *sorted(neighbours[r])) for r in ranks]
    kinds = [
        sorted(colours),
        sorted(caps),
        sorted(units),
        collective.combining,
        len(network.routes),
        sorted(map(list, (options or {}).items())),
    ]
    return hashlib.sha256(canonical(kinds)).hexdigest()


def _cap_colour(network: Network, cap: Cap, colours: list[str]) -> str:
    routes = [network.routes[i] for i in cap.routes]
    return _word(cap.units, *sorted(_word(r.units, colours[r.src], colours[r.dst]) for r in routes))


def _unit_colour(pre: Iterable[int], post: Iterable[int], wants: dict, colours: list[str]) -> str:
    contributions = sorted(_word(colours[r], _words(colours, ranks)) for r, ranks in wants.items())
    return _word(_words(colours, pre), _words(colours, post), contributions)


def _words(colours: list[str], ranks: Iterable[int]) -> list[str]:
    return sorted(colours[r] for r in ranks)


def _word(*parts: object) -> str:
    return hashlib.sha256(canonical(parts)).hexdigest()[:16]
