"""The tuner: which algorithm for which message sizes, from what was measured or from the cost model.

    Candidate  algorithm shape samples
    Question   collective ranks sizes element tolerance root
    Answer     table algorithms notes

What was measured is followed where there are measurements; algorithms that were not measured are predicted by what was fitted
to those that were. A nominal model and a clock are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synth.catalog.fit import Model, Row, fit
from synth.catalog.fit_shape import Shape
from synth.catalog.tune_curves import BEYOND, Curve, remembered
from synth.catalog.tune_measured import Sample
from synth.catalog.tune_ranges import Option, ranges
from synth.errors import SynthError
from synth.plan import Algorithm, Range, Table
from synth.view.report import size_text

TOLERANCE = 0.01
ROWS_A_TERM = 2  # times measured for each fitted number, before other algorithms are predicted from them


@dataclass(frozen=True)
class Candidate:
    """An algorithm, what the model knows of it (None: nothing), and what was measured of it."""

    algorithm: Algorithm
    shape: Shape | None = None
    samples: tuple[Sample, ...] = ()


class Question(NamedTuple):
    """`sizes` in bytes, growing, of elements of `element` bytes. `tolerance`: the loss that saves a switch, as a share."""

    collective: str
    ranks: int
    sizes: tuple[int, ...]
    element: int = 4
    tolerance: float = TOLERANCE
    root: int | None = None


class Answer(NamedTuple):
    """`table` points into `algorithms`, which holds those that it names only."""

    table: Table
    algorithms: tuple[Algorithm, ...]
    notes: tuple[str, ...]


def fitted(candidates: Sequence[Candidate], says: str) -> Model | None:
    """The model of what was measured of algorithms with a schedule; None where nothing was."""
    rows = [
        Row(c.shape, c.algorithm.protocol, c.algorithm.instances, sample.size, sample.seconds)
        for c in candidates
        if c.shape is not None
        for sample in c.samples
    ]
    return fit(rows, says) if rows else None


def answer(question: Question, candidates: Sequence[Candidate], model: Model | None) -> Answer:
    """The ranges, what is expected at each size, and what the reader should know. Raises SynthError where nothing has a time."""
    notes: list[str] = []
    considered = _considered(candidates, model, notes)
    reach = _reach(considered)
    curves = [_curve(c, model, reach) for c in considered]
    options = [
        Option(remembered(curve), curve.spread, c.algorithm.divisor * question.element) for c, curve in zip(considered, curves, strict=True)
    ]
    known = tuple(size for size in question.sizes if any(option.seconds(size) is not None for option in options))
    if not known:
        raise SynthError(
            f"nothing says how long {question.collective} on {question.ranks} ranks takes at any of these sizes; "
            "measurements and logs must be of sizes no further than a factor of 2 away"
        )
    if len(known) < len(question.sizes):
        missing = [size for size in question.sizes if size not in known]
        notes.append(f"no time is known at {_texts(missing)}, which the plan was not judged at")
    found = ranges(options, known, question.tolerance)
    used = sorted({k for row in found for k in row.order})
    place = {k: i for i, k in enumerate(used)}
    judged = [_judged(options, found, size, question.element) for size in known]
    notes += _padding(question, considered, options, known)
    refused = [size for size, (k, _, _) in zip(known, judged, strict=True) if k is None]
    if refused:
        notes.append(f"no algorithm admits {_texts(refused)}: a library's own will run there; --dividing looks for schedules that do")
    table = Table(
        question.collective, question.ranks, tuple(Range(r.low, r.high, tuple(place[k] for k in r.order)) for r in found), known,
        tuple(time for _, time, _ in judged), tuple(best for _, _, best in judged), question.root, question.element,
        tuple(None if k is None else place[k] for k, _, _ in judged),
    )  # fmt: skip
    return Answer(table, tuple(considered[k].algorithm for k in used), tuple(notes))


def _considered(candidates: Sequence[Candidate], model: Model | None, notes: list[str]) -> list[Candidate]:
    """Those that may be compared with each other."""
    if not any(c.samples for c in candidates):
        return list(candidates)
    enough = model is not None and model.kind == "fitted" and model.rows >= ROWS_A_TERM * len(model.coefficients)
    kept = [c for c in candidates if c.samples or (enough and c.shape is not None)]
    unseen = [c.algorithm.label for c in kept if not c.samples]
    left = [c.algorithm.label for c in candidates if c not in kept]
    if unseen:
        notes.append(f"not measured, but predicted by the fit: {', '.join(unseen)}")
    if left:
        why = "too few times for a fit" if model is not None else "no times of schedules to fit a model to"
        notes.append(f"not measured and not predicted ({why}), so never chosen: {', '.join(left)}")
    return kept


def _reach(candidates: Sequence[Candidate]) -> tuple[int, int] | None:
    """The least and the greatest size at which schedules were timed: a fit says as little beyond them as the times themselves do."""
    sizes = [sample.size for c in candidates if c.shape is not None for sample in c.samples]
    return (min(sizes), max(sizes)) if sizes else None


def _curve(candidate: Candidate, model: Model | None, reach: tuple[int, int] | None) -> Curve:
    shape, algorithm = candidate.shape, candidate.algorithm
    if shape is None or model is None:
        return Curve(candidate.samples)
    known, protocol, instances = model, algorithm.protocol, algorithm.instances

    def predicted(size: int) -> float | None:
        far = reach is not None and (size * BEYOND < reach[0] or size > reach[1] * BEYOND)
        return None if far else known.seconds(shape, protocol, instances, size)

    return Curve(candidate.samples, predicted)


def _judged(options: Sequence[Option], found: Sequence[Range], size: int, element: int) -> tuple[int | None, float | None, float | None]:
    """What is chosen at `size`, its seconds, and the seconds of the best that admits it."""
    row = next(r for r in found if r.low <= size and (r.high is None or size <= r.high))
    able = [
        k for k, option in enumerate(options) if size % element == 0 and size % option.divisor == 0 and option.seconds(size) is not None
    ]
    chosen = next((k for k in row.order if k in able), None)
    times = [time for k in able if (time := options[k].seconds(size)) is not None]
    return chosen, None if chosen is None else options[chosen].seconds(size), min(times, default=None)


def _padding(question: Question, candidates: Sequence[Candidate], options: Sequence[Option], sizes: Sequence[int]) -> list[str]:
    """What a size that more algorithms admit would gain at most, where that is more than the tolerance."""
    gains: list[tuple[float, int, int]] = []
    for size in sizes:
        able = [(time, k) for k, option in enumerate(options) if (time := option.seconds(size)) is not None]
        admitted = [time for time, k in able if size % options[k].divisor == 0]
        if able and admitted:
            time, k = min(able)
            gains.append((1 - time / min(admitted), size, k))
    gains = [row for row in gains if row[0] > question.tolerance]
    if not gains:
        return []
    gain, size, k = max(gains)
    say, label = candidates[k].algorithm.divisor * question.element, candidates[k].algorithm.label
    return [
        f"{len(gains)} of these sizes are no multiples of what a faster algorithm divides: padded to multiples of {say} bytes,"
        f" {size_text(size)} would take {100 * gain:.0f}% less time by {label};"
        " --dividing looks for schedules that need no padding"
    ]


def _texts(sizes: Sequence[int]) -> str:
    shown = [size_text(size) for size in sizes]
    return ", ".join(shown) if len(shown) <= 4 else f"{shown[0]}, {shown[1]} .. {shown[-1]} ({len(shown)} sizes)"
