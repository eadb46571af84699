"""Mutants by the thousand: made, shown to the verifier, and judged where it accepts them.

Mutant i is made of a seed and an operator, in turn, with random numbers of its own, so that a run is the same for the
same seed whatever the number of jobs. Half of them are changed by a second operator too; four in five are made to agree
with themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from bench.forge import check, oracle
from bench.forge.operators import OPERATORS
from bench.forge.seeds import Case
from bench.forge.settle import settle
from synth.errors import SynthError

TRIES = 20  # of an operator, until it changes something
BATCH = 100  # mutants that a worker makes at a time
MEMORY = 6 << 30  # bytes of address space of a worker
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SynthError)  # nothing is left to change


@dataclass(frozen=True)
class Finding:
    """A mutant that shows a fault of the verifier: ``false``, ``undecided``, ``crashed`` or ``slow``, and the
    reason."""

    number: int
    mutation: str
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
        except BROKEN:
            changed = True
        if random.random() < 0.8:
            settle(case)
        if changed and case.doc != origin.doc:
            return origin, case, mutation
    return None


def examine(seeds: Sequence[Case], seed: int, number: int) -> tuple[tuple[str, str, str], Finding | None] | None:
    """(schema, kind of certificate, answer) of one mutant, and what is worth keeping; the answer is ``refused`` or a
    verdict. None where there is no such mutant."""
    try:
        with check.limited(check.SECONDS):
            made = mutant(seeds, seed, number)
    except (check.Slow, MemoryError):
        made = None
    if made is None:
        return None
    origin, case, mutation = made
    answer, lines = check.verified(case)
    reason = " ".join(lines)
    if answer == "accepted":
        try:
            with check.limited(10 * oracle.search.SECONDS):
                answer, reason = oracle.judge(case.doc, lines)
        except (check.Slow, MemoryError, OverflowError, RecursionError) as error:
            answer, reason = "undecided", f"the oracle ended with {type(error).__name__}"
    finding = Finding(number, mutation, origin.name, answer, reason, lines, case)
    return (origin.schema, origin.kind, answer), None if answer in ("refused", "true") else finding


def batch(seeds: Sequence[Case], seed: int, first: int) -> tuple[Counter, list[Finding]]:
    """Counts by (schema, kind, answer) and findings of `BATCH` mutants."""
    count: Counter = Counter()
    findings = []
    for number in range(first, first + BATCH):
        done = examine(seeds, seed, number)
        if done is not None:
            count[done[0]] += 1
            findings += [done[1]] if done[1] else []
    return count, findings


def run(seeds: Sequence[Case], seed: int, cases: int, jobs: int) -> Iterator[tuple[Counter, list[Finding]]]:
    """Counts and findings, batch after batch, of about so many mutants."""
    with multiprocessing.get_context("fork").Pool(jobs, initializer=_limit) as pool:
        yield from pool.imap(partial(batch, seeds, seed), range(0, cases, BATCH))


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def save(finding: Finding, folder: Path) -> Path:
    """Writes the mutant as files that `synth verify` takes, and beside them the fault it shows."""
    at = folder / f"{finding.verdict}-{finding.number}-{finding.mutation}"
    at.mkdir(parents=True, exist_ok=True)
    path = at / "document.json"
    path.write_text(json.dumps(finding.case.doc), encoding="utf-8")
    message = {k: v for k, v in asdict(finding).items() if k != "case"} | {"document": path.name}
    (at / "finding.txt").write_text(json.dumps(message, indent=1) + "\n", encoding="utf-8")
    return path
