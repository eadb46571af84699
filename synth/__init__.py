"""Certified synthesis of collective-communication algorithms for GPU clusters.

    frontier = synth.frontier("dgx1", "allgather")
    frontier.best(1 << 20).schedule

Names are loaded on first use: `import synth` alone loads no solver and no numerical library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from synth.version import __version__ as __version__

# Functions of the commands, and values of the model.
_FUNCTIONS = (
    "bound", "build", "build_boxes", "collective", "cross_check", "export_program", "frontier", "load_program",
    "prepare", "run", "solve", "time_bound", "topology", "tune", "verify",
)  # fmt: skip
_VALUES = {
    "Topology": "synth.model.topology",
    "Link": "synth.model.topology",
    "Limit": "synth.model.topology",
    "Network": "synth.model.topology",
    "Collective": "synth.model.collective",
    "Schedule": "synth.model.schedule",
    "Problem": "synth.model.schedule",
    "Sketch": "synth.topologies.sketches",
    "Frontier": "synth.model.frontier",
    "Point": "synth.model.frontier",
    "SynthError": "synth.errors",
}

if TYPE_CHECKING:
    from synth.commands import api as api
    from synth.commands.bound import bound as bound
    from synth.commands.bound import time_bound as time_bound
    from synth.commands.inputs import collective as collective
    from synth.commands.inputs import topology as topology
    from synth.commands.pareto import cross_check as cross_check
    from synth.commands.pareto import frontier as frontier
    from synth.commands.programs.export import export_program as export_program
    from synth.commands.programs.run import prepare as prepare
    from synth.commands.programs.run import run as run
    from synth.commands.programs.show import load_program as load_program
    from synth.commands.solve import solve as solve
    from synth.commands.tuning.build import build as build
    from synth.commands.tuning.build import build_boxes as build_boxes
    from synth.commands.tuning.tune import tune as tune
    from synth.commands.verify import verify as verify
    from synth.errors import SynthError as SynthError
    from synth.model.collective import Collective as Collective
    from synth.model.frontier import Frontier as Frontier
    from synth.model.frontier import Point as Point
    from synth.model.schedule import Problem as Problem
    from synth.model.schedule import Schedule as Schedule
    from synth.model.topology import Limit as Limit
    from synth.model.topology import Link as Link
    from synth.model.topology import Network as Network
    from synth.model.topology import Topology as Topology
    from synth.topologies.sketches import Sketch as Sketch

__all__ = sorted((*_FUNCTIONS, *_VALUES))


def __getattr__(name: str) -> object:
    api = import_module("synth.commands.api") if name in ("api", *_FUNCTIONS) else None
    if api is not None:
        return api if name == "api" else getattr(api, name)
    if name not in _VALUES:
        raise AttributeError(f"module 'synth' has no attribute {name!r}")
    return getattr(import_module(_VALUES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "api"]
