"""Bounds of machines whose switches multicast and reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synth.api.inputs import CollectiveLike, TopologyLike, named_topology
from synth.api.inputs import collective as task_of
from synth.model.collective import Collective
from synth.model.frontier import LowerBound
from synth.model.topology import Network


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

    None where they do not, and on more than `synth.frontiers.multicast.MOST_RANKS` ranks. Raises InfeasibleError.
    """
    from synth.bounds.distance import steps
    from synth.bounds.multicast import multicast_bound
    from synth.frontiers.multicast import MOST_RANKS

    machine = named_topology(topology)
    if not machine.multicast or machine.ranks > MOST_RANKS:
        return None
    network = machine.multicast_network()
    task = task_of(collective, machine.ranks, roots, sizes)
    least = steps(network, task)
    bounds: list[tuple[int | None, LowerBound]] = [(0, least)]
    if least.value:
        bounds.append((None, multicast_bound(network, task)))
    return MulticastBounds(network, task, bounds)
