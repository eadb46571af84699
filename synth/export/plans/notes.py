"""Page beside the folder that a plan is exported to: the sizes that each file serves, sizes not served, how to see that
an algorithm runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from synth.export.folder_notes import CAVEATS, SEEN, divisor, span
from synth.export.plans.size_ranges import ServedSize, SizeShare, SizeShares, served_spans, times_at_judged_sizes
from synth.model.number_text import number, size_text
from synth.model.served_sizes import SizeSpan, left_text, served_between
from synth.model.tuning_plan import OURS, Algorithm, Plan, Table
from synth.program.program import Program

SOURCES = {"measured": "measured times", "model": "times of a model, not of a clock", "imported": "a table of others"}


class ServedShare(NamedTuple):
    """One share of a table and the files that serve it."""

    table: Table
    share: SizeShare
    algorithm: Algorithm
    program: Program
    files: tuple[str, ...]


def title(plan: Plan) -> str:
    """Return the title of the page: the collectives and the machine of the plan."""
    names = ", ".join(dict.fromkeys(table.collective for table in plan.tables)) or "an empty plan"
    return names if plan.topology is None else f"{names} on {plan.topology.name}"


def serves(row: ServedShare) -> str:
    """Return the calls of a row as text, such as ``allgather on 8 ranks``."""
    root = "" if row.table.root is None else f" with root {row.table.root}"
    return f"{row.table.collective} on {row.table.ranks} ranks{root}"


def stem(number: int, table: Table, algorithm: Algorithm) -> str:
    """Return the name of a file without its suffix; files are numbered in the order of the sizes."""
    schedule = algorithm.schedule
    shape = "" if schedule is None else f"-S{len(schedule.steps)}-R{schedule.rounds}-C{schedule.chunks}"
    protocol = "" if algorithm.protocol == "Simple" else f"-{algorithm.protocol}"
    copies = "" if algorithm.instances == 1 else f"-x{algorithm.instances}"
    return f"{number:02d}-{table.collective}{shape}{protocol}{copies}"


def loss_remarks(plan: Plan, found: SizeShares) -> list[str]:
    """Return remarks on the judged sizes left to a library, and on the greatest loss against the best candidate.

    The first remark compares the library with the best schedule, at the size at which the library wins most.
    """
    name, remarks = f"{found.table.collective} on {found.table.ranks} ranks", []
    rows = times_at_judged_sizes(plan, found)
    own = [row for row in rows if row.choice is not None and plan.algorithms[row.choice].backend != OURS]
    if own:
        row = max(own, key=lambda row: row.schedule / row.seconds if row.schedule and row.seconds else 0.0)
        best = "no schedule" if row.schedule is None else f"{_micro(row.schedule)} by the best schedule"
        sizes = _spans(rows, own, served_spans(plan, found))
        remarks.append(
            f"{name}: {sizes} left to the library ({_label(plan, row)}: {_micro(row.seconds)} against "
            f"{best} that this runtime"
            f" takes, at {size_text(row.size)}); the .md has every size"
        )
    losses = [(row.seconds / row.best - 1, row) for row in rows if row.seconds and row.best]
    loss, row = max(losses, key=lambda pair: pair[0], default=(0.0, None))
    if row is not None and round(100 * loss, 1):
        remarks.append(
            f"{name}: what runs is at most {100 * loss:.1f}% slower than the best of all candidates, at "
            f"{size_text(row.size)}"
            f" ({_label(plan, row)} {_micro(row.seconds)}, the best {_micro(row.best)})"
        )
    return remarks


def _spans(rows: Sequence[ServedSize], chosen: Sequence[ServedSize], served: Sequence[SizeSpan]) -> str:
    """Return the sizes of `chosen`, some of `rows`, as text with neighbours joined: ``1 KB, 64 MB to 1 GB are``.

    `served`: the ranges that files serve, which the text leaves out.
    """
    runs: list[list[int]] = []
    for inside, run in groupby(rows, lambda row: row in chosen):
        if inside:
            runs.append([row.size for row in run])
    if len(runs) > 3:
        return f"{len(chosen)} of the sizes from {size_text(chosen[0].size)} to {size_text(chosen[-1].size)} are"
    texts = [left_text(run, served) for run in runs]
    verb = "is" if texts == [size_text(chosen[0].size)] else "are"
    if any(served_between(run, served) for run in runs):
        return f"{'; '.join(texts)}, {verb}"
    return f"{', '.join(texts)} {verb}"


def judged_section(plan: Plan, tables: Sequence[SizeShares]) -> list[str]:
    """Return the section on the algorithm that runs at every judged size; [] if the plan has no times."""
    lines = []
    for found in tables:
        for row in times_at_judged_sizes(plan, found):
            times = " | ".join(_micro(time) for time in (row.seconds, row.schedule, row.best))
            lines.append(
                f"| {found.table.collective} on {found.table.ranks} ranks | {size_text(row.size)} | "
                f"{_label(plan, row)} | {times} |"
            )
    if not lines:
        return []
    head = [
        "| for | size | what runs | takes | best schedule that this runtime takes | best of all candidates |",
        "|---|---|---|---|---|---|",
    ]
    return ["## What runs at the sizes that the plan judged", "", *head, *lines, ""]


def _label(plan: Plan, row: ServedSize) -> str:
    return "the library's own" if row.choice is None else plan.algorithms[row.choice].label


def _micro(seconds: float | None) -> str:
    return "no time" if seconds is None else f"{number(seconds * 1e6)} µs"


def page(
    plan: Plan,
    runtime: str,
    rows: Sequence[ServedShare],
    tables: Sequence[SizeShares],
    lost: Sequence[str],
    remarks: Sequence[str],
) -> str:
    """Return the Markdown page beside a folder of MSCCL-IR."""
    lines = [*head(plan, runtime), "", *table(rows, divisor), "", *judged_section(plan, tables)]
    lines += [
        "Sizes are nccl-tests': the larger of one rank's send and receive buffers. The ranges are those of the "
        "plan, cut where the",
        "FIFOs would no longer be deep enough: that is proved for the default `NCCL_BUFFSIZE`, `NCCL_LL_BUFFSIZE` and",
        "`NCCL_LL128_BUFFSIZE`; leave them unset.",
        "",
        "A count that the divisor does not divide falls back to the library's own algorithm without a word, and so "
        "does a size",
        "outside of the ranges. Pad the buffer to a multiple, or tune for the sizes that the job has (`synth tune "
        "--sizes`).",
        "",
    ]
    lines += unserved_section(lost)
    lines += ["## How to see that an algorithm ran", "", SEEN[runtime], "", "## To know", ""]
    return "\n".join([*lines, *(f"- {fact}" for fact in [*CAVEATS[runtime], *remarks])]) + "\n"


def head(plan: Plan, runtime: str) -> list[str]:
    """Return the first lines of the page: its title, the runtime, and the source of the plan's times."""
    return [
        f"# {title(plan)}",
        "",
        f"For the runtime `{runtime}`. What the choice rests on: {SOURCES.get(plan.source, plan.source)}; "
        f"{plan.says.rstrip('.')}.",
        "Source the variables of the `.env` file beside the folder in every rank.",
    ]


def table(rows: Sequence[ServedShare], when: Callable[[Program], str]) -> list[str]:
    """Return the Markdown table of all shares, one line each; ``when(program)``: the counts that the program serves."""
    lines = ["| file | for | algorithm | sizes | runs when |", "|---|---|---|---|---|"]
    for row in rows:
        files = ", ".join(f"`{name}`" for name in row.files)
        lines.append(
            f"| {files} | {serves(row)} | {row.algorithm.label} | {span(row.share.low, row.share.high)} | "
            f"{when(row.program)} |"
        )
    return lines


def unserved_section(lost: Sequence[str]) -> list[str]:
    """Return the section on the parts of the plan that no file serves; [] if there are none."""
    if not lost:
        return []
    return ["## What of the plan these files do not do", "", *(f"- {why}" for why in lost), ""]
