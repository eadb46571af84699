"""Functions for notebooks and the command line, each from the file of its command: `synth.api.NAME`.

Each takes names or values and returns values. `topology` arguments are a name in the grammar of docs/topologies.md, a
path to a file or dump, or a `Topology`; `collective` arguments a name, a path to a file, or a `Collective`. Names are
loaded on first use, so that a command imports what it needs alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from synth.catalog.tuner.plan_bounds import plan_bounds as plan_bounds
    from synth.commands import catalog as catalog
    from synth.commands.algorithms import library as library
    from synth.commands.algorithms import library_on as library_on
    from synth.commands.allocations import allocations as allocations
    from synth.commands.audit import audit as audit
    from synth.commands.baselines import baseline as baseline
    from synth.commands.bench import bench as bench
    from synth.commands.bound import bound as bound
    from synth.commands.bound import multicast_bounds as multicast_bounds
    from synth.commands.bound import scale_bound as scale_bound
    from synth.commands.bound import time_bound as time_bound
    from synth.commands.build import build as build
    from synth.commands.build import build_boxes as build_boxes
    from synth.commands.catalog import build_catalog as build_catalog
    from synth.commands.explain import blame as blame
    from synth.commands.explain import distance as distance
    from synth.commands.explain import explain as explain
    from synth.commands.export import chakra as chakra
    from synth.commands.export import export_plan as export_plan
    from synth.commands.export import export_program as export_program
    from synth.commands.framework.frontier_files import frontier_document as frontier_document
    from synth.commands.framework.infeasible_document import infeasible_document as infeasible_document
    from synth.commands.framework.infeasible_document import unreachable as unreachable
    from synth.commands.import_ import import_schedule as import_schedule
    from synth.commands.inputs import collective as collective
    from synth.commands.inputs import topology as topology
    from synth.commands.lint import lint as lint
    from synth.commands.pareto import cross_check as cross_check
    from synth.commands.pareto import frontier as frontier
    from synth.commands.programs import load_plan as load_plan
    from synth.commands.programs import lower as lower
    from synth.commands.report import report as report
    from synth.commands.run import prepare as prepare
    from synth.commands.run import run as run
    from synth.commands.run import trace as trace
    from synth.commands.show import load_program as load_program
    from synth.commands.solve import solve as solve
    from synth.commands.tune import import_plan as import_plan
    from synth.commands.tune import tune as tune
    from synth.commands.verify import verify as verify

# The file of each name, where that is not the command of the same name.
HOME = {
    "baseline": "baselines", "blame": "explain", "build_boxes": "build", "build_catalog": "catalog", "chakra": "export",
    "collective": "inputs", "cross_check": "pareto", "distance": "explain", "export_plan": "export",
    "export_program": "export", "frontier": "pareto", "frontier_document": "framework.frontier_files",
    "import_plan": "tune",
    "import_schedule": "import_", "infeasible_document": "framework.infeasible_document", "library": "algorithms",
    "library_on": "algorithms", "load_plan": "programs", "load_program": "show", "lower": "programs",
    "multicast_bounds": "bound", "prepare": "run", "scale_bound": "bound", "time_bound": "bound", "topology": "inputs",
    "trace": "run", "unreachable": "framework.infeasible_document",
}  # fmt: skip
SAME = (
    "allocations",
    "audit",
    "bench",
    "bound",
    "build",
    "explain",
    "lint",
    "report",
    "run",
    "solve",
    "tune",
    "verify",
)
__all__ = sorted((*HOME, *SAME, "catalog", "plan_bounds"))


# A file is loaded when one of its names is asked for.
def __getattr__(name: str) -> object:
    if name == "catalog":
        return import_module("synth.commands.catalog")
    if name == "plan_bounds":
        return import_module("synth.catalog.tuner.plan_bounds").plan_bounds
    if name not in __all__:
        raise AttributeError(f"module 'synth.api' has no attribute {name!r}")
    return getattr(import_module(f"synth.commands.{HOME.get(name, name)}"), name)


def __dir__() -> list[str]:
    return list(__all__)
