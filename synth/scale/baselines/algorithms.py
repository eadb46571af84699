"""Schedules of known algorithms that follow the links of a machine: rings, and shortest paths.

Each is a Schedule, so it is replayed by `verify`, lowered and executed as any other. The rounds of a step follow from
its load. Reductions are the reversals of copies, and an allreduce is a reduce-scatter followed by an allgather.
Trees and algorithms by boxes are programs of the library (`synth.language.library`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import gcd

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.scale.baselines.rings import Ring
from synth.scale.baselines.schedule_steps import Moves, schedule_of_moves, shortest_path_tree, with_reversals

# Pieces that a pipelined broadcast is cut into. More make the pipeline tighter and the schedule longer.
PIECES = 8
SUMMARIES: Mapping[str, str] = {
    "ring": "edge-disjoint rings of the links at once",
    "direct": "every message along a shortest path",
}


def ring(network: Network, collective: Collective, rings: Sequence[Ring], pieces: int = PIECES) -> Schedule:
    """Return a broadcast, reduce, allgather, reduce-scatter or allreduce round all `rings` at once.

    Each ring has as many chunks side by side as it has units (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69,
    2009). A broadcast goes down the same rings in `pieces`. Raises UsageError for other collectives and without rings.
    """
    if not rings:
        raise UsageError(f"no ring through all ranks of {network.name} was found")
    width = sum(units for _, units in rings)

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        direction = -1 if reversed_network else 1
        cycles = [(cycle[::direction], units) for cycle, units in rings]
        if target.name == "broadcast":
            return schedule_of_moves(net, target, width * pieces, _pipelined_broadcast(cycles, target.roots[0], pieces))
        return schedule_of_moves(net, target, width, _ring_allgather(cycles, width))

    return with_reversals("ring", network, collective, ("broadcast", "allgather"), copying)


def in_channels(rings: Sequence[Ring], channels: int) -> list[Ring]:
    """Return `rings` with their units divided by a common divisor: the least that leaves at most `channels` units.

    It is the greatest where none leaves so few. A round then carries less than it can, so it is for programs alone.
    """
    shares = [units for _, units in rings]
    width, common = sum(shares), gcd(*shares)
    divisors = [k for k in range(1, common + 1) if common % k == 0]
    divisor = next((k for k in divisors if width // k <= channels), common)
    return [(cycle, units // divisor) for cycle, units in rings]


def _ring_allgather(rings: Sequence[Ring], width: int) -> Moves:
    """Allgather: each rank sends its own chunks, then those that it received in the step before."""
    ranks = len(rings[0][0])
    moves: Moves = [[] for _ in range(ranks - 1)]
    first = 0
    for cycle, units in rings:
        for t, row in enumerate(moves):
            for p in range(ranks):
                owner, src, dst = cycle[(p - t) % ranks], cycle[p], cycle[(p + 1) % ranks]
                row += [(owner * width + c, src, dst) for c in range(first, first + units)]
        first += units
    return moves


def _pipelined_broadcast(rings: Sequence[Ring], root: int, pieces: int) -> Moves:
    """Broadcast: piece after piece down each ring from the root."""
    ranks = len(rings[0][0])
    moves: Moves = [[] for _ in range(ranks - 2 + pieces)]
    first = 0
    for cycle, units in rings:
        at = cycle.index(root)
        chain = cycle[at:] + cycle[:at]
        for p in range(ranks - 1):
            for piece in range(pieces):
                chunks = range(first + piece * units, first + (piece + 1) * units)
                moves[p + piece] += [(c, chain[p], chain[p + 1]) for c in chunks]
        first += units * pieces
    return moves


def direct(network: Network, collective: Collective) -> Schedule:
    """Return a schedule of sends along shortest paths, each unit from the nearest rank that has it, over the least
    loaded link among equals; one step where all ranks are joined.

    For copying collectives, their reversals, and allreduce. Raises UsageError for others.
    """

    def copying(net: Network, target: Collective, reversed_network: bool) -> Schedule:
        load: Counter[tuple[int, int, int]] = Counter()
        moves: Moves = [[] for _ in range(net.ranks)]
        for unit, (owners, targets) in enumerate(zip(target.pre, target.post, strict=True)):
            for step, src, dst in shortest_path_tree(net, owners, targets, load):
                moves[step].append((unit, src, dst))
        return schedule_of_moves(net, target, 1, moves)

    return with_reversals("direct", network, collective, None, copying)
