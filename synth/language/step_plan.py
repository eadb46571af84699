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
from synth.language.settings import SETTINGS
from synth.language.step_assignment import ListScheduling, earliest_steps, latest_steps, sends_by_step
from synth.language.trace import MAX_CHUNKS, AlgorithmTrace
from synth.model.schedule import Send, Step
from synth.model.sends.step_routes import routes_by_pair, step_of_sends
from synth.model.topology import Network
from synth.program.send_hints import SendHints


@dataclass(frozen=True)
class StepPlan:
    """Operations with the step of each.

    `has_slack`: an operation may have several steps in a schedule with as few steps.
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
        return [exact_rounds(self.network, row) for row in self.sends]

    @property
    def rounds_per_chunk(self) -> Fraction:
        """Rounds of all steps for one chunk of each unit."""
        return sum(self.loads, Fraction(0)) / self.ops.chunks


def planned(trace: AlgorithmTrace, ops: Operations, mode: str, rounds: int) -> StepPlan:
    """Return the steps of a mode: the earliest or the latest ones, whichever cost fewer rounds; or paced ones."""
    assert trace.network is not None  # a program is compiled for a machine
    if mode == "paced":
        return StepPlan(trace.network, ops, ListScheduling(ops, trace.network).steps(rounds))
    blocks = trace.steps if mode == "written" else ()
    earliest, latest = earliest_steps(ops, blocks), latest_steps(ops, blocks)
    slack = earliest != latest
    early = StepPlan(trace.network, ops, earliest, slack)
    if not slack:
        return early
    late = StepPlan(trace.network, ops, latest, slack)
    return min(early, late, key=lambda plan: plan.rounds_per_chunk)


def levelled(trace: AlgorithmTrace, plan: StepPlan, mode: str, file: str) -> StepPlan:
    """Return a plan with as many steps and fewer rounds by list scheduling, or the given one.

    Each step gets at most as many rounds as let the fewest steps suffice. A program with blocks keeps its plan.
    """
    if not plan.has_slack or (mode == "written" and trace.steps):
        return plan
    best = plan
    steps = len(plan.sends)
    for multiple in SETTINGS.level_multiples:
        if len(plan.ops.needed) * multiple > SETTINGS.maximum_levelled:
            break
        ops = plan.ops if multiple == 1 else operations(trace, plan.ops.chunks * multiple, file)
        greatest = ceil(max(plan.loads) * multiple)
        step_of = ListScheduling(ops, plan.network).fewest_rounds(steps, greatest)
        if step_of is not None:
            best = min(best, StepPlan(plan.network, ops, step_of), key=lambda one: one.rounds_per_chunk)
    return best


def exact_rounds(network: Network, sends: Sequence[Send]) -> Fraction:
    """Return the rounds of a step, as a fraction: parallel routes share the chunks of a pair by their units."""
    units: dict[tuple[int, int], int] = {}
    for route in network.routes:
        units[route.src, route.dst] = units.get((route.src, route.dst), 0) + route.units
    pairs: dict[tuple[int, int], int] = {}
    for send in sends:
        if not send.local:
            pairs[send.src, send.dst] = pairs.get((send.src, send.dst), 0) + 1
    cap_load = [Fraction(0)] * len(network.caps)
    greatest = Fraction(0)
    for i, route in enumerate(network.routes):
        pair = (route.src, route.dst)
        if pair not in pairs:
            continue
        rounds = Fraction(pairs[pair], units[pair])
        greatest = max(greatest, rounds)
        for k in network.caps_of[i]:
            cap_load[k] += rounds * route.units
    shared = [load / cap.units for load, cap in zip(cap_load, network.caps, strict=True)]
    return max([greatest, *shared], default=Fraction(1))


def best_multiple(loads: Sequence[Fraction], chunks: int, sends: int) -> int:
    """Return the multiple of `chunks` with the least rounds per chunk, the smallest of equals.

    With loads of l rounds in each step, exact fractions, a multiple m costs the sum of ceil(m l) rounds. `sends`: of
    the schedule, which limits the multiple.
    """
    greatest = max(1, min(MAX_CHUNKS // chunks, SETTINGS.maximum_sends // max(1, sends)))
    exact = lcm(*[load.denominator for load in loads])
    if exact <= greatest:
        return exact
    counts = Counter(loads)

    def rounds_per_chunk(multiple: int) -> Fraction:
        rounds = 0
        for load, count in counts.items():
            rounds += count * ceil(load * multiple)
        return Fraction(rounds, multiple)

    return min(range(1, greatest + 1), key=rounds_per_chunk)


def routed(network: Network, rows: Sequence[Sequence[Send]], multiple: int) -> tuple[Step, ...]:
    """Return steps of the sends of each row, each of whose chunks is cut into `multiple` ones, over the least loaded
    routes of their pairs."""
    routes = routes_by_pair(network)
    return tuple(step_of_sends(network, routes, _cut(row, multiple)) for row in rows)


def _cut(sends: Sequence[Send], multiple: int) -> Sequence[Send]:
    if multiple == 1:
        return sends
    cut = []
    for send in sends:
        for chunk in range(send.chunk * multiple, (send.chunk + 1) * multiple):
            cut.append(send._replace(chunk=chunk))
    return cut
