"""Results of `synth plans` for each machine, number of boxes or GPUs, and collective.

python -m bench.plan_sets [--machine NAME] [--minutes 15] [--limit 30] [--stop 120] [-o FILE.json]

Each cell is one command with a time limit, at three sizes, as a user starts it; it is stopped after `--stop` seconds of
wall. Machines of few ranks come first. Results are kept after each cell, and the same command goes on with those that
are missing or were stopped, until the minutes of CPU are used; the table says which were not run, and of which commits
and time limits the others are. It ends with 1 if a command failed without plans and without a reason, or had to be
stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from bench import measure
from synth.api.tuning import LEAST

MACHINES = {"dgx-a100": 8, "dgx-h100": 8, "mi300x": 8, "gb200-nvl72": 72}
BOXES = (1, 2, 4, 8, 16)
GPUS = (6, 12)
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "alltoall", "broadcast")
SIZES = "4KB,1MB,64MB"

Cell = tuple[str, str, int, str]  # machine, --boxes or --gpus, their number, collective


def cells() -> list[Cell]:
    """Return all cells, those of few ranks first."""
    found: list[tuple[int, Cell]] = []
    for (machine, ranks), name in product(MACHINES.items(), COLLECTIVES):
        found += [(count * ranks, (machine, "--boxes", count, name)) for count in BOXES]
        found += [(count, (machine, "--gpus", count, name)) for count in GPUS]
    return [cell for _, cell in sorted(found, key=lambda one: one[0])]


def attempt(cell: Cell, limit: float, stop: float) -> dict:
    """Run one command; return its row."""
    machine, option, count, name = cell
    with tempfile.TemporaryDirectory() as work:
        words = ["--machine", machine, option, str(count), "--coll", name, "--sizes", SIZES]
        run = measure.synth(
            "plans", *words, "--time-limit", f"{limit}s", "--jobs", "1", "-o", f"{work}/set", timeout=stop
        )
        index = Path(work, "set", "index.json")
        parts = json.loads(index.read_text())["parts"] if index.is_file() else []
    row = {
        "commit": measure.where()["commit"],
        "limit": limit,
        "code": run.code,
        "wall": round(run.wall),
        "cpu": round(run.cpu, 1),
        "plans": 0,
        "sizes": [],
        "least": False,
        "said": "",
    }
    if run.code != 0 or not parts:
        return row | {"said": (run.stderr.strip().splitlines() or [""])[-1]}
    (part,) = parts
    row["plans"] = len(part["plans"])
    row["least"] = any(LEAST in note and "nccl-" in note for note in part["notes"])
    if part["refused"]:
        return row | {"said": part["refused"][name]}
    for table in part["tables"]:
        for one in table["sizes"]:
            known = [seconds for seconds in one["libraries"].values() if seconds is not None]
            library = min(known, default=None)
            ours = bool(one["algorithm"])
            row["sizes"].append({"size": one["size"], "seconds": one["seconds"], "library": library, "ours": ours})
    return row


def verdict(row: dict) -> str:
    """Return what a cell gives, in words."""
    if row["code"] == -1:
        return "stopped"
    if row["code"] != 0:
        return f"exit {row['code']}: {row['said'].removeprefix('synth: error: ')}"
    served = [one for one in row["sizes"] if one["ours"]]
    if not served:
        return "left to the library"
    gains = sorted(one["library"] / one["seconds"] for one in served if one["library"])
    ends = f", {gains[0]:.2g} to {gains[-1]:.2g} x NCCL{'*' if row['least'] else ''}" if gains else ""
    return f"{row['plans']} plans, {len(served)} of {len(row['sizes'])} sizes{ends}"


def failed(row: dict) -> bool:
    """Return True for a command that was stopped, crashed, or serves a size that NCCL is predicted to do faster."""
    slower = [one for one in row["sizes"] if one["ours"] and one["library"] and one["seconds"] > one["library"]]
    return (
        row["code"] not in (0, 1, 2)
        or "Traceback" in row["said"]
        or (row["code"] != 0 and not row["said"])
        or (bool(slower))
    )


def table(results: dict) -> str:
    """Return the results as Markdown: a row for each machine and collective, a column for each number."""
    columns = [*(("--boxes", count) for count in BOXES), *(("--gpus", count) for count in GPUS)]
    head = ["machine, collective", *(f"{count} {option.removeprefix('--')}" for option, count in columns)]
    lines = []
    for machine, name in product(MACHINES, COLLECTIVES):
        line = [f"{machine} {name}"]
        for option, count in columns:
            row = results["cells"].get(" ".join((machine, option, str(count), name)))
            line.append("not run" if row is None else f"{verdict(row)} ({row['cpu']} s)")
        lines.append(line)
    ran = results["cells"].values()
    kinds = Counter((row["commit"], row["limit"]) for row in ran)
    bad = [name for name, row in results["cells"].items() if failed(row)]
    return (
        f"# Sets of MSCCL++ plans\n\n`synth plans --sizes {SIZES} --time-limit ...` for "
        f"{len(ran)} of {len(cells())} cells: plans, sizes served, predicted gain over NCCL's ring and tree where a "
        "plan runs, CPU seconds. The other sizes are left to the library with both times printed. *: NCCL's ring is "
        "too long to run, so its time is the least that its messages can take. Schedules "
        "that are too long or too late to run have the time of synchronous steps; runs took up to 1.4 times as long. "
        f"{len(bad)} cells were stopped, crashed or are slower than the library"
        f"{': ' if bad else ''}{', '.join(bad)}.\n\n"
        + measure.markdown(head, lines) + "\n" + measure.setting(results["where"]) + "\n\nCells: "
        + ", ".join(f"{count} of {commit} in {limit:g} s" for (commit, limit), count in kinds.items())
        + f". {results.get('remark', '')}".rstrip() + "\n"
    )  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Run the cells that are missing."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.plan_sets", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--machine", choices=MACHINES, help="its cells alone")
    parser.add_argument("--minutes", type=float, default=15, help="of CPU")
    parser.add_argument("--limit", type=float, default=30, help="seconds of --time-limit")
    parser.add_argument("--stop", type=float, default=120, help="wall seconds after which a command is stopped")
    parser.add_argument("-o", type=Path, dest="output", default=measure.RESULTS / "plan_sets.json")
    given = parser.parse_args(arguments)
    known = json.loads(given.output.read_text())["cells"] if given.output.is_file() else {}
    spent = 0.0
    for cell in cells():
        name = " ".join(map(str, cell))
        row = known.get(name)
        done = row is not None and row["code"] != -1
        if given.machine not in (None, cell[0]) or done or spent > given.minutes * 60:
            continue
        known[name] = attempt(cell, given.limit, given.stop)
        spent += known[name]["cpu"]
        print(name, verdict(known[name]), known[name]["cpu"], flush=True)
        results = {"where": measure.where(), "cells": known}
        measure.keep(results, table(results), given.output)
    return int(any(map(failed, known.values())))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
