"""Readers of frontiers: documents ``synth.frontier/1``, and ``synth.large/1``, whose schedules lie in files beside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import FormatError, SynthError, VerificationError
from synth.model.frontier import SCALE_SCHEMA, Frontier

if TYPE_CHECKING:
    from synth.model.compressed_schedule import CompressedSchedule


def read(doc: dict, folder: Path, file: str) -> Frontier:
    """Return the frontier of a document. Schedules in `folder` are read when they are asked for, and not replayed.

    The machine of a document that holds no links is that of its name, else that of the schedules. `file`: the
    document's name in messages. Raises KeyError, ValueError, TypeError, FormatError for a malformed document, and
    FormatError where no machine is known.
    """
    if doc["schema"] != SCALE_SCHEMA:
        return Frontier.from_json(doc)
    from synth import topologies
    from synth.checker.documents import scale_frontier  # loads NumPy

    try:
        machine, _, files = scale_frontier.open_document(
            doc, folder, lambda: topologies.topology_or_none(doc["topology"]["name"])
        )
    except VerificationError as error:
        raise FormatError(f"is malformed: {error}", file) from None
    except FormatError as error:
        raise FormatError(str(error), file) from None

    def source(i: int) -> Callable[[], CompressedSchedule]:
        def schedule() -> CompressedSchedule:
            if i in files:
                return scale_frontier.point_schedule(doc, i, folder, machine)
            row = doc["points"][i]
            where = f"its file {row['file']} is not there" if "file" in row else "its schedule is in no file"
            raise SynthError(f"point {i + 1} of {row['steps']} steps: {where}; `synth pareto -o` writes both")

        return schedule

    return Frontier.from_json(doc, machine, [source(i) for i in range(len(doc["points"]))])
