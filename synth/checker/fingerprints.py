"""The hash of a problem by which schedules and certificates name it, computed from documents."""

from __future__ import annotations

import hashlib

from synth.model.schedule import canonical


def with_one_chunk(collective: dict, chunks: int) -> dict:
    """Return the `collective` object of a schedule, which has `chunks` chunks of each unit, with the first of each
    alone.

    The chunks of a unit are alike (`synth.checker.schedule.collective`).
    """

    def firsts(rows: list) -> list:
        return [[row[0] // chunks, *row[1:]] for row in rows if row[0] % chunks == 0]

    pre, post = firsts(collective["pre"]), firsts(collective["post"])
    return collective | {"chunks": collective["chunks"] // chunks, "pre": pre, "post": post}


def problem_fingerprint(topology: dict, collective: dict) -> str:
    """Return the SHA-256 of links, limits, switches that multicast, rules for sends, pre, post and combining.

    `collective` has one chunk per unit.
    """
    problem = {
        "links": topology["links"], "limits": topology["limits"],
        "pre": collective["pre"], "post": collective["post"], "combining": collective["combining"],
    }  # fmt: skip
    for key in ("multicast", "rules"):
        if key in topology:
            problem[key] = topology[key]
    return hashlib.sha256(canonical(problem)).hexdigest()


def size_fingerprint(problem: str, chunks: int, steps: int, rounds: int) -> str:
    """Return the SHA-256 of the fingerprint `problem` with C, S and R."""
    return hashlib.sha256(canonical([problem, chunks, steps, rounds])).hexdigest()
