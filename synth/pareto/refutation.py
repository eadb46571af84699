"""A refutation as a document: the problem that has no schedule, and the certificate that names its proof file.

    {"schema": "synth.refutation/1", "topology", "collective" (one chunk per unit), "chunks", "steps", "rounds", "certificate"}

`synth solve --proof DIR` and `synth pareto --proof DIR` write one beside each proof; `synth verify` checks it: the formula
is built again from the problem, the proof is checked by `synth.bounds.lrat`, and no solver is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from synth.collective import Collective
from synth.errors import VerificationError
from synth.schedule import Problem
from synth.topology import Network

SCHEMA = "synth.refutation/1"
FIELDS = {"schema", "topology", "collective", "chunks", "steps", "rounds", "certificate"}


def write(problem: Problem, certificate: dict, folder: Path) -> Path:
    """Write the document beside its proof file and return where it is."""
    doc = {
        "schema": SCHEMA, "topology": problem.network.to_json(), "collective": problem.collective.to_json(1),
        "chunks": problem.chunks, "steps": problem.steps, "rounds": problem.rounds, "certificate": certificate,
    }  # fmt: skip
    path = folder / (certificate["file"].removesuffix(".lrat.xz") + ".json")
    part = path.with_suffix(".part")
    part.write_text(json.dumps(doc) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def check(doc: dict, folder: Path) -> list[str]:
    """Check the proof in `folder` that `doc` names; one line of what was established. Raises VerificationError."""
    from synth.encodings.proofs import check_proof

    if doc.keys() != FIELDS:
        raise VerificationError(f"fields {sorted(doc.keys() ^ FIELDS)} are missing or unknown", "$")
    try:
        task = Collective.from_json(doc["collective"], 1)
        problem = Problem(Network.from_json(doc["topology"]), task, doc["chunks"], doc["steps"], doc["rounds"])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VerificationError(f"malformed: {error!r}", "$") from None
    check_proof(doc["certificate"], problem, folder)
    return [f"C={problem.chunks} S={problem.steps} R={problem.rounds}: no schedule, {doc['certificate']['lemmas']} proof steps checked"]
