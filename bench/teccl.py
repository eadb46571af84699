"""TE-CCL's shipped results on its own machines: times of synthesized schedules there, and certified bounds.

python -m bench.teccl [--time-limit 3] [--only TEXT]
python -m bench.teccl --table              the table again, from the JSON

The machines are those of `examples/teccl`. Schedules are points of the frontier of flow methods, list schedules for
five sizes, and `two-step`, lowered to programs and run by the reference executor without data. The bounds are those
of `synth bound --size`. 1 KB is 1000 bytes here, as in TE-CCL's results, whose least time of all modes counts. Units
are padded to whole bytes. TE-CCL counts neither messages nor FIFOs; the executor has at most 2 (Simple) or 8 (LL)
messages of a connection under way.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench import measure
from synth import api
from synth.errors import SynthError, UsageError
from synth.model.collective import collective
from synth.model.frontier import ParetoFrontier
from synth.model.rational import rational, show
from synth.model.schedule import Schedule
from synth.model.topology import Topology
from synth.program.runtimes import FIFO_DEPTH
from synth.runtime.reference.program_times import ProgramTimes
from synth.scale.list_schedules import schedule_for_size

KB, MB, GB = 1000, 10**6, 10**9
SIZES = (KB, 64 * KB, MB, GB)
DESIGN_SIZES = (KB, 8 * KB, 64 * KB, MB, GB)  # of list schedules
# Microseconds of TE-CCL's fastest result, by size.
ROWS = (
    ("ndv2-x2", "allgather", (4.135, 6.08, 48.75, 43750.0)),
    ("ndv2-x4", "allgather", (5.4495, 8.32, 69.375, 65000.0)),
    ("dgx2-x2", "allgather", (4.006, 4.32, 10.75, 7750.0)),
    ("dgx2-x2", "alltoall", (4.06, 8.464, 84.25, 80500.0)),
)
MOST_SENDS = 8_000  # of a schedule that is run
MOST_GREATEST = 1.001  # factor over TE-CCL's time that is allowed at 1 GB
GOALS = (1.25, None, None, 1.02)  # factors over the bound that are asked for
RESULTS = measure.RESULTS / "teccl.json"


def measured(machine: str, task: str, time_limit: float) -> dict:
    """Return the row of a machine: at each size the fastest program's time, TE-CCL's, and the certified bound."""
    path = measure.ROOT / "examples" / "teccl" / f"{machine}.yaml"
    topology = api.topology(path)
    frontier = api.frontier(topology, task, engine="flow", time_limit=time_limit)
    bounds = api.time_bound(topology, task, SIZES)
    cells: list[dict] = [{"size": size, "bound_us": show(bounds.microseconds(size))} for size in SIZES]
    for name, schedule in schedules(topology, task, frontier):
        for protocol, lanes in (("Simple", None), ("LL", None), ("LL", 4)):
            if schedule.timed and lanes:
                continue  # it has one connection a link anyway
            began = time.process_time()
            try:
                program = api.lower(schedule, runtime="synth", protocol=protocol, lanes=lanes)
            except SynthError:
                continue
            times = ProgramTimes(program, schedule.network)
            for cell in cells:
                if protocol == "LL" and cell["size"] == GB:
                    continue  # operations of LL are small, so that a run of 1 GB has very many
                spent = times.seconds(cell["size"]) * 1e6
                if spent < cell.get("us", float("inf")):
                    cell |= {"us": round(spent, 4), "engine": name, "steps": schedule.step_count, "protocol": protocol,
                             "ops": program.ops}  # fmt: skip
            print(machine, task, name, protocol, lanes, f"{time.process_time() - began:.1f} s", file=sys.stderr)
    return {"machine": machine, "collective": task, "cells": cells}


def schedules(topology: Topology, task: str, frontier: ParetoFrontier) -> Iterator[tuple[str, Schedule]]:
    """Yield the candidates with their names: points of the frontier, list schedules, and `two-step`."""
    for point in frontier.points:
        schedule = written_out(point)
        if schedule is not None:
            yield point.construction, schedule
    network = topology.network()
    wanted = collective(task, network.ranks)
    for size in DESIGN_SIZES:
        for protocol in ("Simple", "LL"):
            try:
                made = schedule_for_size(network, wanted, size, FIFO_DEPTH[protocol])
            except UsageError:
                continue
            yield f"list scheduling for {size // KB} KB, C={made.chunks}", made
    try:
        yield "two-step", api.baseline("two-step", topology, task)
    except SynthError:
        return


def written_out(point: Any) -> Schedule | None:
    """Return the schedule of a point of flow methods with all its sends, None where these are too many."""
    compressed = point.schedule
    if compressed.sends > MOST_SENDS:
        return None
    return compressed.written_out()


def table(document: dict) -> str:
    """Return the table of times, with what falls short of the goals."""
    lines, short = [], []
    teccl = {(machine, task): times for machine, task, times in ROWS}
    for row in document["rows"]:
        for k, cell in enumerate(row["cells"]):
            theirs = teccl[row["machine"], row["collective"]][k]
            bound = float(rational(cell["bound_us"]))
            ours = cell.get("us")
            name = f"{row['machine']} {row['collective']}"
            size = ("1 KB", "64 KB", "1 MB", "1 GB")[k]
            if ours is None:
                lines.append([name, size, "", f"{theirs:g}", "", f"{bound:.6g}", "", ""])
                short.append(f"{name}, {size}: no schedule was run")
                continue
            allowed = theirs * (MOST_GREATEST if cell["size"] == GB else 1)
            goal = GOALS[k]
            if ours > allowed:
                short.append(f"{name}, {size}: {ours:g} µs, TE-CCL {theirs:g} µs")
            if goal is not None and ours / bound > goal:
                short.append(f"{name}, {size}: {ours / bound:.3f} times the bound, {goal} was the goal")
            how = f"{cell['engine']}, {cell['steps']} steps, {cell['protocol']}"
            lines.append([name, size, f"{ours:g}", f"{theirs:g}", f"{ours / theirs:.3f}", f"{bound:.6g}",
                          f"{ours / bound:.3f}", how])  # fmt: skip
    head = ["machine, collective", "size", "µs>", "TE-CCL µs>", "ours / TE-CCL>", "certified bound µs>",
            "µs / bound>", "schedule"]  # fmt: skip
    shortfalls = "\n".join(f"- {line}" for line in short) or "- none"
    return (
        "# TE-CCL's results on its machines\n\nTimes of the reference executor for verified schedules, on the machines "
        "of `examples/teccl`; 1 KB is 1000 bytes. TE-CCL's times are the least of the modes that it ships; its "
        "switches may copy, and it drops latencies below a tenth of an epoch (its 7750 µs on DGX-2 is below the "
        "certified bound).\n\n" + measure.markdown(head, lines) + "\nShort of the goals (TE-CCL's time up to 1 MB, "
        f"1.001 times it at 1 GB; 1.25 times the bound at 1 KB, 1.02 at 1 GB):\n\n{shortfalls}\n\n"
        + measure.setting(document["where"]) + "\n"
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Write the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.teccl", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--time-limit", type=float, default=3.0, metavar="SECONDS", help="of a synthesis")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains TEXT; others are kept")
    parser.add_argument("--table", action="store_true", help="write the table of the results that are there again")
    given = parser.parse_args(arguments)
    if given.table:
        document = json.loads(RESULTS.read_text(encoding="utf-8"))
    else:
        rows = {}
        if given.only:
            before = json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]
            rows = {(row["machine"], row["collective"]): row for row in before}
        document = {"where": measure.where(), "rows": []}
        for machine, task, _ in ROWS:
            if given.only in f"{machine} {task}":
                rows[machine, task] = measured(machine, task, given.time_limit)
            document["rows"] = [rows[name[:2]] for name in ROWS if name[:2] in rows]
            measure.keep(document, table(document), RESULTS)
    measure.keep(document, table(document), RESULTS)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
