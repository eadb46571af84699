"""A refutation as a document: the problem that has no schedule, and a lower bound's certificate or one that names a
proof file.

    {"schema": "synth.refutation/1", "topology", "collective" (one chunk per unit), "chunks", "steps", "rounds",
    "certificate"}

`synth solve --proof DIR` and `synth pareto --proof DIR` write one for each refutation; `synth verify` checks it: a
bound by `synth.checker.certificates.cuts`, a proof file by `synth.checker.certificates.proof_file`. No solver and no
encoder is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from synth.checker.certificates import proof_file
from synth.checker.certificates.step_formula import FormulaSize
from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.checker.send_rules import rules_stated
from synth.errors import VerificationError, malformed
from synth.model.documents import json_reader
from synth.model.rational import counted, show
from synth.model.schedule import Problem

SCHEMA = "synth.refutation/1"
FIELDS = {"schema", "topology", "collective", "chunks", "steps", "rounds", "certificate"}


def write(problem: Problem, certificate: dict, folder: Path) -> Path:
    """Write the refutation of `problem` as a document into `folder`, made if missing, and return its path."""
    doc = {
        "schema": SCHEMA, "topology": problem.network.document, "collective": problem.collective.document,
        "chunks": problem.chunks, "steps": problem.steps, "rounds": problem.rounds, "certificate": certificate,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{problem.fingerprint[:24]}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(doc) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def check(doc: dict, folder: Path) -> list[str]:
    """Check the certificate of `doc`, whose proof file, if any, lies in `folder`.

    Returns a line for the claim, one for rules for sends, if any, and one for what is assumed. Raises
    VerificationError, and UncheckedError where the proof file is not there.
    """
    json_reader.fields(doc, "$", FIELDS)
    json_reader.one_of(doc["schema"], (SCHEMA,), "$.schema")
    chunks, steps, rounds = [json_reader.number(doc[key], f"$.{key}", 1) for key in FormulaSize._fields]
    size = FormulaSize(chunks, steps, rounds)
    replay.problem(doc["topology"], doc["collective"])
    if not isinstance(doc["certificate"], dict):
        raise VerificationError(exact_frontier.NO_CERTIFICATE, "$.certificate")
    try:
        reason = _reason(doc, folder, size)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VerificationError(malformed(error), "$") from None
    claim = f"C={chunks} S={steps} R={rounds}: no schedule, {reason}"
    return [claim, *rules_stated(doc["topology"]), exact_frontier.assumed(doc)]


def _reason(doc: dict, folder: Path, size: FormulaSize) -> str:
    """Check that the certificate leaves no schedule of this size, and return why, in words."""
    certificate, place = doc["certificate"], "$.certificate"
    kind = certificate.get("kind")
    if kind == "lrat":
        try:
            lemmas = proof_file.check(certificate, doc["topology"], doc["collective"], size, folder)
        except VerificationError as error:
            raise error.within("$") from None
        return f"{counted(lemmas, 'proof step')} checked"
    if kind == "unreachable":
        exact_frontier.proved_bound(doc, certificate, place)
        unit, rank = certificate["pair"]
        return f"unit {unit} cannot reach rank {rank}"
    if kind in exact_frontier.OF_STEPS:
        value = exact_frontier.proved_bound(doc, certificate, place)
        if value <= size.steps:
            raise VerificationError(f"proves that {show(value)} steps are needed, {size.steps} are asked for", place)
        return f"{show(value)} steps are needed"
    value = exact_frontier.proved_bound(doc, certificate, place, size.steps, size.chunks) * size.chunks
    if value <= size.rounds:
        raise VerificationError(f"proves that {show(value)} rounds are needed, {size.rounds} are asked for", place)
    return f"{show(value)} rounds are needed"
