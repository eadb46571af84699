"""Logical time kept by the kernel on CPU threads against the reference executor: equal to the picosecond, program by
program.

python -m bench.clock [--frontiers DIR] [--time-limit 60] [-o FILE.json]

The points of a DGX-1's frontiers (those of bench.programs, kept in DIR) and known algorithms on machines with shared
limits and switches, each at a small and at a large size, as Simple and as LL cut them. Data are moved and compared. The
kernel gets the order in which links are taken, and nothing else; it is an execution-driven model, not a measurement
of any machine. Writes FILE.json and FILE.md; ends with 1 if a time differs, also in what a link carries and for how
long.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.programs import COLLECTIVES, TOPOLOGY, frontier
from synth import api
from synth.errors import SynthError, UsageError
from synth.model.schedule import Schedule
from synth.pareto.log import default_directory
from synth.runtime import run_result

SAYS = run_result.SAYS.format(network="{network}")
KNOWN = {
    "dgx1-v100": ("ring", "tree"),
    "dgx2": ("ring", "direct"),
    "hypercube:8": ("ring", "recursive-doubling"),
    "fully-connected:6": ("ring", "direct"),
    "switch:5": ("ring", "direct"),
    "mi250": ("ring",),
    "rail:2x4": ("ring", "direct"),
    "fat-tree:4": ("ring", "direct"),
    "dgx-h100": ("ring", "direct", "recursive-doubling"),
}
TASKS = ("allgather", "allreduce", "reduce-scatter", "broadcast", "alltoall")
SIZES = (1 << 10, 1 << 20)
PROTOCOLS = ("Simple", "LL")


def schedules(folder: Path, limit: float) -> Iterator[tuple[str, Schedule]]:
    """A schedule that is lowered and run on its own links."""
    for name in COLLECTIVES:
        for point in frontier(name, folder, limit).points:
            yield f"{TOPOLOGY} {name} ({point.chunks},{point.steps},{point.rounds})", point.schedule
    for machine, names in KNOWN.items():
        for name in names:
            for task in TASKS:
                try:
                    made = api.baseline(name, machine, task, roots=(0,) if task == "broadcast" else ())
                except (UsageError, SynthError):
                    continue  # the algorithm does not do it, or the links do not carry it
                yield f"{machine} {task} {name}", made


def row(name: str, schedule: Schedule, size: int, protocol: str) -> dict[str, Any]:
    """One program at one size: the times of both, and whether all is the same."""
    program, network = api.lower(schedule, protocol=protocol), schedule.network
    each = program.loop_chunks * 4
    size = -(-size // each) * each
    start = time.process_time()
    times = [
        api.run(schedule, executor=executor, size=size, protocol=protocol, bound=False, **options).execution
        for executor, options in (("reference", {}), ("host", {"clock": "logical", "threads": 1, "timeout": 60.0}))
    ]  # fmt: skip
    reference, kernel = times
    return {
        "program": name,
        "network": network.name,
        "limits": len(network.caps),
        "blocks": sum(len(gpu.blocks) for gpu in program.gpus),
        "ops": program.ops,
        "size": size,
        "protocol": protocol,
        "reference_ps": reference.picoseconds,
        "kernel_ps": kernel.picoseconds,
        "equal": reference.picoseconds == kernel.picoseconds and reference.links == kernel.links,
        "cpu_s": time.process_time() - start,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """As Markdown: a line a program."""
    names = list(dict.fromkeys(row["program"] for row in rows))
    different = sum(not row["equal"] for row in rows)
    lines = [
        f"# Logical time\n\n{len(rows)} runs of {len(names)} programs: the kernel's logical time on CPU threads and "
        f"the reference's,"
        f" in picoseconds, differ in {different}.\nCompared likewise: what each link carries, and for how long. "
        f"Every element of the data"
        " moved was compared.\nAn execution-driven model over the α and β of the topologies, not a measurement of "
        "any machine.\n",
        "| program | blocks | ops | limits | "
        + " | ".join(f"{p} {s >> 10} KiB, ns" for s in SIZES for p in PROTOCOLS)
        + " | equal |",
        "|---|--:|--:|--:|" + "--:|" * len(SIZES) * len(PROTOCOLS) + "---|",
    ]
    for name in names:
        own = [row for row in rows if row["program"] == name]
        times = " | ".join(f"{row['kernel_ps'] / 1000:g}" for row in own)
        first = own[0]
        equal = "yes" if all(row["equal"] for row in own) else "NO"
        lines.append(f"| {name} | {first['blocks']} | {first['ops']} | {first['limits']} | {times} | {equal} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frontiers", type=Path, default=default_directory() / "bench-programs")
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("-o", type=Path, dest="output")
    given = parser.parse_args(arguments)
    rows = []
    for name, schedule in schedules(given.frontiers, given.time_limit):
        for size in SIZES:
            for protocol in PROTOCOLS:
                rows.append(row(name, schedule, size, protocol))
        if given.output:  # as far as it has come
            given.output.write_text(
                json.dumps({"says": SAYS.format(network="each topology"), "rows": rows}, indent=1) + "\n"
            )
            given.output.with_suffix(".md").write_text(table(rows))
        own = rows[-len(SIZES) * len(PROTOCOLS) :]
        print(
            name,
            *(f"{r['kernel_ps'] / 1000:g}" for r in own),
            "ns" if all(r["equal"] for r in own) else "DIFFERENT",
            flush=True,
        )
    wrong = sum(not row["equal"] for row in rows)
    print(f"{len(rows)} runs of {len({row['program'] for row in rows})} programs, {wrong} different")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
