"""SCCL's topology JSON, as msccl-tools writes it: `links[dst][src]` is the bandwidth of a link, in chunks a round.

`switches` lists [sources, destinations, bandwidth, name]: what these send to those in a round, in all.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from synth.errors import FormatError
from synth.model.topology import Limit, Link, Topology
from synth.topologies.file_reader import Fields, parse_json

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

MOST_RANKS = 256
MOST_SWITCHES = 1 << 12
LATENCY = Fraction(1)


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a document of msccl-tools. Raises FormatError with the place of its fault."""
    fields = Fields(file)
    doc = parse_json(text, file)
    kind = doc.get("msccl_type", doc.get("sccl_type")) if isinstance(doc, dict) else None
    if kind != "topology":
        reads = "`synth import` reads it" if kind == "algorithm" else "a machine has 'topology'"
        raise FormatError(f"is a document of msccl-tools of type {str(kind)[:40]!r}: {reads}", file)
    rows = fields.sequence(doc.get("links"), "links", MOST_RANKS)
    ranks, gbps = len(rows), assumed.gbps_per_link or Fraction(1)
    if ranks < 2:
        fields.fail("lists fewer than two ranks", "links")
    links: list[Link] = []
    for dst, row in enumerate(rows):
        for src, cell in enumerate(fields.sequence(row, f"links[{dst}]", ranks, ranks)):
            units = fields.number(cell, f"links[{dst}][{src}]", zero=True)
            if units and src == dst:
                fields.fail("a link from a rank to itself", f"links[{dst}][{src}]")
            if units:
                links.append(Link(src, dst, units * gbps, LATENCY, "unknown"))
    limits = []
    for i, row in enumerate(fields.sequence(doc.get("switches") or [], "switches", MOST_SWITCHES)):
        place = f"switches[{i}]"
        sources, destinations, units, title = fields.sequence(row, place, 4, 4)
        ends = []
        for side, members in enumerate((sources, destinations)):
            ends.append(set())
            for j, rank in enumerate(fields.sequence(members, f"{place}[{side}]", ranks)):
                ends[side].add(fields.integer(rank, f"{place}[{side}][{j}]", 0, ranks - 1))
        members = tuple(k for k, link in enumerate(links) if link.src in ends[0] and link.dst in ends[1])
        if not members:
            fields.fail("no link leads through this switch", place)
        limits.append(Limit(fields.string(title, f"{place}[3]"), members, fields.number(units, f"{place}[2]") * gbps))
    title = fields.string(doc["name"], "name") if doc.get("name") is not None else name
    note = f"SCCL counts chunks a round and prints no bandwidth: a unit is {gbps} GB/s, latency 1 µs"
    return Topology(title, ranks, tuple(links), tuple(limits), (), (0,) * ranks, gbps, (), (), (note,), ())
