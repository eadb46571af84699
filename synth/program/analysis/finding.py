"""Finding: one thing that the analysis has to say about a program, and where; Wait: a thread block that stands
still."""

from __future__ import annotations

from typing import NamedTuple

SEVERITIES = ("error", "warning", "remark")


class Finding(NamedTuple):
    """`rule` is an id of docs/lint.md, `severity` one of SEVERITIES; `gpu`, `block`, `op` say where, None: all of
    them."""

    rule: str
    severity: str
    gpu: int | None
    block: int | None
    op: int | None
    message: str

    @property
    def place(self) -> str:
        """Such as ``gpu 1 block 0 step 4``, or ``program``."""
        parts = (("gpu", self.gpu), ("block", self.block), ("step", self.op))
        return " ".join(f"{name} {value}" for name, value in parts if value is not None) or "program"

    def __str__(self) -> str:
        """One line."""
        return f"{self.severity}: {self.place}: {self.message} [{self.rule}]"

    def to_json(self) -> dict:
        """As an object, for ``--format json``."""
        return dict(self._asdict())


def error(rule: str, place: tuple[int | None, int | None, int | None], message: str) -> Finding:
    """A Finding of severity ``error``."""
    return Finding(rule, "error", *place, message)


class Wait(NamedTuple):
    """A block that stands still: at op `op`, for what `reason` says; the block (rank, block) `on` would have to give
    it."""

    gpu: int
    block: int
    op: int
    reason: str
    on: tuple[int, int] | None


def cycle_first(waits: list[Wait]) -> list[Wait]:
    """`waits` with a cycle at its head, if there is one: each then waits for the block of the next, the last for the
    first."""
    at = {(wait.gpu, wait.block): wait for wait in waits}
    for first in at:
        seen: dict[tuple[int, int], int] = {}
        place: tuple[int, int] | None = first
        while place in at and place not in seen:
            seen[place] = len(seen)
            place = at[place].on
        if place in seen:
            cycle = [found for found, k in seen.items() if k >= seen[place]]
            return [at[found] for found in cycle] + [wait for found, wait in at.items() if found not in set(cycle)]
    return waits
