"""Lower bounds in time beside the choices of a plan, by the clock of its times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synth.model.collective import COLLECTIVES, collective
from synth.model.tuning_plan import Plan
from synth.program.overheads import selected

if TYPE_CHECKING:
    from synth.model.bounds.time_bound import TimeBound


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
        # Predicted times include the overheads of the clock unless bare links were asked for. Measured ones do not.
        clock = plan.model.get(table.collective, {}).get("overheads", False)
        task = collective(table.collective, table.ranks, () if table.root is None else (table.root,))
        bounds.append(time_bound(plan.topology, task, table.sizes, overheads=selected(clock)))
    return bounds
