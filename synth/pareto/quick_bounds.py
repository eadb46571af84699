"""Bounds on rounds per chunk that need no linear program: a single cut; of an allreduce a partition of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from synth.encodings.engine import Findings, FrontierProblem
from synth.errors import SynthError
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.topology import Network, Topology
from synth.solvers.deadline import Deadline


@dataclass(frozen=True)
class SingleCut:
    """The best of the cuts around a rank, a box, or what symmetries and widths single out."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True."""
        return True

    def improve(self, problem: FrontierProblem, found: Findings, deadline: Deadline) -> Iterator[LowerBound]:
        """Yield the bound."""
        from synth.encodings.bounds.single_cut import single_cut_bound

        yield single_cut_bound(problem.network, problem.collective)


@dataclass(frozen=True)
class AllreducePartition:
    """The best partition of the ranks for an allreduce, of one box; flow methods have that of several boxes."""

    def applies(self, problem: FrontierProblem) -> bool:
        """Return True for an allreduce in one box."""
        return problem.collective.name == "allreduce" and not problem.several_boxes

    def improve(self, problem: FrontierProblem, found: Findings, deadline: Deadline) -> Iterator[LowerBound]:
        """Yield the bound, if there is one."""
        bound = allreduce_parts_bound(problem.machine, problem.network, problem.collective)
        if bound is not None:
            yield bound


def allreduce_parts_bound(machine: Topology, network: Network, task: Collective) -> LowerBound | None:
    """Return the bound on an allreduce by the best partition of the ranks, which scale methods find.

    None for other collectives, where switches multicast, for machines that scale methods do not take, and where the
    time is over.
    """
    if task.name != "allreduce" or network.ranks < 2 or network.multicast:
        return None
    from synth.scale.bounds.allreduce_partition import partition
    from synth.scale.fabric.fabric import fabric

    try:
        _, certificate, _ = partition(fabric(machine.live()))
    except SynthError:
        return None
    return bound_of_parts(network, task, certificate)


def bound_of_parts(network: Network, task: Collective, certificate: dict) -> LowerBound:
    """Return the bound on an allreduce by the partition of a certificate at scale, whose regions have switches, too."""
    from synth.encodings.bounds.partition import partition_bound

    ranks = frozenset(range(network.ranks))
    parts = [sorted(ranks.intersection(region)) for region in certificate["regions"]]
    return partition_bound(network, task, parts)
