"""The cost model: nominal from a network's α and β, or fitted to measured times.

    Model  kind coefficients says rows typical greatest left_out

Fitted: non-negative least squares of relative errors (each row is divided by its time), over the terms of `fit_shape` that
the measurements tell apart; a term that is a sum of others there is left out, and said to be (Lawson and Hanson, Solving
Least Squares Problems, 1974, ch. 23). Nominal: S·α + (R/C)·bytes/β with what each protocol adds, as NCCL 2.12 counts it
(src/graph/tuning.cc): a hop over NVLink takes 2.9 µs (Simple) and 1.4 µs (LL128) longer than in LL; LL moves data at a
third of a ring's bandwidth, LL128 at 92%.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from synth.catalog.fit_shape import Shape, terms
from synth.program.program import PROTOCOLS
from synth.rational import rational, show
from synth.topology import Network

SYNC: Mapping[str, float] = {"Simple": 2.9e-6, "LL128": 1.4e-6, "LL": 0.0}  # seconds a step beside α
WIRE: Mapping[str, float] = {"Simple": 1.0, "LL128": 1 / 0.92, "LL": 3.0}  # times the bytes' time at the nominal bandwidth
ORDER = ("step", "wire", "launch", "stall", "block", "op")
DEPENDENT = 1e-6  # a column this close to the span of others tells nothing new
NOMINAL = (
    "predicted, not measured: S·α + (R/C)·bytes/β of {network}; protocols as NCCL's own model counts them (Simple +2.9 µs and LL128"
    " +1.4 µs a step; LL at 1/3, LL128 at 92% of the bandwidth)"
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
    """`coefficients` by name of the term. `typical`, `greatest`: of |predicted/measured - 1| over the `rows` of the fit.

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
        row = terms(shape, protocol, instances, size)
        unknown = [name for name in row if name.startswith(("step", "wire")) and name not in self.known]
        return None if unknown else sum(self.coefficients.get(name, 0.0) * value for name, value in row.items())

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
    """The model that fits `rows` best. Raises ValueError without rows, or for times that are not positive."""
    import numpy as np
    from scipy.optimize import nnls

    if not rows or any(row.seconds <= 0 for row in rows):
        raise ValueError("a fit needs times, and all of them positive")
    table = [terms(row.shape, row.protocol, row.instances, row.size) for row in rows]
    names = sorted({name for row in table for name, value in row.items() if value}, key=lambda name: (ORDER.index(name.split()[0]), name))
    times = np.array([row.seconds for row in rows])
    matrix = np.array([[row.get(name, 0.0) for name in names] for row in table]) / times[:, None]
    scale = np.linalg.norm(matrix, axis=0)
    kept = _independent(matrix / scale)
    found, _ = nnls(matrix[:, kept] / scale[kept], np.ones(len(rows)), maxiter=100 * len(names))
    coefficients = {names[i]: float(value / scale[i]) for i, value in zip(kept, found, strict=True)}
    errors = np.abs(matrix[:, kept] / scale[kept] @ found - 1)
    out = tuple(name for i, name in enumerate(names) if i not in set(kept))
    return Model("fitted", coefficients, says, len(rows), median(errors.tolist()), float(errors.max()), out)


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
            said.append(f"{1 / value / 1e9:.3g} GB/s more or less in a block ({of[0]})")
        else:
            word = {"launch": "a launch", "stall": "a wait for credit", "op": "an operation"}[kind]
            said.append(f"{value * 1e6:.3g} µs {word}")
    errors = doc["residuals"]
    first = f"fitted to {doc['rows']} times by relative least squares: " + "; ".join(said)
    off = f"the fit is off by {100 * errors['median']:.1f}% typically, {100 * errors['greatest']:.1f}% at most"
    if doc["left_out"]:
        off += f"; these times do not tell apart: {', '.join(doc['left_out'])}"
    return [first, off]
