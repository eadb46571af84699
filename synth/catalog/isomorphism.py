"""An invariant of problems that are equal up to the numbering of their ranks: it selects the entries that are tried.

It is colour refinement (Weisfeiler and Leman, 1968) of the graph of a network and a collective. The map from one
problem to another is that of `synth.model.symmetry.renumbering`, which checks it link by link.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from synth.model.collective import Collective
from synth.model.documents.canonical_json import canonical
from synth.model.symmetry.colour_refinement import graph
from synth.model.topology import Network

# Rounds of colour refinement. Three separate problems that differ within three links of a rank; the exact search
# decides the remaining cases.
ROUNDS = 3


def invariant(network: Network, collective: Collective, options: Mapping[str, str] | None = None) -> str:
    """Return a digest that is equal for isomorphic problems, and almost always different for other ones."""
    names: dict = {}
    vertices = graph(network, collective, 1, names)
    labels = {code: repr(label) for label, code in names.items()}
    colours = [labels[code] for code in vertices.colours]
    for _ in range(ROUNDS):
        refined = []
        for colour, near in zip(colours, vertices.near, strict=True):
            # an edge's code is twice that of its label, plus 1 at its end
            ends = sorted(f"{code % 2} {labels[code // 2]} {colours[vertex]}" for code, vertex in near)
            refined.append(_digest([colour, ends]))
        colours = refined
    widths = sorted(route.units for route in network.routes)
    return _digest([sorted(colours), widths, collective.combining, sorted(map(list, (options or {}).items()))])


def _digest(parts: list) -> str:
    return hashlib.sha256(canonical(parts)).hexdigest()
