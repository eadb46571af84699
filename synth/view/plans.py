"""Tables of a plan: the algorithm for each range of sizes, then every judged size with its loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from synth.model.bounds.time_bound import TimeBound
from synth.model.number_text import microseconds, number, size_text
from synth.model.tuning_plan import OURS, Algorithm, Plan, Range, Table
from synth.view.frontier_text import Report
from synth.view.tables import report_html

ESTIMATE = "~: an estimate, for this program was not run"
SHOWN = 2  # maximum alternatives shown for a runtime that does not take the first choice; the document has all
RANGES = (
    ">from",
    ">to",
    "algorithm",
    "backend",
    "protocol",
    ">instances",
    ">no padding at multiples of",
    "alternatives, in order",
)
SIZES = (
    ">size",
    "algorithm",
    "protocol",
    ">instances",
    ">µs",
    ">GB/s",
    ">best schedule µs",
    ">best of library µs",
    ">loss",
)
# Columns of the lower bound in time, and of the time over it.
BOUNDS = (">µs at least", ">factor")


def reports(plan: Plan, bounds: Sequence[TimeBound | None] = ()) -> list[Report]:
    """Return two tables for each collective; the origin of the times, the fit and the notes follow the last.

    `bounds`: for each collective the lower bounds in time at its sizes, None where they are not known.
    """
    # Two tables for each collective: ranges, and judged sizes.
    tables: list[Report] = []
    for table, bound in zip(plan.tables, bounds or [None] * len(plan.tables), strict=True):
        tables += [_ranges(plan, table), _sizes(plan, table, bound)] if table.sizes else [_ranges(plan, table)]
    sentences = [f"times are {plan.says}" if plan.source != "imported" else plan.says]
    for name, doc in plan.model.items():
        prefix = f"{name}: " if len(plan.model) > 1 else ""
        sentences += [prefix + line for line in doc.get("words", ())]
    sentences += [f"note: {note}" for note in plan.notes]
    last = tables[-1]
    return [*tables[:-1], replace(last, sentences=(*last.sentences, *sentences))]


def html(plan: Plan) -> str:
    """Return the tables of a plan as an HTML fragment for notebooks."""
    return "".join(map(report_html, reports(plan)))


def _ranges(plan: Plan, table: Table) -> Report:
    machine = f" on {plan.topology.name}" if plan.topology else ""
    root = f" from {table.root}" if table.root else ""
    title = f"{table.collective}{root}{machine}, {table.ranks} ranks: what to run"
    # Ranges in a row with the same first choice are one.
    rows = [_range(plan, table, list(group)) for _, group in groupby(table.ranges, lambda row: row.order[0])]
    ends = []
    if table.sizes:
        ends.append(f"below {size_text(table.sizes[0])} and above {size_text(table.sizes[-1])} nothing was judged")
    return Report.of(title, RANGES, rows, ends)


def _range(plan: Plan, table: Table, group: list[Range]) -> tuple[str, ...]:
    first, low, high = plan.algorithms[group[0].order[0]], group[0].low, group[-1].high
    alternatives = dict.fromkeys(k for row in group for k in row.order[1:])
    others = [plan.algorithms[k].label for k in alternatives]
    step = first.divisor * table.element
    return (
        size_text(low), "" if high is None else size_text(high), first.label, first.backend, *_settings(first),
        f"{step} B" if first.divisor > 1 else "any",
        ", ".join(others[:SHOWN]) + (f", {len(others) - SHOWN} more" if len(others) > SHOWN else ""),
    )  # fmt: skip


def _settings(algorithm: Algorithm) -> tuple[str, str]:
    return (algorithm.protocol, str(algorithm.instances)) if algorithm.backend == OURS else ("", "")


def _sizes(plan: Plan, table: Table, bound: TimeBound | None) -> Report:
    rows: list[tuple[str, ...]] = []
    known = [loss for loss in table.losses if loss is not None]
    for i, size in enumerate(table.sizes):
        k = table.chosen[i] if table.chosen else None
        label, settings = ("", ("", "")) if k is None else (plan.algorithms[k].label, _settings(plan.algorithms[k]))
        # Estimated times are marked, and have no loss that is known.
        time, loss = table.seconds[i], table.losses[i]
        ours = table.ours[i] if table.ours else None
        library = table.library[i] if table.library else None
        estimates = table.estimates(i)
        about = "~" if time in estimates else ""
        rate = "" if not time else about + number(size / time / 1e9)
        share = "" if loss is None else f"{100 * loss:.2f}%"
        if about:
            share = "not known"
        times = [microseconds(one, estimates) for one in (time, ours, library)]
        row = [size_text(size), label, *settings, times[0], rate, *times[1:], share]
        if bound is not None:
            least = float(bound.rows[i].microseconds)
            factor = about + number(time * 1e6 / least) if time and least else ""
            row += [number(least), factor]
        rows.append(tuple(row))
    lines = []
    if known:
        # The greatest loss of all sizes, and where.
        worst = max(known)
        at = size_text(table.sizes[list(table.losses).index(worst)])
        most = f"; at most {100 * worst:.2f}%, at {at}" if round(100 * worst, 2) else ""
        lines.append(f"loss: what is chosen takes so much longer than the best of all candidates{most}")
        lines.append("best of library: the fastest of other libraries' own algorithms")
    if table.estimated:
        lines.append(f"{ESTIMATE}, a note below says why; its loss is not known")
    if bound is None:
        return Report.of("", SIZES, rows, lines)
    where = "on bare links"
    if any(row.launch for row in bound.rows):
        where = "by the clock of these times, in any protocol"
    lines.append(f"µs at least: a lower bound {where}, for {bound.holds_for}")
    if any(k is not None and plan.algorithms[k].through_switches for k in table.chosen):
        lines.append("switch: multicasts and fetched sums (NVLS), which MSCCL++ plans run")
    return Report.of("", (*SIZES, *BOUNDS), rows, lines)
