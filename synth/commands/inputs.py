"""Machines and collectives from what the user gave: names, files or values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from synth.errors import ArgumentError, UsageError, unknown
from synth.model.collective import ALIASES, COLLECTIVES, Collective, canonical_name
from synth.model.collective import collective as named_collective
from synth.model.rational import Number, size_bytes
from synth.model.registry import faults_of, load, table
from synth.model.topology import Topology

# How the name of a file ends, of which no machine's name does: such a file is missing, not unknown.
FILES = (".yaml", ".yml", ".json", ".xml", ".graphml", ".txt")


class GraphLike(Protocol):
    """A graph of networkx: Graph, DiGraph, MultiGraph or MultiDiGraph."""

    @property
    def nodes(self) -> Any:
        """The nodes with their attributes."""
        ...

    @property
    def edges(self) -> Any:
        """The edges with their attributes."""
        ...

    def is_directed(self) -> bool:
        """Return True if an edge leads one way."""
        ...


TopologyLike: TypeAlias = str | Path | Topology | GraphLike | Mapping[Any, Any]
CollectiveLike: TypeAlias = str | Path | Collective | Mapping[str, Any]
Pair: TypeAlias = tuple[int, int]


def topology(
    spec: TopologyLike | None = None,
    *,
    file: str | Path | None = None,
    ranks: str | Iterable[int] | None = None,
    without: str | Iterable[str | Pair] = (),
    degrade: str | Iterable[str] | Mapping[Pair | int, Number] = (),
    links: str | Path | None = None,
) -> Topology:
    """Return a machine, with changes where some are asked for.

    Parameters
    ----------
    spec : a name (docs/topologies.md); the path of a topology file or of a machine's dump (docs/importing.md); a
        `Topology`; a graph of networkx; or a mapping: that of a topology file, or of links, ``{(0, 1): 25}``.
        The edges of a graph have `bandwidth` in GB/s (or `units`, of the graph's attribute `unit`; 1 GB/s where there
        is neither), `latency` in µs and `kind`. An undirected edge is a link each way. Nodes whose attribute `switch`
        is true are switches, the others ranks.
    file : the path of a file, which counts in place of `spec`.
    ranks : the allocation: these ranks alone, in the order given; ``"0,2-5"`` or a list.
    without : broken links, both ways: ``"0-3"`` or ``(0, 3)``, or several of them.
    degrade : slow links and the factor of their bandwidth: ``"0-3:1/2"`` or ``{(0, 3): 0.5}``; a rank alone stands for
        all that it sends and receives: ``"0:17/18"`` or ``{0: Fraction(17, 18)}``.
    links : a CSV file of measured links.

    Returns
    -------
    The machine. Its `notes` say what was assumed.

    Raises
    ------
    UsageError for an unknown name, or a change that makes no sense; FormatError for a file, graph or mapping that is
    malformed, with the place.

    Examples
    --------
    >>> import networkx as nx
    >>> import synth
    >>> synth.topology("dgx1", ranks=range(4), degrade={(0, 1): 0.5})
    <Topology dgx1-v100 --degrade 0-1:1/2 --ranks 0,1,2,3: 4 ranks, 12 links>
    >>> square = nx.cycle_graph(4)
    >>> nx.set_edge_attributes(square, 12.5, "bandwidth")
    >>> synth.topology(square)
    <Topology graph: 4 ranks, 8 links>
    """
    from synth.topologies import modify

    if spec is None and file is None:
        raise UsageError("give one machine: a name, a file, a graph or a value")
    # Each change in the form that the command line has: texts of pairs and factors.
    base = named_topology(spec) if file is None else _load(Path(file))  # type: ignore[arg-type]
    without = [without] if isinstance(without, str) else without
    broken = [_pair(ends) for ends in without]
    if isinstance(degrade, Mapping):
        slow = []
        for ends, factor in degrade.items():
            named = str(ends) if isinstance(ends, int) else _pair(ends)
            slow.append(f"{named}:{factor}")
    else:
        slow = [degrade] if isinstance(degrade, str) else list(degrade)
    allocated = ranks if ranks is None or isinstance(ranks, str) else integers(ranks, "ranks")
    return modify.apply(base, ranks=allocated, without=broken, degrade=slow, links=links)


def _pair(ends: str | Pair) -> str:
    if isinstance(ends, str):
        return ends
    try:
        src, dst = ends
        return f"{int(src)}-{int(dst)}"
    except (TypeError, ValueError):
        raise ArgumentError(f"expected a pair of ranks, such as (0, 3) or '0-3', found {ends!r}") from None


def named_topology(spec: TopologyLike) -> Topology:
    """Return the machine of a name, a file, a graph or a mapping, or the value itself.

    Raises ArgumentError for a value of another type.
    """
    from synth import topologies

    if isinstance(spec, Topology):
        return spec
    if isinstance(spec, Mapping):
        from synth.topologies.topology_files import from_mapping

        return from_mapping(spec, "topology")
    # A text is a path where it looks like one or is one; else a name, which no folder hides.
    if isinstance(spec, str | Path):
        text = str(spec)
        if isinstance(spec, Path) or os.sep in text or Path(text).is_file() or Path(text).suffix.lower() in FILES:
            return _load(Path(spec))
        try:
            return topologies.topology(text)
        except UsageError:
            if Path(text).is_dir():
                return _load(Path(text))  # which says that it is no file
            raise
    # Graphs of networkx are known by what they offer, so that networkx is not loaded.
    if all(hasattr(spec, name) for name in ("nodes", "edges", "is_directed")):
        from synth.topologies.topology_files import from_document, from_graph

        return from_document(from_graph(spec, "graph"), "graph", "graph")
    raise ArgumentError(
        f"a topology is a name, a path, a Topology, a graph of networkx or a mapping, not {_kind(spec)}: {spec!r:.60}"
    )


def collective_or_value(given: CollectiveLike, ranks: int) -> str | Path | Collective:
    """Return the collective of a mapping; a name, a path or a value as it is."""
    return collective(given, ranks) if isinstance(given, Mapping) else given


def _kind(value: object) -> str:
    return f"the type {type(value).__name__}"


def integers(values: object, what: str) -> list[int]:
    """Return integers, NumPy's too, as a list of Python's: one, or several in their order, of a set in rising order.

    Raises ArgumentError, in which `what` names them.
    """
    try:
        if not isinstance(values, Iterable):
            return [values.__index__()]  # type: ignore[attr-defined]
        found = [value.__index__() for value in values]
    except (TypeError, AttributeError):
        raise ArgumentError(f"{what}: expected whole numbers, found {values!r:.60}") from None
    return sorted(found) if isinstance(values, AbstractSet) else found


def size_in_bytes(value: object, what: str = "size", least: int = 1) -> int:
    """Return the bytes that `value` stands for: a whole number of any numeric type, or text such as ``"1MB"``.

    `what`: its name in errors. Raises ArgumentError for anything else, and for less than `least`, 0 or 1.
    """
    try:
        if isinstance(value, str):
            return size_bytes(value)
        whole = isinstance(value, float) and value.is_integer()
        found: int = int(value) if whole else value.__index__()  # type: ignore[attr-defined, arg-type]
        if found >= least and not isinstance(value, bool):
            return found
    except (AttributeError, TypeError, ValueError):
        pass
    raise ArgumentError(f"{what}: {value!r:.60} is not a size in bytes, such as 65536 or '64KB'")


def sizes_in_bytes(values: object, what: str = "sizes") -> tuple[int, ...]:
    """Return the bytes of one size, or of several in their order, each as `size_in_bytes` takes it."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else (values,)
    return tuple(size_in_bytes(value, what) for value in several)


def _load(path: Path) -> Topology:
    from synth.topologies import importers

    return importers.load(path)


def collective(
    name: CollectiveLike, ranks: int, roots: int | Iterable[int] = (), sizes: Sequence | None = None
) -> Collective:
    """Return a collective over `ranks` ranks.

    Parameters
    ----------
    name : a name (`synth list collectives`), the path of a file with pre, post and combining, the mapping of such a
        file, or a `Collective`, which is checked.
    ranks : the number of ranks.
    roots : one root, by default 0, or the several of a multi-root collective.
    sizes : chunks of each rank (allgatherv, reduce-scatterv), or of each pair of ranks (alltoallv).

    Returns
    -------
    The collective: for each unit of data the ranks that hold it before and after.

    Raises
    ------
    UsageError for an unknown name, or options that the collective does not take; FormatError for a file or mapping that
    is malformed, with the place.

    Examples
    --------
    >>> import synth
    >>> synth.collective("broadcast", 8, roots=3)
    <Collective broadcast from 3: 8 ranks, 1 unit>
    >>> halo = {"name": "halo", "pre": {0: 0, 1: 1}, "post": {0: {1}, 1: {0, 2}}}
    >>> synth.collective(halo, 3).post
    (frozenset({1}), frozenset({0, 2}))
    """
    (ranks,) = integers(ranks, "ranks")
    if isinstance(name, Collective):
        if name.ranks != ranks:
            raise UsageError(f"{name.name} is over {name.ranks} ranks, the topology has {ranks}")
        return _checked_collective(name)
    if isinstance(name, Mapping):
        from synth.model.documents.collective_files import from_mapping

        return from_mapping(name, ranks)
    if not isinstance(name, str | Path):
        raise ArgumentError(
            f"a collective is a name, a path, a Collective or a mapping, not {_kind(name)}: {name!r:.60}"
        )
    # A file, a name of ours, or a name that an installed package adds.
    if isinstance(name, Path) or Path(str(name)).suffix in (".yaml", ".yml", ".json"):
        from synth.model.documents.collective_files import load

        return load(Path(name), ranks)
    chosen = integers(roots, "roots")
    if not str(name).strip():
        raise UsageError("the name of the collective is empty; `synth list collectives` shows all names")
    if canonical_name(str(name)) not in COLLECTIVES:
        return _plugin(str(name), ranks, chosen, sizes)
    return named_collective(str(name), ranks, chosen, sizes)


def _checked_collective(task: Collective) -> Collective:
    """Return the collective, after a check that all units of a custom one start and end on its ranks.

    Raises ArgumentError. Named collectives are right by construction.
    """
    if task.name in COLLECTIVES:
        return task
    if not task.pre or len(task.pre) != len(task.post):
        raise ArgumentError(
            f"{task.name}: pre has {len(task.pre)} units and post {len(task.post)}; both list all units"
        )
    # Every unit is somewhere before, and never outside the ranks.
    everyone = frozenset(range(task.ranks))
    for unit, (before, after) in enumerate(zip(task.pre, task.post, strict=True)):
        outside = sorted((before | after) - everyone)
        if outside:
            raise ArgumentError(
                f"{task.name}: unit {unit} is on rank {outside[0]}; the ranks are 0 to {task.ranks - 1}"
            )
        if not before:
            raise ArgumentError(f"{task.name}: unit {unit} is on no rank before")
    return task


def _plugin(name: str, ranks: int, roots: Sequence[int], sizes: Sequence | None) -> Collective:
    """Return the collective that an installed package adds: its function takes the ranks and, where given, one root.

    Raises UsageError with the nearest names where there is none, or where the function gives something else.
    """
    built_in = [*COLLECTIVES, *ALIASES]
    added = table("collectives", built_in)
    key = name.lower()
    if key not in added:
        if Path(name).exists():
            kind = "folder" if Path(name).is_dir() else "file"
            raise UsageError(
                f"{name} is a {kind} and no collective; the name of a file that defines one ends with .yaml or .json"
            )
        raise UsageError(unknown("collective", name, [*built_in, *added], "collectives"))
    if sizes is not None or len(roots) > 1:
        raise UsageError(f"{key} of the plug-in {added[key]} takes one root at most and no sizes")
    # What the plug-in returns is checked as a stranger's.
    with faults_of(added[key]):
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
