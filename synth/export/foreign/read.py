"""Reader of other programs' schedules; the kind follows from the content, not from the name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from synth.errors import FormatError, UncheckedError, UsageError, VerificationError
from synth.export import program_reader
from synth.export.foreign import forestcoll, teccl
from synth.export.msccl_xml.read import MAX_BYTES, skipped_in
from synth.language import program_moves
from synth.language.algorithm import Compiled
from synth.model.collective import Collective
from synth.model.documents import json_reader
from synth.model.documents.text_file import text_of
from synth.model.frontier import Frontier, StepCount
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.program.analysis import check
from synth.program.analysis.report import size_text
from synth.program.checked_lowering import MAX_SENDS
from synth.program.program import Program

# What may stand before the first element of XML: a declaration and comments.
_PROLOG = re.compile(r"(?s)(?:\s|<\?.*?\?>|<!--.*?-->)*")

# Kinds of files that `synth import` alone reads.
FOREST, FLOWS = "ForestColl's trees", "TE-CCL's schedule"


class Imported(NamedTuple):
    """A schedule that a file of another program describes, replayed; the file's kind in words, and remarks.

    `compiled`: the schedule with the place in the file of each send; None for a schedule of this project.
    """

    schedule: Schedule
    kind: str
    notes: tuple[str, ...] = ()
    compiled: Compiled | None = None


class NoStepsError(UsageError):
    """A program that was found right and has no messages that make steps; `safe` says up to which size it is right.

    Exit code 2.
    """

    def __init__(self, file: str, safe: str) -> None:
        super().__init__(
            f"{file} is a one-sided program, such as a MSCCL++ plan, and cannot be imported as a schedule; use "
            f"`synth lint` or `synth run`"
        )
        self.safe = safe


class FrontierGivenError(UsageError):
    """A frontier where one schedule is read. Exit code 2."""


class Request(NamedTuple):
    """The machine of a file, and the collective and root of a file that does not say them.

    Without a machine each pair of ranks that the file uses is a link of 1 GB/s. `point`: of a frontier, by its number
    from 1 or by its steps.
    """

    machine: Topology | None = None
    task: Collective | None = None
    root: int | None = None
    point: int | StepCount | None = None


def schedule(path: Path, request: Request = Request()) -> Imported:  # noqa: B008
    """Return the schedule that a file describes.

    Raises FormatError for a file that cannot be read, VerificationError for one that is wrong, UsageError for one whose
    messages do not fit the machine or a schedule.
    """
    if path.is_file() and path.stat().st_size > MAX_BYTES:  # a document of this project, if any
        return _own(path, request)
    text = text_of(path, MAX_BYTES)
    if _element(text).startswith("<Algo"):
        name = "allgather" if request.task is None else request.task.name
        return _finished(forestcoll.recorded(text, request.machine, str(path), name), FOREST, request)
    doc = _document(text, str(path))
    if teccl.is_schedule(doc):
        return _finished(teccl.recorded(doc, request.machine, str(path)), FLOWS, request)
    if not _element(text).startswith("<algo"):
        return _own(path, request)
    # MSCCL-IR, whose instructions are followed if they are right.
    program = program_reader.load(path, request.task, request.root)
    assert isinstance(program, Program)
    skipped = skipped_in(path)
    notes = (f"{skipped} <copy> elements are skipped, as every loader does",) if skipped else ()
    return _of_program(program, "MSCCL-IR", str(path), request)._replace(notes=notes)


def kind_of_other(path: Path) -> str:
    """Return in words which kind of schedule, that is no program, a file of another program is; "" for other files."""
    try:
        text = text_of(path, MAX_BYTES)
        if _element(text).startswith("<Algo"):
            return FOREST
        return FLOWS if teccl.is_schedule(_document(text, str(path))) else ""
    except FormatError:
        return ""


def _element(text: str) -> str:
    """Return the start of the first element of XML."""
    prolog = _PROLOG.match(text)
    return text[prolog.end() if prolog else 0 :][:16]


def _document(text: str, file: str) -> dict:
    """Return the document of a text in JSON; {} for other texts. Raises FormatError for JSON with a fault."""
    doc = json_reader.document(text, file) if text.lstrip()[:1] == "{" else None
    return doc if isinstance(doc, dict) else {}


def _own(path: Path, request: Request) -> Imported:
    """Read a document of this project, or raise FormatError for what is none of the known kinds."""
    found: Any = program_reader.load(path, request.task, request.root)
    if isinstance(found, Frontier) and request.point is not None:
        point = found.points[found.number_of(request.point) - 1]
        found = found.schedule_of(point, MAX_SENDS)
    elif request.point is not None:
        raise UsageError(f"{path} is no frontier, which --point and --step choose from")
    if isinstance(found, Schedule):
        machine, ranks = request.machine, found.network.ranks
        if machine is not None and machine.ranks != ranks:
            raise UsageError(f"{path} is for {ranks} ranks; {machine.name} has {machine.ranks}")
        return Imported(found, "schedule")
    if isinstance(found, Program):
        return _of_program(found, "program", str(path), request)
    raise FrontierGivenError(
        f"{path} is a frontier: choose a point with --point K or --step S, or check all of it with `synth verify`"
    )


def _of_program(program: Program, kind: str, file: str, request: Request) -> Imported:
    report = check(program, "mscclpp" if program.one_sided else None)
    if not report.ok:
        # Nothing is made of a program that is wrong, or not proved right.
        first = report.ranked[0]
        text = str(first).removeprefix(f"{first.severity}: ")
        raise VerificationError(text, file) if report.errors else UncheckedError(text, file)
    if program.collective is None:
        raise FormatError("does not say which collective it is; give it with --coll", file)
    if program.one_sided:
        machine = request.machine
        if machine is not None and machine.ranks != program.ranks:
            raise UsageError(f"{file} is for {program.ranks} ranks; {machine.name} has {machine.ranks}")
        sizes = "at any size" if report.safe is None else f"up to {size_text(report.safe)}"
        raise NoStepsError(file, f"one-sided: safe {sizes}")
    return _finished(program_moves.recorded(program, request.machine, file), kind, request)


def _finished(moves: Any, kind: str, request: Request) -> Imported:
    made = moves.compiled()
    # Without a machine the links are guessed, and said.
    links = ""
    if request.machine is None:
        kind_of_links = "every pair of ranks that is used" if moves.machine is None else "a unit of the file's topology"
        links = f"no machine was named: {kind_of_links} is a link of 1 GB/s"
    return Imported(made.schedule, kind, (links,) if links else (), made)
