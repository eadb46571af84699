"""The files of a frontier: its document, and the schedules beside it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from synth.commands.framework.output import note, write, wrote
from synth.commands.framework.progress import progress
from synth.commands.root import INTERRUPTED
from synth.model.frontier import ParetoFrontier
from synth.model.rational import counted


class SavedFrontier(NamedTuple):
    """A frontier, with a note on each schedule that no file holds; `files` by the index of their point; an exit code.

    The names in `files` are relative to the folder of the document.
    """

    frontier: Any
    files: dict[int, str]
    code: int = 0

    def document(self) -> dict:
        """Return the frontier's JSON document."""
        from synth.commands import api

        return api.frontier_document(self.frontier, self.files)


def save_schedules(
    frontier: ParetoFrontier, output: str | None, form: str | None = None, folder: Path | None = None
) -> SavedFrontier:
    """Write the schedules and frontier.json into `folder`. Without it: into FILE.schedules, for the document `output`.

    In the second case only schedules that the document does not hold are written, and none unless `output` is a file
    in JSON (`form`). A folder that cannot be written costs a message and exit code 1, and Ctrl-C the file in hand and
    those after it.
    """
    base, beside = Path(), folder
    if output not in (None, "-") and form != "table" and _is_file(Path(str(output))):
        base = Path(str(output)).parent
        if folder is None and frontier.in_files:
            beside = Path(str(output)).with_suffix(".schedules")
    if beside is None or not frontier.points:
        return SavedFrontier(frontier, {})
    files, written, code = _write(frontier, beside)
    missing = [str(point.steps) for i, point in enumerate(frontier.points) if i not in files]
    if missing and frontier.in_files:
        absent = f"not written out, so not replayed by `synth verify`: the schedules of {', '.join(missing)} steps"
        frontier = replace(frontier, notes=(*frontier.notes, absent))  # type: ignore[type-var]
    if beside.is_dir():
        more = ""
        if folder is not None:
            write(folder / "frontier.json", json.dumps(SavedFrontier(frontier, files).document()) + "\n")
            more = " and frontier.json"
        wrote(f"{counted(written, 'schedule')}{more} to {beside}; `synth verify` replays them")
    named = {i: os.path.relpath(beside / name, base) for i, name in files.items()}
    return SavedFrontier(frontier, named, code)


def _is_file(path: Path) -> bool:
    return path.is_file() or not path.exists()


def _write(frontier: ParetoFrontier, folder: Path) -> tuple[dict[int, str], int, int]:
    """Write the schedules. Return the names of the points' files, the number of all files, and the exit code."""
    from synth.commands.api.frontier_files import save_schedules as saved
    from synth.pareto.events import Event

    files: dict[int, str] = {}
    written = code = 0
    try:
        folder.mkdir(exist_ok=True)
        with progress("writing schedules") as listen:
            for i, name in saved(frontier, folder, lambda text: listen(Event("query", text))):
                written += 1
                if i is not None:
                    files[i] = name
    except KeyboardInterrupt:
        note("interrupted; the schedules so far are kept")
        code = INTERRUPTED
    except OSError as error:  # the frontier is not lost for it
        note(f"error: cannot write {folder}: {error.strerror or error}")
        code = 1
    return files, written, code
