"""The table of a set of MSCCL++ plans: a row for each number of ranks and collective."""

from __future__ import annotations

from itertools import groupby

from synth.model.build_result import BuiltTable
from synth.model.number_text import number
from synth.model.plan_set import PlanSet, PlanSetPart
from synth.model.served_sizes import SizeSpan, served_text
from synth.view.build import left_sentence
from synth.view.frontier_text import Report
from synth.view.plans import ESTIMATE

COLUMNS = (
    ("machine", "left"), ("ranks", "right"), ("collective", "left"), ("plans", "right"), ("serve sizes", "left"),
    ("x NCCL", "right"),
)  # fmt: skip


def report(found: PlanSet) -> Report:
    """Return the table, and a sentence for each range of sizes that is left to the library, with both times."""
    rows, sentences = [], []
    shared = _shared_notes(found)
    for part in found.parts:
        for name, reason in part.refused:
            sentences.append(f"{part.name}: {name}: no plans: {reason}")
        for table in part.tables:
            rows.append(_row(part, table))
            for algorithm, run in groupby(table.rows, lambda row: row.algorithm):
                if not algorithm:
                    sentences.append(f"{part.name}: {table.collective}: {left_sentence(list(run), table.served)}")
        sentences += [f"{part.name}: {note}" for note in part.notes if note not in shared]
    sentences += shared
    sentences.append("x NCCL: how many times faster than NCCL's ring and tree, predicted by one clock, not measured")
    if any(row.estimated for part in found.parts for table in part.tables for row in table.rows):
        sentences.append(f"{ESTIMATE}; a note says why")
    title = f"MSCCL++ {found.version} plans for {found.machine}"
    return Report(title, COLUMNS, tuple(rows), tuple(sentences))


def _shared_notes(found: PlanSet) -> list[str]:
    """Return the notes that all of several parts have; none of a single part."""
    if len(found.parts) < 2:
        return []
    shared = list(found.parts[0].notes)
    for part in found.parts[1:]:
        shared = [note for note in shared if note in part.notes]
    return shared


def _row(part: PlanSetPart, table: BuiltTable) -> tuple[str, ...]:
    served = [row for row in table.rows if row.algorithm]
    plans = sum(plan.collective == table.collective.replace("-", "") for plan in part.plans)
    gains: dict[float, str] = {}  # each with ~ where one of its times is an estimate
    for row in served:
        if row.library and row.library.seconds and row.seconds:
            gain = row.library.seconds / row.seconds
            gains[gain] = "~" if {row.library.seconds, row.seconds} & {*row.estimated} else ""
    sizes = served_text(table.served or _served_rows(table), [row.size for row in table.rows])
    ends = sorted(gains)[:1] + sorted(gains)[-1:]
    texts = [gains[gain] + number(gain) for gain in ends]
    return (part.name, str(part.ranks), table.collective, str(plans), sizes, " to ".join(dict.fromkeys(texts)))


def _served_rows(table: BuiltTable) -> list[SizeSpan]:
    """Return the ranges of neighbouring rows with a file, for an index that has no ranges."""
    spans = []
    for algorithm, group in groupby(table.rows, lambda row: bool(row.algorithm)):
        run = list(group)
        if algorithm:
            spans.append(SizeSpan(run[0].size, run[-1].size))
    return spans
