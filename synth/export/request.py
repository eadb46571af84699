"""What an exporter is told besides the program: the machine it is for, and what the user asserts.

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
        """What `topology` says; a route through switches has the kinds of all its links."""
        number = {name: topology.ranks + i for i, name in enumerate(topology.switches)}
        links: dict[tuple[int, int], set[str]] = {}
        for link in topology.links:
            links.setdefault((link.src, link.dst), set()).add(link.kind)
        kinds: dict[tuple[int, int], set[str]] = {}
        for route in topology.network().routes:
            ends = [route.src, *(number[name] for name in route.via), route.dst]
            found = kinds.setdefault((route.src, route.dst), set())
            found.update(*(links[hop] for hop in itertools.pairwise(ends)))
        nodes = topology.nodes or (0,) * topology.ranks  # a topology that names no boxes is one
        return Machine({pair: frozenset(found) for pair, found in kinds.items()}, nodes)

    @staticmethod
    def of_plan(plan: Plan, ranks: Sequence[int]) -> Machine | None:
        """What `plan` says of its machine, rank r called ``ranks[r]``; None where it says nothing."""
        if plan.topology is None or not plan.kinds:
            return None
        kinds = {
            (route.src, route.dst): frozenset(found)
            for route, found in zip(plan.topology.routes, plan.kinds, strict=True)
        }
        return Machine(kinds, plan.nodes or (0,) * plan.topology.ranks).relabelled(ranks)

    def relabelled(self, ranks: Sequence[int]) -> Machine:
        """The machine with rank r called ``ranks[r]``."""
        kinds = {(ranks[a], ranks[b]): found for (a, b), found in self.kinds.items()}
        nodes = [0] * len(self.nodes)
        for rank, node in zip(ranks, self.nodes, strict=True):
            nodes[rank] = node
        return Machine(kinds, tuple(nodes))


@dataclass(frozen=True)
class Request:
    """`runtime` is one of the exporter's; `machine` None where nothing is known of it.

    `network` has the α and β of the links (None for a program that came without a schedule), `size` is the one that a
    timeline is drawn for, bytes in nccl-tests' sense. `assume_root`: the user says that every call has this root;
    `assume_nvlink`, `assume_one_node`: that all links are NVLink, that all ranks share a box. `timeline` runs a program
    at a size (None: the executor's own) on a network; exporters do not know the executors.
    """

    runtime: str = ""
    machine: Machine | None = None
    network: Network | None = None
    size: int | None = None
    assume_root: int | None = None
    assume_nvlink: bool = False
    assume_one_node: bool = False
    timeline: Callable[[Program, Network, int | None], Sequence[Event]] | None = None
