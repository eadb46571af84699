"""Commands on the pages of a report: how to check, run and export what a file holds, and to find it again."""

from __future__ import annotations

import shlex

from synth.catalog.report_sheets import WRONG
from synth.errors import SynthError
from synth.topologies import topology
from synth.view.page import animation_data
from synth.view.page.frontier_section import Sheet

Commands = tuple[tuple[str, str], ...]
POINT = "--step {steps}"  # the page fills in the steps of the chosen algorithm


def commands(sheet: Sheet, file: str, kind: str) -> Commands:
    """Return (purpose, command) for a sheet of `file`, whose `kind` is catalog or the name of a schema.

    Names from files are quoted for a shell. `file` "" stands for a value, of which no file is known.
    """
    name = shlex.quote(file if not file.startswith("-") else f"./{file}")
    if sheet.status == WRONG:
        return (("check it", f"synth verify {name}"),) if file and kind != "catalog" else ()
    rows: list[tuple[str, str]] = []
    match kind:
        case "catalog":
            entry = f"{shlex.quote(sheet.id)} --db {name}"
            rows.append(("check all entries", f"synth catalog verify --db {name}"))
            if sheet.algorithms:
                rows.append(("write the chosen one", f"synth catalog export {entry} {POINT} -o algorithm.xml"))
        case "synth.frontier/1":
            rows.append(("check all claims", f"synth verify {name}"))
            if sheet.algorithms:
                rows.append(("run the chosen one on this machine", f"synth run {name} {POINT} --size 1MB"))
                rows.append(("write it", f"synth export {name} {POINT} -o algorithm.xml"))
        case "synth.schedule/1":
            rows.append(("check it", f"synth verify {name}"))
            rows.append(("run it on this machine", f"synth run {name} --size 1MB"))
            rows.append(("write it", f"synth export {name} -o algorithm.xml"))
        case "synth.large/1":
            rows.append(("check all claims", f"synth verify {name}"))
        case "synth.plan/1":
            rows.append(("write the files of all sizes", f"synth export --plan {name} --to msccl-dir -o algorithms"))
    if kind != "synth.plan/1" and sheet.stairs is not None and _is_built_in(sheet):
        called, _, root = sheet.collective.partition(" from ")
        roots = f" --root {root.replace(' ', '')}" if root else ""
        rows.append(("find it again", f"synth pareto --topo {shlex.quote(sheet.topology)} --coll {called}{roots}"))
    return tuple(rows)


def _is_built_in(sheet: Sheet) -> bool:
    """Return whether the name of the sheet's machine stands for this machine."""
    try:
        network = topology(sheet.topology).network()
    except SynthError:
        return False
    return sheet.machine is not None and animation_data.machine(network) == sheet.machine
