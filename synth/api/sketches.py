"""Frontiers under a sketch, beside the bounds of the machine without it."""

from __future__ import annotations

from synth.api.arguments import keywords_checked
from synth.api.inputs import CollectiveLike, TopologyLike, named_topology
from synth.errors import UsageError
from synth.model.frontier import Frontier
from synth.model.sketch import Sketch
from synth.model.sketched_frontier import SketchedFrontier
from synth.model.topology import Topology

# Wall seconds after which the bounds without the sketch are those so far.
FREE_SECONDS = 20.0


@keywords_checked
def sketched_frontier(
    topology: TopologyLike,
    collective: CollectiveLike,
    sketch: Sketch,
    *,
    max_steps: int | None = None,
    time_limit: float | None = None,
) -> SketchedFrontier:
    """Return the frontier of the schedules that keep a sketch, and the bounds without it.

    Parameters
    ----------
    topology, collective : as in `synth.frontier`. Rules for ways and phases take a collective that copies, or its
        reversal; ways also that each unit of data has one owner.
    sketch : the rules.
    max_steps, time_limit : of the search, as in `synth.frontier`.

    Examples
    --------
    >>> import synth
    >>> line = synth.Sketch("line", without=((0, 3), (3, 0)))
    >>> found = synth.api.sketched_frontier("ring:4", "broadcast", line, max_steps=3)
    >>> [(point.steps, str(point.rounds_per_chunk)) for point in found.frontier.points], str(found.free_bound(3))
    ([(3, '3')], '3/4')
    """
    from synth.api.synthesis import frontier

    machine = named_topology(topology)
    under = sketch.applied(machine)
    found = frontier(under, collective, max_steps=max_steps, time_limit=time_limit, engine="exact", multicast=False)
    if not isinstance(found, Frontier):
        raise UsageError("sketches are for exact synthesis")
    return compared(found, sketch, machine)


def compared(frontier: Frontier, sketch: Sketch, machine: Topology) -> SketchedFrontier:
    """Return a frontier under a sketch with the bounds of the machine without it."""
    from synth.api.synthesis import FewerBounds, bound

    last = max((point.steps for point in frontier.points), default=None)
    try:
        free = bound(machine, frontier.collective, max_steps=last, time_limit=FREE_SECONDS)
    except FewerBounds as fewer:
        return SketchedFrontier(frontier, sketch, machine, fewer.found, True)
    return SketchedFrontier(frontier, sketch, machine, free)
