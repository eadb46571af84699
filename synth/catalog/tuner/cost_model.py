"""α and β of each class of links, fitted to measured times of schedules.

A *class* of links is all routes of one latency (an NVLink, a NIC); its name is that latency in µs. A call takes a
launch, for each step the α of the slowest class in it, and for each step the bytes that its busiest link carries over
the β of its class. The fit is by non-negative least squares of relative errors (Lawson and Hanson, Solving Least
Squares Problems, 1974, ch. 23).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from synth.model.rational import show
from synth.model.schedule import Schedule


class MeasuredTime(NamedTuple):
    """One measured time, in seconds, of a schedule in a protocol at a size in bytes."""

    schedule: Schedule
    protocol: str
    size: int
    seconds: float


def terms(schedule: Schedule, protocol: str, size: int) -> dict[str, float]:
    """Return the coefficients of a call's time by name: the launch, steps of each class, nominal seconds on its links.

    Switch sends of a step are left out.
    """
    network = schedule.network
    row: defaultdict[str, float] = defaultdict(float, {f"launch {protocol}": 1.0})
    for step in schedule.steps:
        load = Counter(network.route_index[send.src, send.dst, send.via] for send in step.sends if not send.local)
        if not load:
            continue
        slowest = max(network.routes[route].latency for route in load)
        row[f"step {show(slowest)} {protocol}"] += 1
        # The busiest link or shared limit of the step, and the slowest class of the routes through it.
        busy = [(count / network.routes[route].units, network.routes[route].latency) for route, count in load.items()]
        for cap in network.caps:
            routes = [route for route in cap.routes if route in load]
            if routes:
                carried = sum(load[route] for route in routes)
                busy.append((carried / cap.units, max(network.routes[route].latency for route in routes)))
        rounds, latency = max(busy)
        chunk = float(size * schedule.collective.unit_share / schedule.chunks)
        row[f"wire {show(latency)} {protocol}"] += float(rounds) * chunk / (float(network.unit) * 1e9)
    return dict(row)


def fit(rows: Sequence[MeasuredTime]) -> dict:
    """Return the JSON object of the model that fits `rows` best, for a plan document.

    `coefficients` are seconds of a launch and of a step, and multiples of the nominal time on links; `words` say the
    same; `residuals` are the median and the greatest of |predicted / measured - 1|. Terms that the measurements do not
    tell apart share their time in some way.
    """
    import numpy as np

    from synth.solvers.linear_program import nonnegative

    # a row for each time, divided by it, so that the sum of squares is of relative errors; columns of one length
    table = [terms(row.schedule, row.protocol, row.size) for row in rows]
    names = sorted(set().union(*table))
    matrix = np.zeros((len(rows), len(names)))
    for place, (row, one) in enumerate(zip(table, rows, strict=True)):
        matrix[place] = [row.get(name, 0.0) / one.seconds for name in names]
    scale = np.linalg.norm(matrix, axis=0)
    values = nonnegative(matrix / scale, np.ones(len(rows)), 100 * len(names)) / scale
    errors = np.abs(matrix @ values - 1).tolist()

    # the same in words, but for terms that take no time
    said = []
    for name, value in zip(names, values, strict=True):
        kind, *classes = name.split()
        if not value:
            continue
        if kind == "launch":
            said.append(f"{value * 1e6:.3g} µs a launch ({classes[0]})")
            continue
        text = f"{value * 1e6:.3g} µs a step" if kind == "step" else f"{100 / value:.3g}% of the nominal bandwidth"
        said.append(f"{text} (links of {classes[0]} µs, {classes[1]})")
    return {
        "kind": "fitted",
        "coefficients": dict(zip(names, values.tolist(), strict=True)),
        "rows": len(rows),
        "residuals": {"median": median(errors), "greatest": max(errors)},
        "words": [
            f"fitted to {len(rows)} times by relative least squares: " + "; ".join(said),
            f"the fit is off by {100 * median(errors):.1f}% typically, {100 * max(errors):.1f}% at most",
        ],
    }
