"""Renumbering of a schedule from its own ranks to those of a machine, and a check of the links that it then uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from synth.errors import SynthError, UsageError
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network, Route


def ranks_from_labels(labels: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return the communicator's rank of each rank of a machine, given the label of each rank.

    The communicator numbers the labels in growing order. Without labels, or with labels in order (an allocation such as
    0,1,5), every rank keeps its number.
    """
    if len(labels) != ranks:
        return tuple(range(ranks))
    number = {label: n for n, label in enumerate(sorted(labels))}
    return tuple(number[label] for label in labels)


def relabelled(schedule: Schedule, ranks: Sequence[int]) -> Schedule:
    """Return `schedule` with rank r renamed ``ranks[r]``, for the same collective on the renamed ranks.

    Chunks are renumbered too: allgather's chunk of rank r becomes that of rank ``ranks[r]``. Raises UsageError if
    `ranks` is no permutation, SynthError if the collective depends on the numbers of the ranks (scan).
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
    steps = []
    for step in schedule.steps:
        sends = sorted(Send(chunk[s.chunk], ranks[s.src], ranks[s.dst], s.kind, s.via) for s in step.sends)
        switch_sends = []
        for send in step.switch_sends:
            group = tuple(sorted(ranks[r] for r in send.group))
            switch_sends.append(send._replace(chunk=chunk[send.chunk], rank=ranks[send.rank], group=group))
        steps.append(Step(step.rounds, tuple(sends), tuple(switch_sends)))
    return Schedule(network(schedule.network, ranks), task, c, tuple(steps))


def network(old: Network, ranks: Sequence[int]) -> Network:
    """Return `old` with rank r renamed ``ranks[r]``; routes and caps keep their order."""
    routes = tuple(Route(ranks[r.src], ranks[r.dst], r.units, r.via, r.latency) for r in old.routes)
    number: dict[int | str, int | str] = {r: ranks[r] for r in range(len(ranks))}  # switches keep their names
    wires = tuple((number.get(a, a), number.get(b, b), units) for a, b, units in old.wires)
    multicast = []
    for switch in old.multicast:
        ports = tuple(sorted((replace(port, rank=ranks[port.rank]) for port in switch.ports), key=lambda p: p.rank))
        multicast.append(replace(switch, ports=ports))
    return replace(old, routes=routes, wires=wires, generators=(), multicast=tuple(multicast))


def links(schedule: Schedule) -> set[tuple[int, int]]:
    """Return the pairs (src, dst) of different ranks between which `schedule` sends."""
    return {(send.src, send.dst) for step in schedule.steps for send in step.unicast_sends if not send.local}


def check_links(schedule: Schedule, machine: Network, name: str) -> None:
    """Raise SynthError if the schedule uses links that the machine lacks; the message lists them."""
    missing = sorted(links(schedule) - {(route.src, route.dst) for route in machine.routes})
    if missing:
        listed = ", ".join(f"{a} to {b}" for a, b in missing[:4])
        if len(missing) > 4:
            listed += f" and {len(missing) - 4} more"
        raise SynthError(f"the schedule uses links that {name} does not have: {listed}; give the ranks with --rank-map")


def _moved(task: Collective, ranks: Sequence[int]) -> tuple[Collective, list[int]]:
    """Return the collective with renumbered ranks, and the new unit of each old one.

    Units that lie before and after on the same ranks are matched in their order.
    """
    new = task
    if task.name in COLLECTIVES and COLLECTIVES[task.name][1] != ("sizes",):
        new = collective(task.name, task.ranks, tuple(ranks[r] for r in task.roots))
    units_of = {}
    for u, ends in enumerate(zip(new.pre, new.post, strict=True)):
        units_of.setdefault(ends, []).append(u)
    units = []
    for pre, post in zip(task.pre, task.post, strict=True):
        before = frozenset(ranks[r] for r in pre)
        same = units_of.get((before, frozenset(ranks[r] for r in post)))
        if not same or task.wants is not None:
            raise SynthError(
                f"{task.name} depends on the numbers of the ranks; synthesize it on the machine as it is numbered"
            )
        units.append(same.pop(0))
    return new, units
