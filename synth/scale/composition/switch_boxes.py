"""Allreduces on boxes that have a switch each which multicasts and reduces, over links between the boxes.

One rank of each box, the hub of a chunk, fetches the sum of its box through the switch. The hubs add and copy these
sums over links. Each then multicasts the result in its box. Every rank takes its turn as the hub, and groups of chunks
follow each other step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from synth.model.collective import Collective
from synth.model.schedule import Schedule, Send, Step, SwitchSend
from synth.model.topology import Network, Route, Topology
from synth.scale.composition.boxes import Boxes, Levels
from synth.scale.composition.loads import PathIndex
from synth.scale.composition.phases import Phase, Template, TemplateBuilder, merged
from synth.scale.composition.pipelining_lp import rounds

# Maximum number of sends of a schedule, each switch send counted for every member, as a document lists them all.
MOST_SENDS = 110_000
# A schedule of fewer chunks whose R/C is at most this factor above the least is preferred: its document is shorter.
LOSS = Fraction(101, 100)
# Maximum number of sizes of a group of chunks that are tried.
MOST_SIZES = 60


@dataclass(frozen=True)
class SwitchPipelining:
    """Groups of chunks that pass `template` one step after the other: `passed[phase, step]` chunks of each block."""

    template: Template
    passed: np.ndarray
    rounds: np.ndarray
    sends: int

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return self.template.weight * int(self.passed[0, -1])

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C."""
        return Fraction(int(self.rounds.sum()), self.chunks)


class SwitchBoxes:
    """Schedules of an allreduce on a machine whose boxes have a switch each.

    `network` lists the ports of the switches. `max_chunks`: the most chunks of a schedule. `same_bits`: only schedules
    that leave the same floating-point sums on all ranks.
    """

    def __init__(
        self, machine: Topology, network: Network, collective: Collective, max_chunks: int | None, same_bits: bool
    ) -> None:
        self.network, self.collective, self.max_chunks = network, collective, max_chunks
        self.switches = {switch.switch: switch for switch in network.multicast}
        self.capacity = np.array([part.units for part in (*network.routes, *network.caps)], np.int64)
        self.route: dict[tuple[int, int], int] = {}  # the widest one between two ranks
        for i in sorted(range(len(network.routes)), key=lambda i: network.routes[i].units):
            self.route[network.routes[i].src, network.routes[i].dst] = i
        boxes = boxes_of_switches(network, machine.nodes)
        listed = _templates(Boxes(PathIndex(machine), tuple(boxes)), tuple(boxes.values()))
        self.templates: list[tuple[Template, np.ndarray]] = []
        for template in listed:
            joined = all((src, dst) in self.route for phase in template.phases for _, src, dst in phase.sends)
            if joined and (template.same_bits() or not same_bits):
                self.templates.append((template, np.stack([self._loads(phase) for phase in template.phases])))

    def _loads(self, phase: Phase) -> np.ndarray:
        """Return the chunks that one chunk of each block takes of each route and limit."""
        row, first = np.zeros(len(self.capacity), np.int64), len(self.network.routes)
        for _, src, dst in phase.sends:
            route = self.route[src, dst]
            row[route] += 1
            for cap in self.network.caps_of[route]:
                row[first + cap] += 1
        for _, send in phase.switch_sends:
            fetches = send.kind == "fetch-reduce"
            for cap in self.switches[send.switch].caps(send.rank, send.group, fetches=fetches):
                row[first + cap] += 1
        return row

    def at_steps(self, steps: int) -> SwitchPipelining | None:
        """Return the pipelining of about the least R/C in so many steps, None where no template is so short."""
        made: list[SwitchPipelining] = []
        for template, loads in self.templates:
            groups = steps - template.steps() + 1
            if groups < 1:
                continue
            # the chunks of a group that have passed each phase, counted in groups
            started = np.arange(steps) - np.array(template.heads())[:, None] + 1
            sends = 0
            for phase in template.phases:
                sends += len(phase.sends) + sum(len(send.group) for _, send in phase.switch_sends)
            most = MOST_SENDS // (sends * groups)
            if self.max_chunks is not None:
                most = min(most, self.max_chunks // (groups * template.weight))
            sizes = np.unique(np.geomspace(1, most, MOST_SIZES).astype(int)).tolist() if most else []
            for size in sizes:
                passed = size * np.clip(started, 0, groups)
                needed = rounds([passed], loads, self.capacity)
                made.append(SwitchPipelining(template, passed, needed, sends * groups * size))
        if not made:
            return None
        allowed = min(found.rounds_per_chunk for found in made) * LOSS
        return min((found for found in made if found.rounds_per_chunk <= allowed), key=lambda found: found.chunks)

    def schedule(self, found: SwitchPipelining) -> Schedule:
        """Return the schedule with every send; the chunks of a block are consecutive."""
        sends: list[list[Send]] = [[] for _ in found.rounds]
        switch_sends: list[list[SwitchSend]] = [[] for _ in found.rounds]
        count = int(found.passed[0, -1])
        for phase, counts in zip(found.template.phases, found.passed, strict=True):
            kind = "reduce" if phase.reduces else "copy"
            for piece, step in enumerate(np.searchsorted(counts, np.arange(count), side="right").tolist()):
                for i, src, dst in phase.sends:
                    sends[step].append(Send(i * count + piece, src, dst, kind, self._between(src, dst).via))
                for i, send in phase.switch_sends:
                    switch_sends[step].append(send._replace(chunk=i * count + piece))
        steps = []
        for most, row, through in zip(found.rounds.tolist(), sends, switch_sends, strict=True):
            steps.append(Step(most, tuple(sorted(row)), tuple(sorted(through))))
        return Schedule(self.network, self.collective, found.chunks, tuple(steps))

    def _between(self, src: int, dst: int) -> Route:
        return self.network.routes[self.route[src, dst]]


def boxes_of_switches(network: Network, nodes: Sequence[int]) -> dict[tuple[int, ...], str]:
    """Return the boxes of a machine, ranks in ascending order, and the name of the switch of each ("" where none is).

    The ranks at the ports of a switch that multicasts are a box; of two such switches the first counts. The others are
    boxes by their `nodes`, or one by one where there are none.
    """
    boxes: dict[tuple[int, ...], str] = {}
    remaining = set(range(network.ranks))
    for switch in network.multicast:
        ranks = tuple(sorted(port.rank for port in switch.ports))
        if remaining.issuperset(ranks):
            boxes[ranks] = switch.switch
            remaining.difference_update(ranks)
    others: dict[int, list[int]] = {}
    for rank in sorted(remaining):
        others.setdefault(nodes[rank] if nodes else rank, []).append(rank)
    boxes.update(dict.fromkeys(map(tuple, others.values()), ""))
    return boxes


def _templates(boxes: Boxes, switches: tuple[str, ...]) -> list[Template]:
    """Return the templates, of which each serves the chunks of all hubs together."""
    by_name: dict[str, list[Template]] = {}
    for rank in range(boxes.links.topology.ranks):
        for template in _of_hub(boxes, switches, rank):
            by_name.setdefault(template.name, []).append(template)
    return [merged(same, 0, len(same)) for same in by_name.values()]


def _of_hub(boxes: Boxes, switches: tuple[str, ...], owner: int) -> Iterator[Template]:
    """Yield templates of the chunks that `owner` sums up, over a tree of hubs, or of which all hubs sum up the whole.

    In a box without a switch data take a tree of links.
    """
    home, hubs = boxes.box_of[owner], boxes.hubs(owner)
    rails = boxes.tree_of_hubs(hubs, home)
    far = [box for box in range(len(hubs)) if box != home]

    def inside(some: Sequence[int], kind: str) -> tuple[list[SwitchSend], Levels | None]:
        """Return the switch sends of boxes, and the levels of the trees of those without a switch."""
        linked = [box for box in some if not switches[box]]
        sends = []
        for box in some:
            if switches[box]:
                sends.append(SwitchSend(0, hubs[box], boxes.boxes[box], kind, switches[box]))
        return sends, boxes.trees(hubs, linked)

    fetches, levels = inside(range(len(hubs)), "fetch-reduce")
    if rails is None or levels is None:
        return

    def fetched(build: TemplateBuilder) -> list[int]:
        # inputs alone are fetched, which all ranks of a group hold at one place of one buffer
        ready = build.add("fetch", (), reduces=True, switch_sends=fetches)
        return ready + build.gather("reduce inside", levels)

    def multicast(build: TemplateBuilder, name: str, some: Sequence[int], after: Sequence[int]) -> None:
        sends, trees = inside(some, "multicast")
        build.add(f"multicast {name}", (), after, switch_sends=sends)
        build.spread(f"copy {name}", trees or [], after)

    build = TemplateBuilder("fetch inside, reduce and copy over rails, multicast inside", owner)
    sums = build.gather("reduce over rails", rails, fetched(build))
    multicast(build, "near", [home], sums)
    multicast(build, "far", far, build.spread("copy over rails", rails, sums))
    yield build.template()
    if all(boxes.links.joins(a, b) for a in hubs for b in hubs if a != b):
        build = TemplateBuilder("fetch inside, exchange over rails, multicast inside", owner)
        pairs = [(a, b) for a in hubs for b in hubs]
        multicast(build, "all", range(len(hubs)), build.add("exchange", pairs, fetched(build), reduces=True))
        yield build.template()
