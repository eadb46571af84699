"""Tree engine: schedules of whole chunks on the trees that column generation finds.

Each chunk travels along a time-expanded tree. Column generation gives the least R/C that trees allow. Dives
(`synth.encodings.trees.diving`) make whole chunks of its fractions, with schedules that are invariant under
smaller and smaller groups of automorphisms.

To find none proves nothing, as only some trees are tried. Seconds are CPU seconds of this process, so that a busy
machine changes no answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from math import ceil, lcm

from synth.encodings.trees.column_generation import FoldedProblem, RestrictedMaster, generate
from synth.encodings.trees.diving import dive
from synth.encodings.trees.time_expanded_trees import Tree
from synth.model import symmetry
from synth.model.collective import Collective
from synth.model.outcome import Cost, Sat, Unknown, Verdict
from synth.model.schedule import Problem, Schedule, Send, Step
from synth.model.symmetry.stabilisers import stabiliser
from synth.model.topology import Network
from synth.solvers.deadline import UNLIMITED, Budget

# Known trees of each unit that a dive begins with, at most.
MAX_TREES = 300
# Turns with other seeds for one problem, and for each of several numbers of chunks.
TURNS, TURNS_EACH = 8, 2
# Multiples tried beyond the least, up to the one at which the rounds are whole, at most.
MULTIPLES = 6
# Best roundings of the rounds that are tried near a bound.
APPROXIMATIONS = 5


def solve(problem: Problem, budget: Budget = UNLIMITED) -> Verdict:
    """Search for a schedule for `problem`; Unknown, which proves nothing, if none is found.

    For collectives that do not combine; callers reverse reduce and reduce-scatter.
    """
    if problem.collective.combining:
        return Unknown("gave-up", "the tree engine takes no combining collectives", Cost("tree"))
    if problem.rounds < problem.steps:
        return Unknown("gave-up", "fewer rounds than steps", Cost("tree"))
    goal, network, collective = problem.rounds / problem.chunks, problem.network, problem.collective

    def sizes(columns: RestrictedMaster) -> Iterable[tuple[int, int]]:
        return [(problem.chunks, problem.rounds)]

    return _search(network, collective, problem.steps, goal, sizes, TURNS, budget, 1 / problem.chunks)


def meet(
    network: Network, collective: Collective, steps: int, value: Fraction, most: int, budget: Budget = UNLIMITED
) -> Verdict:
    """Search for a schedule of `steps` steps with R/C = `value` and up to `most` chunks a unit; Unknown if none is
    found.

    One column generation serves all numbers of chunks. They are tried in ascending order, together with the number at
    which the rounds of the fractional solution are whole.
    """
    p, q = value.numerator, value.denominator

    def sizes(columns: RestrictedMaster) -> Iterable[tuple[int, int]]:
        return ((q * m, p * m) for m in _multiples(value, steps, columns.rounds, most))

    return _search(network, collective, steps, float(value), sizes, TURNS_EACH, budget)


def near(
    network: Network, collective: Collective, steps: int, value: Fraction, most: int, budget: Budget = UNLIMITED,
    close: float = 0.0,
) -> Verdict:  # fmt: skip
    """Search for a schedule of `steps` steps whose R/C is little above `value`, a bound on it; Unknown if none is
    found.

    `most`: maximum number of chunks of a unit.

    The rounds of the fractional solution, times C, are rounded up. The numbers of chunks that lose least by that are
    tried, the best first. Column generation stops within a share `close` of the bound.
    """

    def sizes(columns: RestrictedMaster) -> Iterable[tuple[int, int]]:
        return _roundings(columns.rounds, most)[: -APPROXIMATIONS - 1 : -1]

    return _search(network, collective, steps, float(value) * (1 + close), sizes, 1, budget, above=True)


def _search(
    network: Network, collective: Collective, steps: int, target: float,
    sizes: Callable[[RestrictedMaster], Iterable[tuple[int, int]]], turns: int, budget: Budget,
    floor: float = 0.0, above: bool = False,
) -> Verdict:  # fmt: skip
    """Generate columns until R/C is at most `target`, and make whole chunks of them.

    `sizes` returns the (chunks, rounds) to try, each in so many `turns` with other seeds. `floor`: as in `generate`.
    `above`: to be tried where R/C stays above the target, too.
    """
    deadline, cpu = budget.cpu_deadline(), time.process_time()

    def cost() -> Cost:
        spent = time.process_time() - cpu
        return Cost("tree", spent, spent)

    # fractions
    groups = symmetry.subgroups(network, collective)
    folded = FoldedProblem(network, collective, steps, groups[0])
    columns = generate(folded, target, floor=floor, deadline=deadline, seed=budget.seed)
    if columns is None:
        return Unknown("gave-up", "some destination is too far for so few steps", cost())
    if columns.value > target * (1 + 1e-6) and not above:
        why = f"the trees found allow no less than {columns.value:.6g} rounds per chunk"
        return Unknown("gave-up", why, cost())

    # whole chunks under each group by which every tree of a unit may be taken alone, the largest first
    free = []
    for group in groups:
        if not any(stabiliser(u, group, lambda g, x: g.units[x]) for u in range(collective.units)):
            small = FoldedProblem(network, collective, steps, group)
            free.append((small, {u: _best_trees(columns, u) for u in small.units}))
    for chunks, rounds in sizes(columns):
        for turn in range(turns):
            for folded, trees in free:
                seed = budget.seed + turn
                taken, lengths = dive(folded, chunks, rounds, trees, seed, deadline.share(0.5))
                if taken is not None and lengths is not None:
                    return Sat(_schedule(folded, taken, lengths), cost())
                if deadline.over:
                    return Unknown("time", "no whole multiplicities of the trees found", cost())
                if lengths is None:  # then smaller groups have no such rounds, either
                    break
            if lengths is None:
                break
    return Unknown("gave-up", "no whole multiplicities of the trees found", cost())


def _roundings(rounds: Sequence[float], most: int) -> list[tuple[int, int]]:
    """Return (C, R) where R whole rounds suffice for C chunks as `rounds` of each step do for one, each with less R/C
    than all before it, which have fewer chunks."""
    found: list[tuple[int, int]] = []
    for chunks in range(1, most + 1):
        total = sum(max(1, ceil(chunks * r - 1e-6)) for r in rounds)
        if not found or total * found[-1][0] < found[-1][1] * chunks:
            found.append((chunks, total))
    return found


def _multiples(value: Fraction, steps: int, rounds: Sequence[float], most: int) -> Iterator[int]:
    """Yield the multiples m for which C = m·q and R = m·p are tried, where R/C = p/q and R ≥ `steps`."""
    p, q = value.numerator, value.denominator
    least = max(1, ceil(Fraction(steps, p)))
    even = lcm(q, *(Fraction(r).limit_denominator(64 * q).denominator for r in rounds)) // q
    even *= ceil(Fraction(least, even))
    chosen = {*range(least, min(even, least + MULTIPLES) + 1), even, 2 * even}
    return (m for m in sorted(chosen) if m * q <= most)


def _best_trees(columns: RestrictedMaster, unit: int) -> list[Tree]:
    """Return trees of `unit`, images of those of its representative: those in use first, then by reduced cost."""
    paths: dict[int, tuple[int, ...]] = {}
    for representative in columns.folded.units:
        if unit not in paths:
            paths = _paths(columns.folded, representative)
            trees, share = columns.trees[representative], columns.share[representative]
            reduced = columns.reduced_costs(representative)
    order = sorted(range(len(trees)), key=lambda i: (-share[i], round(reduced[i], 6), -i))
    images = []
    for i in order[:MAX_TREES]:
        images.append(tuple(sorted((step, paths[unit][route]) for step, route in trees[i])))
    return images


def _paths(folded: FoldedProblem, unit: int) -> dict[int, tuple[int, ...]]:
    """Return for every unit of the orbit of `unit` a permutation of the routes that maps `unit` to it."""
    paths = {unit: tuple(range(len(folded.network.routes)))}
    queue = [unit]
    for u in queue:
        for g in folded.generators:
            if g.units[u] not in paths:
                paths[g.units[u]] = tuple(g.routes[r] for r in paths[u])
                queue.append(g.units[u])
    return paths


def _schedule(folded: FoldedProblem, taken: dict[int, list[Tree]], rounds: Sequence[int]) -> Schedule:
    """Return the schedule in which chunk i of each unit takes its i-th tree."""
    network, sends = folded.network, [[] for _ in rounds]
    for unit, trees in taken.items():
        for image, path in _paths(folded, unit).items():
            for i, tree in enumerate(trees):
                for step, route in tree:
                    r = network.routes[path[route]]
                    sends[step - 1].append(Send(image * len(trees) + i, r.src, r.dst, "copy", r.via))
    steps = tuple(Step(n, tuple(sorted(row))) for n, row in zip(rounds, sends, strict=True))
    return Schedule(network, folded.collective, len(next(iter(taken.values()))), steps)
