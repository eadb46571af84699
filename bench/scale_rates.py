"""Alltoall, allreduce, allocations and schedules at scale: seconds, memory, rates, each answer checked.

python -m bench.scale_rates [--only TEXT] [--runs 1] [-o results.json]
python -m bench.scale_rates --table

Each row is a process of its own that loads every library before its clock starts; CPU seconds, medians of the runs.
Bounds are what checkers of `synth.checker.documents.scale_frontier` make of a certificate; a schedule counts when
`synth.checker.schedule.compressed_replay` or `synth.checker.schedule.replay` has replayed it. The only thing drawn at
random is `random-regular:512`, whose seed is part of its name.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from bench.measure import command, geomean, markdown, median, seconds, setting
from bench.rowwise import drive


@dataclass(frozen=True)
class Row:
    """`kind` is a function below, `on` its machine; `goal` in CPU seconds (None: only the answer counts), `wanted` of
    the answer."""

    kind: str
    on: str
    goal: float | None = None
    reference: str = ""
    wanted: str = ""

    @property
    def name(self) -> str:
        """Return the text in which --only searches."""
        return f"{self.kind} {self.on}"


CERTIFIED = "certified, gap < 1e-6"
ROWS = (
    *(Row("alltoall", f"torus:{n}x{n}", wanted=CERTIFIED) for n in (8, 16, 32)),
    Row("alltoall", "torus:64x64", 5, wanted=CERTIFIED),
    *(Row("alltoall", f"dgx-a100*{n}", wanted=CERTIFIED) for n in (8, 32)),
    Row("alltoall", "dgx-a100*128", 10, wanted=CERTIFIED),
    *(Row("alltoall", f"mi250*{n}", wanted=CERTIFIED) for n in (4, 16)),
    Row("alltoall", "mi250*64", 10, wanted=CERTIFIED),
    Row("weights", "random-regular:512", None, wanted="certified, gap < 5%"),
    Row("rarest", "torus:32x32", 3, "TACOS 38.6 s", "at most 1.01 x the bound"),
    Row("classes", "dgx1-v100", 1, "Blink: 46 classes, 21 without a ring", "46, 21, 99"),
    Row("classes", "dgx1-p100", 1, "Blink: 14 classes, 5 without a ring", "14, 5, 28"),
    Row("trees", "dgx1-v100", None, wanted="at least 1.35 x in rate, 43 of 46 better; at least 1.2 x over 64"),
    Row("explain", "dgx1-v100", 0.1, "the slowest of the classes"),
    Row("written", "dgx-a100*128", 60, wanted="read back alike and verified, under 4096 MB"),
    Row("orbits", "torus:64x64", None, wanted="verified by orbits, 4096 images"),
    Row("expanded", "torus:8x8", None, wanted="written out whole, equal"),
)
MOST_MB = 4096
# Rates of broadcast in links, over all classes; classes; classes without a ring (Blink, MLSys 2020).
BLINK = {"dgx1-v100": (46, 21, 99), "dgx1-p100": (14, 5, 28)}


class Clock:
    """CPU seconds of named stages."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}

    def __call__(self, stage: str, call: Callable, *arguments, **keywords):
        """The result of the call, whose seconds are added to the stage."""
        began = time.process_time()
        result = call(*arguments, **keywords)
        self.spent[stage] = self.spent.get(stage, 0.0) + time.process_time() - began
        return result


def _flows(clock: Clock, name: str, limit: int | None = None):
    from synth.checker.certificates import path_lengths
    from synth.scale.alltoall import concurrent_flow as alltoall
    from synth.scale.fabric.automorphisms import free_group, symmetries
    from synth.scale.fabric.fabric import fabric
    from synth.topologies import topology

    machine = clock("topology", topology, name)
    made = clock("solve", fabric, machine)
    group = clock("solve", lambda: free_group(symmetries(made), made.ranks))
    found = clock("solve", alltoall.least_congestion_flows, made, group)
    certificate = clock("solve", found.certificate)
    value = clock("check", path_lengths.check, certificate, machine) * made.unit
    return machine, made, found, value


def alltoall(clock: Clock, name: str) -> dict:
    """Least congestion and its certificate."""
    machine, _, found, value = _flows(clock, name)
    gap = found.congestion / float(value) - 1
    wrong = "" if gap < 1e-6 else f"{gap:.2%} above the bound"
    return {
        "timed": "solve",
        "says": f"bound {value}, {found.method}, gap {max(gap, 0):.2g}",
        "wrong": wrong,
        "ranks": machine.ranks,
    }


def weights(clock: Clock, name: str) -> dict:
    """Multiplicative weights, with the gap between flows and certificate."""
    machine, _, found, value = _flows(clock, name)
    gap = found.congestion / float(value) - 1
    wrong = "" if found.method != "linear program" and 0 <= gap < 0.05 else f"{found.method}, gap {gap:.2%}"
    return {
        "timed": "solve",
        "says": f"{found.method}, certified gap {gap:.2%}",
        "wrong": wrong,
        "ranks": machine.ranks,
    }


def rarest(clock: Clock, name: str) -> dict:
    """Rarest first, replayed, against the bound of the checked cut."""
    from synth.checker.documents import scale_frontier
    from synth.checker.schedule import compressed_replay
    from synth.scale.bounds.throughput_cut import throughput
    from synth.scale.fabric.fabric import fabric
    from synth.scale.greedy import rarest_first as greedy
    from synth.topologies import topology

    machine = clock("topology", topology, name)
    made = clock("solve", fabric, machine)
    found = clock("solve", greedy.rarest_first_schedule, made)
    checked = clock("check", compressed_replay.replay, found)
    bound = scale_frontier.bound(throughput(made, "allgather", 0).certificate, machine)
    ratio = float(checked.rounds_per_chunk / bound)
    says = f"S={checked.steps}, R/C={checked.rounds_per_chunk}: {ratio:.4f} x the bound"
    return {"timed": "solve", "says": says, "wrong": "" if ratio <= 1.01 else "above 1.01", "ranks": machine.ranks}


def classes(clock: Clock, name: str) -> dict:
    """The classes of allocations with all their rates."""
    from synth import api

    rows = clock("solve", api.allocations, name)
    ringless = sum(rates.ring_units == 0 for _, rates in rows)
    found = len(rows), ringless, sum(rates.best["broadcast"] for _, rates in rows)
    says = f"{found[0]} classes, {ringless} without a ring, broadcast rates {found[2]} links together"
    return {
        "timed": "solve",
        "says": says,
        "wrong": "" if found == BLINK[name] else f"not {BLINK[name]}",
        "ranks": len(rows[-1][0].ranks),
    }


def trees(clock: Clock, name: str) -> dict:
    """Allreduce on packed trees against the optimal reduce-scatter and allgather: rates, and schedules pipelined over
    64."""
    from synth import api
    from synth.checker.schedule import replay
    from synth.encodings import spanning_tree_packing
    from synth.model.collective import collective

    in_rate, in_time, better = [], [], 0
    for allocation, rates in clock("rates", api.allocations, name, ("allreduce",)):
        composed = rates.composed
        assert composed is not None
        in_rate.append(float(rates.best["allreduce"] / composed))
        better += in_rate[-1] > 1
        task = collective("allreduce", allocation.network.ranks)
        schedule = clock(
            "schedules",
            lambda net=allocation.network, task=task: spanning_tree_packing.schedule(
                spanning_tree_packing.forest(net), task, 64
            ),
        )
        clock("check", replay.schedule, schedule)
        in_time.append(float(Fraction(schedule.chunks, schedule.rounds) / composed))
    rate, done = geomean(in_rate), geomean(in_time)
    says = (
        f"{rate:.3f} x in rate ({better} of {len(in_rate)} better); verified schedules over 64: {done:.3f} x "
        f"(least {min(in_time):.2f})"
    )
    wrong = "" if rate >= 1.35 and done >= 1.2 and better >= 43 else "below 1.35 x, 1.2 x or 43 classes"
    return {"timed": "schedules", "says": says, "wrong": wrong, "ranks": 8}


def explain(clock: Clock, name: str) -> dict:
    """`synth.explain` of every class; what is timed is the slowest."""
    from synth import api
    from synth.topologies import modify, topology

    machine = topology(name)
    each = []
    for allocation, _ in api.allocations(machine, ("broadcast",)):
        part = modify.apply(machine, ranks=",".join(map(str, allocation.ranks)))
        began = time.process_time()
        found = api.explain(part, "allreduce")
        each.append(time.process_time() - began)
        if not found.rates[0].units:
            return {"timed": "solve", "says": "", "wrong": f"nothing for {allocation.ranks}", "ranks": machine.ranks}
    clock.spent["solve"] = max(each)
    return {
        "timed": "solve",
        "says": f"{len(each)} classes, {sum(each):.2g} s together",
        "wrong": "",
        "ranks": machine.ranks,
    }


def written(clock: Clock, name: str) -> dict:
    """A point of the frontier at one pipelining depth: from the name to a file, verified, read back, verified again."""
    from synth.checker.documents import schedule_archive
    from synth.checker.schedule import compressed_replay
    from synth.scale.search import frontier
    from synth.topologies import topology

    machine = clock("solve", topology, name)
    found = clock("solve", frontier, machine, "allgather")
    point = max(found.points, key=lambda p: p.steps if p.steps <= 65 else 0)
    made = clock("solve", lambda: point.schedule)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.npz"
        clock("solve", made.save, path)
        size = path.stat().st_size
        digest, checked = made.digest(), clock("solve", compressed_replay.replay, made)
        again = clock("solve", schedule_archive.load, path)
    same = (
        again.digest() == digest
        and compressed_replay.replay(again) == checked
        and checked.rounds_per_chunk == point.rounds_per_chunk
    )
    says = f"S={point.steps}, {float(found.gap(point)):.2%} above the bound, {checked.sends} sends, {size / 1e6:.1f} MB"
    return {"timed": "solve", "says": says, "wrong": "" if same else "read back as another", "ranks": machine.ranks}


def _spread(clock: Clock, name: str):
    from synth.scale.search import frontier
    from synth.topologies import topology

    machine = topology(name)
    found = clock("solve", frontier, machine, "alltoall")
    return machine, found, found.points[-1].schedule


def orbits(clock: Clock, name: str) -> dict:
    """An alltoall as representatives and generators, replayed by orbits."""
    from synth.checker.schedule import compressed_replay

    machine, found, made = _spread(clock, name)
    checked = clock("check", compressed_replay.replay, made)
    gap = float(found.gap(found.points[-1]))
    says = f"{len(made.step)} sends listed for {checked.sends}, {checked.group} images; {gap:.2%} above the bound"
    return {
        "timed": "solve",
        "says": says,
        "wrong": "" if checked.group == machine.ranks else "not all images",
        "ranks": machine.ranks,
    }


def expanded(clock: Clock, name: str) -> dict:
    """The same, small enough to be written out: the replay by orbits and that of every send say the same."""
    from synth.checker.schedule import compressed_replay, replay

    machine, _, made = _spread(clock, name)
    short, whole = (
        clock("check", compressed_replay.replay, made),
        clock("check", lambda: compressed_replay.replay(made.expanded())),
    )
    schedule = made.written_out()
    clock("check", replay.schedule, schedule)
    totals = [(x.sends, x.steps, x.rounds_per_chunk, x.busiest) for x in (short, whole)]
    same = totals[0] == totals[1] and (schedule.rounds, sum(len(s.sends) for s in schedule.steps)) == (
        made.rounds,
        short.sends,
    )
    says = f"{len(made.step)} sends listed, {short.sends} written out and replayed three ways"
    return {"timed": "solve", "says": says, "wrong": "" if same else "not equal", "ranks": machine.ranks}


KINDS = {f.__name__: f for f in (alltoall, weights, rarest, classes, trees, explain, written, orbits, expanded)}


def inside(kind: str, name: str) -> dict:
    """One row in this process, every library loaded before the clock starts."""
    from synth.checker.schedule import compressed_replay
    from synth.scale.search import frontier
    from synth.topologies import topology

    for warm in ("allgather", "alltoall", "allreduce"):
        compressed_replay.replay(frontier(topology("dgx1"), warm).points[0].schedule)
    clock = Clock()
    found = KINDS[kind](clock, name)
    return found | {"seconds": clock.spent, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(row: Row, runs: int) -> dict:
    """The medians of some processes; `wrong` is "" when the answer is right."""
    found = []
    for _ in range(runs):
        run = command([sys.executable, "-m", "bench.scale_rates", "--inside", row.name], timeout=600)
        if run.code:
            return {"name": row.name, "wrong": (run.stderr.strip().splitlines() or ["stopped"])[-1][:200]}
        found.append(json.loads(run.stdout))
    first = found[0]
    stages = {stage: round(median(run["seconds"][stage] for run in found), 4) for stage in first["seconds"]}
    mb = round(median(run["mb"] for run in found))
    wrong = first["wrong"] or ("" if mb <= MOST_MB else f"{mb} MB")
    timed = stages[first["timed"]]
    kept = {
        "name": row.name,
        "ranks": first["ranks"],
        "says": first["says"],
        "seconds": stages,
        "timed": timed,
        "mb": mb,
    }
    return kept | {"goal": row.goal, "wanted": row.wanted, "reference": row.reference, "wrong": wrong}


def table(document: dict) -> str:
    """The measurement as Markdown."""
    head = ("what", "machine", "ranks>", "s>", "goal s>", "check s>", "MB>", "answer", "goal", "others")
    text = (
        "# Alltoall, allreduce, allocations and schedules at scale\n\nCPU seconds, medians; *s* is what the goal is "
        "about, *check* is the"
        f" time of the independent checkers; rows of a kind by size are its growth."
        f" Runs: {document['runs']}. {setting(document['setting'])}\n\n"
    )
    return text + markdown(head, map(_line, document["rows"]))


def _line(row: dict) -> tuple[str, ...]:
    kind, name = row["name"].split(" ", 1)
    if "seconds" not in row:
        return (kind, name, "", "", "", "", "", row["wrong"], "", "")
    goal = "" if row["goal"] is None else f"{row['goal']:g}" + ("" if row["timed"] <= row["goal"] else " (missed)")
    check = seconds(row["seconds"]["check"]) if "check" in row["seconds"] else ""
    says = f"wrong: {row['wrong']}; {row['says']}" if row["wrong"] else row["says"]
    measured = (str(row["ranks"]), seconds(row["timed"]), goal, check, str(row["mb"]), says)
    return (kind, name, *measured, row.get("wanted", ""), row["reference"])


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when an answer is wrong (not when it is slow)."""
    return drive("scale_rates", __doc__, arguments, ROWS, measure, inside, table, runs=1)


if __name__ == "__main__":
    sys.exit(main())
