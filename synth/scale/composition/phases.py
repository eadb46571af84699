"""Phases of a composed schedule, and the templates that order them.

    Phase      name sends reduces after          one step of sends for each chunk
    Template   name phases unit blocks weight    a partial order of phases that serves whole chunks

A chunk that follows a template passes each of its phases in one step, and a phase only after the steps of those in its
`after`. Chunks of a template pass every phase in the same order, so that the numbers of chunks that have passed each
phase after each step describe a schedule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from synth.model.schedule import SwitchSend

Edge = tuple[int, int]


@dataclass(frozen=True)
class Phase:
    """Sends `(i, source, destination)` of a chunk of `Template.blocks[i]`, all in the same step.

    `after`: indices of the phases that must be finished in earlier steps; all are less than the phase's own.
    `switch_sends`: pairs (i, send through a switch that multicasts) in the same step; the chunk of the send says
    nothing.
    """

    name: str
    sends: tuple[tuple[int, int, int], ...]
    reduces: bool
    after: tuple[int, ...]
    switch_sends: tuple[tuple[int, SwitchSend], ...] = ()


@dataclass(frozen=True)
class Template:
    """Phases that together serve one chunk for each entry of `blocks`, in which a block may be listed several times.

    Templates with the same `unit` divide the chunks of that unit of data between them. `weight`: chunks of the unit
    that these chunks amount to.
    """

    name: str
    phases: tuple[Phase, ...]
    unit: int
    blocks: tuple[int, ...]
    weight: int = 1

    def reversed(self) -> Template:
        """Return the template of the time-reversed collective: copies become reductions and phases change order."""
        count = len(self.phases)
        later: list[list[int]] = [[] for _ in self.phases]
        for p, phase in enumerate(self.phases):
            for q in phase.after:
                later[q].append(count - 1 - p)
        phases = []
        for p in range(count - 1, -1, -1):
            phase = self.phases[p]
            sends = tuple((i, dst, src) for i, src, dst in phase.sends)
            switch_sends = tuple((i, send.reversed()) for i, send in phase.switch_sends)
            phases.append(Phase(phase.name, sends, not phase.reduces, tuple(sorted(later[p])), switch_sends))
        return replace(self, phases=tuple(phases))

    def same_bits(self) -> bool:
        """Return True if no rank both sends a sum and receives another in a phase, unless just two swap theirs."""
        for phase in self.phases:
            if not phase.reduces:
                continue
            sources: dict[tuple[int, int], set[int]] = {}
            for i, src, dst in phase.sends:
                sources.setdefault((i, dst), set()).add(src)
            for (i, _), adds in sources.items():
                if len(adds) > 1 and any((i, src) in sources for src in adds):
                    return False
        return True

    def heads(self) -> list[int]:
        """Return for each phase the least number of steps before it."""
        heads: list[int] = []
        for phase in self.phases:
            heads.append(max((heads[q] + 1 for q in phase.after), default=0))
        return heads

    def steps(self) -> int:
        """Return the least number of steps."""
        return max(self.heads()) + 1

    def sends(self) -> int:
        """Return the number of sends of one chunk of each block."""
        return sum(len(phase.sends) for phase in self.phases)

    def tails(self) -> list[int]:
        """Return for each phase the least number of steps after it."""
        tails = [0] * len(self.phases)
        for p in range(len(self.phases) - 1, -1, -1):
            for q in self.phases[p].after:
                tails[q] = max(tails[q], tails[p] + 1)
        return tails


class TemplateBuilder:
    """Collects the phases of one block's template. `add` returns what later phases must wait for."""

    def __init__(self, name: str, block: int) -> None:
        self.name, self.block = name, block
        self._phases: list[Phase] = []

    def add(
        self, name: str, edges: Iterable[Edge], after: Sequence[int] = (), *, reduces: bool = False,
        switch_sends: Iterable[SwitchSend] = (),
    ) -> list[int]:  # fmt: skip
        """Add a phase of these edges and switch sends; return its index in a list, or `after` where there are none."""
        sends = tuple((0, src, dst) for src, dst in edges if src != dst)
        through = tuple((0, send) for send in switch_sends)
        if not sends and not through:
            return list(after)
        self._phases.append(Phase(name, sends, reduces, tuple(sorted(set(after))), through))
        return [len(self._phases) - 1]

    def spread(self, name: str, levels: Sequence[Sequence[Edge]], after: Sequence[int] = ()) -> list[int]:
        """Add the levels of out-trees from their roots down."""
        for depth, level in enumerate(levels, 1):
            after = self.add(f"{name} {depth}", level, after)
        return list(after)

    def gather(self, name: str, levels: Sequence[Sequence[Edge]], after: Sequence[int] = ()) -> list[int]:
        """Add reductions up the same trees, from the deepest level to the roots. Levels hold edges away from a root."""
        for depth in range(len(levels), 0, -1):
            edges = [(dst, src) for src, dst in levels[depth - 1]]
            after = self.add(f"{name} {depth}", edges, after, reduces=True)
        return list(after)

    def template(self) -> Template:
        """Return the template, of unit 0."""
        return Template(self.name, tuple(self._phases), 0, (self.block,))


def merged(templates: Sequence[Template], unit: int, weight: int = 1) -> Template:
    """Return one template for the blocks of several, for chunks that move together.

    Phases of one name become one, which waits for all that any of them waits for.
    """
    after: dict[str, set[str]] = {}
    phases: dict[str, list[tuple[int, Phase]]] = {}
    first = np.cumsum([0, *(len(template.blocks) for template in templates)]).tolist()
    for i, template in enumerate(templates):
        for phase in template.phases:
            phases.setdefault(phase.name, []).append((first[i], phase))
            after.setdefault(phase.name, set()).update(template.phases[q].name for q in phase.after)
    place: dict[str, int] = {}
    whole: list[Phase] = []
    while len(place) < len(after):
        name = next(name for name, earlier in after.items() if name not in place and earlier <= place.keys())
        sends = tuple((start + i, src, dst) for start, phase in phases[name] for i, src, dst in phase.sends)
        through = tuple((start + i, send) for start, phase in phases[name] for i, send in phase.switch_sends)
        waits = tuple(sorted(place[earlier] for earlier in after[name]))
        place[name] = len(whole)
        whole.append(Phase(name, sends, phases[name][0][1].reduces, waits, through))
    blocks = tuple(block for template in templates for block in template.blocks)
    return Template(templates[0].name, tuple(whole), unit, blocks, weight)
