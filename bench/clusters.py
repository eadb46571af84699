"""Schedules composed of phases over the boxes of a machine: rounds per chunk against certified bounds.

python -m bench.clusters [--only TEXT] [--runs 1] [-o results.json]
python -m bench.clusters --table

Each row is a process of its own. Its schedules have at most 32 million sends, of which one of each orbit under the
machine's symmetries is listed, as those of `synth pareto`; on machines without symmetries at most 200,000. All are
replayed. The bounds for any number of steps and for up to 8 steps have checked certificates. `random:N` are the
clusters of `bench.random_clusters`: their schedules are those found in `LIMIT` CPU seconds, and where their bound for
up to 8 steps takes longer than that, in wall seconds, the one for any number of steps serves.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from bench.measure import command, markdown, seconds, setting
from bench.random_clusters import random_cluster
from bench.rowwise import drive
from synth.model.topology import Topology
from synth.scale.candidate import Candidate

# Limits on the sends of schedules without symmetries, and of those that are stored by orbits.
WRITTEN, BY_ORBITS = 200_000, 1 << 25
# Schedules of at most `SHORT` steps that are nearer to the bound for any number of steps are not bounded again.
NEAR = Fraction(1, 1000)
# Number of steps of a short schedule.
SHORT = 8
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "alltoall")
# CPU seconds for the schedules of a random cluster, and wall seconds for its bound in few steps.
LIMIT = 10.0
RANDOM = tuple(f"random:{seed}" for seed in range(10))
MACHINES = (
    *(f"dgx-a100*{boxes}" for boxes in (2, 4, 8, 16)),
    "dgx-h100*4",
    "mi250*4",
    "mi300x*4",
    "ndv2*4",
    "mi250*2",
    "dgx1*4",
    "pcie-8*3",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A collective on a machine; `by_hand`: known R/C of textbook schedules by their numbers of steps."""

    collective: str
    topology: str
    ranks: tuple[int, ...] = ()
    by_hand: tuple[tuple[int, str], ...] = ()

    @property
    def name(self) -> str:
        """Return the text in which --only searches."""
        ranks = f"@{','.join(map(str, self.ranks))}" if self.ranks else ""
        return f"{self.collective} {self.topology}{ranks}"


BY_HAND = {
    "dgx-a100*2": ((3, "26/96"),),
    "dgx-a100*4": ((3, "50/96"),),
}
ROWS = (
    Row("allreduce", "dgx1*2", (0, 1, 2, 8, 9, 10, 11, 12), ((5, "5/4"), (7, "9/8"), (22, "78/76"), (120, "51/50"))),
    Row("allreduce", "dgx1*2", (), ((6, "2"), (9, "11/8"), (12, "34/28"))),
    *(
        Row(collective, machine, (), BY_HAND.get(machine, ()) if collective == "allreduce" else ())
        for machine in MACHINES
        for collective in COLLECTIVES
    ),
    *(Row(collective, machine) for machine in RANDOM for collective in COLLECTIVES[:3]),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when a row is wrong."""
    return drive("clusters", __doc__, arguments, ROWS, measure, inside, table, runs=1)


def measure(row: Row, runs: int) -> dict:
    """The points of a row, and what is wrong with them ("" when nothing is)."""
    del runs
    run = command([sys.executable, "-m", "bench.clusters", "--inside", row.name], timeout=3600)
    if run.code:
        return {"name": row.name, "wrong": (run.stderr.strip().splitlines() or ["stopped"])[-1][:200]}
    found = json.loads(run.stdout)
    wrong = []
    for steps, value in row.by_hand:
        best = min((Fraction(p["value"]) for p in found["points"] if p["steps"] <= steps), default=None)
        if best is None or best > Fraction(value):
            wrong.append(f"{best} at {steps} steps, by hand {value}")
    return {"name": row.name, **found, "by_hand": [list(item) for item in row.by_hand], "wrong": "; ".join(wrong)}


def inside(collective: str, name: str) -> dict:
    """One row in this process. Every point is replayed."""
    from synth.checker.schedule.compressed_replay import replay
    from synth.scale import search
    from synth.scale.composition.compose import composed_points
    from synth.scale.fabric.automorphisms import free_group, symmetries
    from synth.scale.fabric.fabric import fabric
    from synth.solvers.processes.deadline import Deadline, TimeUp, no_time_limit, time_limited
    from synth.topologies import topology
    from synth.topologies.modify import with_ranks

    machine_name, _, ranks = name.partition("@")
    drawn = machine_name in RANDOM
    machine = random_cluster(int(machine_name.partition(":")[2])) if drawn else topology(machine_name)
    if ranks:
        machine = with_ranks(machine, [int(rank) for rank in ranks.split(",")])
    bound = search.bound(machine, collective).bound
    began = time.process_time()
    graph = fabric(machine)
    group = free_group(symmetries(graph), graph.ranks)
    first = None

    def replayed(point: Candidate) -> Candidate:
        if replay(point.make()).rounds_per_chunk != point.rounds_per_chunk or point.rounds_per_chunk < bound:
            raise ValueError(f"{point.construction} in {point.steps} steps is wrong")
        return point

    rows, best = [], None
    most = BY_ORBITS if group else WRITTEN
    limit = LIMIT if drawn else None
    with suppress(TimeUp), time_limited(Deadline.after(limit, cpu=True)):
        for point in composed_points(machine, collective, 0, group, same_bits=False, most_sends=most):
            with no_time_limit():
                best = replayed(point)
            first = first or time.process_time() - began
            rows.append({"steps": point.steps, "value": str(point.rounds_per_chunk), "engine": point.construction})
    spent = time.process_time() - began
    short = min((Fraction(row["value"]) for row in rows if row["steps"] <= SHORT), default=bound)
    began = time.process_time()
    at_steps = bound
    if short > bound * (1 + NEAR):
        with suppress(TimeUp), time_limited(Deadline.after(limit)):
            at_steps = bound_at_steps(machine, collective)
    return {
        "ranks": machine.ranks,
        "bound": str(bound),
        "short_bound": str(max(bound, at_steps)),
        "bound_seconds": time.process_time() - began,
        "points": rows,
        "any": None if best is None else [best.steps, str(best.rounds_per_chunk)],
        "first": first,
        "seconds": spent,
    }


def bound_at_steps(machine: Topology, collective: str) -> Fraction:
    """Return the bound on rounds per chunk of schedules of at most `SHORT` steps, by deadline cuts."""
    from synth import bounds
    from synth.model.collective import collective as named

    network, task = machine.network(), named(collective, machine.ranks)
    kind = bounds.combining if task.combining and not task.reversible else bounds.flow
    return kind(network, task, SHORT).value


def table(document: dict) -> str:
    """The measurement as Markdown: gaps to the bound in short schedules and in any, and the schedules by hand."""
    rows = [row for row in document["rows"] if "points" in row]
    head = ("collective", "machine", "ranks>", f"S ≤ {SHORT}: bound>", "R/C>", "S>", "gap>", "any S: bound>")
    parts = [
        "# Schedules composed of phases over boxes\n",
        f"Rounds per chunk against certified bounds: in at most {SHORT} steps against the greater of the bounds at "
        f"{SHORT} steps, marked *, and for any number of steps; in any number of steps against the latter. CPU seconds "
        f"of schedules include every replay. {setting(document['setting'])}\n",
        markdown((*head, "R/C>", "S>", "gap>", "first s>", "CPU s>", "bound* s>", "construction"), map(_line, rows)),
        "## Textbook schedules\n",
        markdown(("machine", "steps>", "by hand>", "composed>", "bound, any S>"), _by_hand(rows)),
    ]
    failed = [f"- {row['name']}: {row['wrong']}" for row in document["rows"] if row["wrong"]]
    return "\n".join([*parts, *failed])


def _line(row: dict) -> tuple[str, ...]:
    collective, machine = row["name"].split(" ", 1)
    # earlier measurements have no bound for few steps
    bounds = Fraction(row.get("short_bound", row["bound"])), Fraction(row["bound"])
    cells: list[str] = []
    short = [(Fraction(p["value"]), p["steps"]) for p in row["points"] if p["steps"] <= SHORT]
    whole = [(Fraction(row["any"][1]), row["any"][0])] if row["any"] else []
    for points, bound in zip((short, whole), bounds, strict=True):
        cells.append(f"{float(bound):.5g}{'*' * (bound > bounds[1])}")
        if points:
            value, steps = min(points)
            cells += [f"{float(value):.5g}", str(steps), f"{float(value / bound - 1):.1%}"]
        else:
            cells += ["none", "", ""]
    engine = row["points"][-1]["engine"] if row["points"] else ""
    first = "" if row["first"] is None else seconds(row["first"])
    return (
        collective,
        machine,
        str(row["ranks"]),
        *cells,
        first,
        seconds(row["seconds"]),
        seconds(row["bound_seconds"]) if "bound_seconds" in row else "",
        engine,
    )


def _by_hand(rows: list[dict]) -> list[tuple[str, ...]]:
    lines = []
    for row in rows:
        for steps, value in row["by_hand"]:
            best = min((Fraction(p["value"]) for p in row["points"] if p["steps"] <= steps), default=None)
            machine = row["name"].split(" ", 1)[1]
            lines.append((machine, str(steps), value, str(best), row["bound"]))
    return lines


if __name__ == "__main__":
    sys.exit(main())
