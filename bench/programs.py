"""From frontiers to files: every program of a DGX-1's frontiers is clean, right and accepted, or refused with a reason.

python -m bench.programs [--frontiers DIR] [--time-limit 60] [--jobs 2]

Every point of the frontier of every collective × {1, 2, 4} instances × {Simple, LL, LL128} × the runtimes that dispatch
the collective (for both kinds of call where it can be in place) is lowered, analysed by lint, run in the reference
executor (as a whole and in the finest parts, with random delays; every element compared), timed beside the certified
bound, written, and read back by the importer and by the strict readers of the tests. MSCCL++ plans likewise. A refusal
has to name the runtime.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from functools import cache
from pathlib import Path
from statistics import median

from bench import measure, roundtrip
from synth import api
from synth.errors import SynthError
from synth.model.frontier import Frontier
from synth.pareto.log import default_directory
from synth.program import analysis
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES
from synth.runtime.reference.executor import Reference

TOPOLOGY = "dgx1"
PAIRS = [[(i * j + i) % 3 if i != j else 0 for j in range(8)] for i in range(8)]
UNEVEN, TWO = [1, 2, 0, 1, 1, 3, 1, 1], [0, 5]
COLLECTIVES: dict[str, dict] = {
    "allgather": {},
    "allreduce": {},
    "reduce-scatter": {},
    "alltoall": {},
    "broadcast": {"max_steps": 8},
    "reduce": {"max_steps": 8},
    "gather": {},
    "scatter": {},
    "scan": {},
    "alltonext": {},
    "sendrecv": {},
    "multi-broadcast": {"roots": TWO},
    "multi-reduce": {"roots": TWO},
    "multi-scatter": {"roots": TWO},
    "multi-gather": {"roots": TWO},
    "allgatherv": {"sizes": UNEVEN},
    "reduce-scatterv": {"sizes": UNEVEN},
    "alltoallv": {"sizes": PAIRS},
}
XML_RUNTIMES = ("msccl", "msccl-executor", "rccl")
INSTANCES = (1, 2, 4)
NEVER_REFUSED = ("allgather", "allreduce")  # at one instance
TYPE, ELEMENTS = "int32", 2
SIZE = 1 << 20  # of the timed runs, or the next size that divides
TORUS = ("torus:8x8", "allgather", 4, 8, 63)
SEED = 0

Case = tuple[str, int, str, str, int]  # collective, point (from 0), runtime, protocol, instances


@cache
def frontier(name: str, folder: Path, limit: float) -> Frontier:
    """The frontier of a collective, from `folder` if it is there."""
    path = folder / f"{name}.json"
    if not path.is_file():
        found = api.frontier(TOPOLOGY, name, time_limit=limit, jobs=1, **COLLECTIVES[name])
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found.to_json()))
    return Frontier.from_json(json.loads(path.read_text()))


def cases(folder: Path, limit: float) -> Iterator[Case]:
    """Everything that is tried."""
    for name in COLLECTIVES:
        runtimes = [r for r in XML_RUNTIMES if name in (RUNTIMES[r].collectives or {})]
        for point in range(len(frontier(name, folder, limit).points)):
            for runtime in (*runtimes, "mscclpp"):
                for protocol in FIFO_DEPTH if runtime != "mscclpp" else ("Simple", "LL"):
                    yield from ((name, point, runtime, protocol, instances) for instances in INSTANCES)


def judged(case: Case, folder: Path) -> dict:
    """A row: what became of one case."""
    name, number, runtime, protocol, instances = case
    point = frontier(name, folder, 0).points[number]
    row = {"collective": name, "point": [point.steps, point.schedule.rounds, point.schedule.chunks], "runtime": runtime}
    row |= {"protocol": protocol, "instances": instances}
    return row | roundtrip.attempt(point.schedule, runtime, protocol, instances, TOPOLOGY, f"{SEED} {case}")


def torus() -> dict:
    """The schedule of a torus, lowered, analysed and run: CPU seconds of each."""
    network = api.topology(TORUS[0]).network()
    schedule = api.solve(*TORUS, jobs=1, deterministic=True).schedule  # type: ignore[union-attr]
    marks = [time.process_time()]
    program = api.lower(schedule)
    marks.append(time.process_time())
    report = analysis.check(program)
    marks.append(time.process_time())
    roundtrip.right(program, "synth", network, SEED)
    marks.append(time.process_time())
    spent = [round(b - a, 2) for a, b in itertools.pairwise(marks)]
    return {
        "ops": program.ops,
        "clean": report.ok and report.safe is None,
        "lower": spent[0],
        "lint": spent[1],
        "run": spent[2],
    }


def makespans() -> list[dict]:
    """Known algorithms: picoseconds in the reference executor beside the sum of α + bytes/β over the steps."""
    programs = roundtrip.tests_own("programs")
    known = (
        ("ring_allgather", "ring:8", 7),
        ("direct_allgather", "fully-connected:8", 1),
        ("ring_allreduce", "ring:8", 14),
        ("recursive_doubling_allreduce", "hypercube:8", 3),
    )
    rows = []
    for name, topology, steps in known:
        network, program = api.topology(topology).network(), getattr(programs, name)(8)
        alpha, beta = network.routes[0].latency * 10**6, network.unit * network.routes[0].units
        for count in (1, 1000, 12345):
            expected = steps * (alpha + Fraction(-(-4000 * count * beta.denominator // beta.numerator)))
            found = Reference(network=network).time(program, count).picoseconds
            rows.append(
                {"algorithm": name, "topology": topology, "elements": count, "expected": int(expected), "found": found}
            )
    return rows


def digest(folder: Path) -> str:
    """SHA-256 of all files of all points at one instance, in the forms of all runtimes."""
    whole = hashlib.sha256()
    for name, number, runtime, protocol, instances in cases(folder, 0):
        if protocol == "Simple" and instances == 1:
            try:
                for program in roundtrip.made(
                    frontier(name, folder, 0).points[number].schedule, runtime, protocol, instances
                ):
                    whole.update("".join(roundtrip.written(program, runtime, TOPOLOGY)).encode())
            except SynthError as error:
                whole.update(str(error).encode())
    return whole.hexdigest()


def stable(folder: Path) -> list[str]:
    """The digests of two processes with different hash seeds."""
    command = [sys.executable, "-m", "bench.programs", "--digest", "--frontiers", str(folder)]
    runs = [
        subprocess.Popen(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True, cwd=measure.ROOT
        )
        for seed in ("1", "2")
    ]
    return [run.communicate()[0].strip() for run in runs]


def counts(rows: Sequence[dict]) -> list[list[str]]:
    """A line for each collective and runtime: programs, kinds of call, right, refused, wrong, the ratios to the
    bound."""
    lines = []
    for name, runtime in dict.fromkeys((row["collective"], row["runtime"]) for row in rows):
        mine = [row for row in rows if (row["collective"], row["runtime"]) == (name, runtime)]
        ended = Counter(row["outcome"] for row in mine)
        good = [row for row in mine if row["outcome"] == "right"]
        points = len({tuple(row["point"]) for row in mine})
        calls = " and ".join(sorted({mode for row in good for mode in row["modes"]}, reverse=True))
        ratios = sorted(row["ratio"] for row in good)
        spread = f"{ratios[0]:.2f}, {median(ratios):.2f}" if ratios else ""
        lines.append(
            [
                name,
                runtime,
                str(points),
                calls,
                str(len(mine)),
                *(str(ended[k]) for k in ("right", "refused", "wrong")),
                spread,
            ]
        )
    return lines


def forbidden(rows: Sequence[dict]) -> list[dict]:
    """Return the faults: wrong programs, and refusals of programs that fit."""
    return [
        row for row in rows
        if row["outcome"] == "wrong"
        or (row["outcome"] == "refused" and row["runtime"] not in row["why"])
        or (row["outcome"] == "refused" and row["collective"] in NEVER_REFUSED and row["instances"] == 1)
    ]  # fmt: skip


def table(document: dict) -> str:
    """The results as Markdown."""
    rows, times = document["rows"], document["makespans"]
    why = Counter((row["runtime"], row["why"]) for row in rows if row["outcome"] == "refused")
    head = [
        "collective",
        "runtime",
        "points>",
        "calls",
        "programs>",
        "right>",
        "refused>",
        "wrong>",
        "time / bound: least, median>",
    ]
    torus_, same = document["torus"], len(set(document["digests"])) == 1
    open_ = [name for name, kept in document["frontiers"].items() if not kept["complete"]]
    return (
        f"# Programs\n\n{len(rows)} programs: the points of the frontiers of {len(COLLECTIVES)} collectives on "
        f"{TOPOLOGY} × "
        f"{', '.join(map(str, INSTANCES))} instances × {', '.join(FIFO_DEPTH)} × every runtime that dispatches the "
        f"collective (MSCCL++: "
        "Simple and LL). Right: lint finds nothing at any size; every element is right in the reference executor, "
        "in each kind of "
        "call, whole and in the finest parts, with random delays; the files are accepted by the strict readers of "
        "the tests and read "
        f"back as the same program. Time / bound: in the reference executor at {roundtrip.SIZE >> 20} MiB over the "
        f"certified bound on "
        "programs of any steps; never below 1. It is that of every point, also of those that are best at small "
        "sizes only.\n\n"
        + measure.markdown(head, counts(rows))
        + f"\nRefused: {sum(why.values())}.\n\n"
        + (
            measure.markdown(
                ["runtime", "limit", "programs>"], [[r, text, str(n)] for (r, text), n in sorted(why.items())]
            )
            if why
            else ""
        )
        + f"\nFrontiers left open by the time limit of {document['time_limit']} s: {', '.join(open_) or 'none'}.\n"
        + f"\nTorus 8×8 allgather (4, 8, 63), {torus_['ops']} instructions: lowered in {torus_['lower']} s, "
        f"analysed in "
        f"{torus_['lint']} s, run four times (both kinds of call, whole and in parts) in {torus_['run']} s of CPU.\n\n"
        + measure.markdown(
            ["known algorithm", "machine", "elements a chunk>", "picoseconds>", "Σ(α + bytes/β)>"],
            [[t["algorithm"], t["topology"], str(t["elements"]), str(t["found"]), str(t["expected"])] for t in times],
        )
        + f"\nAll files (Simple, one instance, every runtime), written in two processes with different hash seeds: "
        f"{'the same bytes' if same else 'NOT the same bytes'}.\n\n"
        + measure.setting(document["where"])
        + f" Seed {SEED}.\n"
    )


def main(arguments: Sequence[str]) -> int:
    """Runs all of it; exit code 1 where anything is wrong, or refused that must not be."""
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description=__doc__)
    parser.add_argument(
        "--frontiers", type=Path, default=default_directory() / "bench-programs", help="where frontiers are kept"
    )
    parser.add_argument("--time-limit", type=float, default=60, help="seconds for each frontier")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--digest", action="store_true", help="print the digest of all files, nothing else")
    given = parser.parse_args(arguments)
    if given.digest:
        print(digest(given.frontiers))
        return 0
    every = list(cases(given.frontiers, given.time_limit))
    rows = []
    with ProcessPoolExecutor(given.jobs) as pool:
        for row in pool.map(judged, every, [given.frontiers] * len(every), chunksize=4):
            rows.append(row)
            print(row, file=sys.stderr)
    kept = {name: frontier(name, given.frontiers, given.time_limit) for name in COLLECTIVES}
    document = {
        "where": measure.where(),
        "seed": SEED,
        "time_limit": given.time_limit,
        "torus": torus(),
        "makespans": makespans(),
        "digests": stable(given.frontiers),
        "frontiers": {n: {"complete": f.complete, "points": len(f.points)} for n, f in kept.items()},
        "rows": rows,
    }
    measure.keep(document, table(document), measure.RESULTS / "programs.json")
    bad = forbidden(rows)
    off = [t for t in document["makespans"] if t["expected"] != t["found"]]
    print(
        json.dumps(
            {
                "programs": len(rows),
                "wrong": len(bad),
                "makespans_off": len(off),
                "stable": len(set(document["digests"])) == 1,
            }
        )
    )
    for row in bad:
        print(row)
    return 1 if bad or off or len(set(document["digests"])) > 1 or not document["torus"]["clean"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
