"""Points of composed schedules: templates, the shares that a linear program gives them, and every send written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from math import ceil, inf

import numpy as np

from synth.model.collective import Collective
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.model.spanning_forest import ROOTED
from synth.model.topology import Topology
from synth.scale.candidate import Candidate
from synth.scale.composition.boxes import boxes_of
from synth.scale.composition.loads import PathIndex, Resources
from synth.scale.composition.mixtures import Mixture, mixed_pipelining
from synth.scale.composition.phases import Template
from synth.scale.composition.pipelining_lp import TOLERANCE, Pipelining, PipeliningProgram, TemplateShares
from synth.scale.composition.pricing import TreePricer
from synth.scale.composition.templates import Message, block_groups, message_templates, templates
from synth.scale.fabric.automorphisms import orbits
from synth.solvers.column_generation import SmoothedPrices, generate_columns
from synth.solvers.processes.deadline import check_deadline
from synth.solvers.rationalise import largest_remainders

# Numbers of steps that are tried: each one up to 12, and then as the gain is at most inversely proportional to them.
STEPS = (*range(1, 13), 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
# Maximum number of steps of composed messages: schedules that are written out have too few chunks to gain from more.
MOST_MESSAGE_STEPS = 16
# Rounds and chunks of such a schedule from which on more chunks gain little: rounding costs less than a round in most
# steps, and the paths over all rails of a box have several chunks each.
MESSAGE_ROUNDS, MESSAGE_CHUNKS = 64, 64
# Maximum number of steps for which trees are placed in the steps.
MOST_PLACED = 12
# Numbers of levels that the trees of longer schedules may have more than breadth-first trees.
EXTRA_LEVELS = (4, 12)
# Maximum number of times that trees are priced for a number of steps.
ITERATIONS = 60
# Fraction below which savings by further trees are not worth a larger program.
SLIGHT = 1e-3
# Number of times of pricing that together must save as much.
SLOW = 6
# Columns of the linear program above which the templates that carried no data at fewer steps are left out.
MANY_COLUMNS = 1_000
# A point with more steps, or of more chunks, is taken only if it has at least this fraction fewer rounds per chunk.
WORTH = Fraction(1, 1000)
# Maximum number of numbers of chunks that are tried for a number of steps, a third each: small ones, multiples of that
# in which the linear program has whole rounds, and some at even ratios.
MOST_TRIES = 240
# Fractions of the maximum number of rounds for which shares are computed anew, in whole rounds; and by how many chunks
# less than such shares amount to it is tried to round them.
ROUNDS_TRIED, FEWER_CHUNKS = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0), 12
# The same for mixtures of trees.
MIXED_TRIES = 12


Rate = tuple[int, Fraction]  # S and R/C of a schedule
Solution = tuple[PipeliningProgram, TemplateShares]


def composed_points(
    topology: Topology, collective: str, root: int = 0, generators: Sequence[np.ndarray] = (), *,
    same_bits: bool, most_sends: int, priced: bool = True,
    step_counts: Sequence[int] = STEPS,
) -> Iterator[Candidate]:  # fmt: skip
    """Yield composed schedules of `collective` by growing steps, each with fewer rounds per chunk than those before.

    Nothing is yielded for machines of one box. `generators`: free commuting symmetries that schedules have.
    `same_bits`: only schedules count that leave the same floating-point sums on all ranks. `most_sends`: maximum number
    of sends of a schedule, images under the symmetries included. `priced`: trees by column generation are added to the
    templates. `step_counts`: numbers of steps that are tried, ascending.
    """
    index = PathIndex(topology, generators, flipped=collective in ("reduce-scatter", "reduce"))
    boxes = boxes_of(index)
    if boxes is None:
        return
    blocks = sorted(set(orbits(topology.ranks, [g[: topology.ranks] for g in generators]).tolist()))
    groups = block_groups(collective, blocks, symmetric=bool(generators))
    running = collective in ROOTED or (collective == "allreduce" and not generators)
    listed = templates(boxes, collective, root, groups, running)
    if same_bits:
        listed = [template for template in listed if template.same_bits()]
    pricer = None
    resources = Resources(index)
    rooted = root if collective in ROOTED else None
    if priced and collective != "alltoall":
        pricer = TreePricer(resources, collective, rooted, groups, running)
    yield from Composition(resources, collective, rooted, listed, pricer).points(most_sends, tried=step_counts)


def composed_messages(
    topology: Topology, collective: Collective, *, most_sends: int, known: Sequence[Rate] = (),
    enough: Fraction = Fraction(0),
) -> Iterator[Candidate]:  # fmt: skip
    """Yield composed schedules of a collective whose units go from one rank to one rank each, as `composed_points`.

    Nothing is yielded for other collectives. The schedules number chunks by the units of `collective`, and have fewer
    rounds per chunk than `known` ones. The last one has at most `enough`, if one has.
    """
    index = PathIndex(topology)
    boxes = boxes_of(index)
    messages = _messages(collective)
    if boxes is None or not messages:
        return
    resources = Resources(index)
    compositions = []
    for relays in (False, True):
        listed = message_templates(boxes, messages, all_rails=True, relays=relays)
        compositions.append(Composition(resources, collective.name, None, listed, None))
    few, many = compositions
    best = many if many.steady_rate() < few.steady_rate() * (1 - SLIGHT) else few
    chunks = max(MESSAGE_CHUNKS, ceil(MESSAGE_ROUNDS / best.steady_rate()))
    sends = min(most_sends, 2 * chunks * len(messages))  # about two for each chunk of a message
    steps = [s for s in STEPS if s <= MOST_MESSAGE_STEPS]
    yield from best.points(sends, steps, known, enough)


def _messages(collective: Collective) -> list[Message]:
    """Return the messages of a collective; none where it combines, or where a unit has several sources or ends."""
    messages = []
    for unit, (pre, post) in enumerate(zip(collective.pre, collective.post, strict=True)):
        ends = post - pre
        if collective.combining or len(pre) > 1 or len(ends) > 1:
            return []
        messages += [(unit, src, dst) for src in pre for dst in ends]
    return messages


class Composition:
    """Templates of a collective on a machine, with the linear program that divides the data between them."""

    def __init__(
        self, resources: Resources, collective: str, root: int | None, listed: Sequence[Template],
        pricer: TreePricer | None,
    ) -> None:  # fmt: skip
        self.resources, self.index, self.collective, self.root = resources, resources.index, collective, root
        self.templates, self.pricer = list(listed), pricer
        self.units = {template.unit for template in listed}
        if pricer is not None:
            self.units = {unit for unit, _ in pricer.groups}
        self._trees: list[Template] = []  # of the last number of steps
        self._loads: dict[int, tuple[Template, np.ndarray]] = {}
        # Chunks of the collective's unit for each chunk of the templates' units.
        self.scale = self.index.topology.ranks if collective == "allreduce" and self.index.generators else 1

    def points(
        self, most_sends: int, tried: Sequence[int] = STEPS, known: Sequence[Rate] = (), enough: Fraction = Fraction(0)
    ) -> Iterator[Candidate]:  # fmt: skip
        """Yield schedules by growing steps, each with fewer rounds per chunk than those before, and than `known` ones.

        They end with the first one that has at most `enough`. `tried`: the numbers of steps.
        """
        rates = list(known)
        for steps in tried:
            check_deadline()
            best = min((rate for at, rate in rates if at <= steps), default=None)
            most = inf if best is None else float(best * (1 - WORTH) * self.scale)
            found = self.at_steps(steps, most_sends, most)
            if found is None or found.rounds_per_chunk > most:
                continue
            rate, chunks = found.rounds_per_chunk / self.scale, found.chunks * self.scale
            rates.append((steps, rate))
            yield Candidate(steps, rate, chunks, self.engine(found), self.maker(found))
            if rate <= enough:
                return

    def at_steps(self, steps: int, most_sends: int, most: float = inf) -> Pipelining | None:
        """Return the pipelining with the least R / C in `steps` steps of those with at most `most_sends` sends.

        None where no template is so short, and where R / C must be above `most`.
        """
        best: Pipelining | None = None
        for program, shares in self._solutions(steps):
            if shares.value > most:
                continue
            tried = self._pieces(program.templates, shares, most_sends)
            options = [(shares, pieces) for pieces in tried]
            if steps <= MOST_PLACED:
                options += self._in_whole_rounds(program, shares, tried[-1])
            for some, pieces in options:
                # No number of chunks takes fewer rounds than the linear program.
                if best is not None and ceil(some.value * pieces - TOLERANCE) >= best.rounds_per_chunk * pieces:
                    continue
                found = program.whole(some.tables, pieces)
                if found is not None and (best is None or _is_worth(found, best, some.value)):
                    best = found
        mixed = self._mixed(steps)
        if mixed is not None and mixed[1].value <= most:
            mixtures, shares = mixed
            pieces = self._pieces([mixture.merged for mixture in mixtures], shares, most_sends)
            for chunks in pieces[:: -(-len(pieces) // MIXED_TRIES)] + pieces[-1:]:
                found = mixed_pipelining(mixtures, shares.tables, chunks, self.resources.capacity)
                if best is None or _is_worth(found, best, shares.value):
                    best = found
        return best

    def _in_whole_rounds(
        self, program: PipeliningProgram, shares: TemplateShares, most_pieces: int
    ) -> Iterator[tuple[TemplateShares, int]]:
        """Yield shares for whole rounds in each step, and the numbers of chunks that they carry."""
        steps = len(shares.rounds)
        most = int(shares.value * most_pieces)
        for total in sorted({int(most * part) for part in ROUNDS_TRIED if most * part >= steps}):
            proportions = largest_remainders(shares.rounds, total, 1)
            carried = program.shares(steps, proportions)
            if carried is not None:
                chunks = int(total / carried.value + TOLERANCE)
                for fewer in range(min(FEWER_CHUNKS, chunks)):
                    yield carried, chunks - fewer

    def _solutions(self, steps: int) -> Iterator[Solution]:
        """Yield linear programs for the number of steps, and their solutions."""
        if self.pricer is not None and steps <= MOST_PLACED:
            shifted = [_later(tree, t) for tree in self._trees for t in range(steps - tree.steps() + 1)]
            solution = self._with_trees(steps, None, [*self.templates, *shifted])
            if solution is not None:
                used = _used(*solution)
                self._trees = [template for template in used if template.placed]
                yield solution
            return
        plain = self._solved(steps, self.templates)
        if plain is not None:
            self.templates = _used(*plain) if plain[0].size(steps) > MANY_COLUMNS else self.templates
            yield _restricted(*plain)

    def _mixed(self, steps: int) -> tuple[list[Mixture], TemplateShares] | None:
        """Return the mixtures of trees that are short enough, and the shares of each."""
        mixtures = [mixture for mixture in self._mixtures if mixture.merged.steps() <= steps]
        if not mixtures:
            return None
        listed = [mixture.merged for mixture in mixtures]
        loads = [mixture.loads() for mixture in mixtures]
        shares = PipeliningProgram(listed, loads, self.resources.capacity).shares(steps)
        return None if shares is None else (mixtures, shares)

    def _with_trees(self, steps: int, extra_levels: int | None, listed: Sequence[Template]) -> Solution | None:
        """Return the solution over the listed templates and trees by column generation.

        With `extra_levels` all levels of a tree are in the one step, and may be so many more than necessary.
        """
        assert self.pricer is not None
        place = _unchanged if extra_levels is None else _flat
        pricer, columns = self.pricer, [template for template in listed if template.steps() <= steps]
        if {template.unit for template in columns} != self.units:
            even = np.repeat(1 / self.resources.capacity[:, None], steps, axis=1)
            columns += map(place, pricer.templates(even, extra_levels))
        known = set(columns)
        last: Solution | None = None

        def solve() -> bool:
            nonlocal last
            check_deadline()
            last = self._solved(steps, columns)
            return last is not None

        def price(prices: np.ndarray) -> int:
            assert last is not None
            unit_prices, count = last[1].unit_prices, len(columns)
            least = dict.fromkeys(self.units, inf)
            for tree in pricer.templates(prices, extra_levels):
                column = place(tree)
                least[tree.unit] = min(least[tree.unit], self._cost(column, prices))
                if self._cost(column, last[1].prices) < unit_prices[tree.unit] * (1 - SLIGHT) and column not in known:
                    known.add(column)
                    columns.append(column)
            smoothed.update(prices, sum(least.values()))
            return len(columns) - count

        def price_smoothed() -> int:
            assert last is not None
            return price(smoothed.smooth(last[1].prices))

        def price_exactly() -> int:
            assert last is not None
            return price(last[1].prices)

        smoothed = SmoothedPrices(np.zeros((len(self.resources.capacity), steps)))

        values: list[float] = []

        def stop() -> bool:
            assert last is not None
            values.append(last[1].value)
            slow = len(values) > SLOW and values[-1] > values[-1 - SLOW] * (1 - SLIGHT)
            return slow or smoothed.bound > values[-1] * (1 - SLIGHT)

        generate_columns(solve, stop, [price_smoothed, price_exactly], ITERATIONS)
        return last

    @cached_property
    def _mixtures(self) -> list[Mixture]:
        """Mixtures of trees of few and of many levels that need few rounds per chunk where steps do not count."""
        if self.pricer is None:
            return []
        least = self.steady_rate()
        mixtures = []
        for extra_levels in EXTRA_LEVELS:
            solution = self._with_trees(1, extra_levels, [])
            if solution is not None and solution[1].value < least * (1 - SLIGHT):
                least = solution[1].value
                mixtures.append(self._mixture(*solution))
        return mixtures

    def steady_rate(self) -> float:
        """Return the rounds per chunk of the templates where steps do not count; infinite where they do not suffice."""
        solution = self._solved(1, [_flat(template) for template in self.templates])
        return inf if solution is None else solution[1].value

    def _mixture(self, program: PipeliningProgram, shares: TemplateShares) -> Mixture:
        parts = []
        for template, table in zip(program.templates, shares.tables, strict=True):
            if table[0, -1] > TOLERANCE:
                part = replace(template, placed=())
                parts.append((part, float(table[0, -1]), self._phase_loads(part)))
        return Mixture(tuple(parts))

    def _cost(self, template: Template, prices: np.ndarray) -> float:
        """Return the price of a chunk of the template's unit."""
        loads = self._phase_loads(template)
        return float((loads * prices[:, list(template.placed)].T).sum()) / template.weight

    def _solved(self, steps: int, listed: Sequence[Template]) -> Solution | None:
        short = [template for template in listed if template.steps() <= steps]
        if not short or {template.unit for template in short} != self.units:
            return None
        program = self._program(short)
        shares = program.shares(steps)
        return None if shares is None else (program, shares)

    def _program(self, listed: Sequence[Template]) -> PipeliningProgram:
        return PipeliningProgram(listed, list(map(self._phase_loads, listed)), self.resources.capacity)

    def _phase_loads(self, template: Template) -> np.ndarray:
        if id(template) not in self._loads:
            self._loads[id(template)] = template, self.resources.loads(template.phases)
        return self._loads[id(template)][1]

    def _pieces(self, listed: Sequence[Template], shares: TemplateShares, most_sends: int) -> list[int]:
        """Return the numbers of chunks for a unit that are tried, in ascending order."""
        each = max(template.weight for template in listed)
        sends = 0.0
        for template, table in zip(listed, shares.tables, strict=True):
            sends += float(table[0, -1]) * sum(len(phase.sends) for phase in template.phases)
        most = max(1, int(most_sends / max(sends * self.index.images, 1) / each))
        exact = Fraction(shares.value).limit_denominator(4096).denominator
        third = MOST_TRIES // 3
        counts = {*range(1, third + 1), *range(exact, exact * third + 1, exact)}
        counts |= set(np.geomspace(1, most, third).astype(int).tolist())
        return [n * each for n in sorted(counts) if n <= most]

    def engine(self, found: Pipelining) -> str:
        """Return a description of the schedule: the template of most data, and the number of its groups of chunks.

        A group starts its first phase in one step.
        """
        main = max(range(len(found.passed)), key=lambda i: found.passed[i][0, -1] * found.templates[i].weight)
        groups = len(np.unique(found.passed[main][0])) - int(found.passed[main][0, 0] == 0)
        used = {t.name for t, passed in zip(found.templates, found.passed, strict=True) if passed[0, -1]}
        more = f", and {len(used) - 1} more" if len(used) > 1 else ""
        return f"boxes: {found.templates[main].name}{more}; {groups} group{'s' * (groups > 1)}"

    def maker(self, found: Pipelining) -> Callable[[], CompressedSchedule]:
        """Return a function that writes the schedule out."""
        return lambda: self.schedule(found)

    def schedule(self, found: Pipelining) -> CompressedSchedule:
        """Return the schedule with every send of the listed blocks."""
        topology, ranks = self.index.topology, self.index.topology.ranks
        chunks = found.chunks * self.scale
        running = self.collective in (*ROOTED, "allreduce") and self.scale == 1
        used: dict[int, int] = {}
        rows = []
        for template, passed in zip(found.templates, found.passed, strict=True):
            count = int(passed[0, -1])
            if not count:
                continue
            start = used.get(template.unit, 0)
            used[template.unit] = start + count * template.weight
            blocks = np.array(template.blocks)
            if running:
                first = start + np.arange(len(blocks)) * count
            else:
                copies = [template.blocks[:i].count(block) for i, block in enumerate(template.blocks)]
                first = blocks * found.chunks + start + np.array(copies) * count
            piece = np.arange(count)
            for phase, counts in zip(template.phases, passed, strict=True):
                step = np.searchsorted(counts, piece, side="right")
                i, src, dst = np.array(phase.sends, np.int64).T
                link = self.index.find(src, dst)
                kind = np.full(len(link) * count, REDUCE if phase.reduces else COPY)
                chunk = (first[i, None] + piece).ravel()
                rows.append(np.stack([np.tile(step, len(link)), chunk, np.repeat(link, count), kind], axis=1))
        table = np.concatenate(rows)
        used_paths, path = np.unique(table[:, 2], return_inverse=True)
        nodes = ranks + len(topology.switches)
        return CompressedSchedule(
            topology, self.collective, self.root, chunks, found.rounds, table[:, 0], table[:, 1], path, table[:, 3],
            tuple(self.index.paths[i] for i in used_paths.tolist()),
            tuple(tuple(g[:nodes].tolist()) for g in self.index.generators),
        )  # fmt: skip


def _is_worth(found: Pipelining, best: Pipelining, least: float) -> bool:
    """Return whether `found` has so few rounds per chunk that it replaces `best`, of no more chunks.

    `least`: rounds per chunk that no number of chunks goes below.
    """
    value = found.rounds_per_chunk
    return value < best.rounds_per_chunk and (
        value <= best.rounds_per_chunk * (1 - WORTH) or value <= least + TOLERANCE
    )


def _used(program: PipeliningProgram, shares: TemplateShares) -> list[Template]:
    """Return the templates that carry data."""
    both = zip(program.templates, shares.tables, strict=True)
    return [template for template, table in both if table[0, -1] > TOLERANCE]


def _restricted(program: PipeliningProgram, shares: TemplateShares) -> Solution:
    """Return the program of the templates that carry data, and their part of the solution."""
    used = [i for i, table in enumerate(shares.tables) if table[0, -1] > TOLERANCE]
    tables = [shares.tables[i] for i in used]
    return program.restricted(used), shares._replace(tables=tables)


def _later(template: Template, steps: int) -> Template:
    """Return the placed template, the given number of steps later."""
    return replace(template, placed=tuple(t + steps for t in template.placed))


def _unchanged(template: Template) -> Template:
    return template


def _flat(template: Template) -> Template:
    """Return the template with all phases in the same step."""
    return replace(template, placed=(0,) * len(template.phases))
