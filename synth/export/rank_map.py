"""From the ranks of a schedule to the ranks of a machine: the schedule renumbered, and the links that it then uses."""

from __future__ import annotations

from collections.abc import Sequence

from synth.errors import SynthError, UsageError
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network, Route


def from_labels(labels: Sequence[int], ranks: int) -> tuple[int, ...]:
    """The communicator's rank of each rank of a machine whose ranks have these labels: the labels in their order.

    Without labels, or with labels in order (an allocation such as 0,1,5), every rank stays itself.
    """
    if len(labels) != ranks:
        return tuple(range(ranks))
    place = {label: n for n, label in enumerate(sorted(labels))}
    return tuple(place[label] for label in labels)


def relabelled(schedule: Schedule, ranks: Sequence[int]) -> Schedule:
    """`schedule` with rank r called ``ranks[r]``, its chunks where the collective has them for the new numbers.

    Raises UsageError where `ranks` is no permutation, SynthError where the collective depends on the numbers (scan).
    """
    n = schedule.network.ranks
    if sorted(ranks) != list(range(n)):
        raise UsageError(
            f"rank map {','.join(map(str, ranks))}: expected each of 0..{n - 1} once, as rank r of the schedule is "
            f"there"
        )
    if list(ranks) == list(range(n)):
        return schedule
    task, units = _moved(schedule.collective, ranks)
    c = schedule.chunks
    chunk = [units[i // c] * c + i % c for i in range(len(units) * c)]
    steps = tuple(
        Step(
            step.rounds,
            tuple(sorted(Send(chunk[s.chunk], ranks[s.src], ranks[s.dst], s.kind, s.via) for s in step.sends)),
        )
        for step in schedule.steps
    )
    return Schedule(network(schedule.network, ranks), task, c, steps)


def network(old: Network, ranks: Sequence[int]) -> Network:
    """`old` with rank r called ``ranks[r]``; routes and caps keep their places."""
    routes = tuple(Route(ranks[r.src], ranks[r.dst], r.units, r.via, r.latency) for r in old.routes)
    wires = tuple((_end(a, ranks), _end(b, ranks), units) for a, b, units in old.wires)
    return Network(old.name, old.ranks, routes, old.caps, old.unit, wires)


def links(schedule: Schedule) -> set[tuple[int, int]]:
    """(src, dst) of every send."""
    return {(send.src, send.dst) for step in schedule.steps for send in step.sends if not send.local}


def check_links(schedule: Schedule, machine: Network, name: str) -> None:
    """Raises SynthError with the links that the schedule uses and the machine lacks."""
    missing = sorted(links(schedule) - {(route.src, route.dst) for route in machine.routes})
    if missing:
        listed = ", ".join(f"{a} to {b}" for a, b in missing[:4]) + (
            f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        )
        raise SynthError(f"the schedule uses links that {name} does not have: {listed}; give the ranks with --rank-map")


def _moved(task: Collective, ranks: Sequence[int]) -> tuple[Collective, list[int]]:
    """The collective of the new numbers, and the new unit of each old one."""

    def move(members: frozenset[int]) -> frozenset[int]:
        return frozenset(ranks[r] for r in members)

    def key(pre: frozenset[int], post: frozenset[int], wants: tuple | None) -> tuple:
        return pre, post, wants

    moved = [
        key(
            move(pre),
            move(post),
            None if task.wants is None else tuple(sorted((ranks[r], move(w)) for r, w in task.wants[u])),
        )
        for u, (pre, post) in enumerate(zip(task.pre, task.post, strict=True))
    ]
    new = _renamed(task, ranks, moved)
    places: dict[tuple, list[int]] = {}
    for u, (pre, post) in enumerate(zip(new.pre, new.post, strict=True)):
        places.setdefault(key(pre, post, None if new.wants is None else new.wants[u]), []).append(u)
    taken: dict[tuple, int] = {}
    units = []
    for signature in moved:
        at = taken.get(signature, 0)
        if at >= len(places.get(signature, ())):
            raise SynthError(
                f"{task.name} depends on the numbers of the ranks; synthesize it on the machine as it is numbered"
            )
        taken[signature] = at + 1
        units.append(places[signature][at])
    return new, units


def _renamed(task: Collective, ranks: Sequence[int], moved: Sequence[tuple]) -> Collective:
    roots = tuple(ranks[r] for r in task.roots)
    options = COLLECTIVES[task.name][1] if task.name in COLLECTIVES else ("file",)
    if options in ((), ("root",)) or task.name in ("allgather", "reduce-scatter", "alltoall"):
        return collective(task.name, task.ranks, roots)
    if options == ("sizes",):  # units lie in the order of the ranks that they come from and go to
        order = sorted(range(task.units), key=lambda u: (sorted(moved[u][0]), sorted(moved[u][1])))
        pre, post = (tuple(moved[u][side] for u in order) for side in (0, 1))
        return Collective(task.name, task.ranks, pre, post, task.combining)
    return task


def _end(end: int | str, ranks: Sequence[int]) -> int | str:
    return ranks[end] if isinstance(end, int) else end
