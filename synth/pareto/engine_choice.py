"""The choice between exact synthesis and flow methods alone, where a frontier or a bound does not name one."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from pathlib import Path

from synth.errors import SynthError, UsageError
from synth.model.collective import Collective
from synth.model.collective import collective as named_collective
from synth.model.topology import Topology
from synth.pareto.flow import QUICK_RANKS
from synth.pareto.written_points import MOST_SENDS

NAMES = ("auto", "exact", "flow")
# "auto" means flow methods above so many ranks: exact synthesis would spend its budget without an end. The same for
# an alltoall, whose units are pairs of ranks: flow methods have bounds and points that are no worse, in seconds.
EXACT_RANKS, EXACT_PAIRED_RANKS = 64, 40
# The same above so many ranks of several boxes: dgx-a100*8 allreduce ends 0.1% above the bound in 12 s by flow methods,
# and 4% in 150 s where each schedule is written out beside those of exact synthesis.
EXACT_RANKS_OF_BOXES = 32
# Where schedules that are written out have fewer rounds than this, "auto" means flow methods on fewer ranks, too: the
# first and last steps alone would cost more than a tenth of them.
LEAST_WRITTEN_ROUNDS = 64
# Said of a frontier for which "auto" meant flow methods on fewer ranks than `EXACT_RANKS`.
FINE_GRAINED = (
    "schedules that come near the bound are too long here to be listed send by send, so auto took flow methods, with "
    "one bound for any number of steps; exact synthesis (--engine exact) has a bound at each number of steps"
)


def engine_of(engine: str, machine: Topology, collective: str | Path | Collective) -> str:
    """Return the engine, "exact" or "flow", that `engine` means for this machine and collective. Raises UsageError."""
    if engine not in NAMES:
        raise UsageError(f"unknown engine {engine!r}; exact, flow and auto exist")
    if engine != "auto":
        return engine
    from synth.model.scale_collectives import COLLECTIVES

    try:
        name = collective.name if isinstance(collective, Collective) else named_collective(str(collective), 2).name
    except UsageError:  # a file, uneven sizes, or an unknown name: exact synthesis reports which
        return "exact"
    return "flow" if machine.ranks > exact_ranks(name) and name in COLLECTIVES else "exact"


def engine_of_frontier(machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = ()) -> str:
    """Return the engine, "exact" or "flow", that "auto" means for the frontier of this machine and collective.

    It is "flow" on fewer ranks of several boxes, and where schedules of so few sends that they are written out beside
    exact ones have too few rounds to come near the bound.
    """
    engine = engine_of("auto", machine, collective)
    if engine == "flow" or machine.ranks <= QUICK_RANKS:
        return engine
    try:
        name, _ = flow_collective(machine, collective, roots)
    except UsageError:
        return engine
    if name == "alltoall":
        return engine
    several_boxes = 1 < len(set(machine.nodes)) < machine.ranks
    if several_boxes and machine.ranks > EXACT_RANKS_OF_BOXES:
        return "flow"
    return "flow" if _written_rounds(machine) < LEAST_WRITTEN_ROUNDS else engine


def _written_rounds(machine: Topology) -> float:
    """Return the rounds of the longest allgather that is written out, at the bound of a cut; infinite where methods at
    scale do not take the machine. Of other collectives there are about as many.
    """
    from synth.model.scale_collectives import ScaleCollective
    from synth.scale.bounds.throughput_cut import throughput
    from synth.scale.fabric.fabric import fabric

    try:
        rounds_per_chunk = throughput(fabric(machine.live()), "allgather", 0).time
    except SynthError:
        return inf
    return float(MOST_SENDS * rounds_per_chunk / ScaleCollective("allgather", machine.ranks).sends_per_chunk)


def exact_ranks(name: str) -> int:
    """Return the maximum ranks for which "auto" means exact synthesis of a collective that flow methods know."""
    return EXACT_PAIRED_RANKS if name == "alltoall" else EXACT_RANKS


def flow_collective(
    machine: Topology, collective: str | Path | Collective, roots: Sequence[int] = (), sizes: Sequence | None = None
) -> tuple[str, int]:
    """Return name and root of a collective for flow methods. Raises UsageError where they do not know it."""
    from synth.model.scale_collectives import COLLECTIVES

    value = collective if isinstance(collective, Collective) else None
    name = value.name if value else named_collective(str(collective), 2, ()).name
    if name not in COLLECTIVES or sizes is not None:
        raise UsageError(f"flow methods know {', '.join(COLLECTIVES)}; for {name} use --engine exact")
    used_roots = list(value.roots if value else roots) or [0]
    if len(used_roots) > 1 or not 0 <= used_roots[0] < machine.ranks:
        raise UsageError(
            f"roots {','.join(map(str, used_roots))}: flow methods take one root of 0..{machine.ranks - 1}"
        )
    return name, used_roots[0]
