"""A refutation as a document: the problem that has no schedule, and a lower bound's certificate or one that names a proof file.

    {"schema": "synth.refutation/1", "topology", "collective" (one chunk per unit), "chunks", "steps", "rounds", "certificate"}

`synth solve --proof DIR` and `synth pareto --proof DIR` write one for each refutation; `synth verify` checks it: a bound by
`synth.bounds.check`; of a proof the formula is built again from the problem and the steps are checked by
`synth.bounds.lrat`. No solver is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from synth.bounds import check
from synth.collective import Collective
from synth.errors import VerificationError, malformed
from synth.schedule import Problem
from synth.topology import Network

SCHEMA = "synth.refutation/1"
FIELDS = {"schema", "topology", "collective", "chunks", "steps", "rounds", "certificate"}


def write(problem: Problem, certificate: dict, folder: Path) -> Path:
    """Write the document into `folder`, beside the proof file if it has one, and return where it is."""
    doc = {
        "schema": SCHEMA, "topology": problem.network.to_json(), "collective": problem.collective.to_json(1),
        "chunks": problem.chunks, "steps": problem.steps, "rounds": problem.rounds, "certificate": certificate,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{problem.fingerprint[:24]}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(doc) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def verify(doc: dict, folder: Path) -> list[str]:
    """Check the proof in `folder` that `doc` names; one line of what was established. Raises VerificationError."""
    from synth.encodings.proofs import check_proof

    if doc.keys() != FIELDS:
        raise VerificationError(f"fields {sorted(doc.keys() ^ FIELDS)} are missing or unknown", "$")
    try:
        task = Collective.from_json(doc["collective"], 1)
        problem = Problem(Network.from_json(doc["topology"]), task, doc["chunks"], doc["steps"], doc["rounds"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VerificationError(malformed(error), "$") from None
    asked = f"C={problem.chunks} S={problem.steps} R={problem.rounds}: no schedule"
    if not isinstance(doc["certificate"], dict):
        raise VerificationError("there is no certificate: nothing proves this", "$.certificate")
    kind = doc["certificate"].get("kind")
    if kind == "lrat":
        check_proof(doc["certificate"], problem, folder)
        return [f"{asked}, {doc['certificate']['lemmas']} proof steps checked"]
    if kind == "unreachable":
        check.check(doc["certificate"], doc["topology"], doc["collective"])
        unit, rank = doc["certificate"]["pair"]
        return [f"{asked}, unit {unit} cannot reach rank {rank}"]
    if kind == "distance":
        value = check.check(doc["certificate"], doc["topology"], doc["collective"])
        if value <= problem.steps:
            raise VerificationError(f"proves that {value} steps are needed, {problem.steps} are asked for", "$.certificate")
        return [f"{asked}, {value} steps are needed"]
    value = check.check(doc["certificate"], doc["topology"], doc["collective"], steps=problem.steps, chunks=problem.chunks)
    if value * problem.chunks <= problem.rounds:
        raise VerificationError(f"proves that {value * problem.chunks} rounds are needed, {problem.rounds} are asked for", "$.certificate")
    return [f"{asked}, {value * problem.chunks} rounds are needed"]
