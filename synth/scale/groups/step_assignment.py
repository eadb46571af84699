"""From shares to steps: chunks follow the plans of all groups at once, each send in the first step with room for it.

Shares become whole chunks, what is left over goes where links are least full; chunks of all groups take turns, so that
their pipelines fill together. A step has as many rounds as its fullest link or limit needs, at most `width`; R / C
falls towards the packing's load with more chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import lcm

from synth.errors import UsageError
from synth.model.process_groups import Units
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.scale.groups.tree_columns import Plan, Resources, Shares
from synth.solvers.processes.deadline import TimeUp, check

MOST_SENDS = 1 << 20
# Sends that a schedule of the default number of chunks has about.
USUAL_SENDS = 40_000
SENDS_PER_RANK = 1250
MOST_CHUNKS = 1 << 10
# Rounds of a step at most: wide ones are fewer, narrow ones fill pipelines sooner.
WIDTHS = (1, 4)


def scheduled(
    network: Network, task: Units, packings: Sequence[Shares], chunks: int | None = None
) -> tuple[Schedule, bool]:
    """A schedule with `chunks` chunks a unit (by default as many as make a moderate number of sends).

    Of all packings and several widths of steps the one of fewest steps among those within 1% of the fewest rounds. And
    whether all were tried: a time limit leaves the best so far, or raises TimeUp where there is none. Raises
    UsageError.
    """
    sends = max(_sends(task, shares) for shares in packings)
    chunks = _usual(task, sends) if chunks is None else chunks
    if chunks < 1 or chunks * sends > MOST_SENDS:
        raise UsageError(
            f"{chunks} chunks make about {int(chunks * sends)} sends; between 1 chunk and {MOST_SENDS} sends are listed"
        )
    resources = Resources(network)
    tried: list[list[Step]] = []
    whole = True
    try:
        for shares in packings:
            jobs = _jobs(task, shares, chunks, resources)
            for width in WIDTHS:
                tried.append(_placed(resources, jobs, width))
    except TimeUp:
        whole = False
        if not tried:
            raise
    least = min(sum(step.rounds for step in steps) for steps in tried)
    steps = min((s for s in tried if sum(step.rounds for step in s) * 100 <= least * 101), key=len)
    return Schedule(network, task.collective, chunks, tuple(steps)), whole


def _usual(task: Units, sends: float) -> int:
    """Chunks that make a moderate number of sends, where possible so that each rank of a group may root equally
    many."""
    most = max(1, min(MOST_CHUNKS, int(max(USUAL_SENDS, SENDS_PER_RANK * task.collective.ranks) / sends)))
    sizes = {len(ranks) for ranks in (*task.collective.pre, *task.collective.post)}
    even = lcm(*sizes)
    return most - most % even if even <= most else most


def _sends(task: Units, shares: Shares) -> float:
    """Sends of one chunk a unit."""
    copies: dict[tuple[int, int], int] = {}
    for key in task.parts:
        copies[key] = copies.get(key, 0) + 1
    total = 0.0
    for (g, parts), options in zip(shares.commodities, shares.plans, strict=True):
        for share, plans in options:
            total += share * copies[g, parts[0]] * sum(map(len, plans))
    return total


def _jobs(task: Units, shares: Shares, chunks: int, resources: Resources) -> list[tuple[int, Plan]]:
    """(chunk, plan) of every chunk, those of all parts in turns."""
    units: dict[tuple[int, int], list[int]] = {}
    for u, key in enumerate(task.parts):
        units.setdefault(key, []).append(u)
    counts = [len(units[g, parts[0]]) * chunks for g, parts in shares.commodities]
    queue: list[tuple[float, int, Plan]] = []
    for j, wholes in enumerate(_whole(shares, counts, resources)):
        g, parts = shares.commodities[j]
        # each plan's chunks far apart
        picks = [p for _, p in sorted(((i + 0.5) / n, p) for p, n in enumerate(wholes) for i in range(n))]
        for at, part in enumerate(parts):
            names = [u * chunks + i for u in units[g, part] for i in range(chunks)]
            turns = zip(names, picks, strict=True)
            queue += [
                ((i + 0.5) / counts[j], name, shares.plans[j][pick][1][at]) for i, (name, pick) in enumerate(turns)
            ]
    return [(chunk, plan) for _, chunk, plan in sorted(queue, key=lambda row: row[:2])]


def _whole(shares: Shares, counts: Sequence[int], resources: Resources) -> list[list[int]]:
    """How many chunks of each commodity take each of its plans: shares rounded down, the rest where links are least
    full."""
    load = [0] * len(resources.room)
    found: list[list[int]] = []
    uses: list[list[dict[int, int]]] = []
    for options, count in zip(shares.plans, counts, strict=True):
        found.append([int(share * count + 1e-6) for share, _ in options])
        uses.append(
            [Counter(k for plan in plans for hop in plan for k in resources.of[hop.route]) for _, plans in options]
        )
        for n, use in zip(found[-1], uses[-1], strict=True):
            for k, times in use.items():
                load[k] += n * times
    left = [count - sum(row) for row, count in zip(found, counts, strict=True)]
    while any(left):
        for j, row in enumerate(found):
            if left[j] <= 0:
                continue
            short = [row[p] - share * counts[j] for p, (share, _) in enumerate(shares.plans[j])]
            fullest = [max((load[k] + times) / resources.room[k] for k, times in use.items()) for use in uses[j]]
            p = min(range(len(row)), key=lambda p: (fullest[p], short[p], p))
            row[p] += 1
            left[j] -= 1
            for k, times in uses[j][p].items():
                load[k] += times
    return found


def _placed(resources: Resources, jobs: Sequence[tuple[int, Plan]], width: int) -> list[Step]:
    network = resources.network
    room = [n * width for n in resources.room]
    load: list[list[int]] = [[] for _ in room]  # of each resource in each step
    open_ = [0] * len(room)  # the first step that is not full
    ends = [(r.src, r.dst, r.via) for r in network.routes]
    rows: list[list[Send]] = []
    for at, (chunk, plan) in enumerate(jobs):
        if not at & 255:
            check()
        ready: dict[int, int] = {}
        for hop in plan:
            src, dst, via = ends[hop.route]
            mine = resources.of[hop.route]
            t = max([ready.get(src, 0), *(open_[k] for k in mine)])
            while any(t < len(load[k]) and load[k][t] >= room[k] for k in mine):
                t += 1
            for k in mine:
                load[k] += [0] * (t + 1 - len(load[k]))
                load[k][t] += 1
                while open_[k] < len(load[k]) and load[k][open_[k]] >= room[k]:
                    open_[k] += 1
            while len(rows) <= t:
                rows.append([])
            rows[t].append(Send(chunk, src, dst, "reduce" if hop.sums else "copy", via))
            ready[dst] = max(ready.get(dst, 0), t + 1)
    rounds = [
        max([1, *(-(-load[k][t] // resources.room[k]) for k in range(len(room)) if t < len(load[k]))])
        for t in range(len(rows))
    ]
    return [Step(n, tuple(sorted(row))) for n, row in zip(rounds, rows, strict=True)]
