"""Documents of lower bounds in time by size: each certificate is checked, and proves the time that is stated.

{"schema": "synth.time-bounds/1", "topology" (links by column), "collective" (a name, or written out with one chunk
a unit), "root", "bounds": [{"size": bytes, "time_us": fraction, "certificate"}]}
"""

from __future__ import annotations

from synth.checker.certificates import time_bounds
from synth.checker.certificates.time_bounds import NAMED, ROOTED, CollectiveData
from synth.checker.documents import link_columns
from synth.checker.fields import need
from synth.errors import VerificationError
from synth.model.documents import json_reader
from synth.model.documents.json_reader import MACHINE
from synth.model.rational import show

SCHEMA = "synth.time-bounds/1"


def document(doc: dict) -> list[str]:
    """Check every bound of the document; return a line for each. Raises VerificationError, with the place."""
    json_reader.fields(doc, "$", {"schema", "topology", "collective", "root", "bounds"})
    machine = link_columns.read(doc["topology"])
    unit = show(machine.unit_bandwidth())
    need(doc["topology"].get("unit_gbps", unit) == unit, f"the machine has {unit!r}", "$.topology.unit_gbps")
    data = demand(doc, machine.ranks)
    name = data.name or doc["collective"]["name"]
    lines = []
    for i, row in enumerate(json_reader.items(doc["bounds"], "$.bounds")):
        place = f"$.bounds[{i}]"
        json_reader.fields(row, place, {"size", "time_us", "certificate"})
        size = json_reader.number(row["size"], f"{place}.size", 1)
        stated = json_reader.fraction(row["time_us"], f"{place}.time_us")
        need(stated > 0, f"{show(stated)} is no bound: it must be above 0", f"{place}.time_us")
        try:
            proved = time_bounds.check(row["certificate"], machine, data, size)
        except VerificationError as error:
            raise error.within(f"{place}.certificate") from None
        need(proved >= stated, f"the certificate proves {show(proved)} µs, {show(stated)} is claimed", place)
        lines.append(f"{name} of {size} bytes takes at least {float(stated):.6g} µs, certificate checked")
    need(lines, "is empty: the document claims nothing", "$.bounds")
    return [*lines, f"{MACHINE}, and switches that neither multicast nor reduce"]


def demand(doc: dict, ranks: int) -> CollectiveData:
    """Return the data of the document's collective. Raises VerificationError."""
    if isinstance(doc["collective"], dict):
        need(doc["root"] is None, "is null beside a collective that is written out", "$.root")
        return time_bounds.written_demand(doc["collective"], ranks, "$.collective")
    name = json_reader.one_of(doc["collective"], NAMED, "$.collective")
    if name in ROOTED:
        json_reader.number(doc["root"], "$.root", 0, ranks)
    else:
        need(doc["root"] is None, f"is null for {name}", "$.root")
    return time_bounds.named_demand(name, ranks, doc["root"])
