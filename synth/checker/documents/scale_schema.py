"""The shape of a ``synth.large/1`` document: every field there, none beside them, each value of its kind.

What its numbers claim is checked by `synth.checker.documents.scale_frontier`, the links of the machine by
`synth.checker.documents.link_columns`.
"""

from __future__ import annotations

from synth.errors import VerificationError
from synth.model.documents import json_reader
from synth.model.scale_collectives import COLLECTIVES, ROOTED

LINKS = frozenset({"connection", "switches", "sorts", "links", "limits"})  # all of them or none
MOST_RANKS = 1 << 20  # of a machine in a document: arrays of some numbers a rank stay small


def check(doc: dict) -> None:
    """Raise VerificationError, with the place, where `doc` has not the shape of a ``synth.large/1`` document."""
    must = {"schema", "topology", "collective", "root", "bound", "least_steps", "points", "seconds", "notes"}
    json_reader.fields(doc, "$", must, {"open"})
    json_reader.one_of(doc["schema"], ("synth.large/1",), "schema")

    # The machine, with all of its links or by name alone.
    machine = doc["topology"]
    beside = LINKS if isinstance(machine, dict) and LINKS & machine.keys() else frozenset()
    json_reader.fields(machine, "topology", {"name", "ranks", "unit_gbps"} | beside)
    json_reader.text(machine["name"], "topology.name")
    ranks = json_reader.number(machine["ranks"], "topology.ranks", 1, MOST_RANKS + 1)
    json_reader.fraction(machine["unit_gbps"], "topology.unit_gbps")
    if json_reader.one_of(doc["collective"], COLLECTIVES, "collective") in ROOTED:
        json_reader.number(doc["root"], "root", 0, ranks)
    elif doc["root"] is not None:
        raise VerificationError(f"{doc['collective']} has no root, found {doc['root']!r}"[:120], "root")

    # The bound and the points.
    bound = json_reader.fields(doc["bound"], "bound", {"value", "certificate"})
    json_reader.fraction(bound["value"], "bound.value")
    json_reader.number(doc["least_steps"], "least_steps", 0)
    for i, row in enumerate(json_reader.items(doc["points"], "points")):
        place = f"points[{i}]"
        json_reader.fields(row, place, {"steps", "rounds", "chunks", "bandwidth", "engine", "gap"}, {"file"})
        for key in ("steps", "rounds", "chunks"):
            json_reader.number(row[key], f"{place}.{key}", 1)
        for key in ("bandwidth", "gap"):
            json_reader.fraction(row[key], f"{place}.{key}")
        for key in {"engine", "file"} & row.keys():
            json_reader.text(row[key], f"{place}.{key}")
    json_reader.seconds(doc["seconds"], "seconds")
    for key in ("notes", "open"):
        for i, line in enumerate(json_reader.items(doc.get(key, []), key)):
            json_reader.text(line, f"{key}[{i}]")
