"""Registries: tables of ``"module:attr"`` strings, imported lazily, and the plug-ins that add to them.

A package outside this one adds a topology, encoding, solver or exporter by an entry point in the group `GROUP`, named
``<table>.<name>``::

    [project.entry-points."synth.plugins"]
    "topologies.dgx9" = "my_package.machines:dgx9"

Nothing is imported before it is asked for, and two things of one name are an error, whoever brings them.
"""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from synth.errors import MissingDependencyError, SynthError, UsageError, unknown

GROUP = "synth.plugins"
# What notebooks show of a value: the values know these functions by name alone, so that they import no drawing code.
NOTEBOOK = {
    "build": "synth.commands.notebook:build_html",
    "frontier": "synth.commands.notebook:frontier_html",
    "measured": "synth.commands.notebook:measured_html",
    "plan": "synth.view.plans:html",
    "program": "synth.commands.notebook:program_html",
    "run": "synth.commands.notebook:run_html",
    "schedule": "synth.commands.notebook:schedule_html",
    "topology": "synth.commands.notebook:topology_svg",
    "plot of frontier": "synth.view.drawings.plot:plot_frontier",
    "plot of run": "synth.view.drawings.plot:plot_run",
}
TABLES = {
    "topologies": "topology",
    "collectives": "collective",
    "encodings": "encoding",
    "solvers": "solver",
    "exporters": "exporter",
    "executors": "executor",
    "algorithms": "algorithm",
}


def load(target: str) -> Any:
    """Return the object that ``"module:attr"`` names. Raises SynthError when it cannot be imported."""
    module, _, attr = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attr)
    except (ImportError, AttributeError) as error:
        raise SynthError(f"{target!r} cannot be loaded: {error}") from error


@cache
def plugins(table: str) -> Mapping[str, str]:
    """Return the plug-ins of installed packages for `table`, name → target.

    Raises SynthError for a malformed or repeated name.
    """
    from importlib.metadata import entry_points

    found: dict[str, str] = {}
    for point in entry_points(group=GROUP):
        kind, _, name = point.name.partition(".")
        if kind not in TABLES or not name:
            known = ", ".join(f"{known}.NAME" for known in TABLES)
            raise SynthError(
                f"plug-in {point.name!r} ({point.value}) adds to no table; its entry point must be called one of "
                f"{known}"
            )
        if kind != table:
            continue
        if name.lower() in found:
            raise SynthError(
                f"two plug-ins are called {point.name!r}: {found[name.lower()]} and {point.value}; uninstall one"
            )
        found[name.lower()] = point.value
    return found


def table(kind: str, built_in: Iterable[str]) -> Mapping[str, str]:
    """Return the plug-ins of `kind`. Raises SynthError where one takes a name of `built_in`."""
    # Names are compared in lower case, as they are looked up.
    added = plugins(kind)
    clash = sorted(set(added) & {name.lower() for name in built_in})
    if clash:
        raise SynthError(
            f"the plug-in {added[clash[0]]} takes the name of the built-in {TABLES[kind]} {clash[0]!r}; uninstall "
            f"or rename it"
        )
    return added


def find(kind: str, name: str, built_in: Mapping[str, str], also: Iterable[str] = ()) -> Any:
    """Return the object called `name` (any case) among `built_in` and the plug-ins of `kind`.

    Raises UsageError with the nearest names, of which some may be of `also`, which are found elsewhere.
    """
    known = {**built_in, **table(kind, built_in)}
    if name.lower() not in known:
        raise UsageError(unknown(TABLES[kind], name, [*known, *also], kind))
    return load(known[name.lower()])


@contextmanager
def faults_of(target: str) -> Iterator[None]:
    """Raise SynthError with the line of the plug-in `target` where its code fails in the block."""
    try:
        yield
    except SynthError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise SynthError(
            f"the plug-in {target} failed: {last.filename}:{last.lineno}: {type(error).__name__}: {error}"
        ) from error


def installed(module: str) -> bool:
    """True if `module` could be imported. Only its parent packages are."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def need(module: str, purpose: str, install: str) -> Any:
    """The optional library `module`. Raises MissingDependencyError that says what for, and the command that installs
    it."""
    if not installed(module):
        raise MissingDependencyError(f"{purpose} needs {module.partition('.')[0]}, which is not installed: {install}")
    return importlib.import_module(module)
