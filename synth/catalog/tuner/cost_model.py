"""The cost model: nominal from a network's α and β, or fitted to measured times.

    TimeModel  kind coefficients says rows typical greatest left_out

Fitted: non-negative least squares of relative errors (each row is divided by its time), over the terms of `cost_terms`
that the measurements tell apart; a term that is a sum of others there is left out, and said to be (Lawson and Hanson,
Solving Least Squares Problems, 1974, ch. 23). Nominal: α of each step and bytes/β of its busiest link, with what each
protocol adds (`synth.program.overheads`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from synth.catalog.tuner.cost_terms import Shape, terms
from synth.model.rational import rational, show
from synth.model.topology import Network
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.overheads import NCCL, Overheads, describe
from synth.program.program import PROTOCOLS

# Kinds of terms, in the order in which the fit includes them.
ORDER = ("step", "wire", "launch", "message", "stall", "block", "op")
ROUNDS = 20  # repetitions of the fit; it ends earlier where the assignment of rows to terms repeats itself
DEPENDENT = 1e-6  # distance of a unit column from the span of the others below which it counts as linearly dependent
NOMINAL = "predicted, not measured: event-driven runs of the programs on {network}{messages}; {overheads}"


class MeasuredTime(NamedTuple):
    """One measured time, in seconds, of one algorithm at one size."""

    shape: Shape
    protocol: str
    instances: int
    size: int
    seconds: float


@dataclass(frozen=True)
class TimeModel:
    """A cost model: the `coefficients` of its terms by name.

    `typical`, `greatest`: median and maximum of |predicted/measured - 1| over the `rows` of the fit. `left_out`: terms
    that the measurements do not distinguish from the others.
    """

    kind: str
    coefficients: Mapping[str, float]
    says: str
    rows: int = 0
    typical: float = 0.0
    greatest: float = 0.0
    left_out: tuple[str, ...] = ()

    def seconds(self, shape: Shape, protocol: str, instances: int, size: int) -> float | None:
        """Return the predicted time of a call of `size` bytes; None where the model has no such links or protocol."""
        chain, links = terms(shape, protocol, instances, size)
        if any(name.startswith(("step", "wire")) and name not in self.known for name in chain):
            return None
        return max(_sum(self.coefficients, chain), _sum(self.coefficients, links))

    @property
    def known(self) -> frozenset[str]:
        """The terms of the fit, with those that were left out as dependent on others."""
        return frozenset(self.coefficients) | frozenset(self.left_out)

    def to_json(self) -> dict:
        """Return the JSON object of a plan document: seconds, and multiples of the nominal time on the wire."""
        return {
            "kind": self.kind, "says": self.says, "coefficients": dict(self.coefficients), "rows": self.rows,
            "residuals": {"median": self.typical, "greatest": self.greatest}, "left_out": list(self.left_out),
        }  # fmt: skip


def nominal(network: Network, per_send: MessageCost = NO_COST, overheads: Overheads = NCCL) -> TimeModel:
    """Return the model of a network without measurements, with the `overheads` of each protocol.

    A step pays `per_send` for one message at either end, and once for each further one.
    """
    coefficients = {}
    for latency in {route.latency for route in network.routes}:
        for protocol in PROTOCOLS:
            cost = overheads.of(protocol)
            hop = float(latency + cost.hop + 2 * per_send.microseconds(protocol)) * 1e-6
            coefficients[f"step {show(latency)} {protocol}"] = hop
            coefficients[f"wire {show(latency)} {protocol}"] = float(cost.wire)
    for protocol in PROTOCOLS:
        coefficients[f"launch {protocol}"] = float(overheads.of(protocol).launch) * 1e-6
        if per_send:
            coefficients[f"message {protocol}"] = float(per_send.microseconds(protocol)) * 1e-6
    messages = f", {per_send.words()}" if per_send else ""
    says = NOMINAL.format(network=network.name, messages=messages, overheads=describe(overheads))
    return TimeModel("nominal", dict(sorted(coefficients.items())), says)


def fit(rows: Sequence[MeasuredTime], says: str = "") -> TimeModel:
    """Return the model that fits `rows` best, `says` describing the measurements.

    A call takes the longer of its chain and its links (`cost_terms`). Which of the two is longer follows from the fit,
    so the fit is repeated until the assignment of rows repeats itself. Raises ValueError without rows, or for times
    that are not positive.
    """
    if not rows or any(row.seconds <= 0 for row in rows):
        raise ValueError("a fit needs times, and all of them positive")
    pairs = [terms(row.shape, row.protocol, row.instances, row.size) for row in rows]
    times = [row.seconds for row in rows]
    choice, seen = [0] * len(rows), set()  # of each row: 0 for its chain, 1 for its links
    best: tuple[float, dict[str, float], tuple[str, ...]] | None = None
    while tuple(choice) not in seen and len(seen) < ROUNDS:
        seen.add(tuple(choice))
        coefficients, left_out = _solve([pair[k] for pair, k in zip(pairs, choice, strict=True)], times)
        sums = [(_sum(coefficients, chain), _sum(coefficients, links)) for chain, links in pairs]
        error = sum((max(pair) / time - 1) ** 2 for pair, time in zip(sums, times, strict=True))
        if best is None or error < best[0]:
            best = error, coefficients, left_out
        choice = [int(links > chain) for chain, links in sums]
    _, coefficients, left_out = best  # type: ignore[misc]
    errors = []
    for (chain, links), time in zip(pairs, times, strict=True):
        errors.append(abs(max(_sum(coefficients, chain), _sum(coefficients, links)) / time - 1))
    return TimeModel("fitted", coefficients, says, len(rows), median(errors), max(errors), left_out)


def _sum(coefficients: Mapping[str, float], row: Mapping[str, float]) -> float:
    return sum(coefficients.get(name, 0.0) * value for name, value in row.items())


def _solve(table: Sequence[Mapping[str, float]], times: Sequence[float]) -> tuple[dict[str, float], tuple[str, ...]]:
    """Return the coefficients by name, and the names of columns that depend linearly on those before them."""
    import numpy as np

    from synth.solvers.least_squares import nonnegative

    used = {name for row in table for name, value in row.items() if value}
    names = sorted(used, key=lambda name: (ORDER.index(name.split()[0]), name))
    rows = []
    for row, time in zip(table, times, strict=True):
        rows.append([row.get(name, 0.0) / time for name in names])
    matrix = np.array(rows)
    scale = np.linalg.norm(matrix, axis=0)
    columns = _independent(matrix / scale)
    values = nonnegative(matrix[:, columns] / scale[columns], np.ones(len(times)), 100 * len(names))
    coefficients = {names[i]: float(value / scale[i]) for i, value in zip(columns, values, strict=True)}
    return coefficients, tuple(name for i, name in enumerate(names) if i not in set(columns))


def _independent(matrix: Any) -> list[int]:
    """Return the indices of a maximal set of linearly independent columns, first come first served (Gram-Schmidt)."""
    import numpy as np

    basis: list = []
    indices = []
    for i in range(matrix.shape[1]):
        residual = matrix[:, i].copy()
        for _ in range(2):  # the second pass removes what rounding left
            for unit in basis:
                residual -= (unit @ residual) * unit
        norm = np.linalg.norm(residual)
        if norm > DEPENDENT and len(indices) < matrix.shape[0]:
            basis.append(residual / norm)
            indices.append(i)
    return indices


def lines(doc: dict, unit_gbps: float | None = None) -> list[str]:
    """Return a fitted model in words, from its document (`TimeModel.to_json`); [] for a nominal one."""
    if doc.get("kind") != "fitted":
        return []
    said, costs = [], []
    for name, value in doc["coefficients"].items():
        if value == 0:
            continue
        kind, *classes = name.split()
        links = f"links of {float(rational(classes[0])):g} µs, {classes[1]}" if len(classes) == 2 else ""
        if kind == "step":
            said.append(f"{value * 1e6:.3g} µs a step ({links})")
        elif kind == "wire":
            rate = "" if unit_gbps is None else f", {unit_gbps / value:.3g} GB/s a unit"
            said.append(f"{100 / value:.3g}% of the nominal bandwidth ({links}{rate})")
        elif kind == "message":
            costs.append(f"{classes[0]}={value * 1e6:.3g}us")
        elif kind == "block":
            said.append(f"a block moves {1 / value / 1e9:.3g} GB/s ({classes[0]})")
        else:
            word = {"launch": "a launch", "stall": "a wait for credit", "op": "an operation"}[kind]
            word += f" ({classes[0]})" if classes else ""
            said.append(f"{value * 1e6:.3g} µs {word}")
    if costs:
        said.append(f"a message beyond the first of a step at a rank: --per-send {','.join(costs)}")
    errors = doc["residuals"]
    first = f"fitted to {doc['rows']} times by relative least squares: " + "; ".join(said)
    off = f"the fit is off by {100 * errors['median']:.1f}% typically, {100 * errors['greatest']:.1f}% at most"
    if doc["left_out"]:
        off += f"; these times do not tell apart: {', '.join(doc['left_out'])}"
    return [first, off]
