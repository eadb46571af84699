"""`synth algorithms`: the library of the chunk language, or its algorithms on a machine, the fastest first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.options import (
    chosen_machine,
    coll_option,
    machine_options,
    output_options,
    time_limit_option,
)
from synth.commands.framework.output import check_writable, emit
from synth.commands.framework.progress import waiting
from synth.commands.framework.types import Size
from synth.commands.root import CONTEXT
from synth.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from synth.commands.api.algorithms import LibraryRow
    from synth.language.algorithm import ChunkAlgorithm
    from synth.view.frontier_text import Report

DEFAULT_SIZE = 1 << 20
SIZES = frozenset({1 << 10, DEFAULT_SIZE, 1 << 30})  # of every table


@click.command("algorithms", context_settings=CONTEXT, short_help="List the library's algorithms, ranked on a machine.")
@machine_options
@coll_option("Those of a collective.")
@click.option("--size", type=Size(), metavar="1MB", help="Rank by the time at this size; by default 1 MB.")
@click.option("--bounds/--no-bounds", default=True, show_default=True, help="Compare with the lower bound.")
@time_limit_option("Wall time for the bound; by default 20s.", "20s")
@output_options
def algorithms(**flags: Any) -> None:
    """List the algorithms of the library with formula, source and a machine for each; with --topo and --coll those of
    the collective on this machine, the fastest first, in the synchronous model.

    They send on direct links alone. The --baseline of the names ring and direct follows the links of the machine.

    \b
    Examples:
      synth algorithms --coll allgather
      synth algorithms --coll allreduce --topo dgx-h100
    """
    from synth.commands import api
    from synth.view.tables import print_report

    check_writable(flags["output"])
    named = flags["topo"]
    if flags["coll"] is not None and not api.library(flags["coll"]):
        does = sorted({one.collective for one in api.library()})
        raise UsageError(f"the library has no algorithm for {flags['coll']}; it has some for {', '.join(does)}")
    if flags["size"] is not None and not named:
        raise UsageError("--size ranks the algorithms on a machine: add --topo NAME and --coll NAME")
    if not named:
        chosen = api.library(flags["coll"])
        emit(
            lambda: [_listed(one) for one in chosen],
            lambda: print_report(_list_report(chosen)),
            flags["output"],
            flags["form"],
        )
        return
    if flags["coll"] is None:
        raise UsageError("no collective given; add --coll NAME to rank the library's algorithms on a machine")
    machine, size = chosen_machine(flags), flags["size"] or DEFAULT_SIZE
    with waiting(f"algorithms on {machine.name}", flags["time_limit"]):
        rows = api.library_on(
            machine,
            flags["coll"],
            size=size,
            bounds=flags["bounds"],
            time_limit=flags["time_limit"],
        )
    sizes = sorted(SIZES | {size})
    title = f"{flags['coll']} on {machine.name}: {machine.ranks} ranks"
    emit(
        lambda: [_document(row, sizes) for row in rows],
        lambda: print_report(_report(title, rows, sizes)),
        flags["output"],
        flags["form"],
    )


def _listed(one: ChunkAlgorithm) -> dict[str, str]:
    return {
        "name": one.name, "collective": one.collective, "formula": one.formula, "paper": one.paper, "home": one.home,
    }  # fmt: skip


def _list_report(chosen: Sequence[ChunkAlgorithm]) -> Report:
    from synth.view.frontier_text import Report

    columns = ("algorithm", "collective", "steps and rounds per chunk", "made for", "source")
    rows = tuple((one.name, one.collective, one.formula, one.home, one.paper) for one in chosen)
    return Report.of(
        "", columns, rows, ("n ranks, logarithms to base 2; `synth compile NAME --coll NAME --topo T` compiles one",)
    )


def _document(row: LibraryRow, sizes: Sequence[int]) -> dict[str, Any]:
    from synth.model.number_text import size_text

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
    from synth.model.number_text import number, size_text
    from synth.model.rational import show
    from synth.view.frontier_text import Report

    heads = ["steps", "rounds/chunk", "factor", *(f"µs at {size_text(size)}" for size in sizes)]
    columns = ("algorithm", *(f">{head}" for head in heads))
    table, lines = [], []
    for row in rows:
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
