"""The tuner: which algorithm for which message sizes, from what was measured or from the cost model.

    Candidate  algorithm shape samples
    Question   collective ranks sizes element tolerance root
    Answer     table algorithms notes

What was measured is followed where there are measurements; algorithms that were not measured are predicted by what was
fitted to those that were. A nominal model and a clock are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from synth.catalog.tuner.cost_model import Model, Row, fit
from synth.catalog.tuner.cost_terms import Shape
from synth.catalog.tuner.curves import BEYOND, Curve, remembered
from synth.catalog.tuner.measurements import Sample
from synth.catalog.tuner.size_ranges import Option, ranges
from synth.errors import SynthError
from synth.model.number_text import number, size_text
from synth.model.tuning_plan import OURS, Algorithm, Range, Table

TOLERANCE = 0.01
ROWS_A_TERM = 2  # times measured for each fitted number, before other algorithms are predicted from them


@dataclass(frozen=True)
class Candidate:
    """An algorithm, what the model knows of it (None: nothing), and what was measured of it."""

    algorithm: Algorithm
    shape: Shape | None = None
    samples: tuple[Sample, ...] = ()


class Question(NamedTuple):
    """`sizes` in bytes, growing, of elements of `element` bytes. `tolerance`: the loss that saves a switch, as a
    share."""

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
    """The ranges, what is expected at each size, and what the reader should know. Raises SynthError where nothing has a
    time."""
    notes: list[str] = []
    considered = _considered(candidates, model, notes)
    reach = _reach(considered)
    curves = [_curve(c, model, reach) for c in considered]
    options = [_option(c.algorithm, curve, question.element) for c, curve in zip(considered, curves, strict=True)]
    known = tuple(size for size in question.sizes if any(option.seconds(size) is not None for option in options))
    if not known:
        raise SynthError(
            f"nothing says how long {question.collective} on {question.ranks} ranks takes at any of these sizes; "
            "measurements and logs must be of sizes no further than a factor of 2 away"
        )
    if len(known) < len(question.sizes):
        missing = [size for size in question.sizes if size not in known]
        notes.append(f"no time is known at {_texts(missing)}, which the plan was not judged at")
    found = [_compared(row, considered, options, known) for row in ranges(options, known, question.tolerance)]
    used = sorted({k for row in found for k in row.order})
    place = {k: i for i, k in enumerate(used)}
    orders = [next(r.order for r in found if r.low <= size <= (r.high or size)) for size in known]
    times = [tuple(options[k].seconds(size) for k in order) for size, order in zip(known, orders, strict=True)]
    own = [k for k, c in enumerate(considered) if c.algorithm.backend == OURS]
    others = [k for k, c in enumerate(considered) if c.algorithm.backend != OURS]
    ours, library = ([_least(options, group, size) for size in known] for group in (own, others))
    best = [_least(options, range(len(options)), size) for size in known]
    notes += _stand_ins(options, orders, known)
    notes += _left(considered, orders, known, ours, library)
    table = Table(
        question.collective,
        question.ranks,
        tuple(Range(r.low, r.high, tuple(place[k] for k in r.order)) for r in found),
        known,
        tuple(row[0] for row in times),
        tuple(best),
        question.root,
        question.element,
        tuple(place[order[0]] for order in orders),
        tuple(ours),
        tuple(library),
        tuple(times),
    )
    return Answer(table, tuple(considered[k].algorithm for k in used), tuple(notes))


def _compared(row: Range, candidates: Sequence[Candidate], options: Sequence[Option], sizes: Sequence[int]) -> Range:
    """`row` with, after a library's algorithm that takes all that is left, the schedules that it is faster than on
    runtimes that do not pad: at each judged size the fastest that divides it, and the fastest of those that need no
    LL128."""
    if candidates[row.order[-1]].algorithm.backend == OURS:
        return row
    own = [k for k, c in enumerate(candidates) if c.algorithm.backend == OURS]
    more: list[int] = []
    for size in (s for s in sizes if row.low <= s <= (row.high or s)):
        able = [
            (time, k) for k in own if size % options[k].divisor == 0 and (time := options[k].seconds(size)) is not None
        ]
        for group in (able, [pair for pair in able if "LL128" not in options[pair[1]].needs]):
            more += [min(group)[1]] if group else []
    return row._replace(order=tuple(dict.fromkeys((*row.order, *more))))


def _option(algorithm: Algorithm, curve: Curve, element: int) -> Option:
    """A schedule takes the time of the next size that its chunks divide, for it is padded."""
    divisor, known = algorithm.divisor * element, remembered(curve)
    if algorithm.backend != OURS:
        return Option(known, curve.spread, divisor)
    needs = frozenset({"schedules", *({algorithm.protocol} & {"LL128"})})
    return Option(lambda size: known(-(-size // divisor) * divisor), curve.spread, divisor, needs)


def _least(options: Sequence[Option], group: Sequence[int], size: int) -> float | None:
    return min((time for k in group if (time := options[k].seconds(size)) is not None), default=None)


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
    """The least and the greatest size at which schedules were timed: a fit says as little beyond them as the times
    themselves do."""
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


def _stand_ins(options: Sequence[Option], orders: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[str]:
    """What a runtime loses that does not pad, with the best that it may take, at the size where that is most."""
    losses: list[tuple[float, int]] = []
    none = 0
    for size, order in zip(sizes, orders, strict=True):
        first, other = order[0], next((k for k in order if size % options[k].divisor == 0), None)
        if other is None:
            none += 1
        elif other != first and (time := options[first].seconds(size)) and (instead := options[other].seconds(size)):
            losses.append((instead / time - 1, size))
    said = []
    if losses:
        loss, size = max(losses)
        most = f", which takes at most {100 * loss:.1f}% longer, at {size_text(size)}" if round(100 * loss, 1) else ""
        said.append(
            f"{len(losses)} of these sizes are not multiples of the chosen algorithm's chunk size, so that it pads "
            f"them;"
            f" runtimes that do not pad (MSCCL, MSCCL++) run an alternative{most}"
        )
    if none:
        said.append(f"{none} of these sizes are left to the library on runtimes that do not pad (MSCCL, MSCCL++)")
    return said


def _left(
    candidates: Sequence[Candidate],
    orders: Sequence[tuple[int, ...]],
    sizes: Sequence[int],
    ours: Sequence[float | None],
    library: Sequence[float | None],
) -> list[str]:
    """One line for the sizes at which another library's own algorithm is as fast as the best schedule, with both
    times."""
    said: dict[str, list[str]] = {}
    for size, order, own, other in zip(sizes, orders, ours, library, strict=True):
        chosen = candidates[order[0]].algorithm
        if chosen.backend != OURS and other is not None:
            against = "no schedule" if own is None else f"{number(own * 1e6)} µs by the best schedule"
            said.setdefault(chosen.backend, []).append(
                f"{size_text(size)} ({number(other * 1e6)} µs by {chosen.label}, {against})"
            )
    return [
        f"left to {backend}, whose own algorithm is at least as fast: {', '.join(rows)}"
        for backend, rows in said.items()
    ]


def _texts(sizes: Sequence[int]) -> str:
    shown = [size_text(size) for size in sizes]
    return ", ".join(shown) if len(shown) <= 4 else f"{shown[0]}, {shown[1]} .. {shown[-1]} ({len(shown)} sizes)"
