"""Tables of a blame: where the rounds of a schedule go, by step and by source line."""

from __future__ import annotations

from fractions import Fraction

from synth.model.bounds.blame import Blame, RoundParts
from synth.model.rational import counted, show
from synth.view.frontier_text import Report

# Rows of a table of steps or lines: the greatest losses. A JSON document has all.
MAX_ROWS = 12
_PARTS = (">rounds", ">needed", ">detours", ">idle links", ">slack")


def reports(found: Blame) -> tuple[Report, ...]:
    """Return a table by step, and one by line where lines are known; no table where no round is lost."""
    total = found.total
    if not total.lost:
        return ()
    scope = "any number of steps" if found.any_steps else counted(len(found.steps), "step")
    title = (
        f"why {counted(int(total.rounds), 'round')} and not {_number(total.needed)}, by the bound {show(found.bound)} "
        f"in {scope} ({found.kind})"
    )
    # The steps that lose most, in their order, then all together.
    order = sorted(range(len(found.steps)), key=lambda i: (-found.steps[i].lost, i))[:MAX_ROWS]
    rows = [(str(i + 1), *_cells(found.steps[i])) for i in sorted(order)]
    rows.append(("all", *_cells(total)))
    sentences = [_more(len(found.steps), "step")] if len(found.steps) > MAX_ROWS else []
    for idle in found.idle[:3]:
        others = f" and {idle.count - 1} alike" if idle.count > 1 else ""
        sentences.append(
            f"idle in step {idle.step}: {idle.name}{others}, together {_number(idle.count * idle.rounds)} rounds"
        )
    tables = [Report.of(title, (">step", *_PARTS), rows, sentences)]
    # Lines of the program that lose as much by as many sends are one row.
    alike: dict[tuple[int, RoundParts], list[str]] = {}
    for row in found.lines:
        if row.line:
            alike.setdefault((row.sends, row.parts), []).append(row.line)
    if alike:
        rows = []
        for (sends, parts), lines in alike.items():
            count = len(lines)
            name = lines[0] if count == 1 else f"{lines[0]} and {count - 1} alike"
            total = [count * part for part in (parts.rounds, parts.needed, parts.detours, parts.idle, parts.slack)]
            rows.append((parts.lost * count, (name, str(sends * count), *map(_number, total))))
        rows.sort(key=lambda row: -row[0])
        more = (_more(len(rows), "line"),) if len(rows) > MAX_ROWS else ()
        cells = tuple(cells for _, cells in rows[:MAX_ROWS])
        tables.append(Report.of("", ("line", ">sends", *_PARTS), cells, more))
    return tuple(tables)


def _cells(parts: RoundParts) -> tuple[str, ...]:
    return tuple(map(_number, (parts.rounds, parts.needed, parts.detours, parts.idle, parts.slack)))


def _number(rounds: Fraction) -> str:
    return f"{float(rounds):.2f}"


def _more(count: int, what: str) -> str:
    return f"the {MAX_ROWS} that lose most of {counted(count, what)}; --format json has all"
