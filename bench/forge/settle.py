"""Settle a changed document, as an attacker would: digests, values and derived fields are computed anew, so that it
agrees with itself.

The checker's own functions tell what it will accept. Where it refuses, the document is left as it is: that is an answer
too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from math import ceil

from bench.forge.operators import certificates
from bench.forge.seeds import Case
from synth.checker.certificates import cuts, machine_columns, path_lengths
from synth.checker.documents import link_columns, scale_frontier
from synth.checker.schedule import replay as verify
from synth.errors import VerificationError
from synth.model.documents.canonical_json import canonical
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.sends.bitwise_equality import same_bits

OF_STEPS = ("distance", "too-few-steps")


def settle(case: Case) -> None:
    """Changes the case's document so that what it says of itself agrees, as far as that can be done."""
    with suppress(Exception):
        SETTLERS[case.schema](case.doc)


def _digests(doc: dict) -> None:
    topology, task = doc["topology"], doc["collective"]
    problem = {k: topology[k] for k in ("links", "limits")} | {k: task[k] for k in ("pre", "post", "combining")}
    found = hashlib.sha256(canonical(problem)).hexdigest()
    for certificate in certificates(doc):
        certificate["problem"] = found


def _value(doc: dict, certificate: dict, steps: int | None, chunks: int | None = None) -> Fraction:
    """Return the value that the certificate proves; a distance is corrected first."""
    for _ in range(2):
        try:
            return cuts.check(certificate, doc["topology"], doc["collective"], steps=steps, chunks=chunks)
        except VerificationError as error:
            match = re.search(r"says \S+, found (\d+)", str(error))
            if match is None:
                raise
            certificate["distance"] = int(match[1])
    raise ValueError


def _bound_rows(doc: dict) -> None:
    for row in doc.get("bounds", []):
        with suppress(Exception):
            kind = row["certificate"]["kind"]
            if kind == cuts.TIMED:
                row["steps"] = row["certificate"]["steps"]
            row["value"] = show(_value(doc, row["certificate"], None if kind in OF_STEPS else row["steps"]))


def _bounds(doc: dict) -> None:
    _digests(doc)
    _bound_rows(doc)


def _infeasible(doc: dict) -> None:
    if isinstance(doc["collective"], str):
        doc["certificate"]["topology"] = machine_columns.digest(link_columns.read(doc["topology"]))
    else:
        _digests(doc)
        _value(doc, doc["certificate"], None)


def _frontier(doc: dict) -> None:
    _digests(doc)
    best: list[tuple[int, Fraction]] = []
    for row in doc["points"]:
        with suppress(Exception):
            row["schedule"].pop("fingerprint", None)
            replay = verify.schedule(row["schedule"])
            row |= {"steps": replay.steps, "rounds": replay.rounds, "chunks": replay.chunks}
            row["bandwidth"] = show(replay.rounds_per_chunk)
            combining = row["schedule"]["collective"]["combining"]
            row["same_bits"] = not combining or bool(same_bits(Schedule.from_json(row["schedule"])))
            best.append((replay.steps, replay.rounds_per_chunk))
            _point_bound(doc, row, replay)
    _bound_rows(doc)
    for row in doc["open"]:
        with suppress(Exception):
            if row.get("certificate"):
                row["lower"] = show(_value(doc, row["certificate"], row["steps"]))
        reached = min((rate for steps, rate in best if steps <= row["steps"]), default=None)
        row["upper"] = None if reached is None else show(reached)


def _point_bound(doc: dict, row: dict, replay: verify.Replay) -> None:
    """The bound of a point: weaker where the certificate proves more than the schedule has."""
    bound, certificate = row["bound"], row["bound"]["certificate"]
    at = replay.chunks if bound["scope"] == "this-chunks" else None
    if certificate["kind"] == cuts.TIMED:
        certificate["steps"] = replay.steps
    value = _value(doc, certificate, replay.steps, at)
    if value > replay.rounds_per_chunk and "scale" in certificate:
        certificate["scale"] = ceil(certificate["scale"] * value / replay.rounds_per_chunk)
        value = _value(doc, certificate, replay.steps, at)
    bound["value"] = show(value)
    row["status"] = "optimal" if value == replay.rounds_per_chunk and at is None else "best-known"


def _large(doc: dict) -> None:
    topology, certificate = link_columns.read(doc["topology"]), doc["bound"]["certificate"]
    doc["topology"]["unit_gbps"] = show(topology.unit_bandwidth())
    alltoall = certificate["kind"] == "alltoall-lengths"
    certificate["topology"] = (path_lengths.alltoall_digest if alltoall else machine_columns.digest)(topology)
    proved = scale_frontier.bound(certificate, topology)
    doc["bound"]["value"] = show(proved)
    for row in doc["points"]:
        row["bandwidth"] = show(Fraction(row["rounds"], row["chunks"]))
        row["gap"] = show(Fraction(row["rounds"], row["chunks"]) / proved - 1)


SETTLERS: dict[str, Callable[[dict], object]] = {
    "frontier/1": _frontier,
    "bounds/1": _bounds,
    "infeasible/1": _infeasible,
    "large/1": _large,
    "schedule/1": lambda doc: doc.pop("fingerprint", None),
}
