"""The files of a frontier: its document, and the schedules beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from synth.commands.framework.output import note, wrote
from synth.commands.framework.progress import progress
from synth.commands.root import INTERRUPTED
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.frontier import Frontier
from synth.model.rational import counted


def frontier_document(frontier: Frontier, files: Mapping[int, str] | None = None) -> dict:
    """Return a frontier as a JSON document that `synth verify` checks alone.

    That of exact synthesis holds its schedules. That of flow methods names their `files`,
    by the index of the point, and holds the links of its machine unless the machine's name gives the same machine.
    """
    if frontier.engine == "exact":
        return frontier.to_json()
    from synth.topologies import topology_or_none

    machine, named = frontier.topology, topology_or_none(frontier.topology.name)
    keys = ("ranks", "switches", "connection", "links", "limits")
    known = named is not None and all(getattr(machine, key) == getattr(named, key) for key in keys)
    return frontier.to_json(dict(files or {}), links=not known)


def write_schedules(
    frontier: Frontier, folder: Path, announce: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[int, str]]:
    """Write the schedule of each point to a file in `folder`; yield (index of the point, name of the file) after each.

    Schedules that are not there are left out: those of too many sends to list, or too large for the catalog that they
    come from. Raises OSError.
    """
    for number, point in enumerate(frontier.points, 1):
        stem = f"{number:02}-{frontier.collective_name}-S{point.steps}"
        announce(f"writing {stem}, {number} of {len(frontier.points)}")
        try:
            schedule = point.schedule
        except (FormatError, VerificationError):
            raise
        except SynthError:
            continue
        name = stem + schedule.suffix
        schedule.save(folder / name)
        yield number - 1, name


class SavedFrontier(NamedTuple):
    """A frontier, with a note on each schedule that no file holds; `files` by the index of their point; an exit code.

    The names in `files` are relative to the folder of the document.
    """

    frontier: Any
    files: dict[int, str]
    code: int = 0

    def document(self) -> dict:
        """Return the frontier's JSON document."""
        return frontier_document(self.frontier, self.files)


def save_schedules(frontier: Frontier, output: str | None, form: str | None = None) -> SavedFrontier:
    """Write the schedules that the document `output` does not hold into FILE.schedules; none unless it is a JSON file.

    A folder that cannot be written costs a message and exit code 1, and Ctrl-C the file in hand and those after it.
    """
    path = Path(str(output))
    is_file = output not in (None, "-") and (path.is_file() or not path.exists())
    if not is_file or form == "table" or frontier.engine == "exact" or not frontier.points:
        return SavedFrontier(frontier, {})
    folder, files, code = path.with_suffix(".schedules"), {}, 0
    try:
        folder.mkdir(exist_ok=True)
        with progress("writing schedules") as listen:
            for i, name in write_schedules(frontier, folder, listen):
                files[i] = os.path.join(folder.name, name)
    except KeyboardInterrupt:
        note("interrupted; the schedules so far are kept")
        code = INTERRUPTED
    except OSError as error:  # the frontier is not lost for it
        note(f"error: cannot write {folder}: {error.strerror or error}")
        code = 1
    # A document says which of its schedules nobody can replay.
    missing = [str(point.steps) for i, point in enumerate(frontier.points) if i not in files]
    if missing:
        absent = f"not written out, so not replayed by `synth verify`: the schedules of {', '.join(missing)} steps"
        frontier = replace(frontier, notes=(*frontier.notes, absent))
    if folder.is_dir():
        wrote(f"{counted(len(files), 'schedule')} to {folder}; `synth verify` replays them")
    return SavedFrontier(frontier, files, code)
