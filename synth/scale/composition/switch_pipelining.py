"""Schedules composed of phases through switches that multicast and reduce inside parts, and over links between them.

The phases are those of `switch_templates`. Groups of chunks of one template follow each other step by step, or in few
steps the linear program of `pipelining_lp` divides the chunks between templates and steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.model.topology import Network, Route
from synth.scale.composition.phases import Phase, Template
from synth.scale.composition.pipelining_lp import TOLERANCE, Pipelining, PipeliningProgram, rounds
from synth.solvers.processes.deadline import check_deadline
from synth.solvers.rationalise import largest_remainders


@dataclass(frozen=True)
class SwitchPipeliningSettings:
    """Sizes of schedules, and the effort for few steps.

    `most_sends`: maximum number of sends of a schedule, each switch send counted for every member, as a document lists
    all. `loss`: a schedule of fewer chunks whose R/C is at most this factor above the least is preferred, as its
    documents are shorter. `most_tries`: maximum number of numbers of chunks that are tried. `most_steps_mixed`: maximum
    number of steps for which a linear program divides the chunks between templates. `rounds_tried`: totals of rounds
    for which that is done, as fractions of the rounds of the most chunks.
    """

    most_sends: int = 110_000
    loss: Fraction = Fraction(101, 100)
    most_tries: int = 120
    most_steps_mixed: int = 12
    rounds_tried: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)


SETTINGS = SwitchPipeliningSettings()


class NetworkLoads:
    """Loads of phases on routes and caps of a network, ``capacity[resource]`` chunks a round each."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.capacity = np.array([part.units for part in (*network.routes, *network.caps)], np.int64)
        self.route: dict[tuple[int, int], int] = {}
        for i in sorted(range(len(network.routes)), key=lambda i: network.routes[i].units):
            self.route[network.routes[i].src, network.routes[i].dst] = i  # the widest one
        self.switches = {switch.switch: switch for switch in network.multicast}

    def loads(self, phases: Iterable[Phase]) -> np.ndarray:
        """Return ``loads[phase, resource]`` of one chunk of each block. Raises KeyError where ranks have no route."""
        first = len(self.network.routes)
        rows = []
        for phase in phases:
            row = np.zeros(len(self.capacity), np.int64)
            for _, src, dst in phase.sends:
                route = self.route[src, dst]
                row[route] += 1
                for cap in self.network.caps_of[route]:
                    row[first + cap] += 1
            for _, send in phase.switch_sends:
                fetches = send.kind == "fetch-reduce"
                for cap in self.switches[send.switch].caps(send.rank, send.group, fetches=fetches):
                    row[first + cap] += 1
            rows.append(row)
        return np.stack(rows)

    def between(self, src: int, dst: int) -> Route:
        """Return the widest route from `src` to `dst`."""
        return self.network.routes[self.route[src, dst]]


class SwitchPipelining:
    """Pipelined schedules of templates of one unit on a network whose switches multicast.

    `max_chunks`: the most chunks into which the unit is split.
    """

    def __init__(
        self, network: Network, collective: Collective, templates: Iterable[Template], max_chunks: int | None = None
    ) -> None:
        self.network, self.collective, self.max_chunks = network, collective, max_chunks
        self.resources = NetworkLoads(network)
        self.templates: list[tuple[Template, np.ndarray]] = []
        for template in templates:
            try:
                self.templates.append((template, self.resources.loads(template.phases)))
            except KeyError:  # links of one direction
                continue

    def at_steps(self, steps: int, *, mixed: bool = True) -> Pipelining | None:
        """Return the pipelining of the least R/C found in so many steps, of which `schedule` makes a schedule.

        It may have up to `SETTINGS.loss` times that R/C, with fewer chunks. With `mixed` a linear program divides the
        chunks of few steps between templates, which takes most of the time. None where no template is so short. Raises
        TimeUp at the ambient deadline.
        """
        check_deadline()
        short = [(template, loads) for template, loads in self.templates if template.steps() <= steps]
        made: list[Pipelining] = []
        for template, loads in short:
            made += self._equal_groups(template, loads, steps)
        if mixed and short and steps <= SETTINGS.most_steps_mixed:
            made += self._mixed(short, steps)
        made = [found for found in made if self.max_chunks is None or found.chunks <= self.max_chunks]
        if not made:
            return None
        allowed = min(found.rounds_per_chunk for found in made) * SETTINGS.loss
        return min((found for found in made if found.rounds_per_chunk <= allowed), key=lambda found: found.chunks)

    def _equal_groups(self, template: Template, loads: np.ndarray, steps: int) -> Iterator[Pipelining]:
        """Yield pipelinings of one template in which groups of equal size follow each other step by step."""
        groups = steps - template.steps() + 1
        started = np.arange(steps) - np.array(template.heads())[:, None] + 1
        for size in _tried(self._most_chunks([template]) // (groups * template.weight)):
            passed = size * np.clip(started, 0, groups)
            chunks = size * groups * template.weight
            yield Pipelining((template,), (passed,), chunks, rounds([passed], loads, self.resources.capacity))

    def _mixed(self, pairs: Sequence[tuple[Template, np.ndarray]], steps: int) -> Iterator[Pipelining]:
        """Yield pipelinings of templates with their loads by a linear program, of different numbers of chunks."""
        listed = [template for template, _ in pairs]
        program = PipeliningProgram(listed, [loads for _, loads in pairs], self.resources.capacity)
        shares = program.shares(steps)
        if shares is None:
            return
        used = [template for template, table in zip(listed, shares.tables, strict=True) if table[0, -1] > TOLERANCE]
        each = max(template.weight for template in used)
        most = self._most_chunks(used) // each
        tried = [program.whole(shares.tables, n * each) for n in _tried(most)]
        for part in SETTINGS.rounds_tried:
            total = int(shares.value * most * each * part)
            if total < steps:
                continue
            carried = program.shares(steps, largest_remainders(shares.rounds, total, 1))
            if carried is not None:
                chunks = int(total / carried.value + TOLERANCE)
                fewer = _tried(min(each, chunks - 1) + 1)
                tried += [program.whole(carried.tables, chunks + 1 - n) for n in fewer]
        yield from (found for found in tried if found is not None)

    def _most_chunks(self, used: Iterable[Template]) -> int:
        """Return the most chunks of a schedule."""
        sends = Fraction(1)
        for template in used:
            count = 0
            for phase in template.phases:
                count += len(phase.sends) + sum(len(send.group) for _, send in phase.switch_sends)
            sends = max(sends, Fraction(count, template.weight))
        most = int(SETTINGS.most_sends / sends)
        return most if self.max_chunks is None else min(most, self.max_chunks)

    def sends(self, found: Pipelining) -> int:
        """Return the number of sends of the schedule, each switch send counted once."""
        total = 0
        for template, passed in zip(found.templates, found.passed, strict=True):
            for phase in template.phases:
                total += int(passed[0, -1]) * (len(phase.sends) + len(phase.switch_sends))
        return total

    def construction(self, found: Pipelining) -> str:
        """Return the name of the template of most data."""
        chunks = [int(passed[0, -1]) * t.weight for t, passed in zip(found.templates, found.passed, strict=True)]
        return f"boxes: {found.templates[chunks.index(max(chunks))].name}"

    def schedule(self, found: Pipelining) -> Schedule:
        """Return the schedule with every send; the chunks of a block are consecutive."""
        sends: list[list[Send]] = [[] for _ in found.rounds]
        switch_sends: list[list[SwitchSend]] = [[] for _ in found.rounds]
        start = 0
        for template, passed in zip(found.templates, found.passed, strict=True):
            count = int(passed[0, -1])
            for phase, counts in zip(template.phases, passed, strict=True):
                kind = "reduce" if phase.reduces else "copy"
                for piece, step in enumerate(np.searchsorted(counts, np.arange(count), side="right").tolist()):
                    for i, src, dst in phase.sends:
                        via = self.resources.between(src, dst).via
                        sends[step].append(Send(start + i * count + piece, src, dst, kind, via))
                    for i, send in phase.switch_sends:
                        switch_sends[step].append(send._replace(chunk=start + i * count + piece))
            start += count * len(template.blocks)
        steps = []
        for most, row, through in zip(found.rounds.tolist(), sends, switch_sends, strict=True):
            steps.append(Step(most, tuple(sorted(row)), tuple(sorted(through))))
        return Schedule(self.network, self.collective, found.chunks, tuple(steps))


def _tried(most: int) -> list[int]:
    """Return numbers from 1 to `most`: each of the first ones, then at growing distances."""
    half = SETTINGS.most_tries // 2
    numbers = set(range(1, min(most, half) + 1))
    if most > half:
        numbers |= set(np.geomspace(half, most, half).astype(int).tolist())
    return sorted(numbers)
