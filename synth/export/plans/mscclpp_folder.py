"""Export of a plan to a folder of MSCCL++ execution plans, with the code that registers them: register.py for Python,
register.hpp for C++."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from synth.export.folder_notes import PER_RANK, call_warnings
from synth.export.mscclpp.emit import Mscclpp, port_channels, ports_remark
from synth.export.plans import programs, registration_code
from synth.export.plans.msccl_folder import library_remarks
from synth.export.plans.notes import ServedShare, head, judged_section, stem, table, unserved_section
from synth.export.plans.plan_export import NoFilesError, PlanExport
from synth.export.plans.programs import TargetOfNetwork
from synth.export.plans.size_ranges import SizeShares, unserved_ranges
from synth.model.plan_registration import PlanRegistration
from synth.model.tuning_plan import Plan
from synth.program import plan_limits as limits
from synth.program.program import Program
from synth.program.runtimes import ROOTED

UNSERVED = "MSCCL++ chooses itself"

PROTOCOLS = ("Simple", "LL")


def folder(plan: Plan, placed: TargetOfNetwork, version: str) -> PlanExport:
    """Export `plan` to a folder of MSCCL++ plans, of the format of `version`, and their registration code.

    No two plans of a collective, a number of ranks and a kind of call overlap in size. `placed(network)`: the target of
    schedules on that network. Raises SynthError if there would be no plan.
    """
    made = [programs.table(plan, one, placed) for one in plan.tables]
    rows: list[ServedShare] = []
    files: list[tuple[str, str]] = []
    entries: list[PlanRegistration] = []
    for m in made:
        for share in m.shares.shares:
            if share.choice is None or share.choice not in m.programs:
                continue
            names = []
            for suffix, program in m.programs[share.choice]:
                name = stem(len(files) + 1, m.shares.table, plan.algorithms[share.choice]) + suffix
                ready = replace(program, name=name, min_bytes=share.low, max_bytes=share.high)
                target = m.targets[share.choice]
                files.append((f"{name}.json", Mscclpp().emit(ready, target)))
                machine = target.machine if target.request.box_is_host else None
                entries.append(registration_code.registration(ready, machine))
                names.append(f"{name}.json")
            rows.append(
                ServedShare(
                    m.shares.table, share, plan.algorithms[share.choice], m.programs[share.choice][0][1], tuple(names)
                )
            )
    said = [line for m in made for line in unserved_ranges(plan, m.shares, UNSERVED)]
    if not files:
        raise NoFilesError([m.shares for m in made], said)
    warnings = call_warnings("mscclpp", map(_call, rows))
    remarks = list(warnings)
    if said_ports := ports_remark(max((row.program for row in rows), key=port_channels)):
        remarks.append(said_ports)
    if any(plan.algorithms[i].protocol not in PROTOCOLS for m in made for i in m.shares.refused):
        remarks.append(f"for MSCCL++ tune with its protocols: {' '.join(f'--protocol {name}' for name in PROTOCOLS)}")
    remarks += library_remarks(plan, made)
    facts = [f"The plans have the format of MSCCL++ {version}.", *remarks]
    files.append(("register.py", registration_code.python(entries, version, warnings)))
    files.append(("register.hpp", registration_code.cpp(entries, version, warnings)))
    return PlanExport(
        tuple(files),
        ".json",
        (*said, *remarks),
        tuple(name for name, _ in files),
        _page(plan, rows, [m.shares for m in made], said, facts),
        tuple(m.shares for m in made),
        tuple(rows),
        tuple(entries),
    )


def _page(plan: Plan, rows: list[ServedShare], tables: list[SizeShares], said: list[str], remarks: list[str]) -> str:
    lines = [
        *head(plan, "mscclpp"),
        "",
        *table(rows, _divisor),
        "",
        *judged_section(plan, tables),
        "Sizes are nccl-tests': the larger of one rank's send and receive buffers; files and code have them as "
        "MSCCL++ counts.",
        "A count that the divisor does not divide, or a size outside of the ranges, is left to MSCCL++, which falls "
        "back to NCCL.",
        "The loader itself throws for such a count, so plans must be chosen by the selector of the code here.",
        "",
        "## Registration",
        "",
        "In Python, on every rank, before the first communicator is made (keep what it returns):",
        "",
        "    import register  # of this folder",
        "    kept = register.register(rank, ranks, ranks_per_node)",
        "",
        "In C++: include `register.hpp`, call `synth_plans::registerPlans(folder, rank, ranks, ranksPerNode)`. Then "
        "run with",
        "`LD_PRELOAD=libmscclpp_nccl.so`; `MSCCLPP_NCCL_LIB_PATH` names the NCCL to fall back to. One selector is "
        "installed for all",
        "plans: it replaces one that was set before.",
        "",
        *unserved_section(said),
        "## To know",
        "",
        "- Buffers must lie at the same offset of their allocation on all ranks (docs/mscclpp.md).",
        "- Scratch is allocated up to the largest size of a plan.",
    ]
    return "\n".join([*lines, *(f"- {fact}" for fact in remarks)]) + "\n"


def _call(row: ServedShare) -> tuple[str, int | None]:
    """Return the collective of a row's calls, and their root as the machine numbers it; None without one."""
    task = row.program.collective
    if task is None or task.name not in ROOTED:
        return row.table.collective, None
    return task.name, task.roots[0]


def _divisor(program: Program) -> str:
    whole = program.loop_chunks * limits.ALIGNMENT
    task = program.collective
    if task is None or task.name not in PER_RANK:
        return f"the bytes are a multiple of {whole}"
    return f"the bytes per rank are a multiple of {whole // gcd(whole, task.ranks)} ({whole} in the larger buffer)"
