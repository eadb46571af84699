"""Renumbering of a schedule from its own ranks to those of a machine, and a check of the links that it then uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from synth.errors import SynthError, UsageError
from synth.model.collective import COLLECTIVES, collective
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network, Route


def ranks_from_labels(labels: Sequence[int], ranks: int) -> tuple[int, ...]:
    """Return the communicator's rank of each rank of a machine, given the label of each rank.

    The communicator numbers the labels in growing order. Without labels, or with labels in order (an allocation such as
    0,1,5), every rank keeps its number.
    """
    if len(labels) != ranks:
        return tuple(range(ranks))
    # Devices become ranks in growing order of their labels.
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

    # The collective of that name on the renamed ranks, and its unit for each one of the schedule's.
    old = task = schedule.collective
    if old.name in COLLECTIVES and COLLECTIVES[old.name][1] != ("sizes",):
        task = collective(old.name, old.ranks, tuple(ranks[r] for r in old.roots))
    units = old.unit_permutation(ranks, task)
    if units is None:
        raise SynthError(
            f"{old.name} depends on the numbers of the ranks; synthesize it on the machine as it is numbered"
        )
    # The chunks of a unit stay together, in their order.
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
        ports = [replace(port, rank=ranks[port.rank]) for port in switch.ports]
        multicast.append(replace(switch, ports=tuple(sorted(ports, key=lambda port: port.rank))))
    return replace(old, routes=routes, wires=wires, generators=(), multicast=tuple(multicast))


def check_links(schedule: Schedule, machine: Network) -> None:
    """Raise SynthError if the schedule uses links that the machine lacks; the message names the first."""
    used = {(send.src, send.dst) for step in schedule.steps for send in step.unicast_sends if not send.local}
    missing = used - {(route.src, route.dst) for route in machine.routes}
    if missing:
        src, dst = min(missing)
        raise SynthError(
            f"the schedule uses {len(missing)} links that {machine.name} does not have: {src} to {dst}, ...; give the "
            "ranks with --rank-map"
        )
