"""Schedules of other programs: imported, and audited against certified bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.api.algorithms import Distance, distances
from synth.commands.api.inputs import CollectiveLike, TopologyLike, named_topology, size_in_bytes
from synth.commands.api.inputs import collective as task_of
from synth.errors import FormatError, SynthError, UncheckedError, UsageError, VerificationError
from synth.model.documents.text_file import files_of
from synth.model.frontier import ParetoFrontier, StepCount
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.export.chakra import TraceFiles
    from synth.export.foreign.read import Imported

# Characters of the reason in a row.
MAX_REASON = 160


def import_schedule(
    path: str | Path,
    topology: TopologyLike | None = None,
    *,
    collective: CollectiveLike | None = None,
    roots: Sequence[int] = (),
    point: int | StepCount | None = None,
) -> Imported:
    """Return the schedule that a file of another program describes.

    Parameters
    ----------
    path : MSCCL-IR (of msccl-tools, TACCL, TE-CCL or others), TE-CCL's schedule JSON, ForestColl's tree XML, or a
        document of this project.
    topology : the machine. None: each pair of ranks that the file uses is a link of 1 GB/s.
    collective, roots : the collective of MSCCL-IR that does not say it. ForestColl's trees are an allgather's, or a
        reduce-scatter's or allreduce's if this names it.
    point : the number of a frontier's point, from 1.

    Returns
    -------
    The schedule, which was replayed; the kind of the file in words; and remarks.

    Raises
    ------
    FormatError for a file that cannot be read; VerificationError, with the place, for one that is wrong; UsageError for
    one whose messages do not fit the machine.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> _ = synth.export_program(schedule, "msccl-xml").write("allgather.xml")
    >>> synth.api.import_schedule("allgather.xml", "ring:4").schedule
    <Schedule of allgather on ring:4: C=1, S=2, R=3, 12 sends>
    """
    from synth.export.foreign.read import Request, schedule

    machine = None if topology is None else named_topology(topology)
    task = None
    if collective is not None:
        if machine is None:
            raise UsageError(f"{path}: name the machine, too (--topo NAME), or leave --coll out where the file says it")
        task = task_of(collective, machine.ranks, roots)
    root = roots[0] if len(roots) == 1 else None
    return schedule(Path(path), Request(machine, task, root, point))


@dataclass(frozen=True)
class AuditRow:
    """A file of another program: right or wrong, and how far its schedule is from the lower bounds.

    Attributes
    ----------
    file : its path below the folder that was given, where that is the only path; else as it was given.
    kind : in words; "" where it was not read.
    verdict : right; wrong; not analysed; other: right or not, it does not fit the machine or has no steps; unread.
    reason : the place and the fault, or why there is no schedule.
    schedule : as imported; None unless right.
    distance : None where there is no schedule.
    """

    file: str
    kind: str
    verdict: str
    reason: str = ""
    schedule: Schedule | None = None
    distance: Distance | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the row as a JSON document."""
        row: dict[str, Any] = {"file": self.file, "kind": self.kind, "verdict": self.verdict, "reason": self.reason}
        if self.schedule is not None:
            schedule = self.schedule
            row |= {
                "topology": schedule.network.name, "collective": schedule.collective.name,
                "ranks": schedule.collective.ranks, "chunks": schedule.chunks, "steps": schedule.step_count,
                "rounds": schedule.rounds,
            }  # fmt: skip
        return row | {"distance": None if self.distance is None else self.distance.to_json()}


def audit(
    paths: Sequence[str | Path],
    topology: TopologyLike | None = None,
    *,
    collective: CollectiveLike | None = None,
    time_limit: float | None = None,
) -> tuple[AuditRow, ...]:
    """Return a row for each file: right or wrong, its steps and rounds, and its distance from the lower bounds.

    Parameters
    ----------
    paths : files of the kinds of `import_schedule`, programs and MSCCL++ plans; of folders their .json and .xml files.
    topology : the machine. None: each pair of ranks that a file uses is a link of 1 GB/s.
    collective : of files that do not name theirs.
    time_limit : wall seconds for the bounds of one collective. None: `synth.api.algorithms.DISTANCE_SECONDS`.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> _ = synth.export_program(schedule, "msccl-xml").write("allgather.xml")
    >>> row = synth.api.audit(["allgather.xml"], "ring:4")[0]
    >>> row.verdict, row.distance.factor
    ('right', Fraction(2, 1))
    """
    machine = None if topology is None else named_topology(topology)
    given = [Path(path) for path in paths]
    folder = given[0] if len(given) == 1 and given[0].is_dir() else None
    rows: list[AuditRow] = []
    alike: dict[tuple, list[int]] = {}
    for path in files_of(given, below=True):
        name = path.relative_to(folder).as_posix() if folder is not None else str(path)
        if path.is_absolute() and folder is None:  # a document names no folder of its writer
            name = path.name
        row = _row(path, name, machine, collective)
        if row.schedule is not None:
            network, task = row.schedule.network, row.schedule.collective
            own = () if machine is not None and network == machine.network() else (len(rows),)
            alike.setdefault((task.name, task.roots, task.ranks, own), []).append(len(rows))
        rows.append(row)

    # One set of bounds for all schedules of a collective on the machine; files with links of their own have their own.
    for (*_, own), members in alike.items():
        schedules = [schedule for i in members if (schedule := rows[i].schedule) is not None]
        where = schedules[0].network.as_topology()
        if machine is not None and not own:
            where = machine
        for i, found in zip(members, distances(schedules, where, time_limit=time_limit), strict=True):
            rows[i] = replace(rows[i], distance=found)
    return tuple(rows)


def _row(path: Path, name: str, machine: TopologyLike | None, collective: CollectiveLike | None) -> AuditRow:
    from synth.export.foreign.read import NoStepsError

    try:
        found = import_schedule(path, machine, collective=collective)
        reason = "; ".join(note for note in found.notes if not note.startswith("no machine"))
        return AuditRow(name, found.kind, "right", reason, found.schedule)
    except UncheckedError as error:
        return AuditRow(name, "", "not analysed", _reason(error, path))
    except VerificationError as error:
        return AuditRow(name, "", "wrong", _reason(error, path))
    except FormatError as error:
        return AuditRow(name, "", "unread", _reason(error, path))
    except NoStepsError as error:
        return AuditRow(name, "program", "right", f"{error.safe}; it has no messages that make steps")
    except SynthError as error:
        return AuditRow(name, "", "other", _reason(error, path))


def _reason(error: SynthError, path: Path) -> str:
    text = str(error).removeprefix(str(path)).lstrip(": ")
    return text if len(text) <= MAX_REASON else f"{text[:MAX_REASON]}..."


def chakra(
    source: Schedule | str | Path,
    *,
    size: int | str | None = None,
    point: int | StepCount | None = None,
    topology: TopologyLike | None = None,
) -> TraceFiles:
    """Return Chakra execution traces of a schedule, one file for each rank.

    Parameters
    ----------
    source : a schedule; its file, or that of a frontier or of another program.
    size : of the call, nccl-tests' (``1 << 20`` or ``"1MB"``). None: 1 MiB.
    point : the number of the frontier's point, from 1.
    topology : the machine of another program's file.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.api.baseline("ring", "ring:4", "allgather")
    >>> [name for name, _ in synth.api.chakra(schedule, size="64KB").files][:2]
    ['collective.0.et', 'collective.1.et']
    """
    from synth.checker.schedule import replay
    from synth.export import program_reader
    from synth.export.chakra import traces
    from synth.export.exported_files import named_point
    from synth.export.foreign.read import FrontierGivenError
    from synth.export.request import ExportRequest
    from synth.program.checked_lowering import MAX_SENDS

    try:
        schedule = source if isinstance(source, Schedule) else import_schedule(source, topology).schedule
    except FrontierGivenError:
        frontier = program_reader.load(Path(str(source)))
        assert isinstance(frontier, ParetoFrontier)
        number = named_point(frontier, ExportRequest(point=point))
        schedule = frontier.schedule_of(frontier.points[number - 1], MAX_SENDS)
    replay.schedule(schedule)
    return traces(schedule, 1 << 20 if size is None else size_in_bytes(size))
