"""Bounds of machines whose switches multicast and reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from synth.commands.api.inputs import CollectiveLike, TopologyLike, named_topology
from synth.commands.api.inputs import collective as task_of
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.scale_frontier import ScaleFrontier
from synth.model.topology import MULTICAST_NOTE, Network

# The note of a bound at scale that holds where the machine's switches multicast and reduce, too.
HOLDS_NOTE = "its switches multicast and reduce (NVLS); the bound on rounds/chunk holds for schedules with that, too"


class MulticastBounds(NamedTuple):
    """Bounds of `collective` on `network` with multicast: pairs (steps, bound) as `synth.api.bound` returns them."""

    network: Network
    collective: Collective
    bounds: list[tuple[int | None, LowerBound]]


def multicast_bounds(
    topology: TopologyLike,
    collective: CollectiveLike,
    *,
    roots: Sequence[int] = (),
    sizes: Sequence | None = None,
) -> MulticastBounds | None:
    """Return bounds on steps and on R/C at any number of steps where the switches of a machine multicast and reduce.

    None where no schedule of the collective passes them, and on more than `synth.pareto.multicast.MOST_RANKS` ranks.
    Raises InfeasibleError.
    """
    from synth.encodings.bounds.distance import steps
    from synth.encodings.bounds.multicast import multicast_bound
    from synth.encodings.engine import FrontierProblem
    from synth.pareto.multicast import applies

    machine = named_topology(topology)
    task = task_of(collective, machine.ranks, roots, sizes)
    if not applies(FrontierProblem(machine, task)):
        return None
    network = machine.multicast_network()
    least = steps(network, task)
    bounds: list[tuple[int | None, LowerBound]] = [(0, least)]
    if least.value:
        bounds.append((None, multicast_bound(network, task)))
    return MulticastBounds(network, task, bounds)


def with_multicast_note(found: ScaleFrontier) -> ScaleFrontier:
    """Return bounds at scale whose notes say whether the bound for any number of steps holds with multicast, too."""
    if MULTICAST_NOTE not in found.notes:
        return found
    from synth.scale.bounds.switches import holds_with_multicast

    bounds = [bound for steps, bound in found.bounds if steps is None]
    groups = [switch.ranks for switch in found.topology.multicast]
    ranks = found.topology.ranks
    if not bounds or not all(holds_with_multicast(ranks, groups, bound.certificate) for bound in bounds):
        return found
    notes = list(found.notes)
    notes[notes.index(MULTICAST_NOTE)] = HOLDS_NOTE
    return replace(found, notes=tuple(notes))
