"""Allreduce as reduce-scatter followed by allgather: the classical construction, here a baseline and a fallback.

Its S is at least twice the diameter. Where routes have the same units both ways it is optimal in bandwidth exactly
where the allreduce bound says so, and other constructions reach that end in fewer steps. The other classical one,
allgather followed by a local reduction, computes without communicating and is no schedule of this model.
"""

from __future__ import annotations

from math import lcm

from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.sends.dead_sends import prune


def compose(backwards: Schedule, forwards: Schedule, collective: Collective) -> Schedule:
    """Return the allreduce that scatters sums by `backwards` in reverse and then gathers them by `forwards`.

    Both are allgather schedules: `forwards` on the network itself, `backwards` on the network with its routes
    reversed (the same where routes are symmetric). Chunk i of rank u's part becomes allreduce chunk ``u * C + i``,
    so R/C is the sum of both, divided by the ranks. All ranks end with the same bits: each sum is made once.
    """
    network, ranks = forwards.network, forwards.network.ranks
    for part in (backwards, forwards):
        if part.collective.name != "allgather":
            raise SynthError(f"allreduce is composed of two allgather schedules, got one for {part.collective.name}")
    common = lcm(backwards.chunks, forwards.chunks)
    steps = [*_steps(backwards.reversed(), common), *_steps(forwards, common)]
    return prune(Schedule(network, collective, ranks * common, tuple(steps)))


def _steps(part: Schedule, chunks: int) -> list[Step]:
    """Return the steps of `part` with every chunk repeated until there are `chunks` per rank."""
    times = chunks // part.chunks

    def ids(chunk: int) -> range:
        unit, i = divmod(chunk, part.chunks)
        return range(unit * chunks + i * times, unit * chunks + (i + 1) * times)

    steps = []
    for step in part.steps:
        sends = tuple(Send(c, s.src, s.dst, s.kind, s.via) for s in step.sends for c in ids(s.chunk))
        steps.append(Step(step.rounds * times, sends))
    return steps
