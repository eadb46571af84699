"""`synth algorithms`, `synth.api.library` and `library_on`: the library of the chunk language, ranked on a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    Changes,
    Output,
    chosen_machine,
    collective_option,
    time_limit_option,
    topology_option,
)
from synth.commands.framework.types import Size
from synth.commands.inputs import named_topology
from synth.errors import SynthError, UsageError
from synth.model.number_text import number, size_text
from synth.model.rational import show
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.commands.inputs import TopologyLike
    from synth.language.algorithm import ChunkAlgorithm
    from synth.view.frontier_text import Report

DEFAULT_SIZE = 1 << 20
SIZES = frozenset({1 << 10, DEFAULT_SIZE, 1 << 30})  # of every table


def library(collective: str | None = None) -> tuple[ChunkAlgorithm, ...]:
    """Return the algorithms of the library and of plug-ins, all or those of a collective.

    Examples
    --------
    >>> import synth
    >>> "ring" in [one.name for one in synth.api.library("allgather")]
    True
    """
    from synth.language.algorithm import ChunkAlgorithm
    from synth.language.library import LIBRARY
    from synth.model.collective import canonical_name
    from synth.model.registry import load, table

    # The library first, then what installed packages add under names of their own.
    known = [*LIBRARY]
    for name, target in table("algorithms", [one.name for one in LIBRARY]).items():
        one = load(target)
        if not isinstance(one, ChunkAlgorithm):
            raise SynthError(f"the plug-in {target} is no algorithm; decorate its function with @algorithm")
        known.append(replace(one, name=name))
    chosen = [one for one in known if collective is None or one.collective == canonical_name(collective)]
    return tuple(chosen)


@dataclass(frozen=True)
class LibraryRow:
    """An algorithm of the library on a machine: its schedule, or why there is none.

    `factor`: its rounds per chunk divided by the bound for any number of steps; None where that is not known.
    """

    algorithm: ChunkAlgorithm
    schedule: Schedule | None
    refusal: str = ""
    factor: Fraction | None = None

    def microseconds(self, size: int) -> float | None:
        """Return the time of synchronous steps at `size` bytes: latencies of the steps and rounds per chunk."""
        if self.schedule is None:
            return None
        # GB that the busiest link carries, at so many GB/s for a unit; 10^6 µs are a second.
        network, task = self.schedule.network, self.schedule.collective
        gigabytes = self.schedule.rounds_per_chunk * size * task.unit_share / 10**9
        return float(self.schedule.latency + gigabytes / network.unit * 10**6)


def library_on(
    topology: TopologyLike,
    collective: str,
    *,
    size: int = DEFAULT_SIZE,
    bounds: bool = True,
    time_limit: float | None = None,
) -> tuple[LibraryRow, ...]:
    """Return the library's algorithms for a collective on a machine, the fastest first; the refused ones last.

    Parameters
    ----------
    topology : the machine.
    collective : a name.
    size : bytes at which times of synchronous steps are compared.
    bounds : compute the lower bound.
    time_limit : wall seconds for it. None: 20.

    Examples
    --------
    >>> import synth
    >>> [row.algorithm.name for row in synth.api.library_on("ring:6", "allreduce", bounds=False) if row.schedule]
    ['ring', 'packed-trees']
    """
    from synth.commands.explain import distance

    machine = named_topology(topology)
    rows = []
    for one in library(collective):
        try:
            rows.append(LibraryRow(one, one.schedule(machine)))
        except UsageError as error:
            rows.append(LibraryRow(one, None, str(error)))
    # The bound for any number of steps is the same for all of them: it is found once, with the slowest schedule.
    schedules = [row.schedule for row in rows if row.schedule is not None]
    if bounds and schedules:
        slowest = max(schedules, key=lambda schedule: schedule.step_count)
        least = distance(slowest, machine, time_limit=time_limit).at_any
        for i, row in enumerate(rows):
            if row.schedule is not None and least:
                rows[i] = replace(row, factor=row.schedule.rounds_per_chunk / least)
    return tuple(sorted(rows, key=lambda row: (row.schedule is None, row.microseconds(size) or 0.0)))


@dataclass(frozen=True, kw_only=True)
class Algorithms(Output, Changes):
    """The options of `synth algorithms`."""

    topology: TopologyLike | None = topology_option(default=None)
    collective: str | None = collective_option("Those of a collective.", default=None)
    size: int | None = option(
        "--size", default=None, type=Size(), metavar="1MB", help="Rank by the time at this size; by default 1 MB."
    )
    bounds: bool = option("--bounds/--no-bounds", default=True, show_default=True, help="Compare with the lower bound.")
    time_limit: float | None = time_limit_option("Wall time for the bound; by default 20s.", metavar="20s")


@command(Algorithms)
def algorithms_command(options: Algorithms) -> None:
    """List the algorithms of the library with formula, source and a machine for each; with --topo and --coll those of
    the collective on this machine, the fastest first, in the synchronous model.

    They send on direct links alone. The --baseline of the names ring and direct follows the links of the machine.

    \b
    Examples:
      synth algorithms --coll allgather
      synth algorithms --coll allreduce --topo dgx-h100
    """
    from synth.view.frontier_text import Report

    name = options.collective
    if name is not None and not library(name):
        does = sorted({one.collective for one in library()})
        raise UsageError(f"the library has no algorithm for {name}; it has some for {', '.join(does)}")
    # Without a machine the table says formula and source; with one it ranks.
    if not options.topology:
        if options.size is not None:
            raise UsageError("--size ranks the algorithms on a machine: add --topo NAME and --coll NAME")
        keys = ("name", "collective", "formula", "home", "paper")
        known = []
        for one in library(name):
            known.append({key: getattr(one, key) for key in keys})
        columns = ("algorithm", "collective", "steps and rounds per chunk", "made for", "source")
        note = "n ranks, logarithms to base 2; `synth compile NAME --coll NAME --topo T` compiles one"
        table = Report.of("", columns, [tuple(row.values()) for row in known], (note,))
        emit(lambda: known, lambda: table, options)
        return
    if name is None:
        raise UsageError("no collective given; add --coll NAME to rank the library's algorithms on a machine")
    machine, size = chosen_machine(options), options.size or DEFAULT_SIZE
    with waiting(f"algorithms on {machine.name}", options.time_limit):
        rows = library_on(machine, name, size=size, bounds=options.bounds, time_limit=options.time_limit)
    # The size that ranks is a column, too.
    sizes = sorted(SIZES | {size})
    title = f"{name} on {machine.name}: {machine.ranks} ranks"
    emit(lambda: [_document(row, sizes) for row in rows], lambda: _report(title, rows, sizes), options)


def _document(row: LibraryRow, sizes: Sequence[int]) -> dict[str, Any]:
    document: dict[str, Any] = {"name": row.algorithm.name, "collective": row.algorithm.collective}
    if row.schedule is None:
        return document | {"refused": row.refusal}
    factor = None if row.factor is None else str(row.factor)
    times = {size_text(size): row.microseconds(size) for size in sizes}
    return document | {
        "steps": row.schedule.step_count, "rounds_per_chunk": str(row.schedule.rounds_per_chunk),
        "chunks": row.schedule.chunks, "factor": factor, "microseconds": times,
    }  # fmt: skip


def _report(title: str, rows: Sequence[LibraryRow], sizes: Sequence[int]) -> Report:
    from synth.view.frontier_text import Report

    heads = ["steps", "rounds/chunk", "factor", *(f"µs at {size_text(size)}" for size in sizes)]
    columns = ("algorithm", *(f">{head}" for head in heads))
    table, lines = [], []
    for row in rows:
        # Refused algorithms are sentences below the table.
        if row.schedule is None:
            lines.append(f"{row.algorithm.name}: {row.refusal}")
            continue
        factor = "" if row.factor is None else f"{float(row.factor):.2f}"
        times = [number(row.microseconds(size) or 0) for size in sizes]
        table.append(
            (row.algorithm.name, str(row.schedule.step_count), show(row.schedule.rounds_per_chunk), factor, *times)
        )
    note = (
        "times of synchronous steps, which count no cost of a message or a connection: algorithms with few messages "
        "are better than they look on switches; `synth compile ... -o s.json`, then `synth bench s.json` measures"
    )
    return Report.of(title, columns, table, (note, *lines))
