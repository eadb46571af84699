"""Documents ``synth.large/1``: frontiers at scale, whose schedules lie in files beside them (docs/scale.md)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from synth.checker.documents import scale_frontier
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.compressed_schedule import CompressedSchedule
from synth.model.scale_frontier import ScaleFrontier
from synth.model.topology import Topology


def read(doc: dict, folder: Path, file: str) -> ScaleFrontier:
    """Return the frontier of a document; schedules are read from `folder` when they are asked for, and not replayed.

    The machine is the one whose links stand in the document, else the one of that name, else that of the schedules.
    `file`: the document's name in messages. Raises FormatError for a malformed document, or where no machine is known.
    """
    from synth import topologies

    def named() -> Topology | None:
        try:
            return topologies.topology(doc["topology"]["name"])
        except SynthError:
            return None

    try:
        machine, _, files = scale_frontier.open_document(doc, folder, named)
    except VerificationError as error:
        raise FormatError(f"is malformed: {error}", file) from None
    except FormatError as error:
        raise FormatError(str(error), file) from None
    # A schedule is read when it is asked for; that of a file that is not there says so then.
    sources = []
    for i, row in enumerate(doc["points"]):
        source = partial(scale_frontier.point_schedule, doc, i, folder, machine)
        sources.append(source if i in files else partial(_missing, i, row))
    return ScaleFrontier.from_json(doc, machine, sources)


def _missing(i: int, row: dict) -> CompressedSchedule:
    where = f"its file {row['file']} is not there" if "file" in row else "its schedule is in no file"
    raise SynthError(f"point {i + 1} of {row['steps']} steps: {where}; `synth pareto -o` writes both")
