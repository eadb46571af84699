"""Tree engine: schedules of whole chunks on the trees that column generation finds, without SAT.

Column generation gives the least R/C that trees allow. The integer program
(`synth.encodings.tree_packing.integer_program`) makes whole chunks of its fractions, first with solutions that are
invariant under all automorphisms, then under smaller and smaller groups.

To find none proves nothing, as only some trees are tried. Seconds are CPU seconds of this process, so that a busy
machine changes no answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, lcm

from synth.bounds.trees.column_generation import FoldedProblem, enrich, generate
from synth.encodings.tree_packing.integer_program import TreeProgram
from synth.model import symmetry
from synth.model.collective import Collective
from synth.model.outcome import Cost, Sat, Unknown, Verdict
from synth.model.schedule import Problem, Schedule
from synth.model.symmetry.stabilisers import Generator
from synth.model.topology import Network
from synth.solvers.processes.deadline import UNLIMITED, Budget, Deadline


@dataclass(frozen=True)
class TreeSearchSettings:
    """Limits of the search for whole chunks on trees.

    Attributes:
        max_columns: Maximum number of known trees of each unit in the integer program.
        growth: Maximum number of trees of each unit that join the columns before a turn.
        first_slice: CP-SAT's limit in the first turn, in seconds; it doubles every two turns.
        max_turns: Maximum number of turns for one problem.
        multiples: Maximum number of multiples tried beyond the least, up to the one at which the rounds are
            whole.
        multiple_turns: Maximum number of turns for each multiple.
        approximations: Number of best roundings tried, beside the best, in `near`.
    """

    max_columns: int = 1500
    growth: int = 300
    first_slice: float = 0.5
    max_turns: int = 8
    multiples: int = 6
    multiple_turns: int = 2
    approximations: int = 4


SETTINGS = TreeSearchSettings()


@dataclass(frozen=True)
class _Search:
    """One search: its seed, its end on the CPU clock, and its start in CPU and wall seconds."""

    seed: int
    deadline: Deadline
    cpu: float
    wall: float

    @staticmethod
    def begin(budget: Budget) -> _Search:
        return _Search(budget.seed, budget.cpu_deadline(), time.process_time(), time.monotonic())

    def found(self, schedule: Schedule, **detail: object) -> Sat:
        return Sat(schedule, self._cost(**detail))

    def none(self, detail: str = "no whole multiplicities of the trees found", **cost: object) -> Unknown:
        """Return the verdict of a search without a schedule. Only one that the deadline ended gives the reason time."""
        return Unknown("time" if self.deadline.over else "gave-up", detail, self._cost(**cost))

    def gave_up(self, detail: str, **cost: object) -> Unknown:
        return Unknown("gave-up", detail, self._cost(**cost))

    def _cost(self, **detail: object) -> Cost:
        spent = time.process_time() - self.cpu
        return Cost("tree", spent, spent, time.monotonic() - self.wall, dict(detail))


def solve(
    problem: Problem, budget: Budget = UNLIMITED, *, groups: Sequence[Sequence[Generator]] | None = None
) -> Verdict:
    """Search for a schedule for `problem`; Unknown, which proves nothing, if none is found.

    For collectives that do not combine; callers reverse reduce and reduce-scatter. `groups` are generators of the
    automorphism group and of subgroups to try, the largest first; `symmetry` computes them if not given.
    """
    search = _Search.begin(budget)
    if problem.collective.combining:
        return search.gave_up("the tree engine takes no combining collectives")
    if problem.rounds < problem.steps:
        return search.gave_up("fewer rounds than steps")
    groups = symmetry.subgroups(problem.network, problem.collective) if groups is None else groups
    goal = Fraction(problem.rounds, problem.chunks)
    columns = generate(
        FoldedProblem(problem.network, problem.collective, problem.steps, groups[0]),
        float(goal),
        floor=1 / problem.chunks,
        deadline=search.deadline,
        seed=search.seed,
    )
    if columns is None:
        return search.gave_up("some destination is too far for so few steps")
    slack = float(goal) - columns.value
    if slack < -1e-6:
        return search.gave_up(_too_much(columns.value), lp=columns.value)
    packings = [TreeProgram(columns, group, problem.chunks) for group in groups]
    found = _whole(packings, problem.rounds, slack, search, SETTINGS.max_turns)
    if found is not None:
        return search.found(found[0], lp=columns.value, **found[1])
    return search.none(lp=columns.value)


def meet(
    network: Network, collective: Collective, steps: int, value: Fraction, most: int, budget: Budget = UNLIMITED
) -> Verdict:
    """Search for a schedule of `steps` steps with R/C = `value` and up to `most` chunks a unit; Unknown if none is
    found.

    One column generation serves all numbers of chunks. They are tried in ascending order, together with the number at
    which the rounds of the fractional solution are whole.
    """
    search = _Search.begin(budget)
    groups = symmetry.subgroups(network, collective)
    folded = FoldedProblem(network, collective, steps, groups[0])
    columns = generate(folded, float(value), deadline=search.deadline, seed=search.seed)
    if columns is None:
        return search.gave_up("some destination is too far for so few steps")
    if columns.value > float(value) * (1 + 1e-6):
        return search.gave_up(_too_much(columns.value), lp=columns.value)
    for multiple in _multiples(value, steps, columns.rounds, most):
        chunks, rounds = value.denominator * multiple, value.numerator * multiple
        packings = [TreeProgram(columns, group, chunks) for group in groups]
        found = _whole(packings, rounds, 0.0, search, SETTINGS.multiple_turns)
        if found is not None:
            return search.found(found[0], lp=columns.value, **found[1])
        if search.deadline.over:
            break
    return search.none(lp=columns.value)


def near(
    network: Network,
    collective: Collective,
    steps: int,
    value: Fraction,
    most: int,
    budget: Budget = UNLIMITED,
    close: float = 0.0,
) -> Verdict:
    """Search for a schedule of `steps` steps whose R/C is little above `value`, a bound on it; Unknown if none is
    found.

    `most`: maximum number of chunks of a unit.

    The rounds of the fractional solution, times C, are rounded up. The numbers of chunks that lose least by that are
    tried, the best first. Column generation stops within a share `close` of the bound.
    """
    search = _Search.begin(budget)
    groups = symmetry.subgroups(network, collective)
    target = float(value) * (1 + close)
    folded = FoldedProblem(network, collective, steps, groups[0])
    columns = generate(folded, target, deadline=search.deadline, seed=search.seed)
    if columns is None:
        return search.gave_up("some destination is too far for so few steps")
    for chunks, vector in _roundings(columns.rounds, most)[: -SETTINGS.approximations - 1 : -1]:
        packings = [TreeProgram(columns, group, chunks) for group in groups]
        found = _whole(packings, sum(vector), sum(vector) / chunks - columns.value, search, 1)
        if found is not None:
            return search.found(found[0], lp=columns.value, **found[1])
        if search.deadline.over:
            break
    return search.none(lp=columns.value)


def _roundings(rounds: Sequence[float], most: int) -> list[tuple[int, list[int]]]:
    """Return (C, whole rounds of each step) that suffice for C chunks as `rounds` do for one, each with less R/C than
    all before it, which have fewer chunks."""
    found: list[tuple[int, list[int]]] = []
    for chunks in range(1, most + 1):
        vector = [max(1, ceil(chunks * r - 1e-6)) for r in rounds]
        if not found or sum(vector) * found[-1][0] < sum(found[-1][1]) * chunks:
            found.append((chunks, vector))
    return found


def _too_much(value: float) -> str:
    return f"the trees found allow no less than {value:.6g} rounds per chunk"


def _multiples(value: Fraction, steps: int, rounds: Sequence[float], most: int) -> Iterator[int]:
    """Yield the multiples m for which C = m·q and R = m·p are tried, where R/C = p/q and R ≥ `steps`."""
    p, q = value.numerator, value.denominator
    least = max(1, ceil(Fraction(steps, p)))
    even = lcm(q, *(Fraction(r).limit_denominator(64 * q).denominator for r in rounds)) // q
    even *= ceil(Fraction(least, even))
    chosen = {*range(least, min(even, least + SETTINGS.multiples) + 1), even, 2 * even}
    return (m for m in sorted(chosen) if m * q <= most)


def _whole(
    packings: Sequence[TreeProgram], rounds: int, slack: float, search: _Search, turns: int
) -> tuple[Schedule, dict[str, object]] | None:
    """Return a schedule of `rounds` rounds on the trees of the packings, and details of the search; None if `turns`
    turns give none."""
    for turn in range(turns):
        enrich(packings[0].columns, SETTINGS.growth, search.seed + turn)
        for packing in packings:
            if search.deadline.over:
                return None
            seconds = search.deadline.within(SETTINGS.first_slice * 2 ** (turn // 2)).remaining()
            found = packing.choose(packing.tree_orbits(SETTINGS.max_columns), rounds, seconds, search.seed + turn)
            if found is not None:
                return packing.schedule(*found), {"orbits": len(packing.folded.units), "turn": turn}
    return None
