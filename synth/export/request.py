"""The request that an exporter gets besides the program: the target machine, and the user's assertions.

    Machine  kinds nodes
    Request  runtime machine network size assume_root assume_nvlink assume_one_node timeline

`Machine.of` takes it from a Topology; programs and schedules do not carry it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from synth.model.topology import Network, Topology
from synth.model.tuning_plan import Plan
from synth.program.events import Event
from synth.program.program import Program


@dataclass(frozen=True)
class Machine:
    """`kinds[src, dst]`: the kinds of link that data from rank to rank can pass; `nodes[r]`: the box of rank r."""

    kinds: Mapping[tuple[int, int], frozenset[str]] = field(default_factory=dict)
    nodes: tuple[int, ...] = ()

    @staticmethod
    def of(topology: Topology) -> Machine:
        """Return the machine of `topology`; a route through switches has the kinds of all its links."""
        number = {name: topology.ranks + i for i, name in enumerate(topology.switches)}
        links: dict[tuple[int, int], set[str]] = {}
        for link in topology.links:
            links.setdefault((link.src, link.dst), set()).add(link.kind)
        kinds: dict[tuple[int, int], set[str]] = {}
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
class Request:
    """Options of one export, besides the program.

    `runtime`: one of the exporter's `runtimes`. `machine`: None if it is not known. `network`: latencies and bandwidths
    of the links, None for a program that came without a schedule.
    `size`: the size in bytes (nccl-tests' sense) that a timeline is drawn for.
    `assume_root`: the user asserts that every call has this root. `assume_nvlink`, `assume_one_node`: the user asserts
    that all links are NVLink, that all ranks share a box. `timeline`: runs a program at a size (None: the executor's
    own) on a network; it is a function because exporters do not import executors.
    """

    runtime: str = ""
    machine: Machine | None = None
    network: Network | None = None
    size: int | None = None
    assume_root: int | None = None
    assume_nvlink: bool = False
    assume_one_node: bool = False
    timeline: Callable[[Program, Network, int | None], Sequence[Event]] | None = None
