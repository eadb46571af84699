"""Proofs that no schedule of (C, S, R) exists: an LRAT file for the step formula, which the checker builds again
itself.

    {"kind": "lrat", "problem": fingerprint, "chunks": C, "steps": S, "rounds": R, "cnf": SHA-256 of the DIMACS,
     "file": name in the folder of proofs, "sha256": of that file, "lemmas": n}

The formula is the `step` encoding of the whole problem (no symmetry, no cuts), written by the same code from the
problem alone. What is trusted: that encoding, and the checker of `synth.checker.certificates.lrat`; no solver.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator
from pathlib import Path

from synth.checker.certificates import lrat
from synth.encodings.step import Step
from synth.errors import SynthError, UncheckedError, VerificationError
from synth.model.documents import json_reader
from synth.model.schedule import Problem

KEYS = frozenset({"kind", "problem", "chunks", "steps", "rounds", "cnf", "file", "sha256", "lemmas"})
# possible sends, and rounds of all steps, of a problem whose formula is written: some gigabytes of clauses
MOST_SENDS = 4_000_000
MAX_BYTES = 4 << 30  # of an unpacked proof: more is refused, not unpacked


def formula(problem: Problem) -> tuple[int, list[list[int]]]:
    """Variables and clauses of the formula that a proof of `problem` refutes (of its reversal, when it combines).

    Raises VerificationError for sums that are no reversal: those that several ranks want, or nobody, or only a part of.
    Raises UncheckedError for a problem whose formula would be too large to be written.
    """
    sends = problem.collective.units * problem.chunks * max(1, len(problem.network.routes)) * problem.steps
    if sends + problem.steps * problem.rounds > MOST_SENDS:
        raise UncheckedError(
            f"C={problem.chunks} S={problem.steps} R={problem.rounds} takes too large a formula: {sends} sends, "
            f"{MOST_SENDS} are checked",
            "certificate",
        )
    if problem.collective.combining and not problem.collective.reversible:
        raise VerificationError(
            f"no formula decides {problem.collective.name}: its sums are not the reversal of copies", "certificate.kind"
        )
    plain = problem.reversed() if problem.collective.combining else problem
    variables, clauses = Step(monotone=False, tight=False).apply(plain)[0].cnf()
    return variables, clauses


def dimacs_hash(variables: int, clauses: list[list[int]]) -> str:
    """SHA-256 of the DIMACS text."""
    text = hashlib.sha256(f"p cnf {variables} {len(clauses)}\n".encode())
    for clause in clauses:
        text.update((" ".join(map(str, [*clause, 0])) + "\n").encode())
    return text.hexdigest()


def write_proof(problem: Problem, folder: Path) -> dict:
    """Refutes `problem` once more, with a proof file in `folder`; returns the certificate.

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


def check_proof(certificate: dict, problem: Problem, folder: Path) -> int:
    """Checks that the proof named by `certificate` refutes `problem`; returns how many steps of it were checked.

    Raises VerificationError that says what is wrong, UncheckedError where the proof file is not there.
    """
    json_reader.fields(certificate, "certificate", KEYS)
    if certificate["kind"] != "lrat":
        raise VerificationError(f"kind {certificate['kind']!r}, expected 'lrat'", "certificate")
    asked = {"problem": problem.fingerprint, "chunks": problem.chunks, "steps": problem.steps, "rounds": problem.rounds}
    for key, value in asked.items():
        if certificate.get(key) != value:
            raise VerificationError(f"{key} is {certificate.get(key)!r}, the problem has {value!r}", "certificate")
    variables, clauses = formula(problem)
    if certificate.get("cnf") != dimacs_hash(variables, clauses):
        raise VerificationError(
            "the formula of the problem has another hash than the certificate says", "certificate.cnf"
        )
    name = certificate.get("file")
    if not isinstance(name, str) or Path(name).name != name:
        raise VerificationError(f"no proof file {name!r}: expected a name without a folder", "certificate.file")
    if not (folder / name).is_file():
        raise UncheckedError(f"no proof file {name!r} in {folder}; give its folder with --proof", "certificate.file")
    packed = (folder / name).read_bytes()
    if hashlib.sha256(packed).hexdigest() != certificate.get("sha256"):
        raise VerificationError("the file is not the one the certificate was made with", name)
    try:
        checked = lrat.check(clauses, _lines(packed))
    except VerificationError as error:
        raise error.within(name) from None
    if certificate["lemmas"] != checked:
        raise VerificationError(f"says {certificate['lemmas']!r}, the proof has {checked}", "certificate.lemmas")
    return checked


def _lines(packed: bytes) -> Iterator[str]:
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=256 << 20)
    left, total, data = b"", 0, packed
    try:
        while not unpacker.eof:
            block = unpacker.decompress(data, 1 << 20)
            data = b""
            total += len(block)
            if total > MAX_BYTES:
                raise VerificationError(f"unpacks to more than {MAX_BYTES} bytes")
            if not block and unpacker.needs_input:
                raise VerificationError("the file is cut short")
            *lines, left = (left + block).split(b"\n")
            yield from (line.decode("ascii") for line in lines)
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise VerificationError(f"not an xz file of text: {error}") from None
    if left:
        yield left.decode("ascii", "replace")
