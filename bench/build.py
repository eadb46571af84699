"""`synth build` on dumps of machines: seconds of the one command, and the answer for each size.

python -m bench.build [DUMP|NAME ...] [--runtime NAME] [--only TEXT] [-o results.json]
python -m bench.build --table

Without arguments: the dumps in tests/fixtures whose machines have four GPUs or more, and three built-in machines. A row
is right if each size of each collective has files or the times of the library and of the best schedule, if nothing is
predicted slower than the library, and if lint accepts the folder. For a dump, the last column says if the same dump
under another name has the same files. The first build of a machine begins with an empty cache. Its searches have a
limit of wall time, so a busy machine, whose load is in the table, may end them at other points.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench.measure import RESULTS, ROOT, keep, markdown, seconds, setting, synth, where
from synth.model.build_result import SCHEMA

FIXTURES = (
    "nvidia-smi-hybrid-cube-mesh.txt", "nvidia-smi-nvswitch.txt", "nvidia-smi-pcie.txt", "nvidia-smi-bridges.txt",
    "nccl-pci-devices.xml", "nccl-hidden-switch.xml", "rccl-pairs.xml", "rocm-smi-pairs.txt",
)  # fmt: skip
MACHINES = ("dgx-h100", "mi250", "mi300x")
GOAL = 60.0  # wall seconds of one command on two cores
LIMIT = 300.0  # wall seconds after which a command is stopped


def measure(machine: str, runtime: str, again: bool) -> dict:
    """Build for a machine, and with `again` for the same dump under another name. Return the row."""
    with tempfile.TemporaryDirectory(prefix="synth-build-") as work:
        folder = Path(work)
        row, files = _built(machine, folder / "algorithms", runtime)
        if again and row["code"] == 0:
            other = folder / f"other{Path(machine).suffix}"
            shutil.copyfile(machine, other)
            second, copies = _built(str(other), folder / "again", runtime)
            row["same_files"] = second["code"] == 0 and copies == files
        return row


def _built(machine: str, folder: Path, runtime: str) -> tuple[dict, dict[str, bytes]]:
    """Return the row of one build, and the files of the runtime."""
    choice = ["--for", runtime] if runtime else []
    load = os.getloadavg()[0]
    done = synth("build", machine, "-o", str(folder), "-q", *choice, timeout=LIMIT, cache=folder.with_name("cache"))
    row: dict = {"name": Path(machine).name, "load": load, "code": done.code, "wall": done.wall, "cpu": done.cpu}
    if done.code != 0:
        return row | {"wrong": True, "says": done.stderr.strip().splitlines()[-1:]}, {}
    doc = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    if doc["schema"] != SCHEMA:
        raise SystemExit(f"{folder}/build.json: schema is {doc['schema']}, expected {SCHEMA}")
    target = folder / doc["runtime"]
    linted = 0
    if doc["files"] and not doc["runtime"].endswith("-tuner"):
        linted = synth("lint", str(target), "--runtime", doc["runtime"], timeout=LIMIT).code
    row |= judged(doc) | {"runtime": doc["runtime"], "lint": linted, "files": len(doc["files"])}
    row["wrong"] |= linted != 0
    found = {}
    if target.is_dir():
        found = {path.name: path.read_bytes() for path in sorted(target.iterdir()) if path.is_file()}
    return row, found


def judged(doc: dict) -> dict:
    """Return the numbers of sizes of a ``synth.build/1`` document by their answer, and if any of them is wrong."""
    sizes = [size for table in doc["tables"] for size in table["sizes"]]
    served = [size for size in sizes if size["algorithm"] and size["files"]]
    left = [size for size in sizes if not size["algorithm"] and _least(size) < float("inf")]
    slower = [size for size in served if _least(size) < size["seconds"]]
    counts = {"sizes": len(sizes), "served": len(served), "left": len(left), "slower": len(slower)}
    return counts | {"wrong": len(served) + len(left) < len(sizes) or bool(slower)}


def _least(size: dict) -> float:
    """Return the least time of the library's algorithms at a size."""
    return min((time for time in size["libraries"].values() if time), default=float("inf"))


def table(doc: dict) -> str:
    """Return the table: a row for each machine."""
    head = (
        "machine", "runtime", "load before>", "wall s>", "CPU s>", "sizes>", "with files>", "left to the library>",
        "slower than the library>", "lint", "same files under another name",
    )  # fmt: skip
    rows = []
    for row in doc["rows"]:
        cost = f"{row['load']:.1f}", seconds(row["wall"]), seconds(row["cpu"])
        if row["code"] != 0:
            rows.append((row["name"], "", *cost, *[""] * 4, f"exit {row['code']}", ""))
            continue
        same = {True: "yes", False: "NO", None: ""}[row.get("same_files")]
        rows.append((
            row["name"], row["runtime"], *cost,
            *(str(row[key]) for key in ("sizes", "served", "left", "slower")),
            "right" if row["lint"] == 0 else f"exit {row['lint']}", same,
        ))  # fmt: skip
    how = f"`synth build MACHINE -o DIR`: allreduce and allgather at 21 sizes each. Goal: {GOAL:g} s on two cores."
    return f"# From a dump to a folder\n\n{markdown(head, rows)}\n{how}\n\n{setting(doc['setting'])}\n"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, and keep it. Return 1 when a row is wrong (not when it is slow)."""
    parser = argparse.ArgumentParser(prog="python -m bench.build", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("machines", nargs="*", metavar="DUMP|NAME")
    parser.add_argument("--runtime", default="", metavar="NAME", help="as --for of synth build")
    parser.add_argument("--only", default="", metavar="TEXT", help="machines that hold this text")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "build.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    fixtures = [str(ROOT / "tests" / "fixtures" / name) for name in FIXTURES]
    doc: dict = {"setting": where(), "rows": []}
    for machine in given.machines or [*fixtures, *MACHINES]:
        if given.only in machine:
            doc["rows"].append(measure(machine, given.runtime, Path(machine).is_file()))
            print(json.dumps(doc["rows"][-1]), file=sys.stderr)
            keep(doc, table(doc), given.output)  # at once: a run may be ended at any time
    print(table(doc))
    return int(any(row["wrong"] for row in doc["rows"]))


if __name__ == "__main__":
    sys.exit(main())
