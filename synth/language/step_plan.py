"""The choice of steps for the operations of a trace: the fewest steps first, then few rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil, lcm

from synth.language.chunk_operations import Operation, Operations, operations
from synth.language.place import SourceLine
from synth.language.step_assignment import ListScheduling, sends_by_step, step_ranges
from synth.language.trace import MAX_CHUNKS, AlgorithmTrace
from synth.model.schedule import Send, Step
from synth.model.sends.step_routes import routes_by_pair, step_of_sends
from synth.model.topology import Network
from synth.program.send_hints import SendHints

# The most sends of a schedule whose number of chunks is chosen here.
MAX_SENDS = 200_000
# Chunks of a plan by list scheduling, as multiples of the fewest. More let steps share the data more evenly.
LEVEL_MULTIPLES = (1, 2, 3)
# The most operations that are list scheduled to find a plan with fewer rounds; 4000 take about a second.
MAX_LEVELLED = 4000


@dataclass(frozen=True)
class StepPlan:
    """Operations with the step of each.

    `has_slack`: some operation could be in another step, and the schedule would have no more steps.
    """

    network: Network
    ops: Operations
    step_of: dict[int, int]
    has_slack: bool = False

    @cached_property
    def sends(self) -> list[list[Send]]:
        """The sends of each step."""
        return sends_by_step(self.ops, self.step_of)

    def places(self, multiple: int = 1) -> dict[tuple[int, int, int, int], SourceLine]:
        """Return the line of each send between ranks, by (step from 1, chunk, source, destination).

        `multiple`: the chunks into which each chunk is cut.
        """
        rows = self._rows_by_send(multiple)
        return {key: row.place for key, row in rows if row.place is not None}

    def hints(self, multiple: int = 1) -> SendHints:
        """Return the hint of each send between ranks that has one, as `places` the lines."""
        rows = self._rows_by_send(multiple)
        return {key: row.hint for key, row in rows if row.hint is not None and key[2] != key[3]}

    def _rows_by_send(self, multiple: int) -> Iterator[tuple[tuple[int, int, int, int], Operation]]:
        """Yield each send by (step from 1, chunk, source, destination), with its operation."""
        # Steps in which nothing is sent are no steps of the schedule.
        used = {self.step_of[i] for i in self.ops.needed}
        number = {step: n for n, step in enumerate(sorted(used), 1)}
        for i in self.ops.needed:
            row = self.ops.rows[i]
            if row.source < 0:
                continue
            source, step = self.ops.rows[row.source].rank, number[self.step_of[i]]
            for chunk in range(row.chunk * multiple, (row.chunk + 1) * multiple):
                yield (step, chunk, source, row.rank), row

    @cached_property
    def loads(self) -> list[Fraction]:
        """The rounds of each step, as exact fractions, not rounded up."""
        return [_exact_rounds(self.network, row) for row in self.sends]


def planned(trace: AlgorithmTrace, ops: Operations, mode: str, rounds: int) -> StepPlan:
    """Return the steps of a mode: the earliest or the latest ones, whichever cost fewer rounds; or paced ones."""
    assert trace.network is not None  # a program is compiled for a machine
    if mode == "paced":
        return StepPlan(trace.network, ops, ListScheduling(ops, trace.network).steps(rounds))
    # Late sends leave early steps to others, and the other way round: either may fill the rounds better.
    ranges = step_ranges(ops, trace.steps if mode == "written" else ())
    slack = ranges.earliest != ranges.latest
    early = StepPlan(trace.network, ops, ranges.earliest, slack)
    if not slack:
        return early
    return min(early, StepPlan(trace.network, ops, ranges.latest, slack), key=_rounds_per_chunk)


def levelled(trace: AlgorithmTrace, plan: StepPlan, mode: str, file: str) -> StepPlan:
    """Return a plan with as many steps and fewer rounds by list scheduling, or the given one.

    Each step gets at most as many rounds as let the fewest steps suffice. A program with blocks keeps its plan.
    """
    if not plan.has_slack or (mode == "written" and trace.steps):
        return plan
    best = plan
    for multiple in LEVEL_MULTIPLES:
        # More operations would take longer than the plan is worth.
        if len(plan.ops.needed) * multiple > MAX_LEVELLED:
            break
        ops = plan.ops if multiple == 1 else operations(trace, plan.ops.chunks * multiple, file)
        greatest = ceil(max(plan.loads) * multiple)
        step_of = ListScheduling(ops, plan.network).fewest_rounds(len(plan.sends), greatest)
        if step_of is not None:
            best = min(best, StepPlan(plan.network, ops, step_of), key=_rounds_per_chunk)
    return best


def _rounds_per_chunk(plan: StepPlan) -> Fraction:
    return sum(plan.loads, Fraction(0)) / plan.ops.chunks


def _exact_rounds(network: Network, sends: Sequence[Send]) -> Fraction:
    """Return the rounds of a step, as a fraction: parallel routes share the chunks of a pair by their units."""
    units = Counter[tuple[int, int]]()
    for route in network.routes:
        units[route.src, route.dst] += route.units
    chunks = Counter((send.src, send.dst) for send in sends if not send.local)
    rounds = {pair: Fraction(count, units[pair]) for pair, count in chunks.items()}

    # A limit has the chunks of all routes that cross it.
    cap_load = [Fraction(0)] * len(network.caps)
    for i, route in enumerate(network.routes):
        for k in network.caps_of[i]:
            cap_load[k] += rounds.get((route.src, route.dst), 0) * route.units
    shared = [load / cap.units for load, cap in zip(cap_load, network.caps, strict=True)]
    return max([*rounds.values(), *shared], default=Fraction(1))


def best_multiple(loads: Sequence[Fraction], chunks: int, sends: int) -> int:
    """Return the multiple of `chunks` with the least rounds per chunk, the smallest of equals.

    With loads of l rounds in each step, exact fractions, a multiple m costs the sum of ceil(m l) rounds. `sends`: of
    the schedule, which limits the multiple.
    """
    greatest = max(1, min(MAX_CHUNKS // chunks, MAX_SENDS // max(1, sends)))
    exact = lcm(*[load.denominator for load in loads])
    if exact <= greatest:
        return exact
    # Steps of equal loads cost equally: each different load is rounded once.
    counts = Counter(loads)

    def rounds_per_chunk(multiple: int) -> Fraction:
        rounds = 0
        for load, count in counts.items():
            rounds += count * ceil(load * multiple)
        return Fraction(rounds, multiple)

    return min(range(1, greatest + 1), key=rounds_per_chunk)


def routed(network: Network, rows: Sequence[Sequence[Send]], multiple: int) -> tuple[Step, ...]:
    """Return steps of the sends of each row, over the least loaded routes of their pairs.

    Each chunk is cut into `multiple` ones.
    """
    routes = routes_by_pair(network)
    steps = []
    for row in rows:
        cut = []
        for send in row:
            chunks = range(send.chunk * multiple, (send.chunk + 1) * multiple)
            cut += [send._replace(chunk=chunk) for chunk in chunks]
        steps.append(step_of_sends(network, routes, cut))
    return tuple(steps)
