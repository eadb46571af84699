"""The table of a frontier as plain strings: title, columns, rows and sentences, rendered by `tables` and `html`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from synth.model.collective import Collective
from synth.model.documents.int_ranges import runs
from synth.model.frontier import Frontier, Open, Point
from synth.model.number_text import GB, KB, MB, number, size_text
from synth.model.rational import counted, show
from synth.model.topology import Network, Topology

if TYPE_CHECKING:
    from synth.model.bounds.time_bound import TimeBound

SIZES = (KB, MB, GB)
ADVISED = 128 * MB  # the size for which a table recommends a point
SHOWN = 10  # algorithms in the table, the fastest first; the document has all
WHY = {
    "effort": "the default effort is spent, --time-limit allows more",
    "time": "the time ran out",
    "memory": "the memory ran out",
    "interrupted": "interrupted",
    "crash": "the solver crashed",
    "gave-up": "the search ended without an answer",
    "between": "not decided",
}


class AlgorithmTime(NamedTuple):
    """An algorithm in one protocol and number of instances, its predicted seconds, and the clock's name (`model`)."""

    label: str
    protocol: str
    instances: int
    seconds: float
    model: str = ""


@dataclass(frozen=True)
class Report:
    """A table (columns with their alignment, rows) between a title and sentences; everything is text."""

    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[str, ...], ...]
    sentences: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, title: str, heads: Iterable[str], rows: Iterable[Iterable[str]], sentences: Iterable[str] = ()
    ) -> Report:
        """Return the report whose columns have these heads; a head that begins with > is of a right-aligned column."""
        columns = []
        for head in heads:
            name = head.removeprefix(">")
            columns.append((name, "left" if name == head else "right"))
        return cls(title, tuple(columns), tuple(map(tuple, rows)), tuple(sentences))


# The model of the times in the table of a frontier.
SYNCHRONOUS = (
    "µs/MB and GB/s are predicted, of synchronous steps on bare links without a launch; `--size 1MB` predicts the time "
    "of each point's program"
)
OTHERS = ("flow: ", "catalog: ")  # begin the constructions of points that are not of this exact search


def report(found: Frontier) -> Report:
    """Return the table of `synth pareto`: a row per point, then proofs, open intervals and a recommended point."""
    flow = found.engine == "flow"
    sums = not flow and found.collective.combining
    other = any(point.construction.startswith(OTHERS) for point in found.points)
    columns = [">steps", ">rounds", ">chunks", ">rounds/chunk", ">above bound" if flow else "status"]
    columns += ["construction"] if flow or sums or other else []
    columns += ["same bits"] if sums else []
    columns += [] if flow else [">µs/MB"]
    columns += [f">GB/s at {size_text(size)}" for size in SIZES]
    rows = []
    for point in found.points:
        cells = {
            ">steps": str(point.steps),
            ">rounds": str(point.rounds),
            ">chunks": str(point.chunks),
            ">rounds/chunk": fraction_text(point.rounds_per_chunk),
            "status": "optimal" if point.status == "optimal" else f"best known (bound {show(point.bound.value)})",
            "construction": point.construction,
            "same bits": "yes" if point.same_bits else "no",
            ">µs/MB": number(seconds_per_byte(found, point) * MB * 10**6),
        }
        if flow:
            cells[">above bound"] = f"{float(found.gap(point)):.2%}" if found.gap(point) else "optimal"
        elif not sums and not point.construction.startswith(OTHERS):
            cells["construction"] = "exact"
        for size in SIZES:
            cells[f">GB/s at {size_text(size)}"] = number(found.gbps(point, size))
        rows.append([cells[column] for column in columns])
    return Report.of(heading(found), columns, rows, sentences(found))


def heading(found: Frontier) -> str:
    """Return the title of the tables of a frontier."""
    if found.engine == "exact":
        return title(found.network, found.collective, found.labels)
    return table_title(found.collective_name, found.roots, found.machine, found.unit, found.latency, found.labels)


def fraction_text(value: Fraction) -> str:
    """Return a fraction as text, such as ``7/6``, or as a decimal number if that would be long."""
    return show(value) if len(show(value)) <= 16 else f"{float(value):.6g}"


def title(network: Network, collective: Collective, labels: Sequence[int] = ()) -> str:
    """Return a title such as ``allgather on dgx1-v100: 8 ranks, 1 unit = 25 GB/s, latency 0.7 µs``."""
    text = table_title(collective.name, collective.roots, network, network.unit, network.latency, labels)
    return f"{text}, switches multicast and reduce" if network.multicast else text


def table_title(
    collective: str,
    roots: Sequence[int],
    machine: Network | Topology,
    unit: Fraction,
    latency: Fraction,
    labels: Sequence[int],
) -> str:
    """Return the title of a table of a collective on a machine.

    `labels`: the ranks' numbers on the whole machine, where `machine` is a part of it.
    """
    start = f" from {', '.join(map(str, roots))}" if roots else ""
    labelled = list(roots)
    if labels:
        labelled = [labels[rank] for rank in roots]
    if labelled != list(roots):
        start += f" (the machine's {', '.join(map(str, labelled))})"
    late = f"latency {number(latency)} µs" if latency else "no latency known"
    return (
        f"{collective}{start} on {machine.name}: {counted(machine.ranks, 'rank')}, 1 unit = {number(unit)} GB/s, {late}"
    )


def sentences(found: Frontier) -> list[str]:
    """Return the sentences below a frontier's table: proofs, open intervals, the best point at 128 MB, and notes."""
    lines = claims(found)
    if found.points:
        lines.append(f"at {size_text(ADVISED)} take the {found.best(ADVISED).steps}-step point")
        lines.append(SYNCHRONOUS)
        if not found.latency:
            lines.append(
                "note: no latency of this topology is known, so predictions count bandwidth alone (`--links` gives "
                "measured ones)"
            )
    ranks = found.machine.ranks
    if found.labels and found.labels != tuple(range(ranks)):
        labels = ", ".join(map(str, found.labels))
        stand = f"ranks 0 to {ranks - 1} stand" if ranks > 1 else "rank 0 stands"
        lines.append(f"note: {stand} for the machine's {labels}")
    lines += [f"note: {note}" for note in found.notes]
    return lines + [f"left open: {'; '.join(found.unfinished)}" for _ in found.unfinished[:1]]


def claims(found: Frontier) -> list[str]:
    """Return the sentences on what is proved of a frontier, and on what is not."""
    if found.engine == "exact":
        return _proved(found) + _open(found) + _gap(found)
    bound = found.floor
    rounds = "1 round" if bound.value == 1 else f"{fraction_text(bound.value)} rounds"
    gbps = float(found.unit / (bound.value * found.unit_share))
    return [
        f"no schedule in this model, with any steps and chunks, takes fewer than {rounds} per chunk: {gbps:.5g} GB/s "
        f"at most ({bound.certificate['kind']} certificate)",
        "between the points the frontier is not proved: `above bound` is what is left, against the bound for any "
        "number of steps",
    ]


def choice(
    found: Frontier,
    size: int,
    bound: TimeBound | None = None,
    times: Sequence[AlgorithmTime] = (),
) -> Report:
    """Return the table of `synth pareto --size`: the recommended point at `size` bytes among all points.

    `times`: predicted times of programs, by rising time. A row shows the least of a point's programs; without `times`
    its time in synchronous steps, which is of another model, is shown instead. `bound`: the lower bound at `size`.
    """
    programs = point_times(found, times)
    columns = [">steps", ">rounds/chunk"]
    if programs:
        columns += [f">µs at {size_text(size)}", "protocol", ">GB/s"]
    else:
        columns += [">synchronous µs", ">synchronous GB/s"]
    columns.append("best for (synchronous)")
    best = best_point(found, size, times) if found.points else None
    rows = []
    for point, span in zip(found.points, fastest_sizes(found), strict=True):
        row = [("> " if point is best else "") + str(point.steps), fraction_text(point.rounds_per_chunk)]
        time = programs.get(id(point))
        if time is not None:
            row += [number(time.seconds * 1e6), time.protocol, number(size / time.seconds / 1e9)]
        elif programs:
            row += ["", "", ""]
        else:
            row += [number(found.seconds_at(point, size) * 1e6), number(found.gbps(point, size))]
        rows.append((*row, _range(*span) if span else "no size"))

    # The point to take, what is proved, and the models of the times.
    lines = []
    if best is not None:
        fastest = programs.get(id(best))
        lines = [_taken(found, best, size, fastest)]
        lines += _time_bound(bound, found.seconds_at(best, size) if fastest is None else fastest.seconds)
    lines += claims(found)
    if programs:
        program = "the point's program in its fastest protocol"
        if found.engine == "exact" and found.network.multicast:
            program += ", with sends of switches its MSCCL++ plan"
        lines.append(
            f"µs and GB/s: predicted, event-driven, of {program}; `best for`: predicted, synchronous steps on bare "
            f"links without a launch"
        )
        if len(programs) < len(found.points):
            lines.append("points without µs are far behind by a lower bound, or were not run in time")
    else:
        lines.append(
            "synchronous: predicted, steps are barriers, each of the machine's greatest latency, on bare links without "
            "a launch"
        )
    lines += [f"note: {note}" for note in found.notes]
    return Report.of(heading(found), columns, rows, lines)


def choice_document(frontier: Frontier, size: int, times: Sequence[AlgorithmTime] = ()) -> dict:
    """Return the content of `choice`: predicted seconds of each point at `size` bytes, and the best one.

    `seconds` are those of synchronous steps. Each point has the range of sizes for which it is the best by these.
    `program_seconds`: those of its fastest program among `times`.
    """
    best = best_point(frontier, size, times) if frontier.points else None
    programs = point_times(frontier, times)
    points = []
    for point, span in zip(frontier.points, fastest_sizes(frontier), strict=True):
        low, high = (None, None) if span is None else span
        time = programs.get(id(point))
        points.append(
            {
                "steps": point.steps,
                "rounds": point.rounds,
                "chunks": point.chunks,
                "bandwidth": show(point.rounds_per_chunk),
                "status": point.status,
                "seconds": frontier.seconds_at(point, size),
                "gbps": frontier.gbps(point, size),
                "program_seconds": None if time is None else time.seconds,
                "protocol": None if time is None else time.protocol,
                "model": None if time is None else time.model,
                "best_from": None if low is None else float(low),
                "best_to": None if high is None else float(high),
            }
        )
    return {
        "schema": "synth.choice/1",
        "topology": frontier.network.name,
        "collective": frontier.collective.name,
        "size": size,
        "complete": frontier.complete,
        "steps": best.steps if best else None,
        "points": points,
        "schedule": best.schedule.to_json() if best else None,
    }


def algorithm_report(rows: Sequence[AlgorithmTime], size: int) -> Report:
    """Return the table of the fastest variant of each algorithm at `size` bytes; `rows` by rising time."""
    columns = ("algorithm", "protocol", f">µs at {size_text(size)}", ">GB/s",
               ">slower by")  # fmt: skip
    fastest: dict[str, AlgorithmTime] = {}
    for row in rows:
        fastest.setdefault(row.label, row)
    best, table = rows[0], []
    for row in list(fastest.values())[:SHOWN]:
        slower = f"{100 * (row.seconds / best.seconds - 1):.1f}%"
        time, rate = number(row.seconds * 1e6), number(size / row.seconds / 1e9)
        table.append((row.label, row.protocol, time, rate, slower if row is not best else ""))
    taken = f"at {size_text(size)} take {best.label} in {best.protocol}"
    lines = [f"{taken}: {number(best.seconds * 1e6)} µs {best.model}"]
    if len(fastest) > SHOWN:
        lines.append(f"{counted(len(fastest) - SHOWN, 'slower algorithm')} left out (--format json has all)")
    lines.append(
        f"times of programs, by the clock of `synth tune` and `run` (here: --protocol {best.protocol}); "
        f"`synth tune -o plan.json`, then `synth export --plan plan.json` write the fastest"
    )
    return Report.of("", columns, table, lines)


def point_times(found: Frontier, times: Sequence[AlgorithmTime]) -> dict[int, AlgorithmTime]:
    """Return the fastest program of each point by the point's `id`; a point may have none."""
    fastest: dict[str, AlgorithmTime] = {}
    for row in times:
        fastest.setdefault(row.label, row)
    programs = {}
    for point in found.points:
        label = f"S{point.steps}-R{point.rounds}-C{point.chunks}"
        if label in fastest:
            programs[id(point)] = fastest[label]
    return programs


def best_point(found: Frontier, size: int, times: Sequence[AlgorithmTime]) -> Point:
    """Return the point of the fastest program at `size` bytes; the fastest in synchronous steps without `times`."""
    programs = point_times(found, times)
    timed = [point for point in found.points if id(point) in programs]
    return min(timed, key=lambda point: programs[id(point)].seconds) if timed else found.best(size)


def _taken(found: Frontier, best: Point, size: int, time: AlgorithmTime | None) -> str:
    csr = f"C={best.chunks}, R={best.rounds}"
    if time is not None:  # the table of all programs below says what to take
        fastest = f"of the points that of {counted(best.steps, 'step')} is the fastest at {size_text(size)}"
        return f"{fastest}, in {time.protocol}: {csr}; {number(time.seconds * 1e6)} µs {time.model}"
    alpha = best.steps * float(found.latency)
    beta = float(seconds_per_byte(found, best)) * size * 10**6
    parts = f"{number(alpha)} µs for {counted(best.steps, 'latency')} + {number(beta)} µs"
    return (
        f"at {size_text(size)} take the {best.steps}-step point: {csr}; predicted, synchronous steps: {parts} for "
        f"{fraction_text(best.rounds_per_chunk)} rounds per chunk"
    )


def _time_bound(bound: TimeBound | None, seconds: float) -> list[str]:
    """Return the sentence on the lower bound in time, with the factor of the predicted `seconds` over it."""
    if bound is None or not bound.rows[0].microseconds:
        return []
    row = bound.rows[0]
    clock = f"by this clock ({number(row.launch)} µs launch in {row.protocol}, " if row.launch else "on bare links ("
    factor = number(seconds * 10**6 / float(row.microseconds))
    times = "as much" if factor == "1" else f"{factor} times as much"
    return [
        f"no program takes less than {number(row.microseconds)} µs {clock}{row.reason}): the prediction is {times}; "
        f"the bound holds for {bound.holds_for}"
    ]


def seconds_per_byte(found: Frontier, point: Point) -> Fraction:
    """Return the predicted seconds per byte of the size, without latencies.

    They are (R/C) · (share of the size in one unit of data) / (bandwidth of one unit).
    """
    return point.rounds_per_chunk * found.unit_share / (found.unit * 10**9)


def fastest_sizes(found: Frontier) -> list[tuple[Fraction, Fraction | None] | None]:
    """Return for each point the half-open range [from, to) of sizes in bytes at which it is predicted fastest.

    `to` None: without end. The entry is None for a point that is fastest at no size.
    """
    alpha = found.latency / 10**6

    def crossing(few: Point, many: Point) -> Fraction:
        gain = seconds_per_byte(found, few) - seconds_per_byte(found, many)
        return (many.steps - few.steps) * alpha / gain

    result: list[tuple[Fraction, Fraction | None] | None] = []
    for i, point in enumerate(found.points):
        low = max((crossing(other, point) for other in found.points[:i]), default=Fraction(0))
        high = min((crossing(point, other) for other in found.points[i + 1 :]), default=None)
        result.append((low, high) if high is None or low < high else None)
    return result


def _proved(found: Frontier) -> list[str]:
    if not found.complete:
        return [] if _open(found) else ["incomplete: what other numbers of steps would give has not been decided"]
    if not found.points:
        return ["complete: nothing is to be done, every rank has what it must have"]
    if found.max_steps is None:
        return ["complete: no schedule in this model, with any number of chunks, is better"]
    most = counted(found.max_steps, "step")
    return [f"complete up to {most}: no schedule of so many steps in this model, with any number of chunks, is better"]


def _open(found: Frontier) -> list[str]:
    """Return a sentence for the open intervals of the same bound and the same reason, those between points too."""
    groups: dict[tuple[Fraction, str, bool], list[Open]] = {}
    for item in sorted([*found.open, *_between(found)], key=lambda item: item.steps):
        groups.setdefault((item.lower, item.reason, item.upper is None), []).append(item)
    lines = []
    for items in groups.values():
        first, last = items[0], items[-1]
        upper = "nothing was found"
        if first.upper is not None and last.upper is not None:
            upper = f"at most {show(first.upper)}"
            if last.upper != first.upper:
                ends = counted(first.steps, "step"), counted(last.steps, "step")
                upper += f" ({ends[0]}) down to {show(last.upper)} ({ends[1]})"
        why, least = WHY.get(first.reason, first.reason), show(first.lower)
        steps = _spans([item.steps for item in items])
        lines.append(f"open: with {steps} the least rounds/chunk is at least {least}, {upper} ({why})")
    return lines


def _between(found: Frontier) -> Iterator[Open]:
    """Yield an open interval for each number of steps between two points that has none, unless a bound proves that no
    schedule of so many steps is better than the first of the two."""
    if found.complete:
        return
    floors = [(steps, bound.value) for steps, bound in found.bounds]
    floors += [(point.steps, point.bound.value) for point in found.points]
    known = {interval.steps for interval in found.open}
    for few, many in pairwise(found.points):
        for steps in range(few.steps + 1, many.steps):
            # a bound holds at fewer steps, too, since idle steps may be added
            lower = max((value for s, value in floors if s is None or s >= steps), default=Fraction(0))
            if steps not in known and lower < few.rounds_per_chunk:
                yield Open(steps, lower, few.rounds_per_chunk, "between")


def _spans(steps: Sequence[int]) -> str:
    if len(steps) == 1:
        return counted(steps[0], "step")
    texts = []
    for first, last in runs(steps):
        texts.append(str(first) if first == last else f"{first} to {last}")
    *others, end = texts
    return (f"{', '.join(others)} and {end}" if others else end) + " steps"


def _gap(found: Frontier) -> list[str]:
    # How far the last point is above the bound for any number of steps.
    floor = max((bound.value for steps, bound in found.bounds if steps is None), default=Fraction(0))
    last = found.points[-1] if found.points else None
    if found.complete or last is None or not 0 < floor < last.rounds_per_chunk:
        return []
    above = number((last.rounds_per_chunk / floor - 1) * 100)
    least = f"with any number of steps the least rounds/chunk is at least {show(floor)}"
    return [f"{least}: the {last.steps}-step point is {above}% above that"]


def _range(low: Fraction, high: Fraction | None) -> str:
    if high is None:
        return f"{size_text(low)} and more" if low else "every size"
    return f"{size_text(low)} to {size_text(high)}" if low else f"less than {size_text(high)}"
