"""Functions for notebooks and the command line. Each takes names or values and returns values.

`topology` arguments are a name in the grammar of docs/topologies.md, a path to a file or dump, or a `Topology`;
`collective` arguments a name, a path to a file, or a `Collective`.

Names are loaded on first use, so that a command imports what it needs alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOME = {
    "allocations": "synth.api.scale",
    "audit": "synth.api.interchange",
    "baseline": "synth.api.baselines",
    "bench": "synth.api.running",
    "blame": "synth.api.algorithms",
    "bound": "synth.api.synthesis",
    "build": "synth.api.builds",
    "build_boxes": "synth.api.builds",
    "build_catalog": "synth.api.catalog",
    "chakra": "synth.api.interchange",
    "collective": "synth.api.inputs",
    "distance": "synth.api.algorithms",
    "explain": "synth.api.scale",
    "export_plan": "synth.api.plan_export",
    "export_program": "synth.api.programs",
    "frontier": "synth.api.synthesis",
    "frontier_document": "synth.api.frontier_files",
    "import_plan": "synth.api.tuning",
    "import_schedule": "synth.api.interchange",
    "infeasible_document": "synth.api.proofs",
    "library": "synth.api.algorithms",
    "library_on": "synth.api.algorithms",
    "lint": "synth.api.programs",
    "load_plan": "synth.api.plan_export",
    "load_program": "synth.api.programs",
    "lower": "synth.api.programs",
    "multicast_bounds": "synth.api.multicast",
    "plan_bounds": "synth.catalog.tuner.plan_bounds",
    "prepare": "synth.api.running",
    "report": "synth.api.report_pages",
    "run": "synth.api.running",
    "scale_bound": "synth.api.scale",
    "solve": "synth.api.synthesis",
    "time_bound": "synth.api.scale",
    "topology": "synth.api.inputs",
    "trace": "synth.api.running",
    "tune": "synth.api.tuning",
    "unreachable": "synth.api.scale",
    "verify": "synth.api.frontier_files",
}

if TYPE_CHECKING:
    from synth.api import catalog
    from synth.api.algorithms import blame, distance, library, library_on
    from synth.api.baselines import baseline
    from synth.api.builds import build, build_boxes
    from synth.api.catalog import build_catalog
    from synth.api.frontier_files import frontier_document, verify
    from synth.api.inputs import collective, topology
    from synth.api.interchange import audit, chakra, import_schedule
    from synth.api.multicast import multicast_bounds
    from synth.api.plan_export import export_plan, load_plan
    from synth.api.programs import export_program, lint, load_program, lower
    from synth.api.proofs import infeasible_document
    from synth.api.report_pages import report
    from synth.api.running import bench, prepare, run, trace
    from synth.api.scale import allocations, explain, scale_bound, time_bound, unreachable
    from synth.api.synthesis import bound, frontier, solve
    from synth.api.tuning import import_plan, tune
    from synth.catalog.tuner.plan_bounds import plan_bounds

__all__ = [
    "allocations",
    "audit",
    "baseline",
    "bench",
    "blame",
    "bound",
    "build",
    "build_boxes",
    "build_catalog",
    "catalog",
    "chakra",
    "collective",
    "distance",
    "explain",
    "export_plan",
    "export_program",
    "frontier",
    "frontier_document",
    "import_plan",
    "import_schedule",
    "infeasible_document",
    "library",
    "library_on",
    "lint",
    "load_plan",
    "load_program",
    "lower",
    "multicast_bounds",
    "plan_bounds",
    "prepare",
    "report",
    "run",
    "scale_bound",
    "solve",
    "time_bound",
    "topology",
    "trace",
    "tune",
    "unreachable",
    "verify",
]


def __getattr__(name: str) -> object:
    if name == "catalog":
        return import_module("synth.api.catalog")
    if name not in _HOME:
        raise AttributeError(f"module 'synth.api' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
