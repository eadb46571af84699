"""Problems that are equal up to the numbering of their ranks: an invariant that selects candidates, and the exact map
between two.

The invariant is colour refinement (Weisfeiler and Leman, 1968) over ranks, links, limits and units of data; the map is
the search of `synth.model.symmetry`, and is checked link by link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from synth.catalog.entry import Options
from synth.model import symmetry
from synth.model.collective import Collective
from synth.model.schedule import canonical
from synth.model.topology import Network

# Rounds of refinement: enough to tell apart what differs within three links of a rank; the search decides on the rest.
ROUNDS = 3


class Relabelling(NamedTuple):
    """Where each rank, route (by index) and unit of data of the problem that is kept is in the problem that is
    asked."""

    ranks: tuple[int, ...]
    routes: tuple[int, ...]
    units: tuple[int, ...]


def relabelling(kept: tuple[Network, Collective], asked: tuple[Network, Collective]) -> Relabelling | None:
    """The least map that makes the first problem the second, with links as wide; None where none is found."""
    found = symmetry.renumbering(kept, asked)
    return None if found is None else Relabelling(found.ranks, found.routes, found.units)


def invariant(network: Network, collective: Collective, options: Options = ()) -> str:
    """The same text for problems that are equal up to numbering, and almost always another for those that are not."""
    ranks = range(network.ranks)
    colours = [""] * network.ranks
    wanted = [dict(row) for row in collective.wants] if collective.wants is not None else [{} for _ in collective.pre]
    for _ in range(ROUNDS):
        caps = [
            _word(
                cap.units,
                *sorted(
                    _word(r.units, colours[r.src], colours[r.dst]) for r in (network.routes[i] for i in cap.routes)
                ),
            )
            for cap in network.caps
        ]
        units = [
            _word(
                _words(colours, pre),
                _words(colours, post),
                sorted(_word(colours[r], _words(colours, own)) for r, own in want.items()),
            )
            for pre, post, want in zip(collective.pre, collective.post, wanted, strict=True)
        ]
        seen: list[list[str]] = [[colours[r]] for r in ranks]
        for i, route in enumerate(network.routes):
            what = _word(route.units, len(route.via), sorted(caps[k] for k in network.caps_of[i]))
            seen[route.src].append(f"out {what} {colours[route.dst]}")
            seen[route.dst].append(f"in {what} {colours[route.src]}")
        for word, pre, post in zip(units, collective.pre, collective.post, strict=True):
            for r in pre:
                seen[r].append(f"has {word}")
            for r in post:
                seen[r].append(f"wants {word}")
        colours = [_word(own[0], *sorted(own[1:])) for own in seen]
    kinds = [
        sorted(colours),
        sorted(caps),
        sorted(units),
        collective.combining,
        len(network.routes),
        sorted(map(list, options)),
    ]
    return hashlib.sha256(canonical(kinds)).hexdigest()


def _words(colours: list[str], ranks: Iterable[int]) -> list[str]:
    return sorted(colours[r] for r in ranks)


def _word(*parts: object) -> str:
    return hashlib.sha256(canonical(parts)).hexdigest()[:16]
