"""The tuner: the choice of an algorithm for each range of message sizes, from measurements or from the cost model.

    TunerCandidate  algorithm shape samples
    Question        collective ranks sizes element tolerance root
    TunedTable      table algorithms notes

Measured times are used where there are any. Algorithms without measurements are predicted by the model that is fitted
to the others. Times of a nominal model and measured times are never compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log
from typing import NamedTuple

from synth.catalog.tuner.cost_model import MeasuredTime, TimeModel, fit
from synth.catalog.tuner.cost_terms import Shape
from synth.catalog.tuner.curves import BEYOND, Curve, Jumps, Predict, cached_seconds, no_jumps
from synth.catalog.tuner.measurements import Sample
from synth.catalog.tuner.size_ranges import Option, Tolerance, ranges
from synth.errors import SynthError
from synth.model.number_text import microseconds, size_text
from synth.model.rational import counted
from synth.model.tuning_plan import OURS, Algorithm, LibraryTimes, Range, Table

TOLERANCE = 0.01
# Between the sizes of the question the accepted loss of predicted times: it may double up to the next size compared.
PREDICTED_TOLERANCE = 0.005
# Predicted times at the sizes of the question that differ by no more, nanoseconds of a short call, are taken for equal.
TIE = 0.001
# Ratio of neighbouring sizes at which predicted times are compared. At √2 choices were up to 2% slower in between.
SPACING = 2 ** (1 / 3)
# Multiple of the least time, at a neighbouring size, up to which an algorithm is also compared where its time may jump.
NEAR = 1.1
# Multiple of the least time up to which the second one counts as a tie, and the ratio of sizes beside ties. There times
# cross several times: with `SPACING` alone, choices on machines of 5 to 8 ranks were up to 4.6% slower in between.
TIED, FINE_SPACING = 1.02, SPACING ** (1 / 3)
ROWS_A_TERM = 2  # measured times for each fitted coefficient that a fit needs to predict other algorithms


@dataclass(frozen=True)
class TunerCandidate:
    """An algorithm, its shape for the cost model (None: unknown), and its measured samples.

    `predicted`: its seconds by size where nothing was measured. None: the cost model predicts them. `jumps`: the sizes
    in low+1..high before and after `predicted` may jump.
    """

    algorithm: Algorithm
    shape: Shape | None = None
    samples: tuple[Sample, ...] = ()
    predicted: Predict | None = None
    jumps: Jumps = no_jumps


class Question(NamedTuple):
    """The query of a table: growing `sizes` in bytes, of elements of `element` bytes.

    `tolerance`: the loss of time that is accepted to avoid a switch, as a share. None: `TOLERANCE` of measured times;
    of predicted ones `TIE` at `sizes`, and `PREDICTED_TOLERANCE` between them.
    """

    collective: str
    ranks: int
    sizes: tuple[int, ...]
    element: int = 4
    tolerance: float | None = None
    root: int | None = None


class TunedTable(NamedTuple):
    """The answer to a `Question`.

    `table`: what runs at which size, by numbers of `algorithms`. `algorithms`: those that the table uses. `notes`:
    sentences for the user.
    """

    table: Table
    algorithms: tuple[Algorithm, ...]
    notes: tuple[str, ...]


def fit_model(candidates: Sequence[TunerCandidate], says: str) -> TimeModel | None:
    """Return the cost model fitted to the measured times of candidates whose schedules are known, or None without any.

    `says`: where the measurements come from, in words.
    """
    rows = []
    for candidate in candidates:
        shape, algorithm = candidate.shape, candidate.algorithm
        if shape is not None:
            for sample in candidate.samples:
                rows.append(MeasuredTime(shape, algorithm.protocol, algorithm.instances, sample.size, sample.seconds))
    return fit(rows, says) if rows else None


def choose_algorithms(
    question: Question,
    candidates: Sequence[TunerCandidate],
    model: TimeModel | None,
    late: Callable[[], bool] = lambda: False,
) -> TunedTable:
    """Return the table of ranges for `question`, with the expected time at each size.

    Candidates without measurements are predicted by `model` (None: they have no time). When `late` returns True,
    predicted times are no longer compared at more sizes than those of the question. Raises SynthError if no candidate
    has a time.
    """
    notes: list[str] = []
    considered = _considered(candidates, model, notes)
    reach = _reach(considered)
    curves = [_curve(c, model, reach) for c in considered]
    options = [_option(c.algorithm, curve, question.element) for c, curve in zip(considered, curves, strict=True)]
    known = tuple(size for size in question.sizes if _least(options, range(len(options)), size) is not None)
    if not known:
        raise SynthError(
            f"nothing says how long {question.collective} on {question.ranks} ranks takes at any of these sizes; "
            "measurements and logs must be of sizes no further than a factor of 2 away"
        )
    if len(known) < len(question.sizes):
        missing = [size for size in question.sizes if size not in known]
        notes.append(f"no time is known at {_texts(missing)}, which the plan was not judged at")
    measured = any(c.samples for c in considered)
    judged = known
    if not measured:
        between = _with_jumps(considered, options, _with_sizes_between(known), late)
        judged = _in_time(options, known, between, late)
        if judged == between:
            between = _with_sizes_near_ties(options, between)
            judged = _in_time(options, judged, between, late)
        if len(judged) < len(between):
            count = len(between) - len(known)
            notes.append(
                f"the time limit ended the comparison at sizes between those given after {len(judged) - len(known)} of "
                f"{count}: where ranges switch is less sure"
            )
    tolerance = _tolerance(question.tolerance, known, measured)
    rows = [_compared(row, considered, options, known) for row in ranges(options, judged, tolerance)]
    used = sorted({k for row in rows for k in row.order})
    place = {k: i for i, k in enumerate(used)}
    orders, times = [], []
    for size in known:
        order = next(row.order for row in rows if row.low <= size <= (row.high or size))
        orders.append(order)
        times.append(tuple(options[k].seconds(size) for k in order))
    schedules = [k for k, c in enumerate(considered) if c.algorithm.backend == OURS]
    others = [k for k, c in enumerate(considered) if c.algorithm.backend != OURS]
    ours = [_least(options, schedules, size) for size in known]
    library = [_least(options, others, size) for size in known]
    best = [_least(options, range(len(options)), size) for size in known]
    notes += _stand_ins(options, orders, known)
    table_ranges = [Range(row.low, row.high, tuple(map(place.__getitem__, row.order))) for row in rows]
    table = Table(
        question.collective,
        question.ranks,
        tuple(table_ranges),
        known,
        tuple(row[0] for row in times),
        tuple(best),
        question.root,
        question.element,
        tuple(place[order[0]] for order in orders),
        tuple(ours),
        tuple(library),
        tuple(times),
        _libraries(considered, options, known),
    )
    return TunedTable(table, tuple(considered[k].algorithm for k in used), tuple(notes))


def _tolerance(given: float | None, sizes: Sequence[int], measured: bool) -> Tolerance:
    """Return the tolerance at each size: `given`, or that of `Question`, which has `sizes`."""
    if given is not None:
        return lambda size: given
    if measured:
        return lambda size: TOLERANCE
    least = frozenset(sizes)
    return lambda size: TIE if size in least else PREDICTED_TOLERANCE


def _with_sizes_between(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return `sizes` with sizes in between, so that neighbours differ by a factor of at most about `SPACING`.

    Between two sizes with different choices a third algorithm may be the fastest. Predictions find it.
    """
    result = set(sizes)
    for low, high in pairwise(sizes):
        result.update(_between(low, high, SPACING))
    return tuple(sorted(result))


def _between(low: int, high: int, spacing: float) -> list[int]:
    """Return sizes between that divide low..high into parts whose ends differ by a factor of at most `spacing`."""
    pieces = ceil(log(high / low, spacing) - 1e-9)
    return [round(low * (high / low) ** (k / pieces)) for k in range(1, pieces)]


def _with_jumps(
    candidates: Sequence[TunerCandidate],
    options: Sequence[Option],
    sizes: Sequence[int],
    late: Callable[[], bool],
) -> tuple[int, ...]:
    """Return `sizes` with those in between where the time of a candidate near the least one may jump.

    A candidate that is the fastest at two neighbouring sizes need not be so between them, nor do two candidates' times
    cross only once there. Jumps are added as long as it is not `late`.
    """
    result = set(sizes)
    for low, high in pairwise(sizes):
        if late():
            break
        least = [_least(options, range(len(options)), size) for size in (low, high)]
        for candidate, option in zip(candidates, options, strict=True):
            for size, best in zip((low, high), least, strict=True):
                time = option.seconds(size)
                if time is not None and best is not None and time <= NEAR * best:
                    result.update(candidate.jumps(low, high))
    return tuple(sorted(result))


def _with_sizes_near_ties(options: Sequence[Option], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return `sizes` with more of them on both sides of those at which a second time is nearly as short as the first.

    Near such a size the times cross, and more than once: the time of a program is neither linear nor always growing.
    Equal times, such as those of a schedule and of a library's algorithm with the same sends, are one.
    """
    tied = set()
    for size in sizes:
        times = sorted({time for option in options if (time := option.seconds(size)) is not None})
        if len(times) > 1 and times[1] <= TIED * times[0]:
            tied.add(size)
    result = set(sizes)
    for low, high in pairwise(sizes):
        if low in tied or high in tied:
            result.update(_between(low, high, FINE_SPACING))
    return tuple(sorted(result))


def _in_time(
    options: Sequence[Option], known: Sequence[int], sizes: Sequence[int], late: Callable[[], bool]
) -> tuple[int, ...]:
    """Return the sizes of `known`, and those of `sizes` at which the times of all options are known before it is
    `late`."""
    result = set(known)
    for size in sizes:
        if late():
            break
        _least(options, range(len(options)), size)  # kept by the options
        result.add(size)
    return tuple(sorted(result))


def _compared(
    row: Range, candidates: Sequence[TunerCandidate], options: Sequence[Option], sizes: Sequence[int]
) -> Range:
    """Return `row`, with more schedules at its end where it ends with a library's algorithm.

    They are for comparison on runtimes that do not pad: at each judged size the fastest schedule whose divisor divides
    it, and the fastest of those that need no LL128.
    """
    if candidates[row.order[-1]].algorithm.backend == OURS:
        return row
    own = [k for k, c in enumerate(candidates) if c.algorithm.backend == OURS]
    more: list[int] = []
    for size in (s for s in sizes if row.low <= s <= (row.high or s)):
        able: list[tuple[float, int]] = []
        for k in own:
            time = options[k].seconds(size) if size % options[k].divisor == 0 else None
            if time is not None:
                able.append((time, k))
        without_ll128 = [pair for pair in able if "LL128" not in options[pair[1]].needs]
        for group in (able, without_ll128):
            if group:
                more.append(min(group)[1])
    return row._replace(order=tuple(dict.fromkeys((*row.order, *more))))


def _option(algorithm: Algorithm, curve: Curve, element: int) -> Option:
    """Return the option of an algorithm. A schedule takes the time of the next size that its chunks divide: it is
    padded."""
    divisor, known = algorithm.divisor * element, cached_seconds(curve)
    if algorithm.backend != OURS:
        return Option(known, curve.spread, divisor)
    needs = frozenset({"schedules", *({algorithm.protocol} & {"LL128"})})
    if algorithm.through_switches:
        needs |= {"multicast"}
    return Option(lambda size: known(algorithm.padded(size, element)), curve.spread, divisor, needs)


def _least(options: Sequence[Option], group: Sequence[int], size: int) -> float | None:
    return min((time for k in group if (time := options[k].seconds(size)) is not None), default=None)


def _libraries(
    candidates: Sequence[TunerCandidate], options: Sequence[Option], sizes: Sequence[int]
) -> tuple[LibraryTimes, ...]:
    """Return the times at `sizes` of each algorithm of other libraries, the least of its protocols."""
    groups: dict[str, list[int]] = {}
    for k, candidate in enumerate(candidates):
        algorithm = candidate.algorithm
        if algorithm.backend != OURS:
            kind = dict(algorithm.options).get("algorithm")
            groups.setdefault(f"{algorithm.backend}-{kind}" if kind else algorithm.label, []).append(k)
    found = []
    for name, group in groups.items():
        found.append(LibraryTimes(name, tuple(_least(options, group, size) for size in sizes)))
    return tuple(found)


def _considered(
    candidates: Sequence[TunerCandidate], model: TimeModel | None, notes: list[str]
) -> list[TunerCandidate]:
    """Return the candidates whose times can be compared: all predicted, or measured and predicted by a sufficient
    fit."""
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


def _reach(candidates: Sequence[TunerCandidate]) -> tuple[int, int] | None:
    """Return the least and the greatest size at which schedules were timed; neither times nor a fit extend beyond."""
    sizes = [sample.size for c in candidates if c.shape is not None for sample in c.samples]
    return (min(sizes), max(sizes)) if sizes else None


def _curve(candidate: TunerCandidate, model: TimeModel | None, reach: tuple[int, int] | None) -> Curve:
    shape, algorithm = candidate.shape, candidate.algorithm
    if candidate.predicted is not None and not candidate.samples:
        return Curve((), candidate.predicted)
    if shape is None or model is None:
        return Curve(candidate.samples)
    known, protocol, instances = model, algorithm.protocol, algorithm.instances

    def predicted(size: int) -> float | None:
        far = reach is not None and (size * BEYOND < reach[0] or size > reach[1] * BEYOND)
        return None if far else known.seconds(shape, protocol, instances, size)

    return Curve(candidate.samples, predicted)


def _stand_ins(options: Sequence[Option], orders: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[str]:
    """Return notes on the loss of a runtime that does not pad: the maximum over sizes, with its best alternative
    there."""
    losses: list[tuple[float, int]] = []
    none = 0
    for size, order in zip(sizes, orders, strict=True):
        first, other = order[0], next((k for k in order if size % options[k].divisor == 0), None)
        if other is None:
            none += 1
        elif other != first and (time := options[first].seconds(size)) and (instead := options[other].seconds(size)):
            losses.append((instead / time - 1, size))
    said, of_all = [], counted(len(sizes), "size")
    if losses:
        loss, size = max(losses)
        most = f", which takes at most {100 * loss:.1f}% longer, at {size_text(size)}" if round(100 * loss, 1) else ""
        said.append(
            f"padded to a multiple of the chosen algorithm's chunk size: {len(losses)} of {of_all}; "
            f"runtimes that do not pad (MSCCL, MSCCL++) run an alternative there{most}"
        )
    if none:
        said.append(f"left to the library by runtimes that do not pad (MSCCL, MSCCL++): {none} of {of_all}")
    return said


def left_to_library(table: Table, algorithms: Sequence[Algorithm]) -> list[str]:
    """Return a note for each library: the sizes at which its algorithm is as fast as the best schedule, with both
    times."""
    said: dict[str, list[str]] = {}
    for place, (size, own, other) in enumerate(zip(table.sizes, table.ours, table.library, strict=True)):
        number = table.chosen[place]
        chosen = None if number is None else algorithms[number]
        if chosen is not None and chosen.backend != OURS and other is not None:
            estimates = table.estimates(place)
            against = "no schedule" if own is None else f"{microseconds(own, estimates)} µs by the best schedule"
            said.setdefault(chosen.backend, []).append(
                f"{size_text(size)} ({microseconds(other, estimates)} µs by {chosen.label}, {against})"
            )
    return [
        f"left to {backend}, whose own algorithm is at least as fast: {', '.join(rows)}"
        for backend, rows in said.items()
    ]


def _texts(sizes: Sequence[int]) -> str:
    shown = [size_text(size) for size in sizes]
    return ", ".join(shown) if len(shown) <= 4 else f"{shown[0]}, {shown[1]} .. {shown[-1]} ({len(shown)} sizes)"
