"""Documents of exact synthesis: schedules replayed, certificates and the claims of a frontier checked; no solver."""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path

from synth.checker.certificates import cuts
from synth.checker.certificates.instance import Instance
from synth.checker.fingerprints import with_one_chunk
from synth.checker.schedule import replay as verify
from synth.errors import FormatError, VerificationError, json_kind, malformed
from synth.model.documents import json_diff, json_reader
from synth.model.documents.text_file import text_of
from synth.model.rational import counted, show
from synth.model.schedule import Schedule
from synth.model.sends.bitwise_equality import same_bits

MAX_BYTES = 1 << 30  # of a document that is read: its values take several times as much memory
OF_STEPS = ("distance", "too-few-steps")  # kinds of certificates that bound the number of steps
PROBLEM = frozenset({"schema", "topology", "collective"})
POINT = frozenset(
    {"steps", "rounds", "chunks", "bandwidth", "status", "construction", "same_bits", "bound", "schedule", "seconds"}
)
BOUND = frozenset({"value", "scope", "certificate"})
FRONTIER = PROBLEM | {"complete", "max_steps", "points", "open", "seconds"}
NO_CERTIFICATE = "there is no certificate: nothing proves this"
# What a frontier states beside its machine and its claims.
FRONTIER_ASSUMED = "; its labels; seconds, construction, reasons, notes and answers"
# What `synth verify` reads; beside these the archives of synth.bulk/1 (.npz).
SCHEMAS = (
    "synth.schedule/1",
    "synth.frontier/1",
    "synth.bounds/1",
    "synth.infeasible/1",
    "synth.large/1",
)


def read(path: Path, what: str = "a schedule or a frontier") -> dict:
    """Return the JSON object in the file `path`.

    Raises FormatError, with the line, for anything else; `what` is the expected object in its message.
    """
    doc = json_reader.document(text_of(path, MAX_BYTES), str(path))
    if not isinstance(doc, dict):
        raise FormatError(f"expected {what}, found {json_kind(doc)}", str(path))
    return doc


def document(doc: dict) -> list[str]:
    """Check a document of exact synthesis; return a line for each claim, and a last one for what is assumed.

    Raises VerificationError, with the place, for a claim that is false or not proved, and FormatError for another
    schema.
    """
    try:
        match doc.get("schema"):
            case "synth.schedule/1":
                replay = verify.schedule(doc)
                size = f"C={replay.chunks} S={replay.steps} R={replay.rounds}"
                lines = [f"schedule: {size}, {counted(replay.sends, 'send')} replayed, postcondition holds"]
            case "synth.frontier/1":
                lines = frontier(doc)
            case "synth.bounds/1":
                lines = bounds(doc)
            case "synth.infeasible/1":
                lines = [infeasible(doc)]
            case "synth.choice/1":
                instead = "`synth pareto -o FILE` without --size writes them"
                raise FormatError(f"a choice by size has no certificates; {instead}")
            case other:
                if "gpus" in doc:
                    raise FormatError("a program has no certificates to verify; `synth lint` checks it")
                known = f"{', '.join(SCHEMAS)}, and synth.bulk/1 (.npz)"
                raise FormatError(f"{json_reader.schema_text(other)}; synth verifies {known}")
    except (KeyError, TypeError, IndexError, AttributeError) as error:  # a value of another kind somewhere inside
        raise VerificationError(malformed(error), "$") from None
    return [*lines, assumed(doc)]


def assumed(doc: dict) -> str:
    """Return the last line on a document that was checked: what it states beside its claims."""
    machine = doc["topology"]
    switches = [switch["switch"] for switch in machine.get("multicast", [])]
    beside = FRONTIER_ASSUMED if doc["schema"] == "synth.frontier/1" else ""
    return json_reader.assumed(bool(machine["limits"]), switches) + beside


def bounds(doc: dict) -> list[str]:
    """Check every bound of the document that `synth bound -o` writes; return a line for each. Raises
    VerificationError."""
    json_reader.fields(doc, "$", PROBLEM | {"bounds"})
    verify.problem(doc["topology"], doc["collective"])
    rows = json_reader.items(doc["bounds"], "$.bounds")
    entries = [_bound(doc, entry, f"$.bounds[{i}]") for i, entry in enumerate(rows)]
    if not entries:
        raise VerificationError("is empty: the document claims nothing", "$.bounds")
    return [f"bound: {_in_words(steps, value)}, certificate checked" for steps, value in entries]


def _in_words(steps: int | None, value: Fraction) -> str:
    """Return a bound for `steps` in words: None is any number of steps, 0 is about the number of steps itself."""
    if steps == 0:
        return f"S ≥ {show(value)}"
    return f"R/C ≥ {show(value)} " + ("for any S" if steps is None else f"at S={steps}")


def infeasible(doc: dict) -> str:
    """Check the proof that there is no schedule, or none of at most `max_steps` steps; return a line on it.

    Raises VerificationError.
    """
    json_reader.fields(doc, "$", PROBLEM | {"max_steps", "certificate"})
    most = None if doc["max_steps"] is None else json_reader.number(doc["max_steps"], "$.max_steps", 0)
    verify.problem(doc["topology"], doc["collective"])
    certificate = doc["certificate"]
    if not isinstance(certificate, dict):
        raise VerificationError(NO_CERTIFICATE, "$.certificate")
    kinds = ("unreachable",) if most is None else OF_STEPS
    if certificate["kind"] not in kinds:
        raise VerificationError(
            f"{certificate['kind']!r} does not prove this, {kinds[0]!r} would", "$.certificate.kind"
        )
    value = proved_bound(doc, certificate, "$.certificate")
    name = f"{doc['collective']['name']} on {doc['topology']['name']}"
    if most is None:
        unit, rank = certificate["pair"]
        return f"{name}: no schedule, unit {unit} cannot reach rank {rank}, certificate checked"
    if value <= most:
        raise VerificationError(f"the certificate asks for {show(value)} steps, which {most} allow", "$.max_steps")
    return (
        f"{name}: no schedule of {most} step{'' if most == 1 else 's'} or fewer, S ≥ {show(value)}, certificate checked"
    )


def frontier(doc: dict) -> list[str]:
    """Check every point, bound and open interval of a frontier document, and its completeness; return a line for each.

    Raises VerificationError.
    """
    json_reader.fields(doc, "$", FRONTIER, {"answers", "bounds", "notes", "labels"})
    json_reader.one_of(doc["schema"], ("synth.frontier/1",), "$.schema")
    verify.problem(doc["topology"], doc["collective"])

    # Points, of which none is dominated, and the bounds for any number of chunks that they bring.
    said: list[str] = []
    points: list[tuple[int, Fraction, bool]] = []
    floors: list[tuple[int | None, Fraction]] = []
    for i, entry in enumerate(json_reader.items(doc["points"], "$.points")):
        point, floor = _point(doc, entry, f"$.points[{i}]", said)
        if points and (point[0] <= points[-1][0] or point[1] >= points[-1][1]):
            raise VerificationError("is dominated by the point before it", f"$.points[{i}]")
        points.append(point)
        floors.append((point[0], floor))

    # Bounds beside those, and the open intervals, which rest on all of them.
    rows = json_reader.items(doc.get("bounds", []), "$.bounds")
    bounds = [_bound(doc, entry, f"$.bounds[{i}]") for i, entry in enumerate(rows)]
    if bounds:
        said.append(
            f"bounds: {'; '.join(itertools.starmap(_in_words, bounds))}: {counted(len(bounds), 'certificate')} checked"
        )
    intervals = []
    for i, entry in enumerate(json_reader.items(doc["open"], "$.open")):
        intervals.append(_open(doc, entry, points, [*bounds, *floors], f"$.open[{i}]"))
    for text, alike in itertools.groupby(intervals, key=lambda interval: interval[1]):
        steps = [interval[0] for interval in alike]
        said.append(f"open at S={', '.join(map(str, steps))}: {text}")

    # What no claim rests on has its form.
    if not isinstance(doc["complete"], bool):
        raise VerificationError("is true or false", "$.complete")
    if doc["max_steps"] is not None:
        json_reader.number(doc["max_steps"], "$.max_steps", points[-1][0] if points else 0)
    json_reader.seconds(doc["seconds"], "$.seconds")
    for i, line in enumerate(json_reader.items(doc.get("notes", []), "$.notes")):
        json_reader.text(line, f"$.notes[{i}]")
    for i, row in enumerate(json_reader.items(doc.get("answers", []), "$.answers")):
        place = f"$.answers[{i}]"
        json_reader.fields(row, place, {"chunks", "steps", "rounds", "verdict", "solver"})
        for key in ("chunks", "steps", "rounds"):
            json_reader.number(row[key], f"{place}.{key}", 1)
        json_reader.text(row["solver"], f"{place}.solver")
        json_reader.one_of(row["verdict"], ("schedule", "infeasible", "undecided"), f"{place}.verdict")
    labels = json_reader.items(doc.get("labels", []), "$.labels")
    for i, label in enumerate(labels):
        json_reader.number(label, f"$.labels[{i}]", 0)
    if labels and (len(labels) != doc["topology"]["ranks"] or len(set(labels)) < len(labels)):
        raise VerificationError("must give each rank a label of its own", "$.labels")
    said.append(_completeness(doc, points, bounds) if doc["complete"] else "not complete: there may be other points")
    return said


def _point(doc: dict, entry: dict, place: str, said: list[str]) -> tuple[tuple[int, Fraction, bool], Fraction]:
    """Check a point, and add a line on it to `said`.

    Returns its S, R/C and whether that is optimal, and the bound on R/C at S that is proved for any number of chunks.
    """
    # The schedule is right, and one of this problem.
    json_reader.fields(entry, place, POINT)
    json_reader.text(entry["construction"], f"{place}.construction")
    replay = verify.schedule(entry["schedule"], f"{place}.schedule")
    inner = entry["schedule"]
    own = {"topology": inner["topology"], "collective": with_one_chunk(inner["collective"], inner["chunks"])}
    for key, verb in (("topology", "runs on"), ("collective", "answers")):
        if own[key] != doc[key]:
            differs = json_diff.describe(own[key], doc[key], f"in $.{key}")
            message = f"{verb} another {key} than the frontier's: {differs}"
            raise VerificationError(message, f"{place}.schedule.{key}")

    # Its numbers are those of the row, whose bound is proved and whose status follows.
    for key, value in (("steps", replay.steps), ("rounds", replay.rounds), ("chunks", replay.chunks)):
        if type(entry[key]) is not int or entry[key] != value:
            raise VerificationError(f"says {entry[key]}, the schedule has {value}", f"{place}.{key}")
    stated = json_reader.fraction(entry["bandwidth"], f"{place}.bandwidth")
    if stated != replay.rounds_per_chunk:
        raise VerificationError(
            f"says {show(stated)}, the schedule has {show(replay.rounds_per_chunk)}", f"{place}.bandwidth"
        )
    json_reader.seconds(entry["seconds"], f"{place}.seconds")
    value = _certificate(
        doc, json_reader.fields(entry["bound"], f"{place}.bound", BOUND), f"{place}.bound", replay.steps, replay.chunks
    )
    if value > replay.rounds_per_chunk:
        raise VerificationError(
            f"a bound of {show(value)} above the schedule's {show(replay.rounds_per_chunk)}", f"{place}.bound"
        )
    any_chunks = entry["bound"]["scope"] == "any-chunks"
    optimal = value == replay.rounds_per_chunk and any_chunks
    if entry["status"] not in ("optimal", "best-known") or (entry["status"] == "optimal") != optimal:
        raise VerificationError(
            f"status {entry['status']!r}: R/C {show(replay.rounds_per_chunk)}, bound {show(value)}", f"{place}.status"
        )
    if not isinstance(entry["same_bits"], bool):
        raise VerificationError("'same_bits' is true or false", f"{place}.same_bits")
    alike = not inner["collective"]["combining"] or same_bits(Schedule.from_json(inner))
    if entry["same_bits"] != alike:
        raise VerificationError(f"says {entry['same_bits']}, the order of the sums says {alike}", f"{place}.same_bits")

    # A line on the point.
    scope = "" if any_chunks else f" at C={replay.chunks}"
    proved = "optimal for any C" if optimal else f"bound {show(value)}{scope}"
    if inner["collective"]["combining"]:
        proved += ", same bits on all ranks" if entry["same_bits"] else ", bits may differ"
    sends = counted(replay.sends, "send")
    said.append(
        f"S={replay.steps}: R/C {show(replay.rounds_per_chunk)} with C={replay.chunks}, {sends} replayed, {proved}"
    )
    return (replay.steps, replay.rounds_per_chunk, optimal), value if any_chunks else Fraction(0)


def proved_bound(
    doc: dict, certificate: dict, place: str, steps: int | None = None, chunks: int | None = None
) -> Fraction:
    """Return the bound that `certificate`, at `place` of the document, proves about its problem, as `cuts.check`
    does."""
    try:
        return cuts.check(certificate, doc["topology"], doc["collective"], steps=steps, chunks=chunks)
    except VerificationError as error:
        raise error.within(place) from None


def _certificate(doc: dict, entry: dict, place: str, steps: int | None, chunks: int | None) -> Fraction:
    if not isinstance(entry["certificate"], dict):
        raise VerificationError(NO_CERTIFICATE, f"{place}.certificate")
    scope = json_reader.one_of(
        entry["scope"], ("any-chunks", "this-chunks") if chunks else ("any-chunks",), f"{place}.scope"
    )
    value = proved_bound(
        doc, entry["certificate"], f"{place}.certificate", steps, chunks if scope == "this-chunks" else None
    )
    stated = json_reader.fraction(entry["value"], f"{place}.value")
    if stated != value:
        raise VerificationError(f"says {show(stated)}, the certificate proves {show(value)}", f"{place}.value")
    return value


def _bound(doc: dict, entry: dict, place: str) -> tuple[int | None, Fraction]:
    json_reader.fields(entry, place, BOUND | {"steps"})
    steps = None if entry["steps"] is None else json_reader.number(entry["steps"], f"{place}.steps", 0)
    kind = entry["certificate"].get("kind") if isinstance(entry["certificate"], dict) else None
    if kind == "unreachable":
        raise VerificationError(
            "'unreachable' proves that there is no schedule, not a bound", f"{place}.certificate.kind"
        )
    value = _certificate(doc, entry, place, None if kind in OF_STEPS else steps, None)
    if (kind in OF_STEPS) != (steps == 0):
        raise VerificationError("steps 0 is for the bound on the number of steps", f"{place}.steps")
    return steps, value


def _open(
    doc: dict,
    entry: dict,
    points: list[tuple[int, Fraction, bool]],
    bounds: list[tuple[int | None, Fraction]],
    place: str,
) -> tuple[int, str]:
    """Check the interval that is open at so many steps, and return their number and what is proved and known.

    `bounds` are proved for any number of chunks: (steps, R/C), steps None for any number.
    """
    json_reader.fields(entry, place, {"steps", "lower", "upper", "reason"}, {"certificate"})
    json_reader.text(entry["reason"], f"{place}.reason")
    steps = json_reader.number(entry["steps"], f"{place}.steps", 1)
    lower = json_reader.fraction(entry["lower"], f"{place}.lower")
    if "certificate" in entry:
        value = proved_bound(doc, entry["certificate"], f"{place}.certificate", steps)
        if value != lower:
            raise VerificationError(f"says {show(lower)}, the certificate proves {show(value)}", f"{place}.lower")
    # a bound at S holds at fewer steps too: idle steps can be added to any schedule
    elif lower > max((value for s, value in bounds if s is None or s >= steps > 0), default=0):
        raise VerificationError(
            f"nothing proves {show(lower)} at S={steps}: no certificate, no bound of the document", f"{place}.lower"
        )
    upper = None if entry["upper"] is None else json_reader.fraction(entry["upper"], f"{place}.upper")
    best = min((rounds_per_chunk for s, rounds_per_chunk, _ in points if s <= steps), default=None)
    if upper != best:
        raise VerificationError(
            f"says {entry['upper']}, the points reach {None if best is None else show(best)}", f"{place}.upper"
        )
    if upper is not None and lower > upper:
        raise VerificationError(f"is {show(lower)}, above the upper end {show(upper)}", f"{place}.lower")
    known = "none" if upper is None else show(upper)
    return steps, f"R/C ≥ {show(lower)} is proved, {known} is known"


def unproved_intervals(
    points: list[tuple[int, Fraction]], bounds: list[tuple[int | None, Fraction]], until: int
) -> list[tuple[int, int]]:
    """Return the intervals (first, last) of step counts in which a better point is not ruled out.

    Each begins at the steps of a point, and ends one step before the next point, or at `until` after the last.
    `points`: (steps, R/C) pairs, at least one. `bounds`: (steps, R/C) pairs. A bound at S steps rules out a better
    point at S steps and fewer, as idle steps can be added to any schedule.
    """
    intervals = []
    ends = [*(steps - 1 for steps, _ in points[1:]), until]
    for (start, rate), end in zip(points, ends, strict=True):
        excluded = any(steps is not None and steps >= end and value >= rate for steps, value in bounds)
        if end > start and not excluded:
            intervals.append((start, end))
    return intervals


def _completeness(
    doc: dict, points: list[tuple[int, Fraction, bool]], bounds: list[tuple[int | None, Fraction]]
) -> str:
    """Check that every point is optimal, and that none is possible before the first, between two or after the last."""
    place = "$.complete"
    if doc["open"]:
        raise VerificationError("claims to be complete with open intervals", place)
    if not points:
        if not cuts.nothing_to_do(Instance(doc["topology"], doc["collective"])):
            raise VerificationError("has no points, but a rank wants what it does not have", place)
        return "complete: nothing is to be done, every rank has what it must have"
    if not all(optimal for _, _, optimal in points):
        raise VerificationError("claims to be complete with a point that is not optimal", place)
    least = max((value for steps, value in bounds if steps == 0), default=None)
    if least is None or least < points[0][0]:
        raise VerificationError(f"no proof that fewer than {points[0][0]} steps are too few", place)
    floor = max((value for steps, value in bounds if steps is None), default=None)
    last_steps, last, _ = points[-1]
    until = last_steps if floor is not None and floor >= last else doc["max_steps"]
    if until is None:
        raise VerificationError("no bound for every S meets the last point, and max_steps is null", place)
    for start, end in unproved_intervals([point[:2] for point in points], bounds, until):
        raise VerificationError(f"no proof that {end} steps cannot beat the point at {start}", place)
    return "complete: no schedule in this model, with any number of chunks, is better" + (
        "" if floor is not None and floor >= last else f" up to {until} steps"
    )
