"""The table of a frontier under a sketch: its bounds beside those without it, and what the sketch costs."""

from __future__ import annotations

from collections.abc import Iterable

from synth.model.frontier import LowerBound
from synth.model.rational import counted, show
from synth.model.sketched_frontier import SketchedFrontier
from synth.view.frontier_text import Report

COLUMNS = (
    ("steps", "right"), ("rounds/chunk", "right"), ("at least, under the sketch", "right"),
    ("at least, without it", "right"), ("costs at most", "right"),
)  # fmt: skip


def report(found: SketchedFrontier) -> Report:
    """Return the table of both bounds, and the sentences below it."""
    frontier, machine = found.frontier, found.machine
    kept = len(frontier.network.routes)
    title = f"sketch {found.sketch.name}: {kept} of {len(machine.links)} links of {machine.name}"
    if found.frontier.network.rules is not None:
        title += f"; {found.frontier.network.rules}"
    rows = []
    for point in frontier.points:
        under = _bound_text(point.bound, point.chunks)
        rows.append((str(point.steps), show(point.rounds_per_chunk), under, *_free(found, point.steps)))
    least = _least_steps(frontier.bounds), _least_steps(found.free)
    lines = []
    if all(least):
        lines.append(f"at least {counted(least[0], 'step')} under the sketch, {least[1]} without it")
    lines += ["bounds and answers above are under this sketch; they say nothing about schedules without it"]
    if found.unfinished:
        lines.append("the time limit came before all bounds without the sketch: some are of fewer steps, or none")
    return Report(title, COLUMNS, tuple(rows), tuple(lines))


def _bound_text(bound: LowerBound, chunks: int) -> str:
    return show(bound.value) + ("" if bound.scope == "any-chunks" else f" at C={chunks}")


def _least_steps(bounds: Iterable[tuple[int | None, LowerBound]]) -> int:
    """Return the bound on the number of steps, 0 where there is none."""
    return max((int(bound.value) for steps, bound in bounds if steps == 0), default=0)


def _free(found: SketchedFrontier, steps: int) -> tuple[str, str]:
    free, cost = found.free_bound(steps), found.cost(steps)
    if free is None or cost is None:
        return "", ""
    return show(free), f"{float(cost):.1%}"
