"""Certified synthesis of collective-communication algorithms for GPU clusters.

    frontier = synth.pareto("dgx1", "allgather")
    frontier.best(1 << 20).schedule

Names are loaded on first use: `import synth` alone loads no solver and no numerical library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "solve": "synth.api", "bound": "synth.api", "run": "synth.api", "prepare": "synth.api",
    "load_program": "synth.api", "tune": "synth.api",
    "Topology": "synth.topology", "Link": "synth.topology", "Limit": "synth.topology", "Network": "synth.topology",
    "Collective": "synth.collective", "Schedule": "synth.schedule", "Problem": "synth.schedule",
    "Frontier": "synth.frontier", "Point": "synth.frontier", "SynthError": "synth.errors",
}  # fmt: skip
_CALLABLE_MODULES = ("pareto", "verify", "export", "topology", "collective")  # modules of these names are functions too

if TYPE_CHECKING:
    from synth.api import bound, collective, export, load_program, pareto, prepare, run, solve, topology, tune, verify
    from synth.collective import Collective
    from synth.errors import SynthError
    from synth.frontier import Frontier, Point
    from synth.schedule import Problem, Schedule
    from synth.topology import Limit, Link, Network, Topology

__all__ = [
    "Collective", "Frontier", "Limit", "Link", "Network", "Point", "Problem", "Schedule", "SynthError", "Topology",
    "bound", "collective", "export", "load_program", "pareto", "prepare", "run", "solve", "topology", "tune", "verify",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in _CALLABLE_MODULES:
        return import_module(f"synth.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'synth' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_CALLABLE_MODULES})
