"""Proofs that no schedule of (C, S, R) exists: an LRAT file that refutes the checker's own formula.

The formula is that of `synth.checker.certificates.step_formula`, which `synth verify` writes again from the problem
alone: no encoder's formula is refuted in its place, and none is trusted.
"""

from __future__ import annotations

import hashlib
import lzma
from pathlib import Path

from synth.checker.certificates import lrat, step_formula
from synth.checker.certificates.step_formula import FormulaSize, dimacs_hash
from synth.errors import SynthError
from synth.model.schedule import Problem


def formula(problem: Problem) -> tuple[int, list[list[int]]]:
    """Return the number of variables and the clauses that a proof of `problem` refutes.

    Raises VerificationError for sums that are no reversal of copies, UncheckedError where it would be too large.
    """
    size = FormulaSize(problem.chunks, problem.steps, problem.rounds)
    return step_formula.formula(problem.network.document, problem.collective.document, size)


def write_proof(problem: Problem, folder: Path) -> dict:
    """Refute `problem` once more, with a proof file in `folder`; return the certificate.

    Takes as long as CaDiCaL takes. Raises SynthError when the problem turns out to have a schedule.
    """
    from synth.solvers.cadical_lrat import refute

    variables, clauses = formula(problem)
    lines = refute(clauses) if [] not in clauses else [f"{len(clauses) + 1} 0 {clauses.index([]) + 1} 0"]
    if lines is None:
        raise SynthError(f"no proof: C={problem.chunks} S={problem.steps} R={problem.rounds} has a schedule")
    lemmas = lrat.check(clauses, lines)
    packed = lzma.compress("\n".join([*lines, ""]).encode())
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{problem.fingerprint[:24]}.lrat.xz"
    part = file.with_suffix(".part")
    part.write_bytes(packed)
    part.replace(file)
    return {
        "kind": "lrat",
        "problem": problem.fingerprint,
        "chunks": problem.chunks,
        "steps": problem.steps,
        "rounds": problem.rounds,
        "cnf": dimacs_hash(variables, clauses),
        "file": file.name,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "lemmas": lemmas,
    }
