"""Functions for notebooks and the command line. Each takes names or values and returns values.

`topology` arguments are a name in the grammar of docs/topologies.md, a path to a file or dump, or a `Topology`;
`collective` arguments a name, a path to a file, or a `Collective`.

Names are loaded on first use, so that a command imports what it needs alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOME = {
    "allocations": "synth.commands.api.scale",
    "audit": "synth.commands.api.interchange",
    "baseline": "synth.commands.api.baselines",
    "bench": "synth.commands.api.running",
    "blame": "synth.commands.api.algorithms",
    "bound": "synth.commands.api.synthesis",
    "build": "synth.commands.api.builds",
    "build_boxes": "synth.commands.api.builds",
    "build_catalog": "synth.commands.api.catalog",
    "chakra": "synth.commands.api.interchange",
    "collective": "synth.commands.api.inputs",
    "cross_check": "synth.commands.api.synthesis",
    "distance": "synth.commands.api.algorithms",
    "explain": "synth.commands.api.scale",
    "export_plan": "synth.commands.api.plan_export",
    "export_program": "synth.commands.api.programs",
    "frontier": "synth.commands.api.synthesis",
    "frontier_document": "synth.commands.api.frontier_files",
    "import_plan": "synth.commands.api.tuning",
    "import_schedule": "synth.commands.api.interchange",
    "infeasible_document": "synth.commands.api.proofs",
    "library": "synth.commands.api.algorithms",
    "library_on": "synth.commands.api.algorithms",
    "lint": "synth.commands.api.programs",
    "load_plan": "synth.commands.api.plan_export",
    "load_program": "synth.commands.api.programs",
    "lower": "synth.commands.api.programs",
    "multicast_bounds": "synth.commands.api.multicast",
    "plan_bounds": "synth.catalog.tuner.plan_bounds",
    "prepare": "synth.commands.api.running",
    "report": "synth.commands.api.report_pages",
    "run": "synth.commands.api.running",
    "scale_bound": "synth.commands.api.scale",
    "solve": "synth.commands.api.synthesis",
    "time_bound": "synth.commands.api.scale",
    "topology": "synth.commands.api.inputs",
    "trace": "synth.commands.api.running",
    "tune": "synth.commands.api.tuning",
    "unreachable": "synth.commands.api.scale",
    "verify": "synth.commands.api.frontier_files",
}

if TYPE_CHECKING:
    from synth.catalog.tuner.plan_bounds import plan_bounds
    from synth.commands.api import catalog
    from synth.commands.api.algorithms import blame, distance, library, library_on
    from synth.commands.api.baselines import baseline
    from synth.commands.api.builds import build, build_boxes
    from synth.commands.api.catalog import build_catalog
    from synth.commands.api.frontier_files import frontier_document, verify
    from synth.commands.api.inputs import collective, topology
    from synth.commands.api.interchange import audit, chakra, import_schedule
    from synth.commands.api.multicast import multicast_bounds
    from synth.commands.api.plan_export import export_plan, load_plan
    from synth.commands.api.programs import export_program, lint, load_program, lower
    from synth.commands.api.proofs import infeasible_document
    from synth.commands.api.report_pages import report
    from synth.commands.api.running import bench, prepare, run, trace
    from synth.commands.api.scale import allocations, explain, scale_bound, time_bound, unreachable
    from synth.commands.api.synthesis import bound, cross_check, frontier, solve
    from synth.commands.api.tuning import import_plan, tune

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
    "cross_check",
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
        return import_module("synth.commands.api.catalog")
    if name not in _HOME:
        raise AttributeError(f"module 'synth.commands.api' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
