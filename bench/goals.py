"""Answers of the command line, their times, and a comparison with the known answers.

python -m bench.goals [--only TEXT] [--timeout 600] [-o results.json]

Every row is a real command in a process of its own; wall and CPU seconds are from its start to its exit, with the
helper processes it waited for. A frontier's answer is checked against the values of the row and by ``synth verify``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from statistics import median

from bench.measure import RESULTS, Run, keep, markdown, seconds, setting, synth, where

Check = Callable[[dict], str]  # what is wrong with the document; empty when nothing is


@dataclass(frozen=True)
class Goal:
    """A command, the wall seconds that are the goal, and what its JSON must say."""

    name: str
    arguments: tuple[str, ...]
    wall: float | None
    check: Check
    runs: int = 1


def frontier(
    points: dict[int, str], *, complete: bool = False, upto: dict[int, str] | None = None, others: bool = False
) -> Check:
    """Checks that `points` are proved optimal as given, and that R/C at the steps of `upto` is at most that; `others`
    may be there."""

    def check(doc: dict) -> str:
        found = {p["steps"]: p for p in doc["points"]}
        for steps, bandwidth in points.items():
            if steps not in found or found[steps]["bandwidth"] != bandwidth:
                return f"S={steps}: {found[steps]['bandwidth'] if steps in found else 'no point'}, expected {bandwidth}"
            if found[steps]["status"] != "optimal":
                return f"S={steps}: {bandwidth} is not proved"
        for steps, bandwidth in (upto or {}).items():
            if not any(s <= steps and Fraction(p["bandwidth"]) <= Fraction(bandwidth) for s, p in found.items()):
                return f"S={steps}: more than {bandwidth}"
        more = sorted(set(found) - set(points) - set(upto or {}))
        if more and not others:
            return f"points at S={more} besides"
        return "" if doc["complete"] or not complete else "not complete"

    return check


def ends_proved(doc: dict) -> str:
    """First point proved optimal for any C, every other one too or within a tenth of its bound, the last one of the
    bound for every S."""
    points = doc["points"]
    if not points:
        return "no points"
    if points[0]["status"] != "optimal":
        return f"S={points[0]['steps']} is not proved"
    floor = max(Fraction(bound["value"]) for bound in doc["bounds"] if bound["steps"] is None)
    last = Fraction(points[-1]["bandwidth"])
    if last > floor * Fraction(11, 10):
        return f"the last point is at {last}, the bound for every S is {floor}"
    for point in points:
        if Fraction(point["bandwidth"]) > Fraction(point["bound"]["value"]) * Fraction(11, 10):
            return f"S={point['steps']}: {point['bandwidth']} against a bound of {point['bound']['value']}"
    return ""


def scheduled(chunks: int, steps: int, rounds: int) -> Check:
    """A schedule with these C, S and R."""

    def check(doc: dict) -> str:
        found = (doc["chunks"], len(doc["steps"]), sum(step["rounds"] for step in doc["steps"]))
        return "" if found == (chunks, steps, rounds) else f"(C, S, R) = {found}"

    return check


def pareto(topology: str, collective: str, *more: str) -> tuple[str, ...]:
    """The command line of a frontier."""
    return ("pareto", "--topo", topology, "--coll", collective, "--fresh", *more)


def solve(topology: str, collective: str, chunks: int, steps: int, rounds: int) -> tuple[str, ...]:
    """The command line of one question."""
    asked = ("--chunks", str(chunks), "--steps", str(steps), "--rounds", str(rounds))
    return ("solve", "--topo", topology, "--coll", collective, *asked)


TWO_BOXES = "dgx1*2:cross=0+2+5+7"

GOALS = (
    Goal("DGX-1 allgather", pareto("dgx1", "allgather"), 1.5, frontier({2: "3/2", 3: "7/6"}, complete=True), 3),
    Goal("DGX-1 allreduce", pareto("dgx1", "allreduce"), 30,
         frontier({2: "1", 3: "1/2", 4: "1/3", 5: "7/24"}, complete=True)),
    Goal("ring of 8 allreduce", pareto("ring:8", "allreduce"), None,
         frontier({4: "2", 5: "5/4", 7: "7/8"}, others=True)),
    Goal("hypercube of 8 allreduce", pareto("hypercube:8", "allreduce"), None, frontier({3: "1", 4: "2/3", 5: "7/12"})),
    Goal("fully connected 8 allreduce", pareto("fully-connected:8", "allreduce"), None,
         frontier({1: "1", 2: "1/4"}, complete=True)),
    Goal("switch of 8 allreduce", pareto("switch:8:units=12", "allreduce"), None,
         frontier({1: "7", 2: "7/4"}, complete=True)),
    Goal("torus 4×4 allreduce", pareto("torus:4x4", "allreduce"), None, frontier({6: "1/2", 7: "15/32"}, others=True)),
    Goal("DGX-1 alltoall", pareto("dgx1", "alltoall"), None, frontier({2: "8/3"}, complete=True)),
    Goal("DGX-1 alltoall (3,8,8)", solve("dgx1", "alltoall", 3, 8, 8), 5, scheduled(3, 8, 8), 3),
    Goal("hypercube of 16 allgather", pareto("hypercube:16", "allgather"), 60, ends_proved),
    Goal("torus 4×4 allgather", pareto("torus:4x4", "allgather"), 60, ends_proved),
    Goal("DGX-2 allgather", pareto("dgx2", "allgather"), 60, ends_proved),
    Goal("DGX-A100×2 allgather", pareto("dgx-a100*2", "allgather"), 60, ends_proved),
    Goal("MI250 allgather", pareto("mi250", "allgather"), 60, ends_proved),
    Goal("two DGX-1 allgather", pareto(TWO_BOXES, "allgather"), 120,
         frontier({3: "4", 4: "14/5", 5: "18/7", 6: "5/2"}, complete=True)),
    Goal("torus 8×8 allgather (4,8,63)", solve("torus:8x8", "allgather", 4, 8, 63), 30, scheduled(4, 8, 63)),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measures, and prints the table of what was measured. Returns 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.goals", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows whose name contains TEXT; 'a|b' for a or b")
    parser.add_argument("--timeout", type=float, default=600, metavar="SECONDS", help="wall time of one command")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "goals.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    start = median(synth("--version").wall for _ in range(5))
    document: dict = {"setting": where(), "start": round(start, 3), "rows": []}
    document["help"] = times([synth("--help") for _ in range(7)])
    with tempfile.TemporaryDirectory(prefix="synth-bench-") as folder:
        for goal in GOALS:
            if any(part in goal.name for part in given.only.split("|")):
                document["rows"].append(measure(goal, Path(folder) / "result.json", given.timeout))
                print(document["rows"][-1], file=sys.stderr)
    keep(document, table(document), given.output)
    print(table(document))
    return int(any(row["error"] for row in document["rows"]))


def times(runs: list[Run]) -> dict:
    """The medians of wall and CPU seconds."""
    return {"wall": round(median(run.wall for run in runs), 3), "cpu": round(median(run.cpu for run in runs), 3)}


def measure(goal: Goal, file: Path, timeout: float) -> dict:
    """Runs the command, checks its answer, and verifies it in another process."""
    runs = []
    for _ in range(goal.runs):
        file.unlink(missing_ok=True)
        runs.append(synth(*goal.arguments, "--format", "json", "-o", str(file), timeout=timeout))
    row: dict = {"name": goal.name, "command": "synth " + " ".join(goal.arguments), "goal": goal.wall, "error": ""}
    row |= times(runs) | {"exit": runs[-1].code}
    if not file.exists():
        return row | {"error": _last_line(runs[-1]), "answer": "", "verify_wall": None, "certificate": None}
    doc = json.loads(file.read_text(encoding="utf-8"))
    checked = synth("verify", str(file))
    row["answer"] = answer(doc)
    row["verify_wall"] = round(checked.wall, 3)
    row["certificate"] = max((len(json.dumps(c, separators=(",", ":"))) for c in certificates(doc)), default=None)
    row["error"] = goal.check(doc) or (_last_line(checked) if checked.code else "")
    return row


def _last_line(run: Run) -> str:
    if run.code == -1:
        return "stopped: it took too long"
    return (run.stderr.strip() or run.stdout.strip() or f"exit code {run.code}").splitlines()[-1]


def certificates(doc: dict) -> list[dict]:
    """All certificates of a frontier document."""
    held = [point["bound"] for point in doc.get("points", [])] + doc.get("bounds", []) + doc.get("open", [])
    return [entry["certificate"] for entry in held if entry.get("certificate")]


def answer(doc: dict) -> str:
    """``2: 3/2, 3: 7/6; complete``; a best-known point carries its bound."""
    if "points" not in doc:
        return f"C={doc['chunks']}, S={len(doc['steps'])}, R={sum(step['rounds'] for step in doc['steps'])}"
    said = []
    for point in doc["points"]:
        bound = "" if point["status"] == "optimal" else f" (≥ {point['bound']['value']})"
        said.append(f"{point['steps']}: {point['bandwidth']}{bound}")
    until = "" if doc["max_steps"] is None else f" to {doc['max_steps']}"
    return ", ".join(said) + (f"; complete{until}" if doc["complete"] else "")


def table(document: dict) -> str:
    """The measurement as Markdown."""
    start = document["help"]
    rows = [("`synth --help`", "", "< 0.2", seconds(start["wall"]), seconds(start["cpu"]), "", "", "")]
    for row in document["rows"]:
        verified = "" if row["verify_wall"] is None else seconds(max(0.0, row["verify_wall"] - document["start"]))
        size = "" if row["certificate"] is None else f"{row['certificate']:,}"
        goal = "" if row["goal"] is None else f"< {row['goal']:g}"
        spent = seconds(row["wall"]), seconds(row["cpu"])
        rows.append((row["name"], row["answer"], goal, *spent, verified, size, row["error"] or "ok"))
    head = ["what", "steps: rounds per chunk", "goal s>", "wall s>", "CPU s>", "verify s>", "certificate, bytes>", ""]
    lines = [
        "# What the command line does\n",
        "Each row is a command from start to exit; `verify` is the wall time of `synth verify` on its output beyond"
        f" start-up ({document['start']:.2f} s). (≥ b): not proved optimal, b is the bound.\n",
        f"{setting(document['setting'])}\n",
        markdown(head, rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
