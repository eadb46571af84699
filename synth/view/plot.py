"""Plots of frontiers: points, and the staircase of lower bounds. The only file that uses matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from synth.errors import UsageError
from synth.model.frontier import ParetoFrontier
from synth.model.registry import need

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png", "pdf")


def image_format(suffix: str) -> str:
    """Return the format of an image file with `suffix`, one of `FORMATS`. Raises UsageError for other suffixes."""
    kind = suffix.lower().lstrip(".")
    if kind not in FORMATS:
        raise UsageError(
            f"a plot is written as {', '.join('.' + f for f in FORMATS)}, not {suffix or 'a file without a suffix'!r}"
        )
    return kind


def frontier_figure(frontier: ParetoFrontier) -> Figure:
    """Return the plot of rounds per chunk over steps: points, lower bounds as a staircase, and open intervals.

    Raises MissingDependencyError without matplotlib.
    """
    figure_module = need("matplotlib.figure", "a plot", "pip install 'ccl-synth[plot]'")
    figure = figure_module.Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
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
    axes.xaxis.get_major_locator().set_params(integer=True)
    tallest = max([float(p.rounds_per_chunk) for p in frontier.points] + floor, default=1.0)
    axes.set_ylim(0, tallest * 1.2)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    figure._repr_svg_ = lambda: image(figure, "svg").decode()  # notebooks display it with every backend
    return figure


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


def _staircase(frontier: ParetoFrontier) -> tuple[list[int], list[float]]:
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
