"""A refutation as a document: the problem that has no schedule, and a lower bound's certificate or one that names a
proof file.

    {"schema": "synth.refutation/1", "topology", "collective" (one chunk per unit), "chunks", "steps", "rounds",
    "certificate"}

`synth solve --proof DIR` and `synth pareto --proof DIR` write one for each refutation; `synth verify` checks it: a
bound by
`synth.checker.certificates.cuts`; of a proof the formula is built again from the problem and the steps are checked by
`synth.checker.certificates.lrat`. No solver is loaded.
"""

from __future__ import annotations

import json
from pathlib import Path

from synth.checker.documents import exact_frontier
from synth.checker.schedule import replay
from synth.errors import VerificationError, malformed
from synth.model.collective import Collective
from synth.model.documents import json_reader
from synth.model.rational import counted, show
from synth.model.schedule import Problem
from synth.model.topology import Network

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
    """Check the proof in `folder` that `doc` names: a line for what was established, and one for what is assumed.

    Raises VerificationError, and UncheckedError where the proof file is not there.
    """
    json_reader.fields(doc, "$", FIELDS)
    json_reader.one_of(doc["schema"], (SCHEMA,), "$.schema")
    asked = {key: json_reader.number(doc[key], f"$.{key}", 1) for key in ("chunks", "steps", "rounds")}
    replay.problem(doc["topology"], doc["collective"])
    if not isinstance(doc["certificate"], dict):
        raise VerificationError(exact_frontier.NO_CERTIFICATE, "$.certificate")
    try:
        proof = _proof(doc, folder, **asked)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise VerificationError(malformed(error), "$") from None
    return [
        f"C={asked['chunks']} S={asked['steps']} R={asked['rounds']}: no schedule, {proof}",
        exact_frontier.ASSUMED[SCHEMA],
    ]


def _proof(doc: dict, folder: Path, chunks: int, steps: int, rounds: int) -> str:
    """What the certificate says, which leaves no schedule of this size."""
    certificate, place = doc["certificate"], "$.certificate"
    kind = certificate.get("kind")
    if kind == "lrat":
        problem = Problem(
            Network.from_json(doc["topology"]), Collective.from_json(doc["collective"], 1), chunks, steps, rounds
        )
        return f"{counted(_checked_proof(certificate, problem, folder), 'proof step')} checked"
    if kind == "unreachable":
        exact_frontier.proved(doc, certificate, place)
        unit, rank = certificate["pair"]
        return f"unit {unit} cannot reach rank {rank}"
    if kind in exact_frontier.OF_STEPS:
        value = exact_frontier.proved(doc, certificate, place)
        if value <= steps:
            raise VerificationError(f"proves that {show(value)} steps are needed, {steps} are asked for", place)
        return f"{show(value)} steps are needed"
    value = exact_frontier.proved(doc, certificate, place, steps, chunks) * chunks
    if value <= rounds:
        raise VerificationError(f"proves that {show(value)} rounds are needed, {rounds} are asked for", place)
    return f"{show(value)} rounds are needed"


def _checked_proof(certificate: dict, problem: Problem, folder: Path) -> int:
    """How many steps of a proof file were checked."""
    from synth.encodings.lrat_proofs import check_proof

    try:
        return check_proof(certificate, problem, folder)
    except VerificationError as error:
        raise error.within("$") from None
