"""Functions for notebooks and the command line. Each takes names or values and returns values.

`topology` arguments are a name in the grammar of docs/topologies.md, a path to a file or dump, or a `Topology`;
`collective` arguments a name, a path to a file, or a `Collective`.
"""

from __future__ import annotations

from synth.api import catalog
from synth.api.algorithms import blame, distance, hole_synthesizer, library, library_on
from synth.api.baselines import baseline
from synth.api.builds import build
from synth.api.catalog_jobs import build_catalog, catalog_table, plan_catalog
from synth.api.frontier_files import frontier_document, verify
from synth.api.inputs import collective, topology
from synth.api.interchange import astra_sim, audit, forest_xml, import_schedule, python_source
from synth.api.mends import improve
from synth.api.multicast import multicast_bounds
from synth.api.plan_export import export_plan, load_plan
from synth.api.plan_sets import plans
from synth.api.programs import export_program, lint, load_program, lower
from synth.api.proofs import infeasible_document
from synth.api.report_pages import report
from synth.api.running import bench, emulate, prepare, run, trace
from synth.api.scale import allocations, explain, groups, scale_bound, time_bound, unreachable
from synth.api.sketches import sketched_frontier
from synth.api.synthesis import bound, frontier, solve
from synth.api.tuning import import_plan, tune
from synth.catalog.tuner.plan_bounds import plan_bounds

__all__ = [
    "allocations",
    "astra_sim",
    "audit",
    "baseline",
    "bench",
    "blame",
    "bound",
    "build",
    "build_catalog",
    "catalog",
    "catalog_table",
    "collective",
    "distance",
    "emulate",
    "explain",
    "export_plan",
    "export_program",
    "forest_xml",
    "frontier",
    "frontier_document",
    "groups",
    "hole_synthesizer",
    "import_plan",
    "import_schedule",
    "improve",
    "infeasible_document",
    "library",
    "library_on",
    "lint",
    "load_plan",
    "load_program",
    "lower",
    "multicast_bounds",
    "plan_bounds",
    "plan_catalog",
    "plans",
    "prepare",
    "python_source",
    "report",
    "run",
    "scale_bound",
    "sketched_frontier",
    "solve",
    "time_bound",
    "topology",
    "trace",
    "tune",
    "unreachable",
    "verify",
]
