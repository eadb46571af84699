"""Random schedules with switch sends, on one switch that multicasts."""

from __future__ import annotations

from random import Random

from synth.model.collective import collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.topologies import topology

MANY = 1000  # rounds of a step: enough for any of its sends


def random_schedule(random: Random, ranks: int) -> Schedule:
    """Return a random allreduce or broadcast over `ranks` ranks, of one to four chunks."""
    own = random.choice(["through", "local"])
    network = topology(f"switch:{ranks}:multicast={own}").multicast_network()
    chunks = random.randint(1, 4)
    name = random.choice(["allreduce", "broadcast"])
    steps: list[list] = [[] for _ in range(2 + 2 * ranks)]
    for chunk in range(chunks):
        rows = _allreduce(random, chunk, ranks) if name == "allreduce" else _spread(random, chunk, 0, ranks)
        for t, sends in enumerate(rows):
            steps[t] += sends
    listed = []
    for row in steps:
        plain = tuple(sorted(send for send in row if isinstance(send, Send)))
        through = tuple(sorted(send for send in row if isinstance(send, SwitchSend)))
        if row:
            listed.append(Step(MANY, plain, through))
    return Schedule(network, collective(name, ranks), chunks, tuple(listed))


def _allreduce(random: Random, chunk: int, ranks: int) -> list[list]:
    """Fetch sums inside random groups, add these at one leader, then spread the sum."""
    order = random.sample(range(ranks), ranks)
    groups = []
    while order:
        size = random.randint(1, len(order))
        groups.append(sorted(order[:size]))
        order = order[size:]
    leaders = [random.choice(group) for group in groups]
    fetched = []
    for leader, group in zip(leaders, groups, strict=True):
        if len(group) > 1:
            fetched.append(SwitchSend(chunk, leader, tuple(group), "fetch-reduce", "switch"))
    added = [[Send(chunk, leader, leaders[0], "reduce")] for leader in leaders[1:]]
    return [fetched, *added, *_spread(random, chunk, leaders[0], ranks)]


def _spread(random: Random, chunk: int, root: int, ranks: int) -> list[list]:
    """Copy the value of `root` to all ranks, in each step from one holder to some that lack it."""
    holders, missing, rows = [root], [rank for rank in range(ranks) if rank != root], []
    while missing:
        holder, group = random.choice(holders), random.sample(missing, random.randint(1, len(missing)))
        if len(group) == 1 and random.random() < 0.5:
            rows.append([Send(chunk, holder, group[0])])
        else:
            rows.append([SwitchSend(chunk, holder, tuple(sorted([holder, *group])), "multicast", "switch")])
        holders += group
        missing = [rank for rank in missing if rank not in group]
    return rows
