"""Steps of baseline schedules: from moves to a schedule, its reversals, and shortest paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.collective import collective as collective_named
from synth.model.schedule import Schedule, Send
from synth.model.step_routes import routes_by_pair, step_of_sends
from synth.model.topology import Network

Move = tuple[int, int, int]  # chunk, source, destination
Moves = list[list[Move]]  # moves of each step
# A schedule of copies on a network; the last argument is True where the network is reversed.
Copying = Callable[[Network, Collective, bool], Schedule]


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


def schedule_of_moves(
    network: Network, collective: Collective, chunks: int, moves: Moves, kind: str = "copy"
) -> Schedule:
    """Return the schedule of `moves`, all of one kind; steps without moves are left out.

    Raises UsageError where a pair of ranks has no route.
    """
    routes = routes_by_pair(network)
    steps = []
    for row in filter(None, moves):
        steps.append(step_of_sends(network, routes, [Send(chunk, src, dst, kind) for chunk, src, dst in row]))
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
