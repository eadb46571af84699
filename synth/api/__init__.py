"""What notebooks and the command line call. Every function takes names or values and returns values.

`topology` arguments are a name in the grammar of docs/topologies.md, a path to a file or dump, or a `Topology`;
`collective` arguments a name, a path to a file, or a `Collective`.
"""

from __future__ import annotations

from synth.api import catalog
from synth.api.building import build_catalog, catalog_table, plan_catalog
from synth.api.inputs import collective, topology
from synth.api.planning import export_plan, load_plan
from synth.api.programs import export, lint, load_program, lower
from synth.api.proofs import infeasible_document
from synth.api.reporting import report
from synth.api.running import baseline, bench, emulate, prepare, run, trace
from synth.api.scale import allocations, explain, groups, large_bound, large_document, unreachable
from synth.api.synthesis import bound, pareto, solve, verify
from synth.api.tuning import import_plan, tune

__all__ = [
    "allocations", "baseline", "bench", "bound", "build_catalog", "catalog", "catalog_table", "collective", "emulate", "explain",
    "export", "export_plan", "groups", "import_plan", "infeasible_document", "large_bound", "large_document", "lint", "load_plan",
    "load_program", "lower", "pareto", "plan_catalog", "prepare", "report", "run", "solve", "topology", "trace", "tune", "unreachable",
    "verify",
]  # fmt: skip
