"""List scheduling of process groups: chunks follow the plans of all groups, each send in the first step that has room.

Shares become whole chunks; the chunks left over by rounding go where links are least full. Chunks of all groups take
turns, so that their pipelines fill together. A step has as many rounds as its fullest link or limit needs, at most
`maximum_rounds`. R / C falls towards the load of the packing with more chunks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from synth.errors import UsageError
from synth.model.process_groups import Units
from synth.model.schedule import Schedule, Send, Step
from synth.model.topology import Network
from synth.scale.groups.tree_columns import FractionalPacking, Plan, RouteCapacities
from synth.solvers.processes.deadline import TimeUp, check_deadline


@dataclass(frozen=True)
class StepAssignmentSettings:
    """Sizes up to which sends of several groups are assigned to steps.

    Attributes:
        maximum_sends: Sends that a schedule may have.
        default_sends: The default number of chunks makes about this many sends in all, or more for many ranks.
        default_sends_per_rank: It makes about this many sends for each rank where that is more.
        maximum_chunks: Most chunks a unit that the default chooses.
        maximum_rounds: Maximum rounds of a step that are tried: steps of many rounds are fewer, steps of few
            rounds fill pipelines sooner.
    """

    maximum_sends: int = 1 << 20
    default_sends: int = 40_000
    default_sends_per_rank: int = 1250
    maximum_chunks: int = 1 << 10
    maximum_rounds: tuple[int, ...] = (1, 4)


SETTINGS = StepAssignmentSettings()


def assign_steps(
    network: Network, units: Units, packings: Sequence[FractionalPacking], chunks: int | None = None
) -> tuple[Schedule, bool]:
    """Return a schedule with `chunks` chunks a unit, and True if all packings and widths of steps were tried.

    By default there are as many chunks as make a moderate number of sends. Among the schedules within 1% of the fewest
    rounds the one with the fewest steps is chosen. A time limit leaves the best so far, or raises TimeUp where there is
    none. Raises UsageError for too many chunks.
    """
    sends = max(_sends_per_chunk(units, shares) for shares in packings)
    chunks = _default_chunks(units, sends) if chunks is None else chunks
    if chunks < 1 or chunks * sends > SETTINGS.maximum_sends:
        raise UsageError(
            f"{chunks} chunks make about {int(chunks * sends)} sends; "
            f"between 1 chunk and {SETTINGS.maximum_sends} sends are listed"
        )
    resources = RouteCapacities(network)
    candidates: list[list[Step]] = []
    complete = True
    try:
        for shares in packings:
            chunk_plans = _chunk_plans(units, shares, chunks, resources)
            for maximum_rounds in SETTINGS.maximum_rounds:
                candidates.append(_list_schedule(resources, chunk_plans, maximum_rounds))
    except TimeUp:
        complete = False
        if not candidates:
            raise
    fewest = min(map(_total_rounds, candidates))
    steps = min((steps for steps in candidates if _total_rounds(steps) * 100 <= fewest * 101), key=len)
    return Schedule(network, units.collective, chunks, tuple(steps)), complete


def _total_rounds(steps: Sequence[Step]) -> int | Fraction:
    return sum(step.rounds for step in steps)


def _default_chunks(units: Units, sends: float) -> int:
    """Chunks a unit that make a moderate number of sends, of which one chunk a unit makes `sends`.

    Where possible they divide by the sizes of the groups, so that each rank of a group may be the root of equally many.
    """
    total = max(SETTINGS.default_sends, SETTINGS.default_sends_per_rank * units.collective.ranks)
    chunks = max(1, min(SETTINGS.maximum_chunks, int(total / sends)))
    sizes = {len(ranks) for ranks in (*units.collective.pre, *units.collective.post)}
    multiple = lcm(*sizes)
    return chunks - chunks % multiple if multiple <= chunks else chunks


def _sends_per_chunk(units: Units, shares: FractionalPacking) -> float:
    """Sends of one chunk a unit, over all units."""
    unit_count = Counter(units.parts)
    total = 0.0
    for (g, parts), options in zip(shares.commodities, shares.plans, strict=True):
        for share, plans in options:
            total += share * unit_count[g, parts[0]] * sum(map(len, plans))
    return total


def _chunk_plans(
    units: Units, shares: FractionalPacking, chunks: int, resources: RouteCapacities
) -> list[tuple[int, Plan]]:
    """(chunk, plan) of every chunk, those of all parts in turns."""
    units_of: dict[tuple[int, int], list[int]] = {}
    for u, key in enumerate(units.parts):
        units_of.setdefault(key, []).append(u)
    counts = [len(units_of[g, parts[0]]) * chunks for g, parts in shares.commodities]
    queue: list[tuple[float, int, Plan]] = []
    for j, plan_counts in enumerate(_rounded(shares, counts, resources)):
        g, parts = shares.commodities[j]
        # the chunks of each plan are spread evenly over the turns of the commodity
        turns = ((i + 0.5) / n for n in plan_counts for i in range(n))
        plan_of_turn = (p for p, n in enumerate(plan_counts) for _ in range(n))
        spread = sorted(zip(turns, plan_of_turn, strict=True))
        for at, part in enumerate(parts):
            names = [u * chunks + i for u in units_of[g, part] for i in range(chunks)]
            for i, (name, (_, p)) in enumerate(zip(names, spread, strict=True)):
                queue.append(((i + 0.5) / counts[j], name, shares.plans[j][p][1][at]))
    return [(chunk, plan) for _, chunk, plan in sorted(queue, key=lambda row: row[:2])]


def _rounded(shares: FractionalPacking, counts: Sequence[int], resources: RouteCapacities) -> list[list[int]]:
    """Number of chunks of each commodity that take each of its plans; `counts[j]`: chunks of commodity j.

    Shares are rounded down; the remaining chunks go, commodity by commodity in turns, where links are least full.
    """
    load = [0] * len(resources.capacity)
    rounded: list[list[int]] = []
    uses: list[list[dict[int, int]]] = []
    for options, count in zip(shares.plans, counts, strict=True):
        rounded.append([int(share * count + 1e-6) for share, _ in options])
        uses.append([Counter(_resources_used(plans, resources)) for _, plans in options])
        for n, use in zip(rounded[-1], uses[-1], strict=True):
            for k, times in use.items():
                load[k] += n * times
    remaining = [count - sum(row) for row, count in zip(rounded, counts, strict=True)]
    while any(remaining):
        for j, row in enumerate(rounded):
            if remaining[j] <= 0:
                continue
            excess = [row[p] - share * counts[j] for p, (share, _) in enumerate(shares.plans[j])]
            fullest = [_fullest(load, use, resources) for use in uses[j]]
            p = min(range(len(row)), key=lambda p: (fullest[p], excess[p], p))
            row[p] += 1
            remaining[j] -= 1
            for k, times in uses[j][p].items():
                load[k] += times
    return rounded


def _resources_used(plans: Sequence[Plan], resources: RouteCapacities) -> Iterator[int]:
    """Resources of all hops of the plans."""
    for plan in plans:
        for hop in plan:
            yield from resources.of[hop.route]


def _fullest(load: Sequence[int], use: dict[int, int], resources: RouteCapacities) -> float:
    """Load over capacity of the fullest resource in `use`, after one more chunk."""
    return max((load[k] + times) / resources.capacity[k] for k, times in use.items())


def _list_schedule(
    resources: RouteCapacities, chunk_plans: Sequence[tuple[int, Plan]], maximum_rounds: int
) -> list[Step]:
    """Place the sends of each chunk, one chunk after the other, in the first steps with capacity. Raises TimeUp."""
    network = resources.network
    capacity = [n * maximum_rounds for n in resources.capacity]
    load: list[list[int]] = [[] for _ in capacity]  # of each resource in each step
    first_free = [0] * len(capacity)  # the first step in which the resource is not full
    ends = [(r.src, r.dst, r.via) for r in network.routes]
    rows: list[list[Send]] = []
    for at, (chunk, plan) in enumerate(chunk_plans):
        if not at & 255:
            check_deadline()
        ready: dict[int, int] = {}  # the first step in which each rank may send the chunk on
        for hop in plan:
            src, dst, via = ends[hop.route]
            used = resources.of[hop.route]
            t = max([ready.get(src, 0), *(first_free[k] for k in used)])
            while any(t < len(load[k]) and load[k][t] >= capacity[k] for k in used):
                t += 1
            for k in used:
                load[k] += [0] * (t + 1 - len(load[k]))
                load[k][t] += 1
                while first_free[k] < len(load[k]) and load[k][first_free[k]] >= capacity[k]:
                    first_free[k] += 1
            while len(rows) <= t:
                rows.append([])
            rows[t].append(Send(chunk, src, dst, "reduce" if hop.sums else "copy", via))
            ready[dst] = max(ready.get(dst, 0), t + 1)
    rounds = [1] * len(rows)
    for row, units in zip(load, resources.capacity, strict=True):
        for t, amount in enumerate(row):
            rounds[t] = max(rounds[t], -(-amount // units))
    return [Step(n, tuple(sorted(row))) for n, row in zip(rounds, rows, strict=True)]
