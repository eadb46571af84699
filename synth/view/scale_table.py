"""The table of a frontier at scale: a row per point, then the bound in words."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.model.bounds.time_bound import TimeBound
from synth.model.documents.int_ranges import runs
from synth.model.frontier import Frontier
from synth.model.number_text import number, size_text
from synth.model.rational import counted, show
from synth.view.frontier_text import SIZES, Report, in_time, table_title

if TYPE_CHECKING:
    from synth.view.algorithm_times import AlgorithmTime

ADVISED = 128 << 20  # bytes: the size for which a table recommends a point


def report(found: Frontier) -> Report:
    """Return the table of `synth pareto` for a frontier of flow methods."""
    columns = [
        ">steps",
        ">rounds",
        ">chunks",
        ">rounds/chunk",
        ">above bound",
    ]
    columns += ["construction"] + [f">GB/s at {size_text(size)}" for size in SIZES]
    rows = []
    for point in found.points:
        gap = found.gap(point)
        row = [
            str(point.steps),
            str(point.rounds),
            str(point.chunks),
            _short(point.rounds_per_chunk),
            "optimal" if not gap else f"{float(gap):.2%}",
        ]
        rows.append((*row, point.construction, *(number(found.gbps(point, size)) for size in SIZES)))
    return Report.of(_title(found), columns, rows, tuple(_sentences(found)))


def choice(
    found: Frontier,
    size: int,
    lower: TimeBound | None = None,
    times: Sequence[AlgorithmTime] = (),
) -> Report:
    """Return the table of `synth pareto --size`: the recommended point at `size` bytes; all of it without points.

    `lower`: the lower bound in time at `size`, on bare links. `times`: of programs of those points that are short
    enough to run, by rising time.
    """
    table = report(found)
    if not found.points:
        return table
    best = found.points.index(found.best(size))
    line = (
        f"at {size_text(size)}: the {found.points[best].steps}-step schedule, "
        f"{number(found.gbps(found.points[best], size))} GB/s predicted, of synchronous steps"
    )
    slower = in_time(lower, found.seconds_at(found.points[best], size))
    lines = (line, *_program(times, size), *slower, *table.sentences)
    return Report(table.title, table.columns, (table.rows[best],), lines)


def _program(times: Sequence[AlgorithmTime], size: int) -> list[str]:
    if not times:
        return []
    fastest = times[0]
    took = f"{number(fastest.seconds * 1e6)} µs, {number(size / fastest.seconds / 1e9)} GB/s"
    return [f"of the programs of points, {fastest.label} in {fastest.protocol} takes {took}, {fastest.model}"]


def bound(found: Frontier) -> Report:
    """Return the table of `synth bound` at scale: the bound in GB/s, and its limit in words."""
    columns = ("bound on", ">at least", ">GB/s at most", "certificate")
    kind = str(found.certificate["kind"])
    rows = (
        ("steps", str(found.least_steps), "", "distance"),
        ("rounds/chunk", _short(found.bound), f"{float(found.bound_gbps):.6g}", kind),
    )  # fmt: skip
    said = (
        f"limited by: {limit(found)}",
        "GB/s: size / time (algorithmic bandwidth) that no schedule in this model can exceed, whatever its steps",
    )
    return Report.of(_title(found), columns, rows, (*said, *found.notes, *_unfinished(found)))


def limit(found: Frontier) -> str:
    """Return the limit that the certificate proves, in words."""
    certificate, ranks = found.certificate, found.topology.ranks
    match certificate["kind"]:
        case "throughput-cut":
            inside: list[int] = []
            for first, last in certificate["inside"]:
                inside += range(first, min(last + 1, ranks))
            outside = sorted(set(range(ranks)) - set(inside))
            through = f" through {_shared(len(certificate['limits']))}" if certificate["limits"] else ""
            within = f"what rank{'s' if len(inside) > 1 else ''} {_few(inside)} must"
            if found.collective_name in ("reduce-scatter", "reduce"):
                return f"{within} take in from {_few(outside)}{through}"
            return f"{within} send to {_few(outside)}{through}"
        case "throughput-cuts":
            return f"{counted(len(certificate['cuts']), 'cut')} together, which share ports or NICs"
        case "allreduce-parts":
            parts = [_below(region, ranks) for region in certificate["regions"]]
            sizes = {len(part) for part in parts}
            if len(sizes) == 1:
                each = f"{len(parts)} parts of {sizes.pop()}"
            else:
                each = " | ".join(_few(part) for part in parts[:6])
            return f"the partition into {each}: each byte crosses between parts at least {2 * (len(parts) - 1)} times"
        case _:
            return "lengths of links and limits: every pair's cheapest way together against what all links can pay"


def _below(ends: list[int], ranks: int) -> list[int]:
    return [end for end in ends if end < ranks]


def _shared(count: int) -> str:
    return "1 port or NIC" if count == 1 else f"{count} ports or NICs"


def _few(ranks: list[int]) -> str:
    shown = []
    for first, last in runs(ranks):
        shown.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(shown) if len(shown) <= 8 else f"{','.join(shown[:8])},... ({len(ranks)} in all)"


def _title(found: Frontier) -> str:
    labels = found.topology.labels
    return table_title(found.collective_name, found.roots, found.topology, found.unit, found.latency, labels)


def _short(value: object) -> str:
    text = show(value)  # type: ignore[arg-type]
    return text if len(text) <= 16 else f"{float(value):.6g}"  # type: ignore[arg-type]


def _rounds(value: Fraction) -> str:
    return "1 round" if value == 1 else f"{_short(value)} rounds"


def _sentences(found: Frontier) -> list[str]:
    said = [
        f"no schedule in this model, with any steps and chunks, takes fewer than {_rounds(found.bound)} per chunk:"
        f" {float(found.bound_gbps):.5g} GB/s at most ({found.certificate['kind']} certificate)",
        f"no schedule takes fewer than {counted(found.least_steps, 'step')}",
    ]
    if found.points:
        best = found.best(ADVISED)
        said.append(
            f"at {size_text(ADVISED)} take the {best.steps}-step point: {number(found.gbps(best, ADVISED))} GB/s "
            f"predicted; GB/s here are of synchronous steps on bare links, without a launch"
        )
        said.append(
            "between the points the frontier is not proved: `above bound` is what is left, against the bound for "
            "any number of steps"
        )
    return [*said, *found.notes, *_unfinished(found)]


def _unfinished(found: Frontier) -> list[str]:
    return [f"left open: {'; '.join(found.unfinished)}"] if found.unfinished else []
