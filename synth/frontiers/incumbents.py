"""Schedules that take no solver, as first incumbents of exact synthesis: breadth-first, rarest-first, breadth-first
trees, woven ones.

They are replayed, and believed to be no more than what they are: a schedule of so many steps with such an R/C. Where
one meets the bound nothing is asked of a solver; elsewhere only what is better than it is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from synth.checker.schedule import replay
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology

# Up to so many ranks solvers answer sooner than the greedy methods are loaded.
FEW_RANKS = 8
MOST_SENDS = 20_000
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")


def seeds(
    machine: Topology, network: Network, task: Collective, whole: bool = False
) -> tuple[tuple[str, Schedule], ...]:
    """(method, schedule) for `task` on `machine`, whose network `network` is; none where no method applies.

    `whole`: no method has an end of its own in time, so that the same is found each time.
    """
    if machine.ranks <= FEW_RANKS or task.units > machine.ranks:
        return ()
    if task.name in COLLECTIVES:
        made = _replayed(machine, network, task)
    else:
        from synth.encodings.prefix_planning import chunk_assembly

        if not chunk_assembly.applies(network, task):
            return ()
        made = chunk_assembly.schedules(network, task, whole=whole)
    found = []
    with suppress(SynthError):  # what was found before it is kept
        for seed in made:
            found.append(seed)  # noqa: PERF402  what raises in between leaves these
    return tuple(found)


def _replayed(machine: Topology, network: Network, task: Collective) -> Iterator[tuple[str, Schedule]]:
    from synth.scale.greedy.bulk_expansion import schedule as expanded
    from synth.scale.search import greedy

    for point in greedy(machine, task.name, task.roots[0] if task.roots else 0):
        bulk = point.make()
        if len(bulk.step) * (machine.ranks if bulk.generators else 1) > MOST_SENDS:
            continue
        made = expanded(bulk)
        if (made.collective.pre, made.collective.post) != (task.pre, task.post):
            return
        schedule = Schedule(network, task, made.chunks, made.steps)
        replay.schedule(schedule)
        yield point.engine, schedule
