"""Export of a plan to a folder of MSCCL-IR.

Every range has one file, or two if the runtime needs one in place and one out of place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from synth.export.exported_files import MSCCL_FILES
from synth.export.msccl_xml.emit import MscclXml
from synth.export.msccl_xml.limits import root_warning
from synth.export.plans import programs as plan_offers
from synth.export.plans.notes import ServedShare, loss_remarks, page, stem
from synth.export.plans.plan_export import NoFilesError, PlanExport
from synth.export.plans.programs import NCCL, UNSERVED, TablePrograms, TargetOfNetwork
from synth.export.plans.size_ranges import SizeShare, drop_to_fit, unserved_ranges
from synth.model.tuning_plan import Plan
from synth.program.program import Program


def folder(plan: Plan, placed: TargetOfNetwork, runtime: str) -> PlanExport:
    """Export `plan` to a folder of MSCCL-IR for `runtime`; no two files of a collective and a number of ranks overlap.

    `placed(network)`: the target of schedules on that network. Raises SynthError if no range can be exported.
    """
    few = runtime == "msccl"
    made = [plan_offers.table(plan, table, placed, few) for table in plan.tables]
    if few:
        why = f"msccl loads at most {MSCCL_FILES} files, and the others serve more sizes"
        found = drop_to_fit([m.shares for m in made], _count(made), MSCCL_FILES, why)
        made = [replace(m, shares=s) for m, s in zip(made, found, strict=True)]
    rows, files = _files(plan, made)
    lines = [line for m in made for line in unserved_ranges(plan, m.shares, UNSERVED)]
    if not files:
        raise NoFilesError([m.shares for m in made], lines)
    remarks = list(dict.fromkeys(w for row in rows if (w := root_warning(row.program))))
    remarks += library_remarks(plan, made)
    return PlanExport(
        tuple(files),
        ".xml",
        (*lines, *remarks),
        tuple(name for name, _ in files),
        page(plan, runtime, rows, [m.shares for m in made], lines, remarks),
        tuple(m.shares for m in made),
        tuple(rows),
    )


def library_remarks(plan: Plan, made: Sequence[TablePrograms]) -> list[str]:
    """Return remarks on the sizes at which NCCL's own algorithms run, and on the loss against the best candidates."""
    choices = [(m.shares.table, s) for m in made for s in m.shares.shares if s.choice is not None]
    own = [(table, s) for table, s in choices if s.choice is not None and plan.algorithms[s.choice].backend == NCCL]
    remarks: list[str] = []
    if own:
        ranges = f"{len(own)} range{'s are' if len(own) > 1 else ' is'}"
        remarks.append(f"{ranges} left to NCCL's own algorithms; `--to nccl-tuner-csv` says which")
    for m in made:
        remarks += loss_remarks(plan, m.shares)
    return remarks


def _count(made: Sequence[TablePrograms]) -> Callable[[SizeShare], int]:
    programs: dict[int, Sequence[tuple[str, Program]]] = {}
    for table in made:
        programs.update(table.programs)

    def count(share: SizeShare) -> int:
        """Return the number of files of a share."""
        return len(programs.get(share.choice, ())) if share.choice is not None else 0

    return count


def _files(plan: Plan, made: Sequence[TablePrograms]) -> tuple[list[ServedShare], list[tuple[str, str]]]:
    rows: list[ServedShare] = []
    files: list[tuple[str, str]] = []
    for m in made:
        for share in m.shares.shares:
            if share.choice is None or share.choice not in m.programs:
                continue
            algorithm, names = plan.algorithms[share.choice], []
            for suffix, program in m.programs[share.choice]:
                name = stem(len(files) + 1, m.shares.table, algorithm) + suffix
                ready = replace(program, name=name, min_bytes=share.low, max_bytes=share.high)
                files.append((f"{name}.xml", MscclXml().emit(ready, m.targets[share.choice])))
                names.append(f"{name}.xml")
            rows.append(ServedShare(m.shares.table, share, algorithm, m.programs[share.choice][0][1], tuple(names)))
    return rows, files
