"""SCCL's sweep on SCCL's encoding against the guided one: the same frontier, allgather on DGX-1.

python -m bench.sweeps [--runs 5] [--blind-runs 1] [--limit 3600] [-o results.json]
python -m bench.sweeps --table

Two figures for each. *Synthesis CPU*: a fresh process first sweeps another, tiny machine so that every library is
there, then runs the sweep; counted are its own CPU seconds and those of every engine it raced, losers and all. *Whole
process*: user + system seconds of the command line from start to exit.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.measure import RESULTS, command, keep, markdown, median, seconds, setting, synth, where

TOPOLOGY, COLLECTIVE = "dgx1", "allgather"
SWEEPS = {
    "guided": (),
    "blind": ("--encoding", "sccl", "--solver", "z3", "--sweep", "blind", "--max-chunks", "6"),
}


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when the two frontiers differ."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.sweeps", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="runs of the guided sweep")
    parser.add_argument("--blind-runs", type=int, default=1, metavar="N", help="runs of SCCL's sweep")
    parser.add_argument(
        "--limit", type=float, default=3600, metavar="SECONDS", help="wall time of one sweep; half of it for one query"
    )
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("--inside", choices=SWEEPS, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "sweeps.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    if given.inside:
        print(json.dumps(inside(given.inside, given.limit)))
        return 0
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    document: dict = {"setting": where(), "topology": TOPOLOGY, "collective": COLLECTIVE, "limit": given.limit}
    for kind, runs in (("guided", given.runs), ("blind", given.blind_runs)):
        document[kind] = [measure(kind, given.limit) for _ in range(runs)]
        print(f"{kind}: {document[kind]}", file=sys.stderr)
    guided, blind = document["guided"], document["blind"]
    figures = ("synthesis_cpu", "process_cpu", "process_wall")
    ratios = {key: median(run[key] for run in blind) / median(run[key] for run in guided) for key in figures}
    document["summary"] = {f"{key}_ratio": round(value, 1) for key, value in ratios.items()}
    same = all(run["points"] == guided[0]["points"] for run in (*guided, *blind))
    document["summary"]["same_frontier"] = same
    keep(document, table(document), given.output)
    print(table(document))
    return int(not same)


def measure(kind: str, limit: float) -> dict:
    """One run inside a prepared process and one of the command line."""
    prepared = command(
        [sys.executable, "-m", "bench.sweeps", "--inside", kind, "--limit", str(limit)], timeout=limit + 60
    )
    if prepared.code:
        raise SystemExit(prepared.stderr)
    asked = (
        "pareto",
        "--topo",
        TOPOLOGY,
        "--coll",
        COLLECTIVE,
        "--time-limit",
        f"{limit:g}s",
        "--fresh",
        "--format",
        "json",
    )
    run = synth(*asked, *SWEEPS[kind], timeout=limit + 60)
    if run.code not in (0, 4):
        raise SystemExit(run.stderr)
    shown = json.loads(run.stdout)
    points = [[p["steps"], p["bandwidth"]] for p in shown["points"]]
    whole = {"process_cpu": round(run.cpu, 3), "process_wall": round(run.wall, 3), "complete": shown["complete"]}
    return json.loads(prepared.stdout) | whole | {"points": points}


def inside(kind: str, limit: float) -> dict:
    """The sweep in this process, after a first one that loads every library."""
    from synth import api
    from synth.pareto.portfolio import portfolio

    options: dict = {"fresh": True, "time_limit": limit}
    if kind == "blind":
        options |= {"encoding": "sccl", "solver": "z3", "sweep": "blind", "max_chunks": 6}
    api.frontier("ring:4", COLLECTIVE, **options)
    spent = {"queries": 0, "engines": 0.0, "winners": 0.0}
    solve = portfolio.solve

    def counted(*arguments, **keywords):
        verdict = solve(*arguments, **keywords)
        spent["queries"] += 1
        spent["engines"] += verdict.cost.total_cpu
        spent["winners"] += verdict.cost.cpu
        return verdict

    portfolio.solve = counted
    cpu, wall = time.process_time(), time.monotonic()
    api.frontier(TOPOLOGY, COLLECTIVE, **options)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    found = {
        "synthesis_cpu": cpu + spent["engines"],
        "own_cpu": cpu,
        "engines_cpu": spent["engines"],
        "winners_cpu": spent["winners"],
    }
    return {key: round(value, 4) for key, value in found.items()} | {
        "wall": round(wall, 3),
        "queries": spent["queries"],
    }


def table(document: dict) -> str:
    """The measurement as Markdown."""
    rows = []
    for kind, label in (("blind", "SCCL's: `sccl` in z3, C ≤ 6"), ("guided", "guided, default")):
        runs = document[kind]
        middle = {
            key: median(run[key] for run in runs) for key in ("synthesis_cpu", "process_cpu", "process_wall", "queries")
        }
        proved = "any C" if runs[0]["complete"] else "C ≤ 6 only"
        figures = (seconds(middle[key]) for key in ("synthesis_cpu", "process_cpu", "process_wall"))
        rows.append((label, str(len(runs)), f"{middle['queries']:.0f}", *figures, proved))
    total = document["summary"]
    points = ", ".join(f"({steps}, {bandwidth})" for steps, bandwidth in document["guided"][0]["points"])
    same = "the same frontier" if total["same_frontier"] else "NOT the same frontier"
    lines = [
        f"# SCCL's sweep against the guided one: {document['collective']} on {document['topology']}\n",
        f"{points}, {same}: **{total['synthesis_cpu_ratio']:.0f}×** less synthesis CPU, imports apart;"
        f" {total['process_cpu_ratio']:.0f}× less CPU and {total['process_wall_ratio']:.0f}× less wall time for the "
        f"whole process.\n",
        f"Medians. Synthesis CPU counts every engine raced. {setting(document['setting'])}\n",
        markdown(
            ("sweep", "runs>", "queries>", "synthesis CPU s>", "process CPU s>", "process wall s>", "proved for"), rows
        ),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
