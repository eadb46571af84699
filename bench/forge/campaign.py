"""Mutants by the thousand: made, shown to the verifier, and judged where it accepts them.

Mutant i is made of cell i (a seed and an operator, in turn) with random numbers of its own, so that a run is the same
for the same seed whatever the number of jobs. Half of them are changed by a second operator too; four in five are made
to agree with themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

from bench.forge import check, oracle
from bench.forge.operators import OPERATORS
from bench.forge.seeds import Case
from bench.forge.settle import settle
from synth.errors import SynthError

TRIES = 20  # of an operator, until it changes something
BATCH = 100  # mutants that a worker makes at a time
MEMORY = 6 << 30  # bytes of address space of a worker


class Cell(NamedTuple):
    """A row and a column of the table."""

    schema: str
    kind: str
    mutation: str


@dataclass(frozen=True)
class Finding:
    """A mutant that shows a fault of the verifier: ``false``, ``undecided``, ``crashed`` or ``slow``, and the
    reason."""

    number: int
    cell: Cell
    seed: str
    verdict: str
    reason: str
    lines: list[str]
    case: Case


def mutant(seeds: Sequence[Case], seed: int, number: int) -> tuple[Case, Case, str] | None:
    """(the seed, its mutant, the operator) of a number; None where nothing was changed."""
    mutation = list(OPERATORS)[number % len(OPERATORS)]
    origin = seeds[number // len(OPERATORS) % len(seeds)]
    random = Random(f"{seed} {number}")
    for _ in range(TRIES):
        case = origin.copy()
        try:
            changed = OPERATORS[mutation](case, random, seeds)
            if random.random() < 0.5:
                OPERATORS[random.choice(list(OPERATORS))](case, random, seeds)
        except (
            LookupError,
            TypeError,
            ValueError,
            AttributeError,
            ArithmeticError,
            SynthError,
        ):  # what came before left nothing to change
            changed = True
        if random.random() < 0.8:
            settle(case)
        if changed and (case.doc != origin.doc or case.files != origin.files):
            return origin, case, mutation
    return None


def examine(seeds: Sequence[Case], seed: int, number: int) -> tuple[Cell, str, Finding | None] | None:
    """The cell, the answer (``refused`` or a verdict) and what is worth keeping of one mutant."""
    try:
        with check.limited(check.SECONDS):
            made = mutant(seeds, seed, number)
    except (check.Slow, MemoryError):
        made = None
    if made is None:
        return None
    origin, case, mutation = made
    cell = Cell(origin.schema, origin.kind, mutation)
    answer, lines = check.verified(case)
    reason = ""
    if answer == "accepted":
        try:
            with check.limited(10 * oracle.search.SECONDS):
                answer, reason = oracle.judge(case.doc, case.files, lines)
        except (check.Slow, MemoryError, OverflowError, RecursionError) as error:
            answer, reason = "undecided", f"the oracle ended with {type(error).__name__}"
    keep = answer not in ("refused", "true")
    return (
        cell,
        answer,
        Finding(number, cell, origin.name, answer, reason or " ".join(lines), lines, case) if keep else None,
    )


_SEEDS: Sequence[Case] = ()


def _batch(given: tuple[int, int]) -> tuple[Counter, list[Finding]]:
    seed, first = given
    count: Counter = Counter()
    found = []
    for number in range(first, first + BATCH):
        done = examine(_SEEDS, seed, number)
        if done is not None:
            count[done[0], done[1]] += 1
            found += [done[2]] if done[2] else []
    return count, found


def run(
    seeds: Sequence[Case], seed: int, *, seconds: float, jobs: int, cases: int | None = None
) -> Iterator[tuple[Counter, list[Finding]]]:
    """Counts by (cell, answer) and findings, batch after batch, until `seconds` are over.

    With `cases` until about so many mutants have been tried, whole batches of them.
    """
    global _SEEDS
    _SEEDS = seeds
    end = time.monotonic() + seconds
    numbers = ((seed, first) for first in iter(range(0, cases or 1 << 60, BATCH)))
    if jobs == 1:
        for given in numbers:
            yield _batch(given)
            if time.monotonic() > end:
                break
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, initializer=_limit) as pool:
        pending: deque = deque()
        while True:
            while len(pending) < 2 * jobs and time.monotonic() < end and (given := next(numbers, None)) is not None:
                pending.append(pool.apply_async(_batch, (given,)))
            if not pending:
                return
            yield pending.popleft().get()


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def save(finding: Finding, folder: Path) -> Path:
    """Writes the mutant as files that `synth verify` takes, and beside them the fault it shows."""
    name = f"{finding.verdict}-{finding.number}-{finding.cell.mutation}"
    at = folder / name
    at.mkdir(parents=True, exist_ok=True)
    path = check.write(finding.case, at)
    message = {k: v for k, v in asdict(finding).items() if k != "case"} | {"document": path.name}
    (at / "finding.txt").write_text(json.dumps(message, indent=1) + "\n", encoding="utf-8")
    return path
