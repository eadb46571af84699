"""Mutants by the thousand: made, shown to the verifier as `synth verify` calls it, and judged where it accepts them.

Mutant i is made of a seed and an operator, in turn, with random numbers of its own, so that a run is the same for the
same seed whatever the number of jobs. Half of them are changed by a second operator too; four in five are made to agree
with themselves.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from random import Random

from bench.forge import oracle
from bench.forge.operators import OPERATORS
from bench.forge.seeds import Case
from bench.forge.settle import settle
from synth.commands import api
from synth.errors import SynthError

TRIES = 20  # of an operator, until it changes something
BATCH = 100  # mutants that a worker makes at a time
MEMORY = 6 << 30  # bytes of address space of a worker
SECONDS = 20.0  # beyond which a checker of documents so small is kept busy
BROKEN = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SynthError)  # nothing is left to change


class Slow(Exception):
    """The checker did not end in time."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Slow is raised in the main thread after so many seconds of CPU."""

    def stop(*_: object) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def verified(case: Case) -> tuple[str, list[str]]:
    """("accepted", the lines that are printed), ("refused", why), ("crashed", how) or ("slow", [])."""
    try:
        with limited(SECONDS):
            return "accepted", api.verify(case.doc)
    except Slow:
        return "slow", []
    except SynthError as error:
        return "refused", [str(error)]
    except Exception as error:
        return "crashed", [f"{type(error).__name__}: {error}"[:200]]


@dataclass(frozen=True)
class Finding:
    """A mutant that shows a fault of the verifier: ``false``, ``undecided``, ``crashed`` or ``slow``, and why."""

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
        with limited(SECONDS):
            made = mutant(seeds, seed, number)
    except (Slow, MemoryError):
        made = None
    if made is None:
        return None
    origin, case, mutation = made
    answer, lines = verified(case)
    reason = " ".join(lines)
    if answer == "accepted":
        try:
            with limited(10 * oracle.search.SECONDS):
                answer, reason = oracle.judge(case.doc, lines)
        except (Slow, MemoryError, OverflowError, RecursionError) as error:
            answer, reason = "undecided", f"the oracle ended with {type(error).__name__}"
    finding = Finding(number, mutation, origin.name, answer, reason, lines, case)
    return (origin.schema, origin.kind, answer), None if answer in ("refused", "true") else finding


def batch(seeds: Sequence[Case], seed: int, first: int) -> tuple[Counter, list[Finding]]:
    """Counts by (schema, kind, answer) and findings of `BATCH` mutants."""
    count: Counter = Counter()
    findings = []
    for cell, finding in filter(None, (examine(seeds, seed, number) for number in range(first, first + BATCH))):
        count[cell] += 1
        findings += [finding] if finding else []
    return count, findings


def run(seeds: Sequence[Case], seed: int, cases: int, jobs: int) -> Iterator[tuple[Counter, list[Finding]]]:
    """Counts and findings, batch after batch, of about so many mutants."""
    limits = (resource.RLIMIT_AS, (MEMORY, MEMORY))
    with multiprocessing.get_context("fork").Pool(jobs, resource.setrlimit, limits) as pool:
        yield from pool.imap(partial(batch, seeds, seed), range(0, cases, BATCH))


def save(finding: Finding, folder: Path) -> Path:
    """Writes the mutant as files that `synth verify` takes, and beside them the fault it shows."""
    at = folder / f"{finding.verdict}-{finding.number}-{finding.mutation}"
    at.mkdir(parents=True, exist_ok=True)
    path = at / "document.json"
    path.write_text(json.dumps(finding.case.doc), encoding="utf-8")
    message = {k: v for k, v in asdict(finding).items() if k != "case"} | {"document": path.name}
    (at / "finding.txt").write_text(json.dumps(message, indent=1) + "\n", encoding="utf-8")
    return path
