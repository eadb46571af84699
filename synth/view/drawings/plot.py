"""Plots of frontiers: points, and the staircase of lower bounds. The only file that uses matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from synth.errors import UsageError
from synth.model.frontier import Frontier
from synth.model.number_text import size_text
from synth.model.registry import need
from synth.view.page import time_chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
BELOW = "proved impossible"  # the name of the area below the staircase
MOST_BARS = 64  # maximum links of a run that are drawn


def image_format(suffix: str) -> str:
    """Return the format of an image file with `suffix`, one of `FORMATS`. Raises UsageError for other suffixes."""
    kind = suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise UsageError(
            f"a plot is written as {', '.join('.' + f for f in FORMATS)}, not {suffix or 'a file without a suffix'!r}"
        )
    return kind


def _on(axes: Axes | None, draw: Callable[[Axes], None]) -> Axes | Figure:
    """Call `draw` on `axes`, or on those of a new figure. Return them, or the figure.

    Raises MissingDependencyError without matplotlib.
    """
    figure_module = need("matplotlib.figure", "a plot", "pip install 'ccl-synth[plot]'")
    made: Any = axes
    own: Any = axes
    if own is None:
        made = figure_module.Figure(figsize=(6.4, 4.0), layout="constrained")
        made._repr_svg_ = lambda: image(made, "svg").decode()  # notebooks display it with every backend
        own = made.subplots()
    draw(own)
    legend = own.get_legend()
    texts = [own.title, *own.get_xticklabels(), *([] if legend is None else legend.get_texts())]
    for text in texts:  # names are shown as they are written
        text.set_parse_math(False)
    return made


def plot_run(doc: dict, axes: Axes | None = None) -> Axes | Figure:
    """Plot the busy share of each link of a run, the busiest first, of its document.

    Raises UsageError where it has no times, MissingDependencyError without matplotlib.
    """
    time, links = doc["picoseconds"], doc["links"][:MOST_BARS]
    if not time or not links:
        raise UsageError("this run has no times of links; give the machine (topology=...) and an executor with a clock")

    def draw(axes: Axes) -> None:
        names = [f"{used['link'][0]}→{used['link'][1]}" for used in links]
        places = range(len(names))
        axes.bar(places, [100 * used["busy"] / time for used in links], color="#1764ab")
        axes.set_xticks(places, names, rotation=90, fontsize=7)
        title = f"{doc['program']}, {size_text(doc['size'])}: {time / 10**6:g} µs"
        axes.set(xlabel="link", ylabel="busy, % of the time", title=title, ylim=(0, 100))

    return _on(axes, draw)


def plot_frontier(frontier: Frontier, axes: Axes | None = None) -> Axes | Figure:
    """Plot rounds per chunk over steps: points, lower bounds as a staircase, and open intervals.

    Raises MissingDependencyError without matplotlib.
    """
    return _on(axes, partial(_draw_frontier, frontier))


def _draw_frontier(frontier: Frontier, axes: Axes) -> None:
    # The staircase of the report's page; one step beyond the last makes its tread visible.
    stairs = time_chart.stairs(frontier)
    points = frontier.points
    floor = [value for _, value, _ in stairs.floor]
    if floor:
        starts = [start for start, _, _ in stairs.floor]
        last = max(stairs.end or 0, starts[-1], *(point.steps for point in points))
        steps = [*starts, last + 1]
        axes.fill_between(steps, 0, [*floor, floor[-1]], step="post", color="0.9", linewidth=0, label=BELOW)
        axes.step(steps, [*floor, floor[-1]], where="post", color="0.55", linewidth=1)
    for optimal, marker, colour in ((True, "o", "#1764ab"), (False, "D", "#d9640a")):
        chosen = [(steps, rate) for steps, rate, _, best, _ in stairs.dots if best == optimal]
        if chosen:
            label = "optimal" if optimal else "best known"
            axes.plot(*zip(*chosen, strict=True), marker, color=colour, label=label, zorder=3)
    for steps, low, high in stairs.open:
        top = max(floor, default=low) * 1.1 if high is None else high
        axes.vlines(steps, low, top, color="#d9640a", linestyle="dotted", label="_open")
    for point, (steps, rate, text, _, _) in zip(points, stairs.dots, strict=True):
        label = f"{text}  (C={point.chunks}, R={point.rounds})"
        axes.annotate(label, (steps, rate), xytext=(5, 6), textcoords="offset points", fontsize=8)
    axes.set(xlabel="steps", ylabel="rounds per chunk", title=f"{frontier.collective_name} on {frontier.machine.name}")
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    tallest = max([*floor, *(rate for _, rate, *_ in stairs.dots)], default=1.0)
    axes.set_ylim(0, tallest * 1.2)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)


def image(figure: Any, suffix: str) -> bytes:
    """Return `figure` as a file of the format of `suffix`, with the same bytes for the same figure.

    Raises UsageError for an unknown format.
    """
    import io

    kind = image_format(suffix)
    need("matplotlib", "a plot", "pip install 'ccl-synth[plot]'").rcParams["svg.hashsalt"] = "synth"
    buffer = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    figure.savefig(buffer, format=kind, dpi=150, metadata=undated)
    return buffer.getvalue()
