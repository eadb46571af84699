"""Tuning tables in MCR-DL's form: one file for each operation and number of GPUs, a backend for each message size.

    # allgather on 16 GPUs: source of the times
    bytes,backend
    256,MVAPICH2-GDR

After MCR-DL (Anthony et al., IPDPS 2023), whose tuner picks a communication library by operation, scale and message
size. The form has one name for each size and no ranges: the rows are the judged sizes. A plan that was imported from
such a table gives the same bytes again.
"""

from __future__ import annotations

from synth.errors import SynthError
from synth.export.exported_files import ExportResult
from synth.model.tuning_plan import OURS, Algorithm, Plan, Table

HEADER = "bytes,backend"
IMPORTED = "imported"


def export(plan: Plan) -> ExportResult:
    """Export the tables of `plan`: one file, or a folder of several.

    Raises SynthError for a plan without tables, and as `files` does.
    """
    tables = files(plan)
    if not tables:
        raise SynthError("the plan has no table")
    return ExportResult((("", tables[0][1]),), ".csv") if len(tables) == 1 else ExportResult(tuple(tables), "")


def files(plan: Plan) -> list[tuple[str, str]]:
    """Return (file name, text) of each table of `plan`.

    Raises SynthError for a table without sizes, or a name that cannot be written.
    """
    named = []
    for table in plan.tables:
        root = "" if table.root is None else f"_root{table.root}"
        named.append((f"mcrdl_{table.collective}_{table.ranks}gpu{root}.csv", text(plan, table)))
    return named


def text(plan: Plan, table: Table) -> str:
    """Return the text of one table of `plan`. A size that is in none of its ranges has no row."""
    if not table.sizes:
        raise SynthError(
            f"{table.collective} on {table.ranks} ranks: the plan judged no sizes, and MCR-DL's form has a row for each"
        )
    # A table that was imported keeps its own heading.
    lines = plan.says.splitlines()
    if plan.source != IMPORTED:
        lines = [f"{table.collective} on {table.ranks} GPUs: {' '.join(plan.says.split())}"]
    rows = []
    for size in table.sizes:
        row = table.at(size)
        if row is not None:
            rows.append(f"{size},{backend(plan.algorithms[row.order[0]])}")
    return "\n".join([*(f"# {line}".rstrip() for line in lines), HEADER, *rows]) + "\n"


def backend(algorithm: Algorithm) -> str:
    """Return the name of `algorithm` in MCR-DL's form: the library's name, ``synth`` for schedules of this project.

    Raises SynthError for a name with a comma, quote or line end.
    """
    name = algorithm.backend if algorithm.backend == OURS or algorithm.options else algorithm.label
    if any(mark in name for mark in ',"\r\n'):
        raise SynthError(f"{name!r} cannot stand in a table of bytes and backends")
    return name
