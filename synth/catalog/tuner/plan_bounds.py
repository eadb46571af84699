"""Lower bounds in time beside the choices of a plan, by the clock of its times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from synth.model.collective import COLLECTIVES, Collective, collective
from synth.model.topology import Topology
from synth.model.tuning_plan import Plan
from synth.program.overheads import Overheads, selected

if TYPE_CHECKING:
    from synth.model.time_bound import TimeBound


def plan_bounds(plan: Plan) -> list[TimeBound | None]:
    """Return for each collective of a plan the lower bounds in time at its sizes.

    None for a plan without links, and for collectives that a name does not define. Raises InfeasibleError where data
    cannot reach a rank.
    """
    from synth.scale.time_bound import time_bound

    bounds: list[TimeBound | None] = []
    for table in plan.tables:
        defined = table.collective in COLLECTIVES and not table.collective.endswith("v")
        if plan.topology is None or not table.sizes or not defined or table.ranks != plan.topology.ranks:
            bounds.append(None)
            continue
        task = collective(table.collective, table.ranks, () if table.root is None else (table.root,))
        bounds.append(time_bound(plan.topology, task, table.sizes, overheads=_overheads(plan, table.collective)))
    return bounds


def least_seconds(machine: Topology, task: Collective, sizes: Sequence[int]) -> dict[int, float]:
    """Return lower bounds in seconds on any program on the machine's bare links, by size."""
    from synth.scale.time_bound import time_bound

    return time_bound(machine, task, sizes).seconds


def _overheads(plan: Plan, name: str) -> Overheads:
    """Return the overheads that the predicted times of a collective include; none for measured times."""
    model = plan.model.get(name, {})
    launches = [value for term, value in model.get("coefficients", {}).items() if term.startswith("launch")]
    return selected(model.get("kind") == "nominal" and any(launches))
