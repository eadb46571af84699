"""A frontier as a document, the files of its schedules beside it, and the check of documents."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import FormatError, SynthError, UsageError, VerificationError
from synth.model.frontier import ParetoFrontier
from synth.model.schedule import Schedule, SynchronousSchedule
from synth.model.topology import Topology

if TYPE_CHECKING:
    from synth.model.documents.json_reader import Claims
    from synth.model.scale_frontier import ScaleFrontier


def frontier_document(frontier: ParetoFrontier, files: Mapping[int, str] | None = None) -> dict:
    """Return a frontier as a JSON document that `synth verify` checks alone.

    That of exact synthesis holds its schedules. That of flow methods names their `files`,
    by the index of the point, and holds the links of its machine unless the machine's name gives the same machine.
    """
    from synth.model.scale_frontier import ScaleFrontier

    if isinstance(frontier, ScaleFrontier):
        return frontier.to_json(dict(files or {}), links=not _is_known(frontier))
    return frontier.to_json()


def _is_known(frontier: ScaleFrontier) -> bool:
    machine, named = frontier.topology, _named_machine(frontier.topology.name)
    return named is not None and all(
        getattr(machine, key) == getattr(named, key) for key in ("ranks", "switches", "connection", "links", "limits")
    )


def _named_machine(name: str) -> Topology | None:
    from synth.topologies import topology_or_none  # loaded for the frontiers that name their machine alone

    return topology_or_none(name)


def save_schedules(
    frontier: ParetoFrontier, folder: Path, announce: Callable[[str], None] = lambda text: None
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


def verify(
    given: str | Path | dict | ParetoFrontier | SynchronousSchedule,
) -> Claims:
    """Replay the schedules and re-check the certificates of a value or a file.

    Parameters
    ----------
    given : a schedule, a frontier, the document of one of these, or its file.

    Returns
    -------
    A line for each claim that holds, and one for what is assumed; the attribute `subject` of the list is the
    collective, the machine and the number of ranks.

    Raises
    ------
    VerificationError with the place of what is wrong; FormatError for a file that is none of these; UsageError for
    another value.

    Examples
    --------
    >>> import synth
    >>> for line in synth.verify(synth.frontier("ring:4", "allgather").points[0].schedule):
    ...     print(line)
    schedule: C=2 S=2 R=3, 24 sends replayed, postcondition holds
    assumed, not checked: that the machine has these links, bandwidths and latencies
    """
    from synth.checker.documents.dispatch import check_document

    if isinstance(given, str | Path | dict):
        return check_document(given, _named_machine)
    if isinstance(given, Schedule):
        return check_document(given.to_json(), _named_machine)
    if not isinstance(given, ParetoFrontier | SynchronousSchedule):
        raise UsageError(f"a {type(given).__name__} is not verified; give a frontier, a schedule, a document or a file")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if isinstance(given, SynchronousSchedule):
            file = folder / f"schedule{given.suffix}"
            given.save(file)
            return check_document(file, _named_machine)
        files: dict[int, str] = {}
        if given.in_files:
            files = {i: name for i, name in save_schedules(given, folder) if i is not None}
        return check_document(frontier_document(given, files), _named_machine, folder)
