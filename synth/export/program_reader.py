"""Reader of every kind of file that a program can come from; the kind follows from the contents, not from the name.

Kinds: documents of frontiers and schedules, choices by size (of which the chosen schedule is taken), Program as JSON or
text, MSCCL-IR and MSCCL++ plans from any source.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from synth.checker.documents import exact_frontier
from synth.errors import FormatError, SynthError
from synth.export.msccl_xml import read
from synth.model.collective import Collective
from synth.model.documents.foreign_forms import form_of, named_form
from synth.model.documents.json_reader import schema_text
from synth.model.documents.text_file import head_of, text_of
from synth.model.frontier import SCALE_SCHEMA as SCALE_FRONTIER
from synth.model.frontier import SCHEMA as FRONTIER
from synth.model.frontier import Frontier
from synth.model.schedule import SCHEMA as SCHEDULE
from synth.model.schedule import Schedule
from synth.program import text
from synth.program.program import PROTOCOLS, Program
from synth.program.program import SCHEMA as PROGRAM

MAX_TEXT = 1 << 26  # characters of a text that is read


def load(
    path: Path, task: Collective | None = None, root: int | None = None, runtime: str | None = None
) -> Frontier | Schedule | Program:
    """Read the document in `path`. `task`, `root`, `runtime`: see `synth.export.msccl_xml.read.read`.

    Raises FormatError with the place of the fault.
    """
    head = _head(path)
    if not head.strip():
        raise FormatError("is empty; expected a schedule, a frontier, a program, MSCCL-IR or a MSCCL++ plan", str(path))
    if head[:100].lower().startswith(("<!doctype html", "<html")):
        raise FormatError(
            "is an HTML page; expected a schedule, a frontier, a program, MSCCL-IR or a MSCCL++ plan", str(path)
        )
    # XML is MSCCL-IR; text that is no JSON is the program's own notation.
    if head.startswith("<"):
        if runtime == "mscclpp":
            raise FormatError(
                "is XML; mscclpp loads plans in JSON alone, msccl, msccl-executor and rccl load XML", str(path)
            )
        return read.read(text_of(path, read.MAX_BYTES), str(path), task, root, runtime)
    if not head.startswith("{"):
        if head.startswith("program "):
            return text.parse(text_of(path, MAX_TEXT), str(path))
        kinds = "schedule, frontier, program, MSCCL-IR or MSCCL++ plan"
        expected = f"is no {kinds}: expected <algo>, {{...}} or `program NAME`"
        raise FormatError(form_of(head) or expected, str(path))
    doc = exact_frontier.read(path)
    if doc.get("schema") in (FRONTIER, SCALE_FRONTIER, SCHEDULE):
        from synth.topologies import rank_placement

        doc = rank_placement.marked(doc)
    try:
        match doc.get("schema"):
            case "synth.frontier/1" | "synth.large/1":
                from synth.topologies import frontier_files

                return frontier_files.read(doc, path.parent, str(path))
            case "synth.schedule/1":
                return Schedule.from_json(doc)
            case "synth.choice/1" if doc["schedule"] is not None:
                return Schedule.from_json(doc["schedule"])
            case "synth.choice/1":
                reason = "holds no schedule, as its frontier has no point; repeat `synth pareto` with more --time-limit"
                raise FormatError(reason, str(path))
            case "synth.program/1":
                return Program.from_json(doc)
            case None if {"name", "collective", "protocol", "gpus"} <= doc.keys():
                from synth.export.mscclpp import read as plan_reader

                return plan_reader.read(text_of(path, MAX_TEXT), str(path), task, root)
            case "synth.build/1":
                raise FormatError("is the summary of a folder of programs: name a file in it", str(path))
            case "synth.plan/1":
                raise FormatError("is a tuner's plan: `synth export --plan FILE` writes its schedules", str(path))
            case other:
                if path.stat().st_size > MAX_TEXT:
                    raise FormatError(f"has {path.stat().st_size} bytes; at most {MAX_TEXT} are read", str(path))
                if other is None and named_form(doc):
                    raise FormatError(named_form(doc), str(path))
                known = f"{FRONTIER}, {SCALE_FRONTIER}, {SCHEDULE}, {PROGRAM} or a MSCCL++ plan"
                raise FormatError(f"{schema_text(other)}; expected {known}", str(path))
    except SynthError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FormatError(f"malformed {doc.get('schema') or 'plan'}: {error!r}"[:200], str(path)) from None


class SizeChoice(NamedTuple):
    """The size in bytes for which a choice by size is made, and the protocol of its program; None: not known."""

    size: int
    protocol: str | None


def size_choice(path: Path) -> SizeChoice | None:
    """Return what a choice by size in `path` is made for; None for other files. Raises FormatError."""
    if '"synth.choice/1"' not in _head(path):
        return None
    doc = exact_frontier.read(path)
    if doc.get("schema") != "synth.choice/1":
        return None
    try:
        # The chosen point is the one of the chosen number of steps.
        size = doc["size"]
        protocol = next(point["protocol"] for point in doc["points"] if point["steps"] == doc["steps"])
    except (KeyError, TypeError, StopIteration):
        raise FormatError("malformed synth.choice/1: expected a size, and the chosen point", str(path)) from None
    if type(size) is not int or size < 1:
        raise FormatError(f"malformed synth.choice/1: size {size!r}"[:200], str(path))
    if protocol not in (None, *PROTOCOLS):
        raise FormatError(f"malformed synth.choice/1: protocol {protocol!r}"[:200], str(path))
    return SizeChoice(size, protocol)


def _head(path: Path) -> str:
    """Return the beginning of the file without leading white space."""
    return head_of(path, 4096).decode("utf-8-sig", "replace").lstrip()
