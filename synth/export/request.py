"""The request of an export, and the target that an exporter gets besides the program.

    ExportRequest  the user's options
    Machine        kinds nodes
    Target         request ranks links machine network timeline

`Machine.of` takes it from a Topology; programs and schedules do not carry it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.frontier import StepCount
from synth.model.topology import Network, Topology
from synth.model.tuning_plan import Plan
from synth.program.events import OpEvent
from synth.program.plan_limits import NEWEST, VERSIONS
from synth.program.program import InPlace, Program
from synth.program.send_hints import SendHints

# The most GPUs of one host. A larger box is an NVLink domain of several hosts, for which MSCCL++ counts ranks by host.
HOST_RANKS = 16


@dataclass(frozen=True)
class Machine:
    """The kinds of links between ranks, and the boxes of a machine.

    `kinds[src, dst]`: the kinds of link on the routes from rank src to rank dst, such as "nvlink". `nodes[r]`: the
    number of the box of rank r.
    """

    kinds: Mapping[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    nodes: tuple[int, ...] = ()

    @property
    def ranks_per_host(self) -> int:
        """The number of ranks of each host; 0 where boxes differ in it, or are larger than a host."""
        # Launchers start equally many processes on each host, so unlike boxes have no number.
        boxes = set(Counter(self.nodes).values())
        per_host = boxes.pop() if len(boxes) == 1 else 0
        return per_host if per_host <= HOST_RANKS else 0

    @staticmethod
    def of(topology: Topology) -> Machine:
        """Return the machine of `topology`; a route through switches has the kinds of all its links."""
        # Links name switches by numbers behind the ranks.
        number = {name: topology.ranks + i for i, name in enumerate(topology.switches)}
        links = {}
        for link in topology.links:
            links.setdefault((link.src, link.dst), set()).add(link.kind)
        kinds = {}
        for route in topology.network().routes:
            ends = [route.src, *(number[name] for name in route.via), route.dst]
            route_kinds = kinds.setdefault((route.src, route.dst), set())
            route_kinds.update(*(links[hop] for hop in itertools.pairwise(ends)))
        nodes = topology.nodes or (0,) * topology.ranks  # a topology without named boxes is one box
        return Machine({pair: frozenset(pair_kinds) for pair, pair_kinds in kinds.items()}, nodes)

    @staticmethod
    def of_plan(plan: Plan, ranks: Sequence[int]) -> Machine | None:
        """Return the machine of `plan` with rank r renamed ``ranks[r]``; None if the plan does not describe it."""
        if plan.topology is None or not plan.kinds:
            return None
        kinds = {
            (route.src, route.dst): frozenset(route_kinds)
            for route, route_kinds in zip(plan.topology.routes, plan.kinds, strict=True)
        }
        return Machine(kinds, plan.nodes or (0,) * plan.topology.ranks).relabelled(ranks)

    def relabelled(self, ranks: Sequence[int]) -> Machine:
        """Return the machine with rank r renamed ``ranks[r]``."""
        kinds = {(ranks[a], ranks[b]): pair_kinds for (a, b), pair_kinds in self.kinds.items()}
        nodes = [0] * len(self.nodes)
        for rank, node in zip(ranks, self.nodes, strict=True):
            nodes[rank] = node
        return Machine(kinds, tuple(nodes))


@dataclass(frozen=True)
class ExportRequest:
    """Options of `synth export` and `synth.export_program`.

    `to`: the name of the exporter; of a plan, that of the plan's format.
    `runtime`: one of the exporter's runtimes. "": the first of them.
    `topology`: the machine that it is for. None: the one that the schedule names, if its links are the same.
    `rank_map`: the machine's rank of each rank of the schedule. None: the labels of an allocation, or a match.
    `in_place`: the calls that it is for. None: both where that can be.
    `assume_root`: every call of the job has this root.
    `assume_nvlink`: all links are NVLink.
    `assume_one_node`: all ranks are in one box.
    `min_size`, `max_size`: bounds in bytes of the sizes offered. `max_size` None: as far as it is proved safe.

    A plan says the others itself:
    `point`: the number of the frontier's point, from 1, or its steps. None: the only one.
    `protocol`: the protocol of a lowered schedule, or a program's instead of its own. None: Simple, or its own.
    `instances`: copies of a schedule side by side, each for its share of the data. None: one.
    `size`: the size in bytes that a timeline is drawn for. None: the executor's own.
    `collective`: the collective that a foreign file computes, where the file does not say.
    `root`: the root of a foreign file's collective, where it does not follow.
    `plan_version`: the version of MSCCL++ whose format a plan has.
    `lanes`: the most connections of one route of a lowered schedule; not of MSCCL++ plans. None: its units.
    `hints`: connections and pieces of single sends of a schedule; not of MSCCL++ plans. None: none.
    `blocks`, `reads`: of a schedule that becomes a MSCCL++ plan, as `LoweringOptions` has them.

    Raises UsageError for an unknown `plan_version`.
    """

    to: str = "msccl-xml"
    runtime: str = ""
    topology: str | Path | Topology | None = None
    rank_map: Sequence[int] | None = None
    in_place: InPlace | None = None
    assume_root: int | None = None
    assume_nvlink: bool = False
    assume_one_node: bool = False
    min_size: int = 0
    max_size: int | None = None
    point: int | StepCount | None = None
    protocol: str | None = None
    instances: int | None = None
    size: int | None = None
    collective: str | Path | Collective | Mapping[str, Any] | None = None
    root: int | None = None
    plan_version: str = NEWEST
    lanes: int | None = None
    hints: SendHints | None = None
    blocks: int | None = None
    reads: bool | None = None

    def __post_init__(self) -> None:
        if self.plan_version not in VERSIONS:
            raise UsageError(
                f"unknown version {self.plan_version!r} of MSCCL++'s plans; there are {', '.join(VERSIONS)}"
            )


@dataclass(frozen=True)
class Target:
    """The target of one export: the request, and what is known of the machine that it is for.

    `ranks`: the machine's rank of each rank of the schedule; None for a program. `links`: the machine's network, in
    which the links of the schedule must exist; None if it is not known. `machine`: kinds of links and boxes; None if
    they are not known. `network`: latencies and bandwidths of the links in the program's numbering; None for a program
    that came without a schedule. `timeline(program, network, size)`: the events of a run; it is a function because
    exporters do not import executors.
    """

    request: ExportRequest = field(default_factory=ExportRequest)
    ranks: tuple[int, ...] | None = None
    links: Network | None = None
    machine: Machine | None = None
    network: Network | None = None
    timeline: Callable[[Program, Network, int | None], Sequence[OpEvent]] | None = None
