"""A plan as a folder of MSCCL-IR: for every range one file, or two where the runtime wants one in place and one out of
place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from synth.errors import SynthError
from synth.export.exported_files import MSCCL_FILES, Exported
from synth.export.msccl_xml.emit import MscclXml
from synth.export.msccl_xml.limits import root_warning
from synth.export.plans import programs as plan_offers
from synth.export.plans.notes import Row, compared, page, stem
from synth.export.plans.programs import NCCL, OTHERS, Made, Placed
from synth.export.plans.size_ranges import Share, fewest, lost
from synth.model.tuning_plan import Plan


def folder(plan: Plan, placed: Placed, runtime: str) -> Exported:
    """The files, disjoint in size for each collective and number of ranks. Raises SynthError where there would be
    none."""
    made = [plan_offers.table(plan, table, placed) for table in plan.tables]
    if runtime == "msccl":
        why = f"msccl loads at most {MSCCL_FILES} files, and the others serve more sizes"
        found = fewest([m.shares for m in made], _count(made), MSCCL_FILES, why)
        made = [replace(m, shares=s) for m, s in zip(made, found, strict=True)]
    rows, files = _files(plan, made)
    said = [line for m in made for line in lost(plan, m.shares, OTHERS)]
    if not files:
        raise SynthError(
            "no range of the plan can be exported: "
            + ("; ".join(said) or "NCCL's own algorithms are preferred everywhere")
        )
    remarks = list(dict.fromkeys(w for row in rows if (w := root_warning(row.program))))
    remarks += left(plan, made)
    return Exported(
        tuple(files),
        ".xml",
        (*said, *remarks),
        tuple(name for name, _ in files),
        page(plan, runtime, rows, [m.shares for m in made], said, remarks),
    )


def left(plan: Plan, made: Sequence[Made]) -> list[str]:
    """One line where NCCL's own algorithms run at some sizes; at which, with both times; and what is lost against the
    best of all."""
    choices = [(m.shares.table, s) for m in made for s in m.shares.shares if s.choice is not None]
    own = [(table, s) for table, s in choices if s.choice is not None and plan.algorithms[s.choice].backend == NCCL]
    said = [
        f"{len(own)} range{'s are' if len(own) > 1 else ' is'} left to NCCL's own algorithms; `--to nccl-tuner-csv` "
        f"says which"
    ]
    return [*(said if own else ()), *(line for m in made for line in compared(plan, m.shares))]


def _count(made: Sequence[Made]) -> Callable[[Share], int]:
    programs = {i: found for m in made for i, found in m.programs.items()}
    return lambda share: len(programs.get(share.choice, ())) if share.choice is not None else 0


def _files(plan: Plan, made: Sequence[Made]) -> tuple[list[Row], list[tuple[str, str]]]:
    rows: list[Row] = []
    files: list[tuple[str, str]] = []
    for m in made:
        for share in m.shares.shares:
            if share.choice is None or share.choice not in m.programs:
                continue
            algorithm, names = plan.algorithms[share.choice], []
            for suffix, program in m.programs[share.choice]:
                name = stem(len(files) + 1, m.shares.table, algorithm) + suffix
                ready = replace(program, name=name, min_bytes=share.low, max_bytes=share.high)
                files.append((f"{name}.xml", MscclXml().emit(ready, m.requests[share.choice])))
                names.append(f"{name}.xml")
            rows.append(Row(m.shares.table, share, algorithm, m.programs[share.choice][0][1], tuple(names)))
    return rows, files
