"""The shape of a ``synth.large/1`` document: every field there, none beside them, each value of its kind.

What its numbers claim is checked elsewhere (`auditlarge`, and `linkread` for the links of the machine).
"""

from __future__ import annotations

from synth import strict
from synth.errors import VerificationError
from synth.large import COLLECTIVES, ROOTED, SCHEMA

LINKS = frozenset({"unit", "switches", "sorts", "links", "limits"})  # all of them or none
MOST_RANKS = 1 << 20


def check(doc: dict) -> None:
    """Raises VerificationError, with the place, where `doc` is no large frontier."""
    must = {"schema", "topology", "collective", "root", "bound", "least_steps", "points", "seconds", "notes"}
    strict.fields(doc, "$", must, {"open"})
    strict.one_of(doc["schema"], (SCHEMA,), "schema")
    machine = doc["topology"]
    beside = LINKS if isinstance(machine, dict) and LINKS & machine.keys() else frozenset()
    strict.fields(machine, "topology", {"name", "ranks", "unit_gbps"} | beside)
    strict.text(machine["name"], "topology.name")
    ranks = strict.number(machine["ranks"], "topology.ranks", 1, MOST_RANKS + 1)
    strict.fraction(machine["unit_gbps"], "topology.unit_gbps")
    if strict.one_of(doc["collective"], COLLECTIVES, "collective") in ROOTED:
        strict.number(doc["root"], "root", 0, ranks)
    elif doc["root"] is not None:
        raise VerificationError(f"{doc['collective']} has no root, found {doc['root']!r}"[:120], "root")
    bound = strict.fields(doc["bound"], "bound", {"value", "certificate"})
    strict.fraction(bound["value"], "bound.value")
    strict.number(doc["least_steps"], "least_steps", 0)
    for i, row in enumerate(strict.items(doc["points"], "points")):
        place = f"points[{i}]"
        strict.fields(row, place, {"steps", "rounds", "chunks", "bandwidth", "engine", "gap"}, {"file"})
        for key in ("steps", "rounds", "chunks"):
            strict.number(row[key], f"{place}.{key}", 1)
        for key in ("bandwidth", "gap"):
            strict.fraction(row[key], f"{place}.{key}")
        for key in {"engine", "file"} & row.keys():
            strict.text(row[key], f"{place}.{key}")
    strict.seconds(doc["seconds"], "seconds")
    for key in ("notes", "open"):
        for i, line in enumerate(strict.items(doc.get(key, []), key)):
            strict.text(line, f"{key}[{i}]")
