"""Points of composed schedules: templates, the shares that a linear program gives them, and every send written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from synth.model.compressed_schedule import COPY, REDUCE, CompressedSchedule, over_links
from synth.model.topology import Topology
from synth.scale.candidate import Candidate
from synth.scale.composition.boxes import boxes_of
from synth.scale.composition.loads import LinkIndex, phase_loads
from synth.scale.composition.phases import Template
from synth.scale.composition.pipelining_lp import TOLERANCE, Pipelining, PipeliningProgram
from synth.scale.composition.templates import templates
from synth.scale.fabric.automorphisms import orbits
from synth.solvers.processes.deadline import check_deadline

# Numbers of steps that are tried: each one up to 12, and then as the gain is at most inversely proportional to them.
STEPS = (*range(1, 13), 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)
# Columns of the linear program above which the templates that carried no data at fewer steps are left out.
MANY_COLUMNS = 1_000
# A point with more steps is offered only if it has at least this fraction fewer rounds per chunk.
WORTH = Fraction(1, 1000)
# Maximum number of numbers of chunks that are tried for a number of steps.
MOST_TRIES = 240


def composed_points(
    topology: Topology, collective: str, root: int = 0, generators: Sequence[np.ndarray] = (), *,
    same_bits: bool, most_sends: int,
) -> Iterator[Candidate]:  # fmt: skip
    """Yield composed schedules of `collective` by growing steps, each with fewer rounds per chunk than those before.

    Nothing is yielded for machines with switches or of one box. `generators`: free commuting symmetries that schedules
    have. `same_bits`: only schedules count that leave the same floating-point sums on all ranks. `most_sends`: maximum
    number of sends of a schedule, images under the symmetries included.
    """
    if topology.switches:
        return
    links = LinkIndex(topology, generators, flipped=collective in ("reduce-scatter", "reduce"))
    boxes = boxes_of(links)
    if boxes is None:
        return
    blocks = sorted(set(orbits(topology.ranks, [g[: topology.ranks] for g in generators]).tolist()))
    listed = templates(boxes, collective, root, blocks)
    if same_bits:
        listed = [template for template in listed if template.same_bits()]
    if not listed:
        return
    composition = Composition(links, collective, root, listed)
    best: Fraction | None = None
    for steps in STEPS:
        check_deadline()
        composition = composition.narrowed(steps)
        found = composition.at_steps(steps, most_sends)
        if found is None:
            continue
        rounds_per_chunk = found.rounds_per_chunk / composition.scale
        if best is not None and rounds_per_chunk > best * (1 - WORTH):
            continue
        best, chunks = rounds_per_chunk, found.chunks * composition.scale
        yield Candidate(steps, best, chunks, composition.engine(found), composition.maker(found))


class Composition:
    """Templates of a collective on a machine, with the linear program that divides the data between them."""

    def __init__(self, links: LinkIndex, collective: str, root: int, listed: Sequence[Template]) -> None:
        self.links, self.collective = links, collective
        self.root = root if collective in ("broadcast", "reduce") else None
        self.templates = tuple(listed)
        self._used: set[int] = set()  # templates that carried data in the last solution
        # Chunks of the collective's unit for each chunk of the templates' units.
        self.scale = links.topology.ranks if collective == "allreduce" and links.generators else 1
        phases = [phase for template in listed for phase in template.phases]
        self.program = PipeliningProgram(listed, *phase_loads(links, phases))

    def narrowed(self, steps: int) -> Composition:
        """Return the composition for `steps` steps: where its program is large, without templates that last had no
        data."""
        if not self._used or self.program.size(steps) <= MANY_COLUMNS or len(self._used) == len(self.templates):
            return self
        used = [template for i, template in enumerate(self.templates) if i in self._used]
        return Composition(self.links, self.collective, self.root or 0, used)

    def at_steps(self, steps: int, most_sends: int) -> Pipelining | None:
        """Return the pipelining with the least R / C in `steps` steps of those with at most `most_sends` sends.

        None where no template is so short.
        """
        solved = self.program.shares(steps)
        if solved is None:
            return None
        value, shares = solved
        self._used = {i for i, table in enumerate(shares) if table[0, -1] > TOLERANCE}
        best: Pipelining | None = None
        for pieces in self._pieces(value, shares, most_sends):
            found = self.program.whole(shares, pieces)
            if found is not None and (best is None or found.rounds_per_chunk < best.rounds_per_chunk):
                best = found
        return best

    def _pieces(self, value: float, shares: Sequence[np.ndarray], most_sends: int) -> list[int]:
        """Return the numbers of chunks for a unit that are tried, in ascending order."""
        each = max(template.weight for template in self.templates)
        sends = 0.0
        for template, table in zip(self.templates, shares, strict=True):
            sends += float(table[0, -1]) * sum(len(phase.sends) for phase in template.phases)
        most = max(1, int(most_sends / max(sends * self.links.images, 1) / each))
        exact = Fraction(value).limit_denominator(4096).denominator
        counts = {*range(1, min(most, MOST_TRIES // 2) + 1), *range(exact, most + 1, exact)}
        counts |= set(np.unique(np.geomspace(1, most, MOST_TRIES // 2).astype(int)).tolist())
        tried = sorted(counts)
        return [n * each for n in tried[:: -(-len(tried) // MOST_TRIES)]]

    def engine(self, found: Pipelining) -> str:
        """Return a description of the schedule: the template of most data, and the number of its groups of chunks.

        A group starts its first phase in one step.
        """
        main = max(range(len(found.passed)), key=lambda i: found.passed[i][0, -1] * self.templates[i].weight)
        groups = len(np.unique(found.passed[main][0])) - int(found.passed[main][0, 0] == 0)
        used = {t.name for t, passed in zip(self.templates, found.passed, strict=True) if passed[0, -1]}
        more = f", and {len(used) - 1} more" if len(used) > 1 else ""
        return f"boxes: {self.templates[main].name}{more}; {groups} group{'s' * (groups > 1)}"

    def maker(self, found: Pipelining) -> Callable[[], CompressedSchedule]:
        """Return a function that writes the schedule out."""
        return lambda: self.schedule(found)

    def schedule(self, found: Pipelining) -> CompressedSchedule:
        """Return the schedule with every send of the listed blocks."""
        topology, ranks = self.links.topology, self.links.topology.ranks
        chunks = found.chunks * self.scale
        running = self.collective in ("broadcast", "reduce", "allreduce") and self.scale == 1
        used: dict[int, int] = {}
        rows = []
        for template, passed in zip(self.templates, found.passed, strict=True):
            count = int(passed[0, -1])
            if not count:
                continue
            start = used.get(template.unit, 0)
            used[template.unit] = start + count * (len(template.blocks) if running else 1)
            position = {block: i for i, block in enumerate(template.blocks)}
            piece = np.arange(count)
            for phase, counts in zip(template.phases, passed, strict=True):
                step = np.searchsorted(counts, piece, side="right")
                block, src, dst = np.array(phase.sends, np.int64).T
                if running:
                    first = start + np.array([position[b] for b in block.tolist()]) * count
                else:
                    first = block * found.chunks + start
                link = self.links.find(src, dst)
                kind = np.full(len(link) * count, REDUCE if phase.reduces else COPY)
                chunk = (first[:, None] + piece).ravel()
                rows.append(np.stack([np.tile(step, len(link)), chunk, np.repeat(link, count), kind], axis=1))
        table = np.concatenate(rows)
        plain = over_links(topology, self.collective, self.root, chunks, found.rounds, table)
        if not self.links.generators:
            return plain
        generators = tuple(tuple(g[:ranks].tolist()) for g in self.links.generators)
        return CompressedSchedule(
            plain.topology, plain.collective, plain.root, plain.chunks, plain.rounds, plain.step, plain.chunk,
            plain.path, plain.kind, plain.paths, generators,
        )  # fmt: skip
