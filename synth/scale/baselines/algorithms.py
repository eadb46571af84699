"""Schedules of known algorithms that follow the links of a machine: rings, and shortest paths.

Each is a Schedule, so it is replayed by `verify`, lowered and executed as any other. The rounds of a step follow from
its load. Reductions are the reversals of copies, and an allreduce is a reduce-scatter followed by an allgather.
Trees and algorithms by boxes are programs of the library (`synth.language.library`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.collective import collective as collective_named
from synth.model.schedule import Schedule, Send
from synth.model.sends.step_routes import routes_by_pair, step_of_sends
from synth.model.topology import Network
from synth.scale.baselines.rings import Ring

Move = tuple[int, int, int]  # chunk, source, destination
Moves = list[list[Move]]  # moves of each step
# A schedule of copies on a network; the last argument is True where the network is reversed.
Copying = Callable[[Network, Collective, bool], Schedule]

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


def with_reversals(
    name: str, network: Network, collective: Collective, supported: tuple[str, ...] | None, copying: Copying
) -> Schedule:
    """Return `collective` from `copying`, as it is, reversed, or both for an allreduce.

    `supported`: names of the collectives that `copying` can do, None: all. Raises UsageError for others.
    """
    target = collective
    if collective.name == "allreduce":
        target = collective_named("allgather", collective.ranks)
    elif collective.combining:
        target = collective.reversed()
    if target.combining or (collective.combining and collective.name != "allreduce" and not collective.reversible):
        raise UsageError(f"{name} does not do {collective.name}")
    if supported is not None and target.name not in supported:
        raise UsageError(f"{name} does not do {collective.name}; direct does")
    copies = None
    if not collective.combining or collective.name == "allreduce":
        copies = copying(network, target, False)
    if not collective.combining and copies is not None:
        return copies
    sums = copying(network.reversed(), target, True).reversed()
    sums = Schedule(network, sums.collective, sums.chunks, sums.steps)
    if copies is None:
        return Schedule(network, collective, sums.chunks, sums.steps)
    # rank r reduces the chunks of unit r of the allgather: both halves have the same chunk numbers
    return Schedule(network, collective, copies.chunks * collective.ranks, sums.steps + copies.steps)


def schedule_of_moves(network: Network, collective: Collective, chunks: int, moves: Moves) -> Schedule:
    """Return the schedule of `moves`, all copies; steps without moves are left out.

    Raises UsageError where a pair of ranks has no route.
    """
    routes = routes_by_pair(network)
    steps = []
    for row in filter(None, moves):
        steps.append(step_of_sends(network, routes, [Send(chunk, src, dst) for chunk, src, dst in row]))
    return Schedule(network, collective, chunks, tuple(steps))


def shortest_path_tree(
    network: Network, owners: frozenset[int], targets: frozenset[int], load: Counter
) -> Iterator[tuple[int, int, int]]:
    """Yield (step, src, dst) of shortest paths from `owners` to `targets`.

    `load` counts the transfers of each (step, src, dst) over all units, and is updated. Raises UsageError.
    """
    distance = dict.fromkeys(owners, 0)
    order = sorted(owners)
    missing = set(targets - owners)
    for u in order:
        if not missing:
            break
        for i in network.out[u]:
            v = network.routes[i].dst
            if v not in distance:
                distance[v] = distance[u] + 1
                order.append(v)
                missing.discard(v)
    unreachable = sorted(targets - distance.keys())
    if unreachable:
        raise UsageError(f"rank {unreachable[0]} of {network.name} cannot be reached from rank {min(owners)}")
    tree = set(targets) | owners
    for v in reversed(order):
        if v not in tree or distance[v] == 0:
            continue
        units_from = {
            network.routes[i].src: network.routes[i].units
            for i in network.into[v]
            if distance.get(network.routes[i].src) == distance[v] - 1
        }
        # prefer a rank that gets the unit anyway, then the link with the most capacity left in this step
        src = min(units_from, key=lambda u: (u not in tree, (load[distance[v], u, v] + 1) / units_from[u], u))
        load[distance[v], src, v] += 1
        tree.add(src)
        yield distance[v] - 1, src, v
