"""`Finding`: one result of the analysis, with its place in the program. `WaitingBlock`: a block that stands still."""

from __future__ import annotations

from typing import NamedTuple

NOT_ANALYSED = "not analysed"
SEVERITIES = ("error", NOT_ANALYSED, "warning", "remark")


class Finding(NamedTuple):
    """One result of the analysis.

    `rule`: an id of docs/lint.md. `severity`: one of SEVERITIES. `gpu`, `block`, `op`: the place; None stands for all.
    """

    rule: str
    severity: str
    gpu: int | None
    block: int | None
    op: int | None
    message: str

    @property
    def place(self) -> str:
        """The place as text, such as ``gpu 1 block 0 step 4``, or ``program``."""
        parts = (("gpu", self.gpu), ("block", self.block), ("step", self.op))
        return " ".join(f"{name} {value}" for name, value in parts if value is not None) or "program"

    def __str__(self) -> str:
        """Return the finding as one line."""
        return f"{self.severity}: {self.place}: {self.message} [{self.rule}]"

    def to_json(self) -> dict:
        """Return the finding as an object for ``--format json``."""
        return dict(self._asdict())


def error(rule: str, place: tuple[int | None, int | None, int | None], message: str) -> Finding:
    """Return a Finding of severity ``error``."""
    return Finding(rule, "error", *place, message)


def not_analysed(rule: str, place: tuple[int | None, int | None, int | None], message: str) -> Finding:
    """Return the Finding that something, and why, was not analysed: the program may be right or wrong."""
    return Finding(rule, NOT_ANALYSED, *place, message)


def skipped_elements(count: int) -> Finding:
    """Return the warning of a file with elements that every loader skips."""
    text = f"{count} <copy> elements are skipped, as every loader does: the chunks must be there in a call in place"
    return Finding("skipped", "warning", None, None, None, text)


class WaitingBlock(NamedTuple):
    """A block that stands still at op `op`.

    `reason`: the missing event in words. `on`: the block (rank, block) that could cause it, or None.
    """

    gpu: int
    block: int
    op: int
    reason: str
    on: tuple[int, int] | None


def cycle_first(waits: list[WaitingBlock]) -> list[WaitingBlock]:
    """Return `waits` with a cycle first, if any: each wait is on the block of the next one, the last on the first."""
    wait_of = {(wait.gpu, wait.block): wait for wait in waits}
    for start in wait_of:
        seen = {}
        block: tuple[int, int] | None = start
        while block in wait_of and block not in seen:
            seen[block] = len(seen)
            block = wait_of[block].on
        if block in seen:
            cycle = {member: wait_of[member] for member, k in seen.items() if k >= seen[block]}
            return [*cycle.values(), *(wait for member, wait in wait_of.items() if member not in cycle)]
    return waits
