"""The page beside what a plan is exported to: which file serves what, what is not served, how to see that it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from synth.export.notes import CAVEATS, SEEN, divisor, span
from synth.export.plan_ranges import Share
from synth.plan import Algorithm, Plan, Table
from synth.program.program import Program

SOURCES = {"measured": "measured times", "model": "times of a model, not of a clock", "imported": "a table of others"}


class Row(NamedTuple):
    """One share of a table and the files that serve it."""

    table: Table
    share: Share
    algorithm: Algorithm
    program: Program
    files: tuple[str, ...]


def title(plan: Plan) -> str:
    """What the plan is for."""
    names = ", ".join(dict.fromkeys(table.collective for table in plan.tables)) or "an empty plan"
    return names if plan.topology is None else f"{names} on {plan.topology.name}"


def serves(row: Row) -> str:
    """Such as ``allgather on 8 ranks``."""
    root = "" if row.table.root is None else f" with root {row.table.root}"
    return f"{row.table.collective} on {row.table.ranks} ranks{root}"


def stem(number: int, table: Table, algorithm: Algorithm) -> str:
    """The name of a file without its end; numbered in the order of the sizes."""
    schedule = algorithm.schedule
    shape = "" if schedule is None else f"-S{len(schedule.steps)}-R{schedule.rounds}-C{schedule.chunks}"
    protocol = "" if algorithm.protocol == "Simple" else f"-{algorithm.protocol}"
    copies = "" if algorithm.instances == 1 else f"-x{algorithm.instances}"
    return f"{number:02d}-{table.collective}{shape}{protocol}{copies}"


def page(plan: Plan, runtime: str, rows: Sequence[Row], lost: Sequence[str], remarks: Sequence[str]) -> str:
    """The Markdown page beside a folder of MSCCL-IR."""
    lines = [*head(plan, runtime), "", *table(rows, divisor), ""]
    lines += [
        "Sizes are nccl-tests': the larger of one rank's send and receive buffers. The ranges are those of the plan, cut where the",
        "FIFOs would no longer be deep enough: that is proved for the default `NCCL_BUFFSIZE`, `NCCL_LL_BUFFSIZE` and",
        "`NCCL_LL128_BUFFSIZE`; leave them unset.", "",
        "A count that the divisor does not divide falls back to the library's own algorithm without a word, and so does a size",
        "outside of the ranges. Pad the buffer to a multiple, or tune for the sizes that the job has (`synth tune --sizes`).", "",
    ]  # fmt: skip
    lines += unserved(lost)
    lines += ["## How to see that an algorithm ran", "", SEEN[runtime], "", "## To know", ""]
    return "\n".join([*lines, *(f"- {fact}" for fact in [*CAVEATS[runtime], *remarks])]) + "\n"


def head(plan: Plan, runtime: str) -> list[str]:
    """Title and what the times behind the plan are."""
    return [
        f"# {title(plan)}", "",
        f"For the runtime `{runtime}`. What the choice rests on: {SOURCES.get(plan.source, plan.source)}; {plan.says.rstrip('.')}.",
        "Source the variables of the `.env` file beside the folder in every rank.",
    ]  # fmt: skip


def table(rows: Sequence[Row], when: Callable[[Program], str]) -> list[str]:
    """One line a share; `when` says for which counts a program runs."""
    lines = ["| file | for | algorithm | sizes | runs when |", "|---|---|---|---|---|"]
    for row in rows:
        files = ", ".join(f"`{name}`" for name in row.files)
        lines.append(f"| {files} | {serves(row)} | {row.algorithm.label} | {span(row.share.low, row.share.high)} | {when(row.program)} |")
    return lines


def unserved(lost: Sequence[str]) -> list[str]:
    """The section about what the files do not do; nothing where they do all."""
    return ["## What of the plan these files do not do", "", *(f"- {why}" for why in lost), ""] if lost else []
