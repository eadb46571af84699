"""The cost model: nominal from a network's α and β, or fitted to measured times.

    Model  kind coefficients says rows typical greatest left_out

Fitted: non-negative least squares of relative errors (each row is divided by its time), over the terms of `fit_shape`
that the measurements tell apart; a term that is a sum of others there is left out, and said to be (Lawson and Hanson,
Solving Least Squares Problems, 1974, ch. 23). Nominal: α of each step and bytes/β of its busiest link, with what each
protocol adds as NCCL 2.12 counts it (src/graph/tuning.cc): a hop over NVLink takes 2.9 µs (Simple) and 1.4 µs (LL128)
longer than in LL; LL moves data at a third of a ring's bandwidth, LL128 at 92%.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from synth.catalog.tuner.cost_terms import Shape, terms
from synth.model.rational import rational, show
from synth.model.topology import Network
from synth.program.program import PROTOCOLS

SYNC: Mapping[str, float] = {"Simple": 2.9e-6, "LL128": 1.4e-6, "LL": 0.0}  # seconds a step beside α
WIRE: Mapping[str, float] = {
    "Simple": 1.0,
    "LL128": 1 / 0.92,
    "LL": 3.0,
}  # times the bytes' time at the nominal bandwidth
ORDER = ("step", "wire", "launch", "stall", "block", "op")
ROUNDS = 20
DEPENDENT = 1e-6  # a column this close to the span of others tells nothing new
NOMINAL = (
    "predicted, not measured: α of each step and bytes/β of its busiest link on {network}; protocols as NCCL's own "
    "model counts them"
    " (Simple +2.9 µs and LL128 +1.4 µs a step; LL at 1/3, LL128 at 92% of the bandwidth)"
)


class Row(NamedTuple):
    """One measured time, in seconds, of one algorithm at one size."""

    shape: Shape
    protocol: str
    instances: int
    size: int
    seconds: float


@dataclass(frozen=True)
class Model:
    """`coefficients` by name of the term. `typical`, `greatest`: of |predicted/measured - 1| over the `rows` of the
    fit.

    `left_out`: terms that these measurements do not tell apart from the others.
    """

    kind: str
    coefficients: Mapping[str, float]
    says: str
    rows: int = 0
    typical: float = 0.0
    greatest: float = 0.0
    left_out: tuple[str, ...] = ()

    def seconds(self, shape: Shape, protocol: str, instances: int, size: int) -> float | None:
        """The predicted time; None where the model knows nothing of such links or of the protocol."""
        ways = terms(shape, protocol, instances, size)
        if any(name.startswith(("step", "wire")) and name not in self.known for name in ways[0]):
            return None
        return max(_sum(self.coefficients, row) for row in ways)

    @property
    def known(self) -> frozenset[str]:
        """The terms that the model has an opinion of, be it that they cost nothing."""
        return frozenset(self.coefficients) | frozenset(self.left_out)

    def to_json(self) -> dict:
        """As in a plan document; seconds, and multiples of the nominal time on the wire."""
        return {
            "kind": self.kind, "says": self.says, "coefficients": dict(self.coefficients), "rows": self.rows,
            "residuals": {"median": self.typical, "greatest": self.greatest}, "left_out": list(self.left_out),
        }  # fmt: skip


def nominal(network: Network) -> Model:
    """The model of a network that nobody has measured; no launch overhead is counted, as none is known."""
    made = {}
    for latency in {route.latency for route in network.routes}:
        for protocol in PROTOCOLS:
            made[f"step {show(latency)} {protocol}"] = float(latency) * 1e-6 + SYNC[protocol]
            made[f"wire {show(latency)} {protocol}"] = WIRE[protocol]
    return Model("nominal", dict(sorted(made.items())), NOMINAL.format(network=network.name))


def fit(rows: Sequence[Row], says: str = "") -> Model:
    """The model that fits `rows` best. Which of its two ways a call takes follows from the fit, so it is repeated until
    they agree.

    Raises ValueError without rows, or for times that are not positive.
    """
    if not rows or any(row.seconds <= 0 for row in rows):
        raise ValueError("a fit needs times, and all of them positive")
    ways = [terms(row.shape, row.protocol, row.instances, row.size) for row in rows]
    times = [row.seconds for row in rows]
    taken, seen = [0] * len(rows), set()
    best: tuple[float, dict[str, float], tuple[str, ...]] | None = None
    while tuple(taken) not in seen and len(seen) < ROUNDS:
        seen.add(tuple(taken))
        found, out = _solved([pair[k] for pair, k in zip(ways, taken, strict=True)], times)
        sums = [[_sum(found, way) for way in pair] for pair in ways]
        wrong = sum((max(pair) / time - 1) ** 2 for pair, time in zip(sums, times, strict=True))
        if best is None or wrong < best[0]:
            best = wrong, found, out
        taken = [int(pair[1] > pair[0]) for pair in sums]
    _, coefficients, out = best  # type: ignore[misc]
    errors = [
        abs(max(_sum(coefficients, way) for way in pair) / time - 1) for pair, time in zip(ways, times, strict=True)
    ]
    return Model("fitted", coefficients, says, len(rows), median(errors), max(errors), out)


def _sum(coefficients: Mapping[str, float], row: Mapping[str, float]) -> float:
    return sum(coefficients.get(name, 0.0) * value for name, value in row.items())


def _solved(table: Sequence[Mapping[str, float]], times: Sequence[float]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Coefficients by name, and the names that the rows do not tell apart from those before them."""
    import numpy as np
    from scipy.optimize import nnls

    names = sorted(
        {name for row in table for name, value in row.items() if value},
        key=lambda name: (ORDER.index(name.split()[0]), name),
    )
    matrix = np.array([[row.get(name, 0.0) / time for name in names] for row, time in zip(table, times, strict=True)])
    scale = np.linalg.norm(matrix, axis=0)
    kept = _independent(matrix / scale)
    found, _ = nnls(matrix[:, kept] / scale[kept], np.ones(len(times)), maxiter=100 * len(names))
    coefficients = {names[i]: float(value / scale[i]) for i, value in zip(kept, found, strict=True)}
    return coefficients, tuple(name for i, name in enumerate(names) if i not in set(kept))


def _independent(columns: Any) -> list[int]:
    """The columns, first come first kept, that are no sum of those before; no more than there are rows."""
    import numpy as np

    basis: list = []
    kept = []
    for i in range(columns.shape[1]):
        left = columns[:, i].copy()
        for _ in range(2):  # once more against rounding
            for unit in basis:
                left -= (unit @ left) * unit
        size = np.linalg.norm(left)
        if size > DEPENDENT and len(kept) < columns.shape[0]:
            basis.append(left / size)
            kept.append(i)
    return kept


def lines(doc: dict, unit_gbps: float | None = None) -> list[str]:
    """What a model says of a machine, in words, from its document (`Model.to_json`). Nothing for the nominal one."""
    if doc.get("kind") != "fitted":
        return []
    said = []
    for name, value in doc["coefficients"].items():
        if value == 0:
            continue
        kind, *of = name.split()
        over = f"links of {float(rational(of[0])):g} µs, {of[1]}" if len(of) == 2 else ""
        if kind == "step":
            said.append(f"{value * 1e6:.3g} µs a step ({over})")
        elif kind == "wire":
            rate = "" if unit_gbps is None else f", {unit_gbps / value:.3g} GB/s a unit"
            said.append(f"{100 / value:.3g}% of the nominal bandwidth ({over}{rate})")
        elif kind == "block":
            said.append(f"a block moves {1 / value / 1e9:.3g} GB/s ({of[0]})")
        else:
            word = {"launch": "a launch", "stall": "a wait for credit", "op": "an operation"}[kind]
            said.append(f"{value * 1e6:.3g} µs {word}")
    errors = doc["residuals"]
    first = f"fitted to {doc['rows']} times by relative least squares: " + "; ".join(said)
    off = f"the fit is off by {100 * errors['median']:.1f}% typically, {100 * errors['greatest']:.1f}% at most"
    if doc["left_out"]:
        off += f"; these times do not tell apart: {', '.join(doc['left_out'])}"
    return [first, off]
