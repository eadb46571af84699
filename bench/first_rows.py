"""Seconds from process start to the first row of `synth pareto`: a replayed schedule beside a checked bound.

python -m bench.first_rows [--topo NAME ...] [--coll NAME ...] [--limit 4] [--repeat 1] [-o FILE.json]

Each pair of a machine and a collective is one process. It is ended once it has shown a row within `FACTOR` of the
last bound shown, or after the limit, in CPU seconds of its own. Writes FILE.json and a table, FILE.md, after each pair:
medians of wall seconds and of CPU seconds to the first bound, the first row, and the first row within the factor, null
where none came.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from pathlib import Path
from statistics import median_low

from bench.measure import RESULTS, keep, markdown, setting, where

BOXES = (
    "dgx1-v100", "dgx1-p100", "dgx2", "dgx-a100", "p4d", "dgx-h100", "dgx-h200", "dgx-b200", "gb200-nvl72", "mi50-z52",
    "mi100-4p3l", "mi250", "mi300x", "mi355x", "pcie-2x4", "pcie-4x2", "pcie-8",
)  # fmt: skip
CLUSTERS = (
    "dgx1*2", "dgx1*16", "dgx2*2", "dgx2*8", "dgx-a100*2", "dgx-a100*4", "dgx-a100*8", "dgx-a100*16", "dgx-h100*4",
    "dgx-h100*16", "p4d*4", "mi250*4", "mi300x*4", "mi300x*16", "pcie-4x2*4", "rail:4x8", "rail:16x8",
)  # fmt: skip
# Clusters that no setting was chosen by.
OTHERS = ("mi300x*5", "dgx-h100*7", "dgx-a100*3", "rail:3x5")
FAMILIES = (
    "ring:8", "ring:64", "ring:128", "line:64", "star:32", "fully-connected:64", "hub-and-spoke:16", "switch:128",
    "hypercube:16", "hypercube:128", "mesh:8x8", "torus:8x8", "torus:8x16", "circulant:64", "random-regular:16",
    "random-regular:64", "random-regular:128", "dragonfly:4x4", "dragonfly:8x8", "fat-tree:16", "fat-tree:128",
)  # fmt: skip
COLLECTIVES = (
    "allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall", "scatter", "gather", "scan",
    "alltonext", "sendrecv", "multi-broadcast",
)  # fmt: skip
# Wall seconds that a CPU second may take on a busy machine.
WALL = 6
# A row counts as good within this factor of the bound.
FACTOR = 2
GOAL = 2.0  # seconds of wall time
BOUND = re.compile(r"no schedule takes fewer than (?:\d+ steps? or )?([\d/]+) rounds per chunk")
ROW = re.compile(r"S=(\d+): ([\d/]+) rounds per chunk")


@dataclass
class Run:
    """Wall and CPU seconds of one process to each kind of line, and the last ratio of its best row and bound."""

    wall: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    factor: float | None = None


def cpu_seconds(process: int) -> float:
    """Return the CPU seconds of a process so far, without those of its children."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_rows(machine: str, collective: str, limit: float) -> Run:
    """Return the run of one process, which is killed after `limit` CPU seconds of its own."""
    patience = f"{WALL * limit}s"
    words = ["pareto", "--topo", machine, "--coll", collective, "--time-limit", patience, "--fresh", "--verbose"]
    if collective.startswith("multi-"):
        words += ["--root", "0,1"]
    command = [sys.executable, "-m", "synth", *words]
    run, bound, best, began = Run(), None, None, time.monotonic()

    def mark(kind: str) -> None:
        if kind not in run.wall:
            run.wall[kind], run.cpu[kind] = time.monotonic() - began, cpu_seconds(process.pid)

    def watch() -> None:
        with suppress(OSError):  # the process has just ended
            while process.poll() is None:
                if cpu_seconds(process.pid) > limit or time.monotonic() - began > WALL * limit:
                    process.kill()
                time.sleep(0.1)

    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        threading.Thread(target=watch, daemon=True).start()
        for line in process.stderr or ():
            if found := BOUND.search(line):
                bound = Fraction(found[1])
                mark("bound")
            elif found := ROW.search(line):
                best = min(best or Fraction(found[2]), Fraction(found[2]))
                mark("row")
            if bound and best is not None:
                run.factor = float(best / bound)
                if run.factor <= FACTOR:
                    mark("good")
                    break
        process.kill()
    return run


def summary(runs: list[Run]) -> dict:
    """Return medians over the runs of a pair; a median is None where half of the runs or more have no such line."""
    row: dict = {}
    for kind in ("bound", "row", "good"):
        for clock in ("wall", "cpu"):
            seconds = median_low(getattr(run, clock).get(kind, inf) for run in runs)
            row[f"{kind}_{clock}"] = None if seconds == inf else round(seconds, 2)
    factors = [run.factor for run in runs if run.factor is not None]
    return row | {"factor": round(median_low(factors), 3) if factors else None}


def table(document: dict) -> str:
    """Return the table of the rows, slowest first row first."""
    rows = sorted(document["rows"], key=lambda row: -(row["row_wall"] or inf))
    cells = []
    for row in rows:
        shown = [row["machine"], row["collective"], str(row["bound_wall"])]
        for kind in ("row", "good"):
            wall, cpu = row[f"{kind}_wall"], row[f"{kind}_cpu"]
            shown.append("–" if wall is None else f"{wall} ({cpu})")
        cells.append([*shown, str(row["factor"])])
    slow = [f"{row['machine']} {row['collective']}" for row in rows if (row["row_wall"] or inf) > GOAL]
    clusters = [row for row in rows if row["machine"] in CLUSTERS + OTHERS]
    far = []
    for row in clusters:
        if (row["good_wall"] or inf) > GOAL:
            when = f", after {row['good_wall']} s" if row["good_wall"] else ""
            far.append(f"{row['machine']} {row['collective']} (factor {row['factor']}{when})")
    lines = [
        "# First rows\n",
        "Seconds of wall time, in brackets of CPU time, from the start of `synth pareto` to its first row, a replayed "
        f"schedule beside a checked bound, and to the first row within {FACTOR} times the last bound; `factor` is the "
        f"last one seen. Each process was ended then, or after {document['limit']:g} CPU seconds. Medians of "
        f"{document['repeat']}; load {document['load']}.\n",
        f"Within {GOAL:g} s: a first row in {len(rows) - len(slow)} of {len(rows)} pairs; on clusters one within "
        f"{FACTOR} times the bound in {len(clusters) - len(far)} of {len(clusters)}. No setting was chosen by "
        f"{', '.join(OTHERS)}.\n",
        *([f"No row in time: {', '.join(slow)}.\n"] if slow else []),
        *([f"None within {FACTOR} times the bound in time: {', '.join(far)}.\n"] if far else []),
        markdown(("machine", "collective", "bound s>", "first row s>", "within the factor, s>", "factor>"), cells),
        f"{setting(document['where'])}\n",
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure every pair, print it, and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topo", nargs="+", default=BOXES + CLUSTERS + OTHERS + FAMILIES)
    parser.add_argument("--coll", nargs="+", default=COLLECTIVES)
    parser.add_argument("--limit", type=float, default=4.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("-o", type=Path, default=RESULTS / "first_rows.json")
    options = parser.parse_args()
    rows: list[dict] = []
    document = {"where": where(), "limit": options.limit, "repeat": options.repeat, "rows": rows}
    loads = []
    for machine in options.topo:
        for collective in options.coll:
            loads.append(os.getloadavg()[0])
            runs = [first_rows(machine, collective, options.limit) for _ in range(options.repeat)]
            rows.append({"machine": machine, "collective": collective, **summary(runs)})
            print(json.dumps(rows[-1]), flush=True)
            document["load"] = f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} cores"
            keep(document, table(document), options.o)
    return 0


if __name__ == "__main__":
    sys.exit(main())
