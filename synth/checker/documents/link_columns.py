"""The links and limits of a machine in a JSON document, as columns: the document needs no machine known by name.

    unit      the declared GB/s of one unit, null to derive it
    switches  names; the ends of links from `ranks` on are switches, in this order
    sorts     [GB/s, µs, kind]: what links have in common
    links     {"src", "dst", "sort"}: one list each, link i from src[i] to dst[i] of sorts[sort[i]]
    limits    [name, GB/s, the numbers of its links]

A list of numbers holds numbers and stretches ``[first, difference, count]``: boxes and tori are regular, and their
lists short.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from synth.checker.documents.scale_schema import LINKS, MOST_RANKS
from synth.checker.fields import need
from synth.model.documents import json_reader
from synth.model.link_table import LinkTable, Sort
from synth.model.rational import printable
from synth.model.topology import KINDS, Limit, Topology

MAX_NUMBERS = 1 << 25  # in all lists of a document, unpacked


def read(doc: dict) -> Topology:
    """Return the machine that the `topology` of a document holds.

    Raises VerificationError, with the place, for one that makes no sense.
    """
    place = "topology"
    json_reader.fields(doc, place, LINKS | {"name", "ranks"}, {"unit_gbps"})
    json_reader.text(doc["name"], f"{place}.name")
    ranks = json_reader.number(doc["ranks"], f"{place}.ranks", 1, MOST_RANKS + 1)
    switches = []
    for i, name in enumerate(json_reader.items(doc["switches"], f"{place}.switches")):
        switches.append(printable(json_reader.text(name, f"{place}.switches[{i}]")))

    # what links have in common, then the links
    sorts = []
    for row, here in _rows_of_three(doc["sorts"], f"{place}.sorts"):
        need(row[2] in KINDS, f"{row[2]!r} is no kind of link", here)
        width, latency = json_reader.fraction(row[0], here), json_reader.fraction(row[1], here)
        sorts.append(Sort(width, latency, row[2]))
    links, room = json_reader.fields(doc["links"], f"{place}.links", {"src", "dst", "sort"}), [MAX_NUMBERS]
    columns = []
    nodes = ranks + len(switches)
    for key, most in (("src", nodes), ("dst", nodes), ("sort", len(sorts))):
        columns.append(_numbers(links[key], most, f"{place}.links.{key}", room))
    src, dst, sort = columns
    need(len(src) == len(dst) == len(sort), "src, dst and sort are of unlike length", f"{place}.links")
    need(not (src == dst).any(), "a link joins an end to itself", f"{place}.links")

    # a limit counts a link once
    limits = []
    for (name, width, held), here in _rows_of_three(doc["limits"], f"{place}.limits"):
        json_reader.text(name, here)
        numbers = _numbers(held, len(src), here, room)
        need(len(np.unique(numbers)) == len(numbers), "lists a link twice", here)
        limits.append(Limit(printable(name), numbers.tolist(), json_reader.fraction(width, here)))
    connection = doc["connection"]
    if connection is not None:
        connection = json_reader.fraction(connection, f"{place}.connection")
    need(connection != 0, "is no bandwidth", f"{place}.connection")
    table = LinkTable(src, dst, sort, sorts)
    return Topology(printable(doc["name"]), ranks, table, tuple(limits), tuple(switches), connection=connection)


def _rows_of_three(rows: Any, place: str) -> Iterator[tuple[list, str]]:
    """Yield the rows of a list, each of three values, with their places."""
    for i, row in enumerate(json_reader.items(rows, place)):
        here = f"{place}[{i}]"
        need(len(json_reader.items(row, here)) == 3, "expected three values", here)
        yield row, here


def _numbers(rows: Any, most: int, place: str, room: list[int]) -> np.ndarray:
    """Return the numbers of a packed list, each at least 0 and below `most`; room[0] counts those still allowed."""
    need(isinstance(rows, list), "expected a list", place)
    parts: list[np.ndarray] = []
    plain: list[int] = []
    for i, row in enumerate(rows):
        stretch: list[Any] = row if isinstance(row, list) and len(row) == 3 else [row, 0, 1]
        first, step, count = stretch
        good = type(first) is int and type(step) is int and type(count) is int and 0 < count <= room[0]
        need(
            good and 0 <= first < most and 0 <= first + step * (count - 1) < most,
            f"{row!r} names nothing here"[:80],
            f"{place}[{i}]",
        )
        room[0] -= count
        if count == 1:
            plain.append(first)
        else:
            parts += [np.array(plain, np.int64), first + step * np.arange(count)]
            plain = []
    return np.concatenate([np.zeros(0, np.int64), *parts, np.array(plain, np.int64)])
