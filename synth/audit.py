"""What `synth verify` does: replays schedules, re-checks certificates and the claims of a frontier. No solver is imported."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path

from synth import difference, strict, verify
from synth.bounds import check
from synth.errors import FormatError, VerificationError, json_kind, malformed
from synth.rational import counted, show
from synth.samebits import same_bits
from synth.schedule import Schedule

MAX_BYTES = 1 << 30
OF_STEPS = ("distance", "too-few-steps")  # kinds of certificates that bound the number of steps
POINT = frozenset({"steps", "rounds", "chunks", "bandwidth", "status", "construction", "same_bits", "bound", "schedule", "seconds"})
BOUND = frozenset({"value", "scope", "certificate"})
NO_CERTIFICATE = "there is no certificate: nothing proves this"
# What `synth verify` reads; beside these the archives of synth.bulk/1 (.npz).
SCHEMAS = (
    "synth.schedule/1", "synth.frontier/1", "synth.bounds/1", "synth.infeasible/1", "synth.refutation/1", "synth.large/1", "synth.groups/1",
)  # fmt: skip


def read(path: Path, what: str = "a schedule or a frontier") -> dict:
    """The JSON object in `path`, said to be `what`. Raises FormatError with the line for anything else."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise FormatError(f"{path.stat().st_size} bytes; at most {MAX_BYTES} are read", str(path))
        doc = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
    except OSError as error:
        raise FormatError(f"cannot be read: {error.strerror}", str(path)) from None
    except json.JSONDecodeError as error:
        raise FormatError(f"not JSON: {error.msg} at column {error.colno}", str(path), error.lineno) from None
    except RecursionError:
        raise FormatError("is nested too deeply", str(path)) from None
    except ValueError as error:
        raise FormatError(f"not JSON: {error}", str(path)) from None
    if not isinstance(doc, dict):
        raise FormatError(f"expected {what}, found {json_kind(doc)}", str(path))
    return doc


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def document(doc: dict) -> list[str]:
    """Check a schedule or a frontier; returns one line for each thing established. Raises VerificationError."""
    match doc.get("schema"):
        case "synth.schedule/1":
            replay = verify.schedule(doc)
            sends = counted(replay.sends, "send")
            return [f"schedule: C={replay.chunks} S={replay.steps} R={replay.rounds}, {sends} replayed, postcondition holds"]
        case "synth.frontier/1":
            return frontier(doc)
        case "synth.bounds/1":
            return bounds(doc)
        case "synth.infeasible/1":
            return [infeasible(doc)]
        case other:
            raise FormatError(f"schema is {other!r}; synth verifies {', '.join(SCHEMAS)}, and synth.bulk/1 (.npz)")


def bounds(doc: dict) -> list[str]:
    """Check every bound of the document that `synth bound -o` writes."""
    wrong = sorted(doc.keys() ^ {"schema", "topology", "collective", "bounds"})
    if wrong:
        raise VerificationError(f"{wrong[0]!r} is missing or not a known field", "$")
    try:
        verify.problem(doc["topology"], doc["collective"])
        found = [_bound(doc, entry, f"$.bounds[{i}]", entry["steps"]) for i, entry in enumerate(doc["bounds"])]
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise VerificationError(malformed(error), "$") from None
    what = {None: "R/C ≥ {} for any S", 0: "S ≥ {}"}
    return [f"bound: {what.get(steps, f'R/C ≥ {{}} at S={steps}').format(show(value))}, certificate checked" for steps, value in found]


def infeasible(doc: dict) -> str:
    """Check the proof that there is no schedule at all, or none of at most `max_steps` steps."""
    wrong = sorted(doc.keys() ^ {"schema", "topology", "collective", "max_steps", "certificate"})
    if wrong:
        raise VerificationError(f"{wrong[0]!r} is missing or not a known field", "$")
    most = doc["max_steps"]
    if most is not None and (type(most) is not int or most < 0):
        raise VerificationError(f"expected a number of steps or null, found {most!r}", "$.max_steps")
    try:
        verify.problem(doc["topology"], doc["collective"])
        certificate = doc["certificate"]
        if not isinstance(certificate, dict):
            raise VerificationError(NO_CERTIFICATE, "$.certificate")
        kinds = ("unreachable",) if most is None else OF_STEPS
        if certificate["kind"] not in kinds:
            raise VerificationError(f"{certificate['kind']!r} does not prove this, {kinds[0]!r} would", "$.certificate.kind")
        value = check.check(certificate, doc["topology"], doc["collective"])
        name = f"{doc['collective']['name']} on {doc['topology']['name']}"
        if most is None:
            unit, rank = certificate["pair"]
            return f"{name}: no schedule, unit {unit} cannot reach rank {rank}, certificate checked"
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise VerificationError(malformed(error), "$") from None
    if value <= most:
        raise VerificationError(f"the certificate asks for {show(value)} steps, which {most} allow", "$.max_steps")
    return f"{name}: no schedule of {most} step{'' if most == 1 else 's'} or fewer, S ≥ {show(value)}, certificate checked"


def frontier(doc: dict) -> list[str]:
    """Check every point, bound and claim of a frontier document."""
    needed = {"schema", "topology", "collective", "complete", "max_steps", "points", "open", "seconds"}
    for key in sorted(needed - doc.keys()):
        raise VerificationError(f"{key!r} is missing", "$")
    if unknown := sorted(doc.keys() - needed - {"answers", "bounds", "notes", "labels"}):
        raise VerificationError(f"{unknown[0]!r} is not a known field", "$")
    try:
        return _frontier(doc)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise VerificationError(malformed(error), "$") from None


def _frontier(doc: dict) -> list[str]:
    said, points = [], []
    for i, entry in enumerate(doc["points"]):
        points.append(_point(doc, entry, f"$.points[{i}]", said))
    for i, (before, after) in enumerate(itertools.pairwise(points)):
        if after[0] <= before[0] or after[1] >= before[1]:
            raise VerificationError("is dominated by the point before it", f"$.points[{i + 1}]")
    bounds = [_bound(doc, entry, f"$.bounds[{i}]", entry["steps"]) for i, entry in enumerate(doc.get("bounds", []))]
    for i, entry in enumerate(doc["open"]):
        _open(doc, entry, points, f"$.open[{i}]")
    if not isinstance(doc["complete"], bool) or not (doc["max_steps"] is None or type(doc["max_steps"]) is int):
        raise VerificationError("'complete' is true or false, 'max_steps' a number or null", "$")
    strict.seconds(doc["seconds"], "$.seconds")
    for i, line in enumerate(strict.items(doc.get("notes", []), "$.notes")):
        strict.text(line, f"$.notes[{i}]")
    for i, row in enumerate(strict.items(doc.get("answers", []), "$.answers")):
        _answer(row, f"$.answers[{i}]")
    labels = strict.items(doc.get("labels", []), "$.labels")
    if labels and (len(labels) != doc["topology"]["ranks"] or len(set(map(str, labels))) < len(labels)):
        raise VerificationError("must give each rank a label of its own", "$.labels")
    if doc["complete"]:
        said.append(_completeness(doc, points, bounds))
    return said


def _answer(row: dict, place: str) -> None:
    """A record of who answered a question has the form of one; nothing rests on it."""
    strict.fields(row, place, {"chunks", "steps", "rounds", "verdict", "solver"})
    for key in ("chunks", "steps", "rounds"):
        strict.number(row[key], f"{place}.{key}", 1)
    strict.text(row["solver"], f"{place}.solver")
    if row["verdict"] not in ("schedule", "infeasible", "undecided"):
        raise VerificationError(f"{row['verdict']!r} is none of schedule, infeasible, undecided", f"{place}.verdict")


def _at_one(coll: dict, chunks: int) -> dict:
    def keep(rows: list) -> list:
        return [[row[0] // chunks, *row[1:]] for row in rows if row[0] % chunks == 0]

    return coll | {"chunks": coll["chunks"] // chunks, "pre": keep(coll["pre"]), "post": keep(coll["post"])}


def _point(doc: dict, entry: dict, place: str, said: list[str]) -> tuple[int, Fraction, bool]:
    strict.fields(entry, place, POINT)
    strict.text(entry["construction"], f"{place}.construction")
    replay = verify.schedule(entry["schedule"], f"{place}.schedule")
    inner = entry["schedule"]
    if inner["topology"] != doc["topology"]:
        differs = difference.told(inner["topology"], doc["topology"], "in $.topology")
        raise VerificationError(f"runs on another topology than the frontier's: {differs}", f"{place}.schedule.topology")
    asked = _at_one(inner["collective"], inner["chunks"])
    if asked != doc["collective"]:
        differs = difference.told(asked, doc["collective"], "in $.collective")
        raise VerificationError(f"answers another collective than the frontier's: {differs}", f"{place}.schedule.collective")
    for key, value in (("steps", replay.steps), ("rounds", replay.rounds), ("chunks", replay.chunks)):
        if type(entry[key]) is not int or entry[key] != value:
            raise VerificationError(f"says {entry[key]}, the schedule has {value}", f"{place}.{key}")
    stated = strict.fraction(entry["bandwidth"], f"{place}.bandwidth")
    if stated != replay.bandwidth:
        raise VerificationError(f"says {show(stated)}, the schedule has {show(replay.bandwidth)}", f"{place}.bandwidth")
    strict.seconds(entry["seconds"], f"{place}.seconds")
    value = _certificate(doc, entry["bound"], f"{place}.bound", replay.steps, replay.chunks)
    if value > replay.bandwidth:
        raise VerificationError(f"a bound of {show(value)} above the schedule's {show(replay.bandwidth)}", f"{place}.bound")
    optimal = value == replay.bandwidth and entry["bound"]["scope"] == "any-chunks"
    if entry["status"] not in ("optimal", "best-known") or (entry["status"] == "optimal") != optimal:
        raise VerificationError(f"status {entry['status']!r}: R/C {show(replay.bandwidth)}, bound {show(value)}", f"{place}.status")
    _same_bits(entry, place)
    proved = "optimal for any C" if optimal else f"bound {show(value)}"
    sends = counted(replay.sends, "send")
    said.append(f"S={replay.steps}: R/C {show(replay.bandwidth)} with C={replay.chunks}, {sends} replayed, {proved}")
    return replay.steps, replay.bandwidth, optimal


def _same_bits(entry: dict, place: str) -> None:
    if not isinstance(entry["same_bits"], bool):
        raise VerificationError("'same_bits' is true or false", f"{place}.same_bits")
    combining = entry["schedule"]["collective"]["combining"]
    found = not combining or same_bits(Schedule.from_json(entry["schedule"]))
    if entry["same_bits"] != found:
        raise VerificationError(f"says {entry['same_bits']}, the order of the sums says {found}", f"{place}.same_bits")


def _certificate(doc: dict, entry: dict, place: str, steps: int | None, chunks: int | None) -> Fraction:
    strict.fields(entry, place, BOUND, {"steps"})
    if not isinstance(entry["certificate"], dict):
        raise VerificationError(NO_CERTIFICATE, f"{place}.certificate")
    scope = entry["scope"]
    if scope not in ("any-chunks", "this-chunks"):
        raise VerificationError(f"{scope!r} is neither any-chunks nor this-chunks", f"{place}.scope")
    at = chunks if scope == "this-chunks" else None
    try:
        value = check.check(entry["certificate"], doc["topology"], doc["collective"], steps=steps, chunks=at)
    except VerificationError as error:
        raise VerificationError(str(error), f"{place}.certificate") from None
    stated = strict.fraction(entry["value"], f"{place}.value")
    if stated != value:
        raise VerificationError(f"says {show(stated)}, the certificate proves {show(value)}", f"{place}.value")
    return value


def _bound(doc: dict, entry: dict, place: str, steps: int | None) -> tuple[int | None, Fraction]:
    if steps is not None and type(steps) is not int:
        raise VerificationError(f"expected a number of steps or null, found {steps!r}", f"{place}.steps")
    kind = entry["certificate"].get("kind") if isinstance(entry["certificate"], dict) else None
    value = _certificate(doc, entry, place, None if kind in OF_STEPS else steps, None)
    if (kind in OF_STEPS) != (steps == 0):
        raise VerificationError("steps 0 is for the bound on the number of steps", f"{place}.steps")
    return steps, value


def _open(doc: dict, entry: dict, points: list[tuple[int, Fraction, bool]], place: str) -> None:
    strict.fields(entry, place, {"steps", "lower", "upper", "reason"}, {"certificate"})
    strict.text(entry["reason"], f"{place}.reason")
    steps = strict.number(entry["steps"], f"{place}.steps", 1)
    lower = strict.fraction(entry["lower"], f"{place}.lower")
    if entry.get("certificate"):
        try:
            value = check.check(entry["certificate"], doc["topology"], doc["collective"], steps=steps)
        except VerificationError as error:
            raise VerificationError(str(error), f"{place}.certificate") from None
        if value != lower:
            raise VerificationError(f"says {show(lower)}, the certificate proves {show(value)}", f"{place}.lower")
    upper = None if entry["upper"] is None else strict.fraction(entry["upper"], f"{place}.upper")
    best = min((bandwidth for s, bandwidth, _ in points if s <= steps), default=None)
    if upper != best:
        raise VerificationError(f"says {entry['upper']}, the points reach {None if best is None else show(best)}", f"{place}.upper")


def _completeness(doc: dict, points: list[tuple[int, Fraction, bool]], bounds: list[tuple[int | None, Fraction]]) -> str:
    """Every point optimal, none possible before the first or between two, nothing better after the last."""
    place = "$.complete"
    if doc["open"]:
        raise VerificationError("claims to be complete with open intervals", place)
    if not points:
        if (0, Fraction(0)) not in bounds:
            raise VerificationError("has no points and no proof that nothing is to be done", place)
        return "complete: nothing is to be done"
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
    # a bound at S holds at fewer steps too: idle steps can be added to any schedule
    fences = {steps: value for steps, value in bounds if steps}
    ends = [(steps - 1, bandwidth) for (_, bandwidth, _), (steps, _, _) in itertools.pairwise(points)] + [(until, last)]
    for (start, _, _), (end, bandwidth) in zip(points, ends, strict=True):
        if end > start and not any(steps >= end and value >= bandwidth for steps, value in fences.items()):
            raise VerificationError(f"no proof that {end} steps cannot beat the point at {start}", place)
    return "complete: no schedule in this model, with any number of chunks, is better" + (
        "" if floor is not None and floor >= last else f" up to {until} steps"
    )
