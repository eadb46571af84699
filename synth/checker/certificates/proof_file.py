"""The certificate `lrat`: no schedule of C chunks, S steps and R rounds exists, by a proof in a file of its own.

    {"kind": "lrat", "problem": fingerprint, "chunks": C, "steps": S, "rounds": R, "cnf": SHA-256 of the DIMACS,
     "file": name in the folder of proofs, "sha256": of that file, "lemmas": n}

The proof refutes the formula of `synth.checker.certificates.step_formula`, which is written here again from the
problem. The file is text, a step of LRAT a line, compressed by xz.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator
from pathlib import Path

from synth.checker.certificates import lrat
from synth.checker.certificates.step_formula import FormulaSize, dimacs_hash, formula
from synth.checker.fingerprints import size_fingerprint
from synth.checker.schedule.machine import machine_of
from synth.errors import UncheckedError, VerificationError
from synth.model.documents import json_reader
from synth.model.documents.text_file import bytes_of

KEYS = frozenset({"kind", "problem", "chunks", "steps", "rounds", "cnf", "file", "sha256", "lemmas"})
MAX_PACKED = 1 << 30  # Bytes of a proof file.
MAX_BYTES = 4 << 30  # Bytes of an unpacked proof: a longer one is refused while it is unpacked, and fills no memory.


def check(certificate: dict, topology: dict, collective: dict, size: FormulaSize, folder: Path) -> int:
    """Check the proof file that `certificate` names, in `folder`; return the number of its LRAT steps.

    It proves that there is no schedule of this `size`. `topology` and `collective` (one chunk per unit) are the objects
    of the document. Raises VerificationError that says what is wrong, UncheckedError where the proof file is not there
    or the formula is too large.
    """
    json_reader.fields(certificate, "certificate", KEYS)
    if certificate["kind"] != "lrat":
        raise VerificationError(f"kind {certificate['kind']!r}, expected 'lrat'", "certificate")
    problem = machine_of(topology, "topology").problem_fingerprint(collective)
    expected = {"problem": size_fingerprint(problem, *size), **size._asdict()}
    for key, value in expected.items():
        if certificate[key] != value:
            raise VerificationError(f"{key} is {certificate[key]!r}, the problem has {value!r}", "certificate")
    variables, clauses = formula(topology, collective, size)
    if certificate["cnf"] != dimacs_hash(variables, clauses):
        raise VerificationError(
            "the formula of the problem has another hash than the certificate says", "certificate.cnf"
        )
    name = certificate["file"]
    packed = _content(folder, name)
    if hashlib.sha256(packed).hexdigest() != certificate["sha256"]:
        raise VerificationError("the file is not the one the certificate was made with", name)
    try:
        lemmas = lrat.check(clauses, _lines(packed))
    except VerificationError as error:
        raise error.within(name) from None
    if certificate["lemmas"] != lemmas:
        raise VerificationError(f"says {certificate['lemmas']!r}, the proof has {lemmas}", "certificate.lemmas")
    return lemmas


def _content(folder: Path, name: object) -> bytes:
    """Return the bytes of the proof file `name`, which lies in `folder` itself."""
    if not isinstance(name, str) or Path(name).name != name:
        raise VerificationError(f"no proof file {name!r}: expected a name without a folder", "certificate.file")
    if not (folder / name).is_file():
        raise UncheckedError(f"no proof file {name!r} in {folder}; give its folder with --proof", "certificate.file")
    return bytes_of(folder / name, MAX_PACKED)


def _lines(packed: bytes) -> Iterator[str]:
    """Unpack the lines of a proof one by one, as a proof may be much longer than its formula."""
    unpacker = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=256 << 20)
    rest, total, data = b"", 0, packed
    try:
        while not unpacker.eof:
            block = unpacker.decompress(data, 1 << 20)
            data = b""
            total += len(block)
            if total > MAX_BYTES:
                raise VerificationError(f"unpacks to more than {MAX_BYTES} bytes")
            if not block and unpacker.needs_input:
                raise VerificationError("the file is cut short")
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                yield line.decode("ascii")
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise VerificationError(f"not an xz file of text: {error}") from None
    if rest:
        yield rest.decode("ascii", "replace")
