"""Decoding of the sends that an engine chose to a schedule without dead sends and with exactly the requested rounds."""

from __future__ import annotations

from collections.abc import Sequence

from synth.model.schedule import Problem, Schedule, Send, Step
from synth.model.sends.dead_sends import prune


def assemble(problem: Problem, steps: Sequence[Sequence[tuple[int, int]]]) -> Schedule:
    """Return the schedule of ``(chunk, route)`` copies for each step.

    Repeated receives and copies that reach no destination are dropped. Each step has the fewest rounds that its loads
    allow; the last step is filled up to the rounds of the problem. This is no check: `verify` decides.
    """
    chunks = problem.chunks
    held: set[tuple[int, int]] = set()
    for unit, ranks in enumerate(problem.collective.pre):
        held |= {(unit * chunks + i, n) for n in ranks for i in range(chunks)}
    rows = []
    for sends in steps:
        fresh = []
        for chunk, i in sorted(sends):
            route = problem.network.routes[i]
            if (chunk, route.dst) not in held:
                held.add((chunk, route.dst))
                fresh.append(Send(chunk, route.src, route.dst, "copy", route.via))
        rows.append(Step(1, tuple(fresh)))
    pruned = prune(Schedule(problem.network, problem.collective, chunks, tuple(rows)))
    *first, last = pruned.steps
    filled = Step(last.rounds + max(0, problem.rounds - pruned.rounds), last.sends)
    return Schedule(problem.network, problem.collective, chunks, (*first, filled))
