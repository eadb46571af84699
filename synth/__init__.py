"""Certified synthesis of collective-communication algorithms for GPU clusters.

    frontier = synth.frontier("dgx1", "allgather")
    frontier.best(1 << 20).schedule

Names are loaded on first use: `import synth` alone loads no solver and no numerical library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from synth.version import __version__ as __version__

_HOME = {
    "bound": "synth.commands.api",
    "build": "synth.commands.api",
    "build_boxes": "synth.commands.api",
    "collective": "synth.commands.api",
    "cross_check": "synth.commands.api",
    "export_program": "synth.commands.api",
    "frontier": "synth.commands.api",
    "load_program": "synth.commands.api",
    "prepare": "synth.commands.api",
    "run": "synth.commands.api",
    "solve": "synth.commands.api",
    "time_bound": "synth.commands.api",
    "topology": "synth.commands.api",
    "tune": "synth.commands.api",
    "verify": "synth.commands.api",
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
    from synth.commands.api import (
        bound,
        build,
        build_boxes,
        collective,
        cross_check,
        export_program,
        frontier,
        load_program,
        prepare,
        run,
        solve,
        time_bound,
        topology,
        tune,
        verify,
    )
    from synth.errors import SynthError
    from synth.model.collective import Collective
    from synth.model.frontier import Frontier, Point
    from synth.model.schedule import Problem, Schedule
    from synth.model.topology import Limit, Link, Network, Topology
    from synth.topologies.sketches import Sketch

__all__ = [
    "Collective",
    "Frontier",
    "Limit",
    "Link",
    "Network",
    "Point",
    "Problem",
    "Schedule",
    "Sketch",
    "SynthError",
    "Topology",
    "bound",
    "build",
    "build_boxes",
    "collective",
    "cross_check",
    "export_program",
    "frontier",
    "load_program",
    "prepare",
    "run",
    "solve",
    "time_bound",
    "topology",
    "tune",
    "verify",
]


def __getattr__(name: str) -> object:
    if name == "api":
        return import_module("synth.commands.api")
    if name not in _HOME:
        raise AttributeError(f"module 'synth' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", "api"]
