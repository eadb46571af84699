"""Runs of programs by the reference executor against every lower bound in time that is printed.

python -m bench.time_bounds [--machines 120] [--seed 0]

Half of the machines are known ones, with multicast and without. The others are random: 2 to 6 ranks in one or two
boxes, links of uneven bandwidth and latency, some in one direction alone, shared limits, switches, some of which
multicast. The programs are of all constructions: points of frontiers and of multicast frontiers, the library and the
baselines, list schedules, random schedules through switches; lowered to messages and to one-sided plans, in all
protocols, one instance and two, at three sizes. A run that takes less than a bound is *below* it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

from synth import api
from synth.api.baselines import baseline_summaries
from synth.encodings.multicast_pipelining import MulticastPipelining, whole_switch
from synth.errors import SynthError, VerificationError
from synth.model.collective import Collective, collective
from synth.model.scale_collectives import COLLECTIVES as FLOWS
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.model.topology import Limit, Link, Multicast, Network, Topology
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.overheads import NCCL, NO_OVERHEADS
from synth.program.program import PROTOCOLS, Program
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.scale.list_schedules import schedule_for_size
from synth.scale.time_bound import time_bound

KNOWN = (
    "ring:4", "ring:7", "full:5", "line:4", "star:5", "torus:2x3", "torus:3x3", "hypercube:8", "mesh:3x3", "fat-tree:4",
    "dgx1", "dgx1-p100", "dgx2", "dgx-a100", "p4d", "dgx-h100", "dgx-b200", "mi50-z52", "mi100-4p3l", "mi250", "mi300x",
    "pcie-2x4", "pcie-4x2", "pcie-8", "dgx-h100*2", "dgx1*2", "p4d*2", "rail:2x4", "switch:4", "hub-and-spoke:5",
    "circulant:6", "dragonfly:2x2", "switch:3:multicast=through", "switch:4:multicast=through", "dgx-h100*3",
    "switch:4:multicast=local", "switch:6:multicast=local", "switch:8:multicast=through",
)  # fmt: skip
COLLECTIVES = (
    "allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall", "scatter", "gather", "sendrecv",
    "scan",
)  # fmt: skip
SIZES = (4096, 1 << 18, 24 << 20)  # bytes
SEARCHED = 5  # of so many machines one has its frontiers synthesized
SMALL = 4  # ranks up to which frontiers are synthesized here; larger ones take seconds
QUICK = 4  # ranks up to which a list schedule takes less than a second
MOST_SENDS = 3000  # of a schedule at scale
MANY = 4096  # rounds of a step of a random schedule


def machines(seed: int, count: int) -> Iterator[Topology]:
    """Yield the known machines, as far as there are of these names, then random ones: `count` in all."""
    made = 0
    for name in KNOWN:
        if made < count // 2:
            try:
                yield api.topology(name)
            except SynthError:
                continue
            made += 1
    for number in range(count - made):
        yield random_machine(seed, number)


def random_machine(seed: int, number: int) -> Topology:
    """Return the random machine of a seed and a number; each rank reaches each other."""
    random = Random(f"{seed} {number}")
    ranks, boxes, switches = random.randint(2, 6), random.choice((1, 1, 2)), random.choice((0, 0, 1, 2))
    latencies = random.choice(((0,), (1,), (0, 1, 5), (Fraction(1, 3), 2, 9)))
    ends = [(a, (a + 1) % ranks) for a in range(ranks)]  # so that all are reached
    for a in range(ranks):
        ends += [(a, b) for b in range(ranks) if a != b and random.random() < random.choice((0.1, 0.5))]
    for s in range(ranks, ranks + switches):
        for rank in range(ranks):
            if random.random() < 0.9:
                ends += [(rank, s), (s, rank)]
    links = [Link(a, b, random.choice((1, 1, 2, 4, 10)), random.choice(latencies)) for a, b in dict.fromkeys(ends)]
    limits = []
    for k in range(random.choice((0, 0, 1, 3))):
        some = tuple(sorted(random.sample(range(len(links)), random.randint(1, min(4, len(links))))))
        limits.append(Limit(f"limit {k}", some, random.choice((1, 2, 3))))
    names = tuple(f"s{k}" for k in range(switches))
    joined = [Multicast(name, (), random.choice(("through", "local"))) for name in names if random.random() < 0.7]
    nodes = tuple(rank * boxes // ranks for rank in range(ranks))
    return Topology(f"random-{seed}-{number}", ranks, links, limits, names, nodes, multicast=joined)


def schedules(machine: Topology, task: Collective, random: Random, searched: bool) -> Iterator[tuple[str, Schedule]]:
    """Yield schedules of a collective on a machine by all constructions, with the name of each.

    `searched`: points of frontiers and all list schedules, too, which take seconds to find. Of points at scale a busy
    machine may find fewer.
    """
    network = machine.network()
    if searched and machine.ranks <= SMALL:
        one_box = replace(machine, nodes=(0,) * machine.ranks)  # boxes change what is found, not the links
        found = api.frontier(one_box, task, max_steps=2, max_chunks=2, engine="exact", jobs=1)
        for point in found.points:
            yield "frontier", point.schedule.written_out()
    if searched and task.name in FLOWS:
        found = api.frontier(machine, task, engine="flow", time_limit=2, multicast=False)
        points = [point for point in found.points if found.least_sends(point) <= MOST_SENDS]
        for point in points[:: max(1, len(points) // 4)]:
            yield f"at scale: {point.construction}", point.schedule.written_out()
    for name in baseline_summaries():
        try:
            yield name, api.baseline(name, network, task)
        except SynthError:  # not for this collective, number of ranks or links
            continue
    for protocol in PROTOCOLS if searched else random.sample(PROTOCOLS, int(machine.ranks <= QUICK)):
        try:
            made = schedule_for_size(NCCL.links(network, protocol), task, random.choice(SIZES), 8)
            yield "list schedule", replace(made, network=network)
        except SynthError:
            continue
    if machine.multicast:
        ports = machine.multicast_network()
        if whole_switch(ports) is not None and task.name == "allreduce":
            for size in (4096, 1 << 20):
                yield "switch", MulticastPipelining(ports, task).plain((size,), 16)
        for switch in ports.multicast if task.name == "allreduce" else ():
            if len(switch.ports) == machine.ranks:
                yield "random switch sends", random_sums(ports, task, random)


def random_sums(network: Network, task: Collective, random: Random) -> Schedule:
    """Return an allreduce of one to four chunks: groups sum up through the switch, which multicasts the total."""
    switch = next(one.switch for one in network.multicast if len(one.ports) == network.ranks)
    linked = {(route.src, route.dst): route.via for route in network.routes}
    steps: list[list[Send | SwitchSend]] = [[] for _ in range(network.ranks + 2)]
    chunks = random.randint(1, 4)
    for chunk in range(chunks):
        order = random.sample(range(network.ranks), network.ranks)
        cut = random.randint(1, network.ranks)
        groups = [sorted(order[:cut]), sorted(order[cut:])]
        leaders = [random.choice(group) for group in groups if group]
        for leader, group in zip(leaders, groups, strict=False):
            if len(group) > 1:
                steps[0].append(SwitchSend(chunk, leader, tuple(group), "fetch-reduce", switch))
        for leader in leaders[1:]:
            steps[1].append(Send(chunk, leader, leaders[0], "reduce", linked[leader, leaders[0]]))
        steps[2].append(SwitchSend(chunk, leaders[0], tuple(range(network.ranks)), "multicast", switch))
    listed = []
    for row in steps:
        plain = tuple(sorted(send for send in row if isinstance(send, Send)))
        through = tuple(sorted(send for send in row if isinstance(send, SwitchSend)))
        if row:
            listed.append(Step(MANY, plain, through))
    return Schedule(network, task, chunks, tuple(listed))


def runs(
    machine: Topology, seed: int, most: int, searched: bool = False, sizes: Sequence[int] = SIZES
) -> Iterator[dict]:
    """Yield a row for each run on a machine, `most` at most of each collective: the time and the bounds beside it."""
    random = Random(f"{seed} {machine.name}")
    names = random.sample(COLLECTIVES, 2)
    if machine.multicast:
        names = ["allreduce", *names]
    for name in names:
        task = collective(name, machine.ranks)
        try:
            made = list(schedules(machine, task, random, searched))
        except SynthError:  # no frontier of this collective here
            continue
        options = []
        for kind, schedule in made:
            for runtime in ("synth", "mscclpp"):
                for protocol in PROTOCOLS:
                    options += [(kind, schedule, runtime, protocol, instances) for instances in (1, 2)]
        random.shuffle(options)
        # Plans through switches come first, as few options are such ones.
        options.sort(key=lambda one: not (one[1].uses_multicast and one[2:4] == ("mscclpp", "Simple")))
        done = 0
        for kind, schedule, runtime, protocol, instances in options:
            row = {"machine": machine.name, "ranks": machine.ranks, "collective": name, "construction": kind,
                   "runtime": runtime, "protocol": protocol, "instances": instances}  # fmt: skip
            try:
                program = lowered(schedule, machine, runtime, protocol, instances)
                rows = [row | times(program, machine, task, size, protocol) for size in sizes]
            except (VerificationError, DeadlockError):
                raise
            except SynthError:  # the runtime does not take this schedule
                continue
            yield from rows
            done += 1
            if done == most:
                break


def lowered(schedule: Schedule, machine: Topology, runtime: str, protocol: str, instances: int) -> Program:
    """Return the schedule's program of messages between ranks, or its one-sided plan (`runtime` mscclpp)."""
    if runtime == "mscclpp":
        options = LoweringOptions("mscclpp", protocol, instances, nodes=machine.nodes or (0,) * machine.ranks)
        return onesided(schedule, options)
    return api.lower(schedule, protocol=protocol, instances=instances)


def times(program: Program, machine: Topology, task: Collective, size: int, protocol: str) -> dict:
    """Return the time of a run in µs and the greatest bound on it: by the clock, on bare links, of any protocol."""
    clock = api.run(program, size=size, topology=machine, collective=task, protocol=protocol, data=False)
    bare = api.run(program, size=size, topology=machine, collective=task, data=False, overheads=False)
    below = []
    for done, overheads, protocols in (
        (clock, NCCL, (protocol,)), (clock, NCCL, PROTOCOLS), (bare, NO_OVERHEADS, PROTOCOLS),
    ):  # fmt: skip
        least = time_bound(machine, task, [done.size], overheads=overheads, protocols=protocols).microseconds(done.size)
        assert done.execution.picoseconds is not None and done.bound is not None  # it is the reference executor
        below += [done.execution.picoseconds < least * 10**6, done.execution.picoseconds < done.bound]
    return {
        "size": clock.size, "us": (clock.execution.picoseconds or 0) / 1e6,
        "bound_us": round(float(clock.bound or 0) / 1e6, 6), "below": any(below),
        "switches": bool(machine.multicast), "through_switches": program.through_switches,
    }  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where a run takes less than a bound."""
    parser = argparse.ArgumentParser(prog="python -m bench.time_bounds", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--machines", type=int, default=120, help="known and random ones (default: 120)")
    parser.add_argument("--runs", type=int, default=4, help="programs of a machine and a collective (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="other machines and programs for another seed")
    given = parser.parse_args(arguments)
    count: Counter[str] = Counter()
    for number, machine in enumerate(machines(given.seed, given.machines)):
        for row in runs(machine, given.seed, given.runs, searched=number % SEARCHED == 0):
            count["runs"] += 1
            count[row["construction"]] += 1
            if row["below"]:
                count["below"] += 1
                print(json.dumps(row), file=sys.stderr)
    print(json.dumps(count))
    return int(count["below"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
