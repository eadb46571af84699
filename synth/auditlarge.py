"""Verification of large frontiers and bulk schedules: certificates re-checked, schedules replayed, gaps recomputed."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

from synth import bulk, lengthcheck, verifybulk
from synth.bounds import check_parts, check_scale
from synth.errors import FormatError, VerificationError
from synth.large import SCHEMA
from synth.rational import rational, show
from synth.topology import Topology


def bound(certificate: dict, topology: Topology) -> Fraction:
    """R / C, in units of the topology, below which the certificate proves no schedule. Raises VerificationError."""
    kind = certificate.get("kind")
    check = {"alltoall-lengths": lengthcheck.check, "allreduce-parts": check_parts.check}.get(str(kind), check_scale.check)
    return check(certificate, topology) * topology.unit_bandwidth()


def schedule(given: bulk.Bulk) -> str:
    """One line on a bulk schedule that is right. Raises VerificationError."""
    found = verifybulk.bulk(given)
    images = f", {found.group} images of each listed one" if found.group > 1 else ""
    return (
        f"{given.collective} on {given.topology.name}: S={found.steps}, R/C={show(found.bandwidth)}, {found.sends} sends{images}:"
        f" every rank ends with what it must; no link or limit is overfull"
    )


def document(doc: dict, folder: Path, topology: Topology | None) -> list[str]:
    """What is established about a large frontier, a line each; its files lie in `folder`. Raises VerificationError, FormatError.

    `topology`: the machine it speaks about, None where that must come from its schedules.
    """
    if doc["schema"] != SCHEMA:
        raise FormatError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
    files = {i: bulk.load(folder / Path(row["file"]).name) for i, row in enumerate(doc["points"]) if "file" in row}
    machine = topology or next((made.topology for made in files.values()), None)
    if machine is None:
        raise FormatError(f"names no schedule files and {doc['topology']['name']!r} is no machine known by name; write it with --schedules")
    stated = rational(doc["bound"]["value"])
    proved = bound(doc["bound"]["certificate"], machine)
    if proved < stated:
        raise VerificationError(f"the certificate proves {show(proved)}, {show(stated)} is claimed", "bound")
    if doc["bound"]["certificate"].get("collective", doc["collective"]) != doc["collective"]:
        raise VerificationError("the certificate is for another collective", "bound")
    gbps = machine.unit_bandwidth() / (proved * rational(_share(doc["collective"], machine.ranks)))
    lines = [f"no {doc['collective']} on {machine.name} takes fewer than {show(proved)} rounds per chunk: {float(gbps):.6g} GB/s at most"]
    before: Fraction | None = None
    for i, row in enumerate(doc["points"]):
        place, rate = f"points[{i}]", rational(row["bandwidth"])
        if rate < proved or (before is not None and rate >= before):
            raise VerificationError(f"R/C={show(rate)} lies below the bound or does not improve on the point before", place)
        if rational(row["gap"]) != rate / stated - 1:
            raise VerificationError(f"the gap is {show(rate / stated - 1)}, {row['gap']} is claimed", place)
        before = rate
        if i in files:
            made = files[i]
            same = (made.collective, made.root, made.steps, made.bandwidth, made.chunks)
            if same != (doc["collective"], doc["root"], row["steps"], rate, row["chunks"]):
                raise VerificationError("its file holds another schedule", place)
            if made.topology.links != machine.links or made.topology.limits != machine.limits:
                raise VerificationError("its file is for another machine", place)
            lines.append(schedule(made))
    return lines


def _share(collective: str, ranks: int) -> str:
    return f"1/{ranks}" if collective in ("allgather", "reduce-scatter", "alltoall") else "1"
