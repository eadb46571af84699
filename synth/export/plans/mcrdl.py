"""Tuning tables in MCR-DL's form: one file for each operation and number of GPUs, a backend for each message size.

    # allgather on 16 GPUs: what the times are
    bytes,backend
    256,MVAPICH2-GDR

After MCR-DL (Anthony et al., IPDPS 2023), whose tuner picks a communication library by operation, scale and message
size. The form has one name a size and knows no ranges: the rows are the judged sizes. A plan that was imported from
such a table gives the same bytes again.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.errors import SynthError
from synth.export.exported_files import Exported
from synth.model.tuning_plan import OURS, Algorithm, Plan, Table

HEADER = "bytes,backend"
IMPORTED = "imported"


def export(plan: Plan) -> Exported:
    """The tables of `plan`: one text, or a folder of several. Raises SynthError, as `files`."""
    made = files(plan)
    if not made:
        raise SynthError("the plan has no table")
    return Exported((("", made[0][1]),), ".csv") if len(made) == 1 else Exported(tuple(made), "")


def files(plan: Plan) -> list[tuple[str, str]]:
    """(file name, text) of each table of `plan`. Raises SynthError for a table without sizes, or where names cannot be
    written."""
    named = [(f"mcrdl_{table.collective}_{table.ranks}gpu", table) for table in plan.tables]
    return [(f"{name}.csv", text(plan, table)) for name, table in _distinct(named)]


def _distinct(named: Sequence[tuple[str, Table]]) -> list[tuple[str, Table]]:
    names = [name for name, _ in named]
    return [(f"{name}_root{table.root}" if names.count(name) > 1 else name, table) for name, table in named]


def text(plan: Plan, table: Table) -> str:
    """One table of `plan`. A size that is in none of its ranges has no row."""
    if not table.sizes:
        raise SynthError(
            f"{table.collective} on {table.ranks} ranks: the plan judged no sizes, and MCR-DL's form has a row for each"
        )
    lines = (
        plan.says.splitlines()
        if plan.source == IMPORTED
        else [f"{table.collective} on {table.ranks} GPUs: {_line(plan.says)}"]
    )
    rows = []
    for size in table.sizes:
        row = table.at(size)
        if row is not None:
            rows.append(f"{size},{backend(plan.algorithms[row.order[0]])}")
    return "\n".join([*(f"# {line}" if line else "#" for line in lines), HEADER, *rows]) + "\n"


def backend(algorithm: Algorithm) -> str:
    """What the form calls it: the library's name, ``synth`` for what is ours. Raises SynthError for a name with a
    comma."""
    name = algorithm.backend if algorithm.backend == OURS or algorithm.options else algorithm.label
    if any(mark in name for mark in ',"\r\n'):
        raise SynthError(f"{name!r} cannot stand in a table of bytes and backends")
    return name


def _line(said: str) -> str:
    return " ".join(said.split())
