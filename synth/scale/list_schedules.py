"""Schedules for message sizes at which latencies count as much as bandwidth, by list scheduling in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.scale.baselines.schedule_steps import with_reversals
from synth.scale.greedy.list_scheduling import list_schedule
from synth.solvers.deadline import TimeUp

# Numbers of chunks of a unit that are tried at each size; the earliest schedule counts.
CHUNKS = (1, 2, 4, 8)
# More chunks count only if they are earlier by this fraction, as each send costs more than the model says.
WORTH = 0.006
# Sizes count at which sending a unit over the slowest link takes from 1 / `spread` to `spread` times the greatest
# latency. Below and above, the schedules for the least and the greatest size serve the others.
SPREAD = Fraction(4)


def design_sizes(network: Network, collective: Collective, sizes: Sequence[int]) -> list[int]:
    """Return those of `sizes` at which latencies and bandwidths count alike, the least one, and the greatest."""
    slowest = min((route.units for route in network.routes), default=0) * network.unit * 1000
    if not network.latency or not slowest:
        return []
    balanced = slowest * network.latency / collective.unit_share
    near = {size for size in sizes if balanced / SPREAD <= size <= balanced * SPREAD}
    return sorted(near | {min(sizes), max(sizes)})


def schedule_for_size(network: Network, collective: Collective, size: int, depth: int) -> Schedule:
    """Return the earliest schedule found for calls of `size` bytes; sums are the reversals of copies.

    `depth`: messages of a link that may be under way. More chunks are tried until the ambient deadline. Raises
    UsageError where list scheduling does not do the collective, TimeUp where not even one chunk was in time.
    """
    best: tuple[float, Schedule] | None = None
    for chunks in CHUNKS:
        try:
            found = _with_chunks(network, collective, chunks, size, depth)
        except (UsageError, TimeUp):
            if best is None:
                raise
            break
        if best is None or found[0] < best[0] * (1 - WORTH):
            best = found
    assert best is not None
    return best[1]


def _with_chunks(
    network: Network, collective: Collective, chunks: int, size: int, depth: int
) -> tuple[float, Schedule]:
    """Return the µs and the schedule of `chunks` chunks of each unit that is copied."""
    times = []

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        found = list_schedule(net, target, chunks, float(size * target.unit_share), depth)
        times.append(found.microseconds)
        return found.schedule

    made = with_reversals("list scheduling", network, collective, None, copying)
    return sum(times), replace(made, timed=True)
