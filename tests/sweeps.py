"""The sweep of exact synthesis alone, as one engine of the loop."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from synth.encodings.engine import FrontierProblem, Options
from synth.model.collective import Collective
from synth.model.frontier import Frontier, Point
from synth.model.topology import Network, Topology
from synth.pareto.found import Found
from synth.pareto.log import Log
from synth.pareto.synthesize import ENGINES, ExactSweep, Row, run


def begun(
    network: Network, task: Collective, rows: Iterable[Point] = (), log: Log | None = None, late: float = 0.0,
    **options: Any,
) -> Found:  # fmt: skip
    """Return what is found before the sweep: `rows`, in a search that began `late` seconds ago."""
    found = Found(network, task, Options(**options), log or Log(None, ""), started=time.monotonic() - late)
    for row in rows:
        found.take(row.bound)
        found.take(row)
    return found


def swept(network: Network, task: Collective, *rows: Any, **options: Any) -> Frontier:
    """Return the frontier of the sweep; arguments as of `begun`."""
    found = begun(network, task, *rows, **options)
    run(Row(ExactSweep(), plans=True), None, found)  # type: ignore[arg-type]
    return found.frontier()


def first_rows(machine: Topology, task: Collective, late: float = 0.0, **options: Any) -> Found:
    """Return what the engines before the sweep find."""
    problem = FrontierProblem(machine, task, Options(**options))
    found = begun(problem.network, task, late=late, **options)
    for row in ENGINES:
        if not row.plans and row.fits(problem):
            run(row, problem, found)
    return found
