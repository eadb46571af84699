"""The hash of a problem with its C, S and R, by which schedules name it, computed from documents."""

from __future__ import annotations

import hashlib

from synth.model.documents.canonical_json import canonical


def with_one_chunk(collective: dict, chunks: int) -> dict:
    """Return the `collective` object of a schedule, which has `chunks` chunks of each unit, with the first of each
    alone.

    The chunks of a unit are alike (`synth.checker.schedule.collective`).
    """

    def firsts(rows: list) -> list:
        return [[row[0] // chunks, *row[1:]] for row in rows if row[0] % chunks == 0]

    pre, post = firsts(collective["pre"]), firsts(collective["post"])
    return collective | {"chunks": collective["chunks"] // chunks, "pre": pre, "post": post}


def size_fingerprint(problem: str, chunks: int, steps: int, rounds: int) -> str:
    """Return the SHA-256 of the fingerprint `problem` with C, S and R."""
    return hashlib.sha256(canonical([problem, chunks, steps, rounds])).hexdigest()
