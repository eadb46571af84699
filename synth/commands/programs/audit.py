"""`synth audit` and `synth.api.audit`: other programs' schedules, right or wrong, against certified bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.explain import Distance, distances
from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit, note, printable
from synth.commands.framework.progress import waiting
from synth.commands.framework.shared import (
    FILE,
    Changes,
    Output,
    collective_option,
    machine_if_named,
    time_limit_option,
    topology_option,
)
from synth.commands.inputs import named_topology
from synth.commands.programs.import_ import import_schedule
from synth.errors import FormatError, SynthError, UncheckedError, VerificationError
from synth.model.documents.text_file import files_of
from synth.model.rational import factor_text, show
from synth.model.schedule import Schedule

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.view.frontier_text import Report

EXIT_CODES = {"wrong": 5, "not analysed": 4, "unread": 1}  # of the verdicts of which one file is enough
MAX_REASON = 160  # characters of the reason in a row


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
    time_limit : wall seconds for the bounds of one collective. None: 20.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("ring:4", "allgather").points[0].schedule
    >>> _ = synth.export_program(schedule, "msccl-xml").write("allgather.xml")
    >>> row = synth.api.audit(["allgather.xml"], "ring:4")[0]
    >>> row.verdict, row.distance.factor
    ('right', Fraction(2, 1))
    """
    # Paths as the rows show them: below the one folder, or as they were given.
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
        # Schedules with the same bounds, by their rows.
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

    # Every way to fail is a verdict, so that one file ends no audit.
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


@dataclass(frozen=True, kw_only=True)
class Audit(Output, Changes):
    """The options of `synth audit`."""

    paths: tuple[Path, ...] = option("paths", type=FILE, nargs=-1, required=True, metavar="DIR|FILE...")
    topology: TopologyLike | None = topology_option(default=None)
    collective: str | None = collective_option("The collective of files that do not name theirs.", default=None)
    time_limit: float | None = time_limit_option(
        "Wall time for the bounds of one collective; by default 20s.", metavar="20s"
    )


@command(Audit)
def audit_command(options: Audit) -> int:
    """Judge each FILE, and each .json and .xml file below DIR: right, or wrong with the place; its steps and rounds per
    chunk; and how far they are from the certified optimum, at its number of steps and at any.

    Reads what `synth import` and `synth lint` read. A file that cannot be read is a row with the reason. Without --topo
    each pair of ranks that a file uses is a link of 1 GB/s. Exit code 5 where a file is wrong, else 4
    where one is not analysed, else 1 where one is unread.

    \b
    Example:
      synth audit algorithms --topo dgx-a100
    """
    # A path that is not there is a mistake, where a file that cannot be read is a row.
    for path in options.paths:
        if not path.exists():
            raise FormatError("does not exist", str(path))
    machine, limit = machine_if_named(options), options.time_limit
    with waiting("auditing", limit):
        rows = audit(options.paths, machine, collective=options.collective, time_limit=limit)
    document = {"schema": "synth.audit/1", "files": [row.to_json() for row in rows]}
    emit(lambda: document, lambda: _report(rows), options)
    if any(row.distance is not None and row.distance.unfinished for row in rows):
        note("the time limit came before all bounds; --time-limit allows more")
    return max(EXIT_CODES.get(row.verdict, 0) for row in rows)


def _report(rows: Sequence[AuditRow]) -> Report:
    from synth.view.frontier_text import Report

    # A row for each file, and below the table the reasons.
    columns = (
        "file", "", "collective", ">steps", ">rounds/chunk",
        ">factor at its steps", ">at any steps",
    )  # fmt: skip
    table = tuple(_cells(row) for row in rows)
    lines = [printable(f"{row.file}: {row.verdict}: {row.reason}") for row in rows if row.reason]
    meaning = "factor: rounds per chunk divided by the certified lower bound"
    return Report.of("", columns, table, (meaning, *lines))


def _cells(row: AuditRow) -> tuple[str, ...]:
    if row.schedule is None:
        return (printable(row.file), row.verdict, "", "", "", "", "")
    at_steps = at_any = ""
    if row.distance is not None:
        rate = row.schedule.rounds_per_chunk
        at_steps, at_any = factor_text(rate, row.distance.at_steps), factor_text(rate, row.distance.at_any)
    return (
        printable(row.file), row.verdict, row.schedule.collective.name, str(row.schedule.step_count),
        show(row.schedule.rounds_per_chunk), at_steps, at_any,
    )  # fmt: skip
