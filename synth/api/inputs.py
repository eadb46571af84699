"""Machines and collectives from what the user gave: names, files or values."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from synth.errors import UsageError, unknown
from synth.model.collective import ALIASES, COLLECTIVES, Collective, canonical_name
from synth.model.collective import collective as named_collective
from synth.model.registry import load, table
from synth.model.topology import Topology

# How the name of a file ends, of which no machine's name does: such a file is missing, not unknown.
FILES = (".yaml", ".yml", ".json", ".xml", ".graphml", ".txt")


def topology(
    spec: str | Path | Topology,
    *,
    file: str | Path | None = None,
    ranks: str | Sequence[int] | None = None,
    without: Sequence[str] = (),
    degrade: Sequence[str] = (),
    links: str | Path | None = None,
) -> Topology:
    """A machine by name, file, dump or value, with the user's changes: an allocation, broken, slow or measured
    links."""
    from synth.topologies import modify

    if isinstance(spec, Topology) and file is None:
        return modify.apply(spec, ranks=ranks, without=without, degrade=degrade, links=links)
    base = _load(Path(file)) if file is not None else named_topology(spec)
    return modify.apply(base, ranks=ranks, without=without, degrade=degrade, links=links)


def named_topology(spec: str | Path | Topology) -> Topology:
    """A machine by name or file, or the value itself."""
    from synth import topologies

    if isinstance(spec, Topology):
        return spec
    if (
        isinstance(spec, Path)
        or os.sep in str(spec)
        or Path(str(spec)).is_file()
        or Path(str(spec)).suffix.lower() in FILES
    ):
        return _load(Path(spec))
    return topologies.topology(str(spec))


def _load(path: Path) -> Topology:
    from synth.topologies import importers

    return importers.load(path)


def collective(
    name: str | Path | Collective, ranks: int, roots: Sequence[int] = (), sizes: Sequence | None = None
) -> Collective:
    """A collective by name, or from a file with pre, post and combining."""
    if isinstance(name, Collective):
        if name.ranks != ranks:
            raise UsageError(f"{name.name} is over {name.ranks} ranks, the topology has {ranks}")
        return name
    if isinstance(name, Path) or Path(str(name)).suffix in (".yaml", ".yml", ".json"):
        from synth.model.collective_files import load

        return load(Path(name), ranks)
    if canonical_name(str(name)) not in COLLECTIVES:
        return _plugin(str(name), ranks, roots, sizes)
    return named_collective(str(name), ranks, roots, sizes)


def _plugin(name: str, ranks: int, roots: Sequence[int], sizes: Sequence | None) -> Collective:
    """Return the collective that an installed package adds: its function takes the ranks and, where given, one root.

    Raises UsageError with the nearest names where there is none, or where the function gives something else.
    """
    built_in = [*COLLECTIVES, *ALIASES]
    added = table("collectives", built_in)
    key = name.lower()
    if key not in added:
        raise UsageError(unknown("collective", name, [*built_in, *added], "collectives"))
    if sizes is not None or len(roots) > 1:
        raise UsageError(f"{key} of the plug-in {added[key]} takes one root at most and no sizes")
    result = load(added[key])(ranks, *roots)
    if not isinstance(result, Collective) or result.ranks != ranks or result.name in COLLECTIVES:
        raise UsageError(
            f"the plug-in {added[key]} must return a Collective over {ranks} ranks with a name of its own; "
            f"it returned {result!r}"
        )
    return result


def workers(jobs: int | None) -> int:
    """Return the number of processes: `jobs`, or one for each usable core, 8 at most. Raises UsageError below 1."""
    if jobs is not None:
        if jobs < 1:
            raise UsageError(f"jobs is {jobs}; it must be at least 1")
        return jobs
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, 8)
