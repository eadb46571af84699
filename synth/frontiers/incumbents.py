"""First incumbents of exact synthesis, by methods without a solver.

Machines of several boxes have schedules composed of phases over the boxes. The greedy methods are breadth-first,
rarest-first and breadth-first trees. List scheduling superposes schedules of single chunks. Every incumbent is
replayed, so it proves an upper bound on R/C at its number of steps. Where it meets the lower bound no solver runs.
Elsewhere solvers search for better schedules only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
# Maximum number of sends of a schedule composed of phases over the boxes.
MOST_COMPOSED_SENDS = 40_000
# The collectives that are composed of phases, and those that the greedy methods know.
COMPOSED = ("allreduce", "allgather", "reduce-scatter", "broadcast", "reduce", "alltoall")
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce")


def find_incumbents(
    machine: Topology, network: Network, task: Collective, whole: bool = False, same_bits: bool = False
) -> tuple[tuple[str, Schedule], ...]:
    """Return (method, schedule) pairs for `task` on `machine` with its network `network`; none where no method applies.

    `whole`: no method ends at a time of its own, so that the result is the same each time. `same_bits`: ranks end
    with the same floating-point sums.
    """
    incumbents = list[tuple[str, Schedule]]()
    if task.name in COMPOSED and len(set(machine.nodes)) > 1:
        incumbents += _until_error(_composed(machine, network, task, same_bits))
    return (*incumbents, *_until_error(_other(machine, network, task, whole)))


def _until_error(incumbents: Iterable[tuple[str, Schedule]]) -> list[tuple[str, Schedule]]:
    """Return the incumbents before an error, or before the end of the time."""
    collected = []
    with suppress(SynthError):
        for incumbent in incumbents:
            collected.append(incumbent)  # noqa: PERF402  an error in between leaves these
    return collected


def _other(machine: Topology, network: Network, task: Collective, whole: bool) -> Iterable[tuple[str, Schedule]]:
    if machine.ranks <= FEW_RANKS or task.units > machine.ranks:
        return ()
    if task.name in COLLECTIVES:
        return _greedy(machine, network, task)
    from synth.encodings.prefix_planning import chunk_assembly

    if not chunk_assembly.applies(network, task):
        return ()
    return chunk_assembly.schedules(network, task, whole=whole)


def _composed(machine: Topology, network: Network, task: Collective, same_bits: bool) -> Iterator[tuple[str, Schedule]]:
    """Yield the replayed schedules that are composed of phases over the boxes of the machine."""
    from synth.scale.composition.compose import composed_points
    from synth.scale.fabric.automorphisms import free_group, symmetries
    from synth.scale.fabric.fabric import fabric
    from synth.scale.greedy.orbit_expansion import ordinary_schedule as expanded

    machine = machine.live()
    graph = fabric(machine)
    group = () if task.roots else free_group(symmetries(graph), graph.ranks)
    root = task.roots[0] if task.roots else 0
    limits = {"same_bits": same_bits, "most_sends": MOST_COMPOSED_SENDS}
    for point in composed_points(machine, task.name, root, group, **limits):
        expansion = expanded(point.make())
        if (expansion.collective.pre, expansion.collective.post) != (task.pre, task.post):
            return
        schedule = Schedule(network, task, expansion.chunks, expansion.steps)
        replay.schedule(schedule)
        yield point.engine, schedule


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
