"""Plots of frontiers: points, and the staircase of lower bounds. The only file that uses matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from synth.errors import UsageError
from synth.model.frontier import Frontier
from synth.model.number_text import size_text
from synth.model.registry import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")
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
    if axes is not None:
        draw(axes)
        _as_written(axes)
        return axes
    figure = figure_module.Figure(figsize=(6.4, 4.0), layout="constrained")
    own: Axes = figure.subplots()
    draw(own)
    _as_written(own)
    figure._repr_svg_ = lambda: image(figure, "svg").decode()  # notebooks display it with every backend
    return figure


def _as_written(axes: Axes) -> None:
    legend = axes.get_legend()
    texts = [axes.title, *axes.get_xticklabels(), *([] if legend is None else legend.get_texts())]
    for text in texts:
        text.set_parse_math(False)


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
    steps, floor = _staircase(frontier)
    if steps:
        axes.fill_between(steps, 0, floor, step="post", color="0.9", linewidth=0, label="proved impossible")
        axes.step(steps, floor, where="post", color="0.55", linewidth=1)
    for status, marker, colour in (("optimal", "o", "#1764ab"), ("best-known", "D", "#d9640a")):
        chosen = [p for p in frontier.points if p.status == status]
        if chosen:
            axes.plot(
                [p.steps for p in chosen],
                [float(p.rounds_per_chunk) for p in chosen],
                marker,
                color=colour,
                label=status.replace("-", " "),
                zorder=3,
            )
    for interval in frontier.open:
        top = float(interval.upper) if interval.upper is not None else max(floor, default=float(interval.lower)) * 1.1
        axes.vlines(interval.steps, float(interval.lower), top, color="#d9640a", linestyle="dotted", label="_open")
    for point in frontier.points:
        label = f"{point.rounds_per_chunk}  (C={point.chunks}, R={point.rounds})"
        axes.annotate(
            label, (point.steps, float(point.rounds_per_chunk)), xytext=(5, 6), textcoords="offset points", fontsize=8
        )
    axes.set(xlabel="steps", ylabel="rounds per chunk", title=f"{frontier.collective_name} on {frontier.machine.name}")
    axes.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
    tallest = max([float(p.rounds_per_chunk) for p in frontier.points] + floor, default=1.0)
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


def _staircase(frontier: Frontier) -> tuple[list[int], list[float]]:
    """Return steps and the greatest lower bound at each; one step beyond the last makes its tread visible."""
    known: dict[int, float] = {}
    for steps, bound in [
        *frontier.bounds,
        *((p.steps, p.bound) for p in frontier.points),
        *((o.steps, o) for o in frontier.open),
    ]:
        value = bound.lower if not hasattr(bound, "value") else bound.value  # type: ignore[union-attr]
        if steps:
            known[steps] = max(known.get(steps, 0.0), float(value))
    if not known:
        return [], []
    steps = sorted(known)
    floor = [known[s] for s in steps]
    return [*steps, steps[-1] + 1], [*floor, floor[-1]]
