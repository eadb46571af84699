"""Points of composed schedules: templates, the shares that a linear program gives them, and every send written out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from math import ceil, inf
from operator import itemgetter

import numpy as np

from synth.model.collective import Collective
from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule
from synth.model.frontier import Rate
from synth.model.scale_collectives import ROOTED
from synth.model.topology import Topology
from synth.scale.candidate import Candidate
from synth.scale.composition.boxes import boxes_of
from synth.scale.composition.loads import PathIndex, Resources
from synth.scale.composition.phases import Phase, Template
from synth.scale.composition.pipelining_lp import TOLERANCE, Pipelining, PipeliningProgram, TemplateShares
from synth.scale.composition.templates import Group, Message, block_groups, message_templates, templates
from synth.scale.composition.tree_columns import NAME, BoxTreeSearch, generate
from synth.scale.fabric.automorphisms import orbits
from synth.solvers.deadline import check_deadline, current_deadline
from synth.solvers.rationalise import largest_remainders

# Numbers of steps that are tried: each one up to 12, and then as the gain is at most inversely proportional to them.
STEPS = (*range(1, 13), 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
# Maximum number of steps for which trees are placed in the steps, and shares in whole rounds are tried.
MOST_PLACED = 12
# Fraction of the remaining time, where it is limited, that column generation may take for one number of steps. It
# goes on from the trees of fewer steps.
GENERATION_SHARE = 0.125
# Columns of the linear program above which the templates that carry no data are left out of those for more steps.
MANY_COLUMNS = 1_000
# Maximum number of blocks that have templates of their own; of more blocks the chunks move together.
MOST_SEPARATE = 16
# Maximum number of numbers of chunks that are tried for a number of steps, a third each: small ones, multiples of
# that in which the linear program has whole rounds, and some at even ratios.
MOST_TRIES = 240
# Maximum number of chunks up to which each number is tried.
FEW_TRIES = 600
# Fractions of the maximum number of rounds for which shares are computed anew, in whole rounds.
ROUNDS_TRIED = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
# By how many chunks less than such shares amount to it is tried to round them.
FEWER_CHUNKS = 12

# A point with more steps, or of more chunks, is taken only if it has at least this fraction fewer rounds per chunk.
WORTH = Fraction(1, 1000)
# Numbers of steps of composed messages. Schedules that are written out have too few chunks to gain from more.
MESSAGE_STEPS = (*range(1, 13), 14, 16)
# Chunks of a message, and rounds, from which on more chunks gain little: the paths over all rails of a box have several
# chunks each, and rounding costs less than a round in most steps.
MESSAGE_CHUNKS = 64

Solution = tuple[PipeliningProgram, TemplateShares]


def composed_points(
    topology: Topology, collective: str, root: int = 0, generators: Sequence[np.ndarray] = (), *,
    same_bits: bool, most_sends: int, priced: bool = True,
    step_counts: Iterable[int] = STEPS, bound: Fraction = Fraction(0),
) -> Iterator[Candidate]:  # fmt: skip
    """Yield composed schedules of `collective`, each with fewer rounds per chunk than those before of no more steps.

    In one box only an allreduce on links with limits or switches is composed, of trees by column generation alone:
    elsewhere spanning trees and forests attain the bound. `generators`: free commuting symmetries that schedules have.
    `same_bits`: only schedules count that leave the same floating-point sums on all ranks. `most_sends`: maximum number
    of sends of a schedule, images under the symmetries included. `priced`: trees by column generation are added to the
    templates. `step_counts`: numbers of steps that are tried, one after the other. `bound`: on rounds per chunk; no
    further schedules are tried where it is met.
    """
    index = PathIndex(topology, generators, flipped=collective in ("reduce-scatter", "reduce"))
    boxes = boxes_of(index)
    if boxes is None and not (priced and collective == "allreduce" and (topology.limits or topology.switches)):
        return
    blocks = sorted(set(orbits(topology.ranks, [g[: topology.ranks] for g in generators]).tolist()))
    groups = block_groups(collective, blocks, bool(generators), MOST_SEPARATE)
    running = collective in ROOTED or (collective == "allreduce" and not generators)
    listed = [] if boxes is None else templates(boxes, collective, root, groups, running)
    if same_bits:
        listed = [template for template in listed if template.same_bits()]
    served = {template.unit for template in listed}
    if collective != "alltoall" and any(unit not in served for unit, _ in groups):
        listed = []  # the templates of the other units make no collective
    rooted = root if collective in ROOTED else None
    of_trees = groups if priced and collective != "alltoall" else ()
    composition = Composition(Resources(index), collective, rooted, listed, of_trees, bound)
    yield from composition.points(most_sends, step_counts)


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
    messages: list[Message] = []
    for unit, (pre, post) in enumerate(zip(collective.pre, collective.post, strict=True)):
        targets = post - pre
        if collective.combining or len(pre) > 1 or len(targets) > 1:
            return
        messages += [(unit, src, dst) for src in pre for dst in targets]
    if boxes is None or not messages:
        return
    listed = message_templates(boxes, messages, all_rails=True)
    composition = Composition(Resources(index), collective.name, None, listed)
    chunks = max(MESSAGE_CHUNKS, ceil(MESSAGE_CHUNKS / composition.steady_rate()))
    sends = min(most_sends, 2 * chunks * len(messages))  # about two for each chunk of a message
    yield from composition.points(sends, MESSAGE_STEPS, known, enough)


class Composition:
    """Templates of a collective on a machine, with the linear program that divides the data between them.

    To those that are `listed` trees by column generation are added for these `groups` of blocks.
    """

    def __init__(
        self, resources: Resources, collective: str, root: int | None, listed: Sequence[Template],
        groups: Sequence[Group] = (), bound: Fraction = Fraction(0),
    ) -> None:  # fmt: skip
        self.resources, self.index, self.collective, self.root = resources, resources.index, collective, root
        self.templates, self.groups, self.bound = list(listed), groups, bound
        self.units = set(map(itemgetter(0), groups)) or {template.unit for template in listed}
        self._trees: list[Template] = []  # of the number of steps that was tried last
        # By the numbers of steps with large programs, the templates that carry data in them.
        self._carriers: dict[int, list[Template]] = {}
        self._begun = False  # whether a number of steps was tried
        # Chunks of the collective's unit for each chunk of the templates' units.
        self.scale = self.index.topology.ranks if collective == "allreduce" and self.index.generators else 1
        # Whether all blocks divide one unit between them.
        self.running = collective in (*ROOTED, "allreduce") and self.scale == 1

    def points(
        self, most_sends: int, tried: Iterable[int] = STEPS, known: Sequence[Rate] = (),
        enough: Fraction = Fraction(0),
    ) -> Iterator[Candidate]:  # fmt: skip
        """Yield schedules, each with fewer rounds per chunk than those before, and `known` ones, of no more steps.

        They end with the first one that has at most `enough`. `tried`: the numbers of steps.
        """
        rates = list(known)
        for steps in tried:
            check_deadline()
            best = min((rate for at, rate in rates if at <= steps), default=None)
            if best is not None and best * (1 - WORTH) < self.bound:
                continue  # none can be better by enough
            most = inf if best is None else float(best * (1 - WORTH) * self.scale)
            found = self.at_steps(steps, most_sends, most)
            if found is None or found.rounds_per_chunk > most:
                continue
            rate, chunks = found.rounds_per_chunk / self.scale, found.chunks * self.scale
            used_steps = len(found.rounds)
            rates.append((used_steps, rate))
            yield Candidate(used_steps, rate, chunks, self.engine(found), partial(self.schedule, found))
            if rate <= enough:
                return

    def at_steps(self, steps: int, most_sends: int, most: float = inf) -> Pipelining | None:
        """Return the pipelining with the least R / C in `steps` steps of those with at most `most_sends` sends.

        None where no template is so short, and where R / C must be above `most`.
        """
        solution = self._solution(steps)
        if solution is None or solution[1].value > most:
            return None
        program, shares = solution
        tried = self._pieces(program.templates, shares, most_sends)
        options = [(shares, pieces) for pieces in tried]
        if steps <= MOST_PLACED:
            # shares for whole rounds in each step, and the numbers of chunks that they carry
            most_rounds = int(shares.value * tried[-1])
            for total in sorted({int(most_rounds * part) for part in ROUNDS_TRIED if most_rounds * part >= steps}):
                carried = program.shares(steps, largest_remainders(shares.rounds, total, 1))
                if carried is not None:
                    chunks = int(total / carried.value + TOLERANCE)
                    options += [(carried, chunks - fewer) for fewer in range(min(FEWER_CHUNKS, chunks))]
        best: Pipelining | None = None
        for some, pieces in options:
            # no number of chunks takes fewer rounds than the linear program
            if best is not None and ceil(some.value * pieces - TOLERANCE) >= best.rounds_per_chunk * pieces:
                continue
            found = program.whole(some.tables, pieces)
            if found is not None and (best is None or _is_worth(found, best, some.value)):
                best = found
        return best

    def _solution(self, steps: int) -> Solution | None:
        """Return the linear program of the templates that carry data in so many steps, and its solution.

        In few steps trees by column generation are among them.
        """
        if steps > MOST_PLACED and not self._begun:  # which templates carry data in few steps is known before
            for fewer in range(1, MOST_PLACED + 1):
                self._plain(fewer)
        self._begun = True
        plain = self._plain(steps)
        if not self.groups or steps > MOST_PLACED:
            return plain
        search = BoxTreeSearch(self.resources, self.collective, self.root, self.groups, self.running, steps)
        if not search.possible:
            return plain

        # It begins with the templates in every combination of steps in which they carry data, and with the last trees.
        placed: list[Template] = []
        for template, table in () if plain is None else zip(plain[0].templates, plain[1].tables, strict=True):
            for end in np.unique(table[table > TOLERANCE]):
                steps_of = (table < end * (1 - TOLERANCE)).sum(axis=1).tolist()
                placed.append(replace(template, placed=tuple(steps_of)))
        for tree in self._trees:
            for later in range(steps - tree.steps() + 1):
                placed.append(replace(tree, placed=tuple(t + later for t in tree.placed)))

        # Where the time is limited it takes a share of the rest, so that there is some for other numbers of steps.
        deadline = current_deadline().share(GENERATION_SHARE)
        loads = partial(self._step_loads, steps)
        capacity = self.resources.capacity
        _, carriers = generate(capacity, steps, sorted(self.units), loads, placed, search.templates, deadline)
        self._trees = [tree for tree in carriers if tree.name == NAME]
        used = () if plain is None else plain[0].templates
        joint = self._solved(steps, [*used, *self._trees])
        return plain if joint is None else _restricted(*joint)

    def _step_loads(self, steps: int, listed: Sequence[Template]) -> list[np.ndarray]:
        """Return ``loads[resource, step]`` of each placed template."""
        rows = iter(self.resources.loads([phase for template in listed for phase in template.phases]))
        loads = []
        for template in listed:
            loads.append(np.zeros((len(self.resources.capacity), steps)))
            for t in template.placed:
                loads[-1][:, t] += next(rows)
        return loads

    def _plain(self, steps: int) -> Solution | None:
        """Return the solution of the templates alone, without those that carry no data.

        Where all of them make a large program, the others are left out of those for more steps, too. Templates that are
        too long to carry any here take part in those, if the programs are not too large then.
        """
        earlier = sorted((tried for tried in self._carriers if tried <= steps), reverse=True)
        lists = [] if earlier else [self.templates]
        for tried in earlier:
            longer = [template for template in self.templates if template.steps() > tried]
            lists += [[*self._carriers[tried], *longer], self._carriers[tried]]
        for listed in lists:
            solution = self._solved(steps, listed)
            if solution is not None:
                break
        else:
            return None
        used = _restricted(*solution)
        if solution[0].size(steps) > MANY_COLUMNS:
            self._carriers[steps] = list(used[0].templates)
        return used

    def steady_rate(self) -> float:
        """Return the rounds per chunk of the templates where steps do not count; infinite where they do not suffice."""
        flat = []
        for template in self.templates:
            sends = tuple(send for phase in template.phases for send in phase.sends)
            flat.append(replace(template, phases=(Phase("all", sends, False, ()),)))
        solution = self._solved(1, flat)
        return inf if solution is None else solution[1].value

    def _solved(self, steps: int, listed: Sequence[Template]) -> Solution | None:
        short = [template for template in listed if template.steps() <= steps]
        if not short or {template.unit for template in short} != self.units:
            return None
        loads = self.resources.loads([phase for template in short for phase in template.phases])
        program = PipeliningProgram(short, loads, self.resources.capacity)
        shares = program.shares(steps)
        return None if shares is None else (program, shares)

    def _pieces(self, listed: Sequence[Template], shares: TemplateShares, most_sends: int) -> list[int]:
        """Return the numbers of chunks for a unit that are tried, in ascending order."""
        each = max(template.weight for template in listed)
        sends = 0.0
        for template, table in zip(listed, shares.tables, strict=True):
            sends += float(table[0, -1]) * template.sends()
        most = max(1, int(most_sends / max(sends * self.index.images, 1) / each))
        exact = Fraction(shares.value).limit_denominator(4096).denominator
        if most <= FEW_TRIES:
            return [n * each for n in range(1, most + 1)]
        third = MOST_TRIES // 3
        counts = {*range(1, third + 1), *range(exact, exact * third + 1, exact)}
        counts |= set(np.geomspace(1, most, third).astype(int).tolist())
        return [n * each for n in sorted(counts) if n <= most]

    def engine(self, found: Pipelining) -> str:
        """Return a description of the schedule: the template of most data, and the number of its groups of chunks.

        A group starts its first phase in one step. Without templates over boxes only trees are named.
        """
        main = max(range(len(found.passed)), key=lambda i: found.passed[i][0, -1] * found.templates[i].weight)
        groups = len(np.unique(found.passed[main][0])) - int(found.passed[main][0, 0] == 0)
        used = {t.name for t, passed in zip(found.templates, found.passed, strict=True) if passed[0, -1]}
        more = f", and {len(used) - 1} more" if len(used) > 1 else ""
        kind = "boxes: " if self.templates else ""
        return f"{kind}{found.templates[main].name}{more}; {groups} group{'s' * (groups > 1)}"

    def schedule(self, found: Pipelining) -> CompressedSchedule:
        """Return the schedule with every send of the listed blocks."""
        topology, ranks = self.index.topology, self.index.topology.ranks
        chunks = found.chunks * self.scale
        used: dict[int, int] = {}
        rows = []
        for template, passed in zip(found.templates, found.passed, strict=True):
            count = int(passed[0, -1])
            if not count:
                continue
            start = used.get(template.unit, 0)
            used[template.unit] = start + count * template.weight
            blocks = np.array(template.blocks)
            if self.running:
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


def _restricted(program: PipeliningProgram, shares: TemplateShares) -> Solution:
    """Return the program of those templates alone that carry data in a solution, and the same solution of it."""
    used = [i for i, table in enumerate(shares.tables) if table[0, -1] > TOLERANCE]
    return program.restricted(used), shares._replace(tables=[shares.tables[i] for i in used])
