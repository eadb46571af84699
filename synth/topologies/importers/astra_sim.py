"""astra-sim's analytical network YAML: dimensions that are each a Ring, FullyConnected or Switch."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from synth.errors import FormatError
from synth.model.topology import Limit, Link, Topology
from synth.topologies.file_reader import Fields, parse_yaml

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

KEYS = ("topology", "npus_count", "bandwidth", "latency")
MOST_RANKS, MOST_DIMENSIONS = 4096, 8


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a file: NPUs are numbered with the first dimension running fastest. Raises FormatError."""
    if text.lstrip().startswith("Nodes"):
        raise FormatError(
            "is astra-sim's tiers of switches, without NPUs; its analytical networks (topology, npus_count) are read",
            file,
            1,
        )
    fields = Fields(file)
    doc = fields.mapping(parse_yaml(text, file), None, KEYS, KEYS)
    shapes = fields.sequence(doc["topology"], "topology", MOST_DIMENSIONS)
    counts, speeds, lates = (fields.sequence(doc[key], key, MOST_DIMENSIONS, len(shapes)) for key in KEYS[1:])
    sizes = [fields.integer(n, f"npus_count[{i}]", 1, MOST_RANKS) for i, n in enumerate(counts)]
    ranks, links, limits, notes = prod(sizes), [], [], []
    if not 2 <= ranks <= MOST_RANKS:
        fields.fail(f"{ranks} NPUs in all; 2 to {MOST_RANKS} are supported", "npus_count")
    stride = 1
    for i, size in enumerate(sizes):
        gbps = fields.number(speeds[i], f"bandwidth[{i}]")
        late = fields.number(lates[i], f"latency[{i}]", zero=True) / 1000
        shape = fields.string(shapes[i], f"topology[{i}]").lower()
        if shape not in ("ring", "fullyconnected", "switch"):
            fields.fail(f"{shape[:40]!r} is none of Ring, FullyConnected and Switch", f"topology[{i}]")
        if shape == "switch":
            late *= 2
            notes.append(f"dimension {i}: the latency of a switch is counted twice, in and out, as astra-sim does")
        start = len(links)
        for r in range(ranks):
            at = r // stride % size
            if shape == "ring":
                ahead = sorted({(at + 1) % size, (at - 1) % size} - {at})
            else:
                ahead = [j for j in range(size) if j != at]
            links += [Link(r, r + (j - at) * stride, gbps, late) for j in ahead]
        if shape == "switch" and size > 2:
            for r in range(ranks):
                for way, end in (("out", "src"), ("in", "dst")):
                    members = tuple(k for k in range(start, len(links)) if getattr(links[k], end) == r)
                    limits.append(Limit(f"switch {i} port {r} {way}", members, gbps))
        stride *= size
    if assumed.gbps_per_link is not None or assumed.pcie_gbps is not None:
        raise FormatError("states its bandwidths; leave the assumed ones out", file)
    return Topology(name, ranks, tuple(links), tuple(limits), nodes=(0,) * ranks, notes=tuple(notes))
