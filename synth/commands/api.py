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
    from synth.commands.allocations import allocations as allocations
    from synth.commands.bound import bound as bound
    from synth.commands.bound import multicast_bounds as multicast_bounds
    from synth.commands.bound import scale_bound as scale_bound
    from synth.commands.bound import time_bound as time_bound
    from synth.commands.catalog import build_catalog as build_catalog
    from synth.commands.explain import blame as blame
    from synth.commands.explain import distance as distance
    from synth.commands.explain import explain as explain
    from synth.commands.framework.documents import frontier_document as frontier_document
    from synth.commands.framework.documents import infeasible_document as infeasible_document
    from synth.commands.framework.documents import unreachable as unreachable
    from synth.commands.inputs import collective as collective
    from synth.commands.inputs import topology as topology
    from synth.commands.pareto import cross_check as cross_check
    from synth.commands.pareto import frontier as frontier
    from synth.commands.programs.algorithms import library as library
    from synth.commands.programs.algorithms import library_on as library_on
    from synth.commands.programs.audit import audit as audit
    from synth.commands.programs.baselines import baseline as baseline
    from synth.commands.programs.bench import bench as bench
    from synth.commands.programs.export import chakra as chakra
    from synth.commands.programs.export import export_plan as export_plan
    from synth.commands.programs.export import export_program as export_program
    from synth.commands.programs.import_ import import_schedule as import_schedule
    from synth.commands.programs.lint import lint as lint
    from synth.commands.programs.run import prepare as prepare
    from synth.commands.programs.run import run as run
    from synth.commands.programs.run import trace as trace
    from synth.commands.programs.show import load_program as load_program
    from synth.commands.programs.sources import load_plan as load_plan
    from synth.commands.programs.sources import lower as lower
    from synth.commands.report import report as report
    from synth.commands.solve import solve as solve
    from synth.commands.tuning.build import build as build
    from synth.commands.tuning.build import build_boxes as build_boxes
    from synth.commands.tuning.tune import import_plan as import_plan
    from synth.commands.tuning.tune import tune as tune
    from synth.commands.verify import verify as verify

# The names of each file.
NAMES = {
    "allocations": ("allocations",),
    "bound": ("bound", "multicast_bounds", "scale_bound", "time_bound"),
    "explain": ("blame", "distance", "explain"),
    "framework.documents": ("frontier_document", "infeasible_document", "unreachable"),
    "inputs": ("collective", "topology"),
    "pareto": ("cross_check", "frontier"),
    "programs.algorithms": ("library", "library_on"),
    "programs.audit": ("audit",),
    "programs.baselines": ("baseline",),
    "programs.bench": ("bench",),
    "programs.export": ("chakra", "export_plan", "export_program"),
    "programs.import_": ("import_schedule",),
    "programs.lint": ("lint",),
    "programs.run": ("prepare", "run", "trace"),
    "programs.show": ("load_program",),
    "programs.sources": ("load_plan", "lower"),
    "report": ("report",),
    "solve": ("solve",),
    "tuning.build": ("build", "build_boxes"),
    "tuning.tune": ("import_plan", "tune"),
    "verify": ("verify",),
    "catalog": ("build_catalog",),
}
HOME = {name: file for file, names in NAMES.items() for name in names}
__all__ = sorted((*HOME, "catalog", "plan_bounds"))


# A file is loaded when one of its names is asked for.
def __getattr__(name: str) -> object:
    if name == "catalog":
        return import_module("synth.commands.catalog")
    if name == "plan_bounds":
        return import_module("synth.catalog.tuner.plan_bounds").plan_bounds
    if name not in __all__:
        raise AttributeError(f"module 'synth.api' has no attribute {name!r}")
    return getattr(import_module(f"synth.commands.{HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
