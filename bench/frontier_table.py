"""Frontiers of named clusters, built-in machines and random ones, before and after a change of the engines.

    python -m bench.frontier_table measure -o before.jsonl [--only random]
    python -m bench.frontier_table compare before.jsonl after.jsonl

`measure` appends a line a problem and leaves out those that the file has, so it can be stopped and continued. Each
problem is searched by the command line in a process of its own, with an empty cache, for `LIMITS` seconds. Compare
only files that were measured on equally quiet machines; each line has the load at its start.

`compare` prints, for each group of machines: how many statuses of the first file the second one keeps, the median and
the 95th percentile of the ratio of rounds per chunk at the same number of steps, and how many open intervals are more
than a tenth wider.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from bench.measure import commit, markdown, synth

BUILT_IN = (
    "dgx1-v100", "dgx1-p100", "dgx2", "dgx-a100", "p4d", "dgx-h100", "dgx-h200", "dgx-b200", "mi50-z52", "mi100-4p3l",
    "mi250", "mi300x", "mi355x", "pcie-2x4", "pcie-4x2", "pcie-8",
)  # fmt: skip
BOXES = ("dgx1", "dgx-a100", "dgx-h100", "mi250", "mi300x")
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "alltoall", "broadcast", "reduce")
RANDOM_COLLECTIVES = ("allreduce", "allgather", "alltoall", "broadcast")
RANDOM_MACHINES = 40
LIMITS = {"built-in": 10, "cluster": 60, "random": 10}  # seconds of wall time
WIDER = Fraction(11, 10)


class Problem(NamedTuple):
    """A machine (a name, or the seed of a random one) and a collective."""

    group: str
    machine: str
    collective: str


def problems() -> Iterator[Problem]:
    """Yield every problem, in the order in which they are measured."""
    randoms = [f"random-{seed}" for seed in range(RANDOM_MACHINES)]
    clusters = [f"{machine}*{boxes}" for machine in BOXES for boxes in (2, 4, 8)]
    groups = (("built-in", BUILT_IN, COLLECTIVES), ("random", randoms, RANDOM_COLLECTIVES))
    for group, machines, collectives in (*groups, ("cluster", clusters, COLLECTIVES)):
        for machine, collective in itertools.product(machines, collectives):
            yield Problem(group, machine, collective)


def random_machine(seed: int) -> dict:
    """Return a random machine of 3 to 10 ranks as a topology file: a cycle, so that all ranks reach each other, and
    chords of 1 to 3 GB/s, a fifth of them one-way; a third of the machines limit what each rank sends and receives."""
    rng = Random(seed)
    ranks = rng.randint(3, 10)
    order = rng.sample(range(ranks), ranks)
    links = {}
    for a, b in zip(order, order[1:] + order[:1], strict=True):
        links[a, b] = links[b, a] = rng.randint(1, 3)
    density = rng.uniform(0.1, 0.7)
    for a in range(ranks):
        for b in range(a):
            if (a, b) not in links and rng.random() < density:
                links[a, b] = rng.randint(1, 3)
                if rng.random() < 0.8:
                    links[b, a] = links[a, b]
    limits = []
    if rng.random() < 1 / 3:
        for rank in range(ranks):
            for end in (0, 1):
                ports = [list(link) for link in sorted(links) if link[end] == rank]
                limits.append({"name": f"port {rank}.{end}", "links": ports, "bandwidth": rng.randint(2, 4)})
    rows = [{"src": a, "dst": b, "bandwidth": width} for (a, b), width in sorted(links.items())]
    return {"name": f"random-{seed}", "ranks": ranks, "links": rows, "limits": limits}


def measured(problem: Problem) -> dict:
    """Search a problem, and return its points, its open intervals and its bound for any number of steps.

    Rates are rounds per chunk over GB/s of a unit.
    """
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="synth-bench-") as folder:
        machine, out = problem.machine, Path(folder) / "frontier.json"
        if problem.group == "random":
            file = Path(folder) / f"{problem.machine}.json"
            file.write_text(json.dumps(random_machine(int(problem.machine.partition("-")[2]))), encoding="utf-8")
            machine = str(file)
        limit = LIMITS[problem.group]
        command = ("pareto", "--topo", machine, "--coll", problem.collective, "--time-limit", f"{limit}s", "--quiet")
        fresh = ("--fresh", "-o", str(out), "--format", "json")
        run = synth(*command, *fresh, timeout=3 * limit + 60)
        row = {**problem._asdict(), "commit": commit(), "code": run.code, "wall": round(run.wall, 2)}
        row |= {"cpu": round(run.cpu, 2), "load": round(load, 2)}
        if not out.is_file():
            return {**row, "error": (run.stderr.strip().splitlines() or ["nothing was printed"])[-1]}
        found = json.loads(out.read_text(encoding="utf-8"))
    at_scale = isinstance(found.get("bound"), dict)
    bounds = [bound["value"] for bound in found.get("bounds", ()) if bound["steps"] is None]
    unit = Fraction(found["topology"]["unit_gbps"])  # commits may differ in it

    def rate(rounds_per_chunk: str) -> str:
        return str(Fraction(rounds_per_chunk) / unit)

    row["points"] = [
        [p["steps"], rate(p["bandwidth"]), p.get("status", f"gap {p.get('gap')}")] for p in found["points"]
    ]
    row["bound"] = rate(found["bound"]["value"] if at_scale else max(bounds, key=Fraction, default="0"))
    row["complete"] = bool(found.get("complete"))
    row["open"] = []
    for interval in () if at_scale else found["open"]:
        row["open"].append([interval["steps"], rate(interval["lower"]), interval["upper"] and rate(interval["upper"])])
    return row


def measure(output: Path, only: str | None) -> int:
    """Append the rows that `output` does not have."""
    earlier = rows(output) if output.is_file() else []
    known = {tuple(row[key] for key in Problem._fields) for row in earlier}
    todo = [p for p in problems() if p not in known and (only is None or only in "/".join(p))]
    with output.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in earlier)
        for count, problem in enumerate(todo, 1):
            row = measured(problem)
            file.write(json.dumps(row) + "\n")
            file.flush()
            best = row["points"][-1][1] if row.get("points") else row.get("error", "no point")
            print(f"{count}/{len(todo)} {problem.machine} {problem.collective}: {best}, {row['wall']} s", flush=True)
    return 0


def rows(path: Path) -> list[dict]:
    """Read the rows of a file; a line that was cut off when the job was stopped is left out."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def best_at(row: dict, steps: int) -> Fraction | None:
    """Return the least rounds per chunk that a row reaches with at most so many steps."""
    return min((Fraction(value) for at, value, _ in row["points"] if at <= steps), default=None)


def compare(before: Path, after: Path) -> str:
    """Return the table of two files, and below it every cell that got worse."""
    old = {tuple(row[key] for key in Problem._fields): row for row in rows(before)}
    new = {tuple(row[key] for key in Problem._fields): row for row in rows(after)}
    table, worse = [], []
    for group in LIMITS:
        kept = lost = wide = cells = 0
        ratios = []
        for problem in problems():
            first, second = old.get(problem), new.get(problem)
            if problem.group != group or first is None or second is None or "points" not in first:
                continue
            cells += 1
            name = f"{problem.machine} {problem.collective}"
            if "points" not in second:
                worse.append(f"{name}: {second['error']}")
                lost += 1 + first["complete"]
                continue

            # what was optimal at a number of steps, or complete, should be so again
            optimal = {point[0] for point in second["points"] if point[2] == "optimal"}
            wanted = [first["complete"]] + [point[2] == "optimal" for point in first["points"]]
            again = [second["complete"]] + [point[0] in optimal or second["complete"] for point in first["points"]]
            missing = sum(old and not now for old, now in zip(wanted, again, strict=True))
            kept, lost = kept + sum(wanted) - missing, lost + missing
            if missing:
                worse.append(f"{name}: {missing} statuses lost")

            # at each number of steps of the first file, the best of the second with no more steps
            for steps, value, _ in first["points"]:
                now = best_at(second, steps)
                ratios.append(float(now / Fraction(value)) if now is not None else float("inf"))
                if ratios[-1] > 1:
                    worse.append(f"{name}: S={steps} {value} -> {now}")

            # an interval is as wide as upper / lower
            widths = {steps: Fraction(upper) / Fraction(lower) for steps, lower, upper in first["open"] if upper}
            for steps, lower, upper in second["open"]:
                if upper and Fraction(upper) / Fraction(lower) > WIDER * widths.get(steps, 1):
                    wide += 1
                    worse.append(f"{name}: S={steps} open from {lower} to {upper}")
                    break
        if cells:
            ratios.sort()
            share = f"{100 * kept / max(1, kept + lost):.1f}%"
            at_95 = ratios[min(len(ratios) - 1, int(0.95 * len(ratios)))]
            table.append((group, str(cells), share, f"{median(ratios):.3f}", f"{at_95:.3f}", f"{wide} of {cells}"))
    head = ("machines", "problems>", "statuses kept>", "median ratio>", "95th percentile>", "wider intervals>")
    return markdown(head, table) + "".join(f"\n- {line}" for line in worse) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or compare two files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("measure")
    one.add_argument("-o", "--output", type=Path, required=True)
    one.add_argument("--only", metavar="WORD", help="only problems with this word in group/machine/collective")
    two = parts.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    if given.part == "measure":
        return measure(given.output, given.only)
    print(compare(given.before, given.after))
    return 0


if __name__ == "__main__":
    sys.exit(main())
