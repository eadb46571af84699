"""SCCL's encoding (`sccl`) in z3 against the default, instance by instance.

python -m bench.encodings [--seeds 5] [--only TEXT] [--timeout 300] [-o results.json]
python -m bench.encodings --table            the table again, from the JSON

CPU seconds are encode + solve of the engine that answered, imports apart, the median over the seeds; a seed renumbers
the problem, the same for both sides (see relabel.py), and the solvers keep the seed of a user who names none. `all`
counts for the default also every other portfolio member and the parent: the search for symmetries, starting and
stopping. A schedule counts once the verifier has replayed it; an answer other than the known one is an error. Instances
that one side does not decide in most of the seeds are listed and left out of the mean. No query knows of lower bounds
here: that is what sweeps.py measures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from pathlib import Path

from bench.measure import RESULTS, geomean, keep, markdown, median, seconds, setting, where
from bench.relabel import problem
from synth.checker.schedule import replay as verify
from synth.model.outcome import Sat, Unsat, Verdict
from synth.pareto.portfolio import portfolio
from synth.solvers.processes import pool
from synth.solvers.processes.deadline import Budget, Deadline

SIDES = {"path": ("sccl", "z3"), "auto": ("auto", "auto")}

# Topology, collective, C, S, R and the answer: all rows of tests/data/known_results.csv; then the hard ones of SCCL's
# kind on 16 ranks; then other machines and collectives. Fixed before it was measured, nothing left out afterwards.
INSTANCES = (
    ("dgx1-v100", "allgather", 1, 2, 2, "sat"),
    ("dgx1-v100", "allgather", 2, 2, 3, "sat"),
    ("dgx1-v100", "allgather", 2, 3, 3, "sat"),
    ("dgx1-v100", "allgather", 3, 4, 4, "sat"),
    ("dgx1-v100", "allgather", 4, 5, 5, "sat"),
    ("dgx1-v100", "allgather", 5, 6, 6, "sat"),
    ("dgx1-v100", "allgather", 6, 7, 7, "sat"),
    ("dgx1-v100", "allgather", 6, 3, 7, "sat"),
    ("dgx1-v100", "allgather", 3, 2, 4, "unsat"),
    ("dgx1-v100", "allgather", 6, 2, 7, "unsat"),
    ("dgx1-v100", "broadcast", 2, 2, 2, "sat"),
    ("dgx1-v100", "broadcast", 6, 3, 3, "sat"),
    ("dgx1-v100", "broadcast", 12, 4, 4, "sat"),
    ("dgx1-v100", "broadcast", 18, 5, 5, "sat"),
    ("dgx1-v100", "broadcast", 22, 3, 9, "sat"),
    ("dgx1-v100", "broadcast", 13, 4, 4, "sat"),
    ("dgx1-v100", "broadcast", 3, 2, 2, "unsat"),
    ("dgx1-v100", "alltoall", 1, 3, 3, "sat"),
    ("dgx1-v100", "alltoall", 1, 2, 3, "sat"),
    ("dgx1-v100", "alltoall", 1, 2, 2, "unsat"),
    ("dgx1-v100", "alltoall", 3, 8, 8, "sat"),
    ("dgx1-v100", "alltoall", 3, 2, 8, "sat"),
    ("mi50-z52", "allgather", 1, 4, 4, "sat"),
    ("mi50-z52", "allgather", 2, 7, 7, "sat"),
    ("mi50-z52", "allgather", 2, 4, 7, "sat"),
    ("mi50-z52", "allgather", 1, 3, 3, "unsat"),
    ("mi50-z52", "broadcast", 2, 4, 4, "sat"),
    ("mi50-z52", "broadcast", 10, 8, 8, "sat"),
    ("mi50-z52", "alltoall", 1, 4, 8, "sat"),
    ("dgx1-v100", "allgather", 6, 2, 8, "unsat"),
    ("ring:16", "allgather", 2, 15, 15, "sat"),
    ("hypercube:16", "allgather", 4, 4, 15, "sat"),
    ("dgx2", "allgather", 1, 1, 3, "sat"),
    ("dgx-a100*2", "allgather", 1, 2, 8, "sat"),
    ("dgx1-p100", "allgather", 4, 2, 7, "sat"),
    ("hypercube:8", "allgather", 3, 3, 7, "sat"),
    ("hypercube:8", "allgather", 2, 3, 4, "unsat"),
    ("hypercube:8", "alltoall", 1, 3, 4, "sat"),
    ("torus:3x3", "allgather", 1, 2, 2, "sat"),
    ("torus:4x4", "broadcast", 2, 5, 5, "sat"),
    ("dgx1-v100", "scatter", 6, 2, 7, "sat"),
    ("dgx1-v100", "reduce-scatter", 3, 4, 4, "sat"),
)


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.encodings", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="renumberings of each instance")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="instances whose name contains TEXT; 'a|b' for a or b"
    )
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="wall time of one query")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "encodings.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    chosen = [row for row in INSTANCES if any(part in name(row) for part in given.only.split("|"))]
    rows = []
    began = time.monotonic()
    try:
        for row in chosen:
            print(f"{name(row):44}", end="", file=sys.stderr, flush=True)
            rows.append(measure(row, given.seeds, given.timeout))
            print(
                f" path {_shown(rows[-1], 'path'):>8} auto {_shown(rows[-1], 'auto'):>8}  {rows[-1]['error']}",
                file=sys.stderr,
            )
    finally:
        pool.stop()
    document = {
        "setting": where(),
        "seeds": given.seeds,
        "timeout": given.timeout,
        "seconds": round(time.monotonic() - began),
        "rows": rows,
    }
    document["summary"] = summary(rows)
    keep(document, table(document), given.output)
    print(table(document))
    return int(any(row["error"] for row in rows))


def name(row: tuple) -> str:
    """``dgx1-v100 allgather 6,3,7 sat``."""
    return f"{row[0]} {row[1]} {row[2]},{row[3]},{row[4]} {row[5]}"


def measure(row: tuple, seeds: int, timeout: float) -> dict:
    """Both sides on one instance, seed by seed in turn. A side that has lost most of the seeds is not asked again."""
    *what, answer = row
    found: dict = {"instance": name(row), "error": "", "path": [], "auto": []}
    for seed in range(1, seeds + 1):
        asked = problem(*what, seed=seed)
        for side, (encoding, solver) in SIDES.items():
            if 2 * sum(run["verdict"] == "unknown" for run in found[side]) > seeds:
                continue
            began = time.process_time()
            budget = Budget(
                Deadline.after(timeout), memory=6 << 30
            )  # the solvers' own seed is what a user gets who names none
            verdict = portfolio.solve(asked, budget=budget, encoding=encoding, solver=solver)
            parent = time.process_time() - began
            run = {"seed": seed, "verdict": type(verdict).__name__.lower(), "engine": verdict.cost.engine}
            run |= {"cpu": verdict.cost.cpu, "all": verdict.cost.total_cpu + parent, "wall": verdict.cost.wall}
            found[side].append(
                {key: round(value, 5) if isinstance(value, float) else value for key, value in run.items()}
            )
            found["error"] = found["error"] or _wrong(verdict, answer, what)
    found["seeds"] = seeds
    for side in SIDES:
        runs, missing = found[side], seeds - len(found[side])
        for key in ("cpu", "all", "wall"):
            values = [run[key] if run["verdict"] != "unknown" else math.inf for run in runs] + [math.inf] * missing
            middle = median(values)
            found[f"{side}_{key}"] = None if math.isinf(middle) else round(middle, 5)
    return found


def _wrong(verdict: Verdict, answer: str, what: list) -> str:
    """Why the answer cannot be right; empty when it is the known one, replayed, or there is none."""
    match verdict:
        case Sat(schedule):
            replay = verify.schedule(schedule)
            if [replay.chunks, replay.steps] != what[2:4] or replay.rounds > what[4]:
                return f"asked for {what[2:5]}, got {replay}"
            return "" if answer == "sat" else "a schedule where there should be none"
        case Unsat():
            return "" if answer == "unsat" else "refuted where there is a schedule"
        case _:
            return ""


def summary(rows: list[dict]) -> dict:
    """Geometric means over the instances that both sides decide."""
    both = [row for row in rows if row["path_cpu"] is not None and row["auto_cpu"] is not None]
    return {
        "instances": len(rows),
        "both": len(both),
        "path_only_undecided": sum(row["path_cpu"] is None and row["auto_cpu"] is not None for row in rows),
        "auto_undecided": sum(row["auto_cpu"] is None for row in rows),
        "geomean_cpu": round(geomean([row["path_cpu"] / row["auto_cpu"] for row in both]), 2),
        "geomean_all": round(geomean([row["path_all"] / row["auto_all"] for row in both]), 2),
        "geomean_wall": round(geomean([row["path_wall"] / row["auto_wall"] for row in both]), 2),
    }


def table(document: dict) -> str:
    """The measurement as Markdown."""
    limit = document["timeout"]
    head = (
        "instance (C,S,R)",
        "path/z3>",
        "default>",
        "ratio>",
        "engine",
        "all members>",
        "path/z3 wall>",
        "default wall>",
    )
    rows = []
    for row in document["rows"]:
        cells = {f"{s}_{k}": _cell(row[f"{s}_{k}"], limit) for s in SIDES for k in ("cpu", "all", "wall")}
        solved = row["path_cpu"] is not None and row["auto_cpu"] is not None
        ratio = f"{row['path_cpu'] / row['auto_cpu']:.0f}" if solved else "–"
        engines = [run["engine"] for run in row["auto"] if run["engine"]]
        engine = max(sorted(set(engines)), key=engines.count, default="")
        first = (row["instance"], cells["path_cpu"], cells["auto_cpu"], ratio, engine)
        rows.append((*first, cells["auto_all"], cells["path_wall"], cells["auto_wall"]))
    total = document["summary"]
    lines = [
        "# SCCL's encoding in z3 against the default\n",
        f"Geometric mean over the {total['both']} of {total['instances']} instances that both decide:"
        f" **{total['geomean_cpu']:.0f}×** less CPU (encode + solve of the engine that answers);"
        f" {total['geomean_all']:.1f}× with all other members and the search for symmetries counted;"
        f" {total['geomean_wall']:.1f}× in wall time. {total['path_only_undecided']} more are decided by the "
        f"default alone,"
        f" {total['auto_undecided']} not by the default.\n",
        f"CPU seconds, medians of {document['seeds']} renumberings, at most {limit:g} s of wall time a query, "
        f"imports apart."
        f" {setting(document['setting'])}\n",
        markdown(head, rows),
    ]
    return "\n".join(lines)


def _cell(value: float | None, limit: float) -> str:
    return f"> {limit:g} wall" if value is None else seconds(value)


def _shown(row: dict, side: str) -> str:
    return "-" if row[f"{side}_cpu"] is None else seconds(row[f"{side}_cpu"])


if __name__ == "__main__":
    sys.exit(main())
