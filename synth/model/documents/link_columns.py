"""Writes the links and limits of a machine into a JSON document, as columns: `synth.checker.documents.link_columns`,
which reads them, says what they hold."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from synth.model.link_table import LinkTable, members
from synth.model.rational import show
from synth.model.topology import Topology

STRETCH = 4  # numbers in a row from which a stretch is shorter than themselves


def packed(values: Sequence[int] | np.ndarray) -> list:
    """Return `values` in short form: numbers, and ``[first, difference, count]`` for arithmetic progressions."""
    array = np.asarray(values, np.int64)
    steps = np.diff(array)
    turns = (np.flatnonzero(np.diff(steps)) + 1).tolist()  # where the difference to the next is another than before
    numbers, found, i = array.tolist(), [], 0
    while i < len(numbers):
        at = bisect_left(turns, i + 1)
        end = (turns[at] if at < len(turns) else len(numbers) - 1) + 1
        if end - i >= STRETCH:
            found.append([numbers[i], numbers[i + 1] - numbers[i], end - i])
            i = end
        else:
            found.append(numbers[i])
            i += 1
    return found


def columns(topology: Topology) -> dict:
    """Return the `topology` object of a document, which `synth.checker.documents.link_columns` reads."""
    table = topology.links if isinstance(topology.links, LinkTable) else LinkTable.of(topology.links)
    return {
        "connection": None if topology.connection is None else show(topology.connection),
        "switches": list(topology.switches),
        "sorts": [[show(s.bandwidth), show(s.latency), s.kind] for s in table.sorts],
        "links": {"src": packed(table.src), "dst": packed(table.dst), "sort": packed(table.sort)},
        "limits": [
            [m.name, show(m.bandwidth), packed(held)]
            for m, held in zip(topology.limits, members(topology.limits), strict=True)
        ],
    }
