"""First incumbents of exact synthesis, by methods without a solver: greedy schedules and list scheduling.

The greedy methods are breadth-first, rarest-first and breadth-first trees. List scheduling superposes schedules of
single chunks. Every incumbent is replayed, so it proves an upper bound on R/C at its number of steps. Where it meets
the lower bound no solver runs. Elsewhere solvers search for better schedules only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from synth.checker.schedule import replay
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network, Topology

# Up to this many ranks solvers answer sooner than the greedy methods are loaded.
FEW_RANKS = 8
# Maximum number of sends of a greedy schedule, which is written out and replayed in this process.
MOST_SENDS = 20_000
# The collectives that the greedy methods know.
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")


def find_incumbents(
    machine: Topology, network: Network, task: Collective, whole: bool = False
) -> tuple[tuple[str, Schedule], ...]:
    """Return (method, schedule) pairs for `task` on `machine` with its network `network`; none where no method applies.

    `whole`: no method ends at a time of its own, so that the result is the same each time.
    """
    if machine.ranks <= FEW_RANKS or task.units > machine.ranks:
        return ()
    if task.name in COLLECTIVES:
        incumbents = _greedy(machine, network, task)
    else:
        from synth.encodings.prefix_planning import chunk_assembly

        if not chunk_assembly.applies(network, task):
            return ()
        incumbents = chunk_assembly.schedules(network, task, whole=whole)
    collected = []
    with suppress(SynthError):  # the incumbents before an error, or before the end of the time, stay
        for incumbent in incumbents:
            collected.append(incumbent)  # noqa: PERF402  an error in between leaves these
    return tuple(collected)


def _greedy(machine: Topology, network: Network, task: Collective) -> Iterator[tuple[str, Schedule]]:
    """Yield the replayed schedules of the greedy methods that are short enough (`MOST_SENDS`)."""
    from synth.scale.greedy.orbit_expansion import ordinary_schedule as expanded
    from synth.scale.search import quick_points

    for point in quick_points(machine, task.name, task.roots[0] if task.roots else 0):
        compressed = point.make()
        if len(compressed.step) * (machine.ranks if compressed.generators else 1) > MOST_SENDS:
            continue
        expansion = expanded(compressed)
        if (expansion.collective.pre, expansion.collective.post) != (task.pre, task.post):
            return
        schedule = Schedule(network, task, expansion.chunks, expansion.steps)
        replay.schedule(schedule)
        yield point.engine, schedule
