"""Export of a plan to a folder for a runtime: MSCCL-IR, or MSCCL++ plans with the code that registers them.

Every range of sizes has one file, or two where the runtime needs one for calls in place and one for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from synth.errors import SynthError
from synth.export import folder_notes
from synth.export.exported_files import ExportResult
from synth.export.msccl_xml.emit import MscclXml
from synth.export.msccl_xml.limits import root_warning
from synth.export.mscclpp.emit import Mscclpp, port_channels, ports_remark
from synth.export.plans import programs, registration_code
from synth.export.plans.programs import NCCL, TargetOfNetwork
from synth.export.plans.size_ranges import SizeShare, SizeShares, drop_to_fit, unserved
from synth.model.build_result import PlanRegistration
from synth.model.tuning_plan import Algorithm, Plan, Table
from synth.program.program import Program
from synth.program.runtimes import ROOTED

MSCCL_FILES = 4  # files that msccl loads


class ServedShare(NamedTuple):
    """One share of a table and the files that serve it."""

    table: Table
    share: SizeShare
    algorithm: Algorithm
    program: Program
    files: tuple[str, ...]


@dataclass(frozen=True)
class PlanExport(ExportResult):
    """`tables`: the algorithm of each range of sizes, for each table of the plan. `served`: the ranges with files.
    `registrations`: the calls that each MSCCL++ plan serves."""

    tables: tuple[SizeShares, ...] = ()
    served: tuple[ServedShare, ...] = ()
    registrations: tuple[PlanRegistration, ...] = ()


class NoFilesError(SynthError):
    """No range of a plan can be exported. `tables`: the sizes of each table, and why algorithms are refused."""

    def __init__(self, tables: Sequence[SizeShares], lines: Sequence[str]) -> None:
        reasons = "; ".join(lines) or "NCCL's own algorithms are preferred everywhere"
        super().__init__(f"no range of the plan can be exported: {reasons}")
        self.tables = tuple(tables)


def folder(plan: Plan, placed: TargetOfNetwork, runtime: str, version: str) -> PlanExport:
    """Export `plan` to a folder for `runtime`; no two files of a collective, a number of ranks and a kind of call
    overlap in size.

    `placed(network)`: the target of schedules on that network. `version`: of MSCCL++, whose plan format is written.
    Raises SynthError if no range can be exported.
    """
    mscclpp, few = runtime == "mscclpp", runtime == "msccl"
    made = [programs.table(plan, one, placed, few) for one in plan.tables]
    tables = [one.shares for one in made]
    if few:
        files_of = {i: len(pair) for one in made for i, pair in one.programs.items()}
        why = f"msccl loads at most {MSCCL_FILES} files, and the others serve more sizes"
        tables = drop_to_fit(tables, lambda share: files_of.get(share.choice or 0, 0), MSCCL_FILES, why)

    # The files, numbered in the order of the sizes.
    rows = []
    files = []
    entries = []
    suffix = ".json" if mscclpp else ".xml"
    for one, found in zip(made, tables, strict=True):
        for share in found.shares:
            if share.choice is None or share.choice not in one.programs:
                continue
            algorithm, target, names = plan.algorithms[share.choice], one.targets[share.choice], []
            for end, program in one.programs[share.choice]:
                schedule = algorithm.schedule
                shape = "" if schedule is None else f"-S{len(schedule.steps)}-R{schedule.rounds}-C{schedule.chunks}"
                shape += f"-{algorithm.protocol}" * (algorithm.protocol != "Simple")
                shape += f"-x{algorithm.instances}" * (algorithm.instances != 1)
                name = f"{len(files) + 1:02d}-{found.table.collective}{shape}{end}"
                ready = replace(program, name=name, min_bytes=share.low, max_bytes=share.high)
                files.append((name + suffix, (Mscclpp() if mscclpp else MscclXml()).emit(ready, target)))
                names.append(name + suffix)
                if mscclpp:
                    entries.append(registration_code.registration(ready, target.machine))
            rows.append(ServedShare(found.table, share, algorithm, one.programs[share.choice][0][1], tuple(names)))
    lost = []
    for found in tables:
        lost += unserved(plan, found, "MSCCL++ chooses itself" if mscclpp else "the library's own algorithm runs")
    if not files:
        raise NoFilesError(tables, lost)

    # What the user must know of them.
    if mscclpp:
        warnings = folder_notes.call_warnings("mscclpp", map(_call, rows))
        remarks = [*warnings, ports_remark(max((row.program for row in rows), key=port_channels))]
        files.append(("register.py", registration_code.python(entries, version, warnings)))
    else:
        remarks = [root_warning(row.program) or "" for row in rows]
    own = [i for found in tables for i in map(found.runs, found.table.sizes) if i is not None]
    if any(plan.algorithms[i].backend == NCCL for i in own):
        remarks.append("sizes at which NCCL's own algorithms are faster have no file; `--to nccl-tuner-csv` names them")
    remarks = [remark for remark in dict.fromkeys(remarks) if remark]
    facts = [f"The plans have the format of MSCCL++ {version}.", *remarks] if mscclpp else remarks
    page = _page(plan, runtime, rows, lost, facts)
    return PlanExport(
        tuple(files), suffix, (*lost, *remarks), tuple(name for name, _ in files), page, tuple(tables), tuple(rows),
        tuple(entries),
    )  # fmt: skip


def _call(row: ServedShare) -> tuple[str, int | None]:
    """Return the collective of a row's calls, and their root as the machine numbers it; None without one."""
    task = row.program.collective
    if task is None or task.name not in ROOTED:
        return row.table.collective, None
    return task.name, task.roots[0]


def _page(plan: Plan, runtime: str, rows: list[ServedShare], lost: Sequence[str], facts: Sequence[str]) -> str:
    """Return the Markdown page beside the folder."""
    title = ", ".join(dict.fromkeys(table.collective for table in plan.tables))
    if plan.topology is not None:
        title += f" on {plan.topology.name}"
    lines = []
    for row in rows:
        files = ", ".join(f"`{name}`" for name in row.files)
        root = "" if row.table.root is None else f" with root {row.table.root}"
        lines.append(
            f"| {files} | {row.table.collective} on {row.table.ranks} ranks{root} | {row.algorithm.label} | "
            f"{folder_notes.span(row.share.low, row.share.high)} | {folder_notes.divisor(row.program, runtime)} |"
        )
    return folder_notes.page(title, runtime, plan.says.rstrip("."), lines, lost, facts)
