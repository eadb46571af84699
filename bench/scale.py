"""Bounds and forests from 8 to 16384 ranks: seconds, memory, and whether the answer is the known one.

python -m bench.scale [--only TEXT] [--runs 3] [-o results.json]
python -m bench.scale --table

Each row is a process of its own that loads every library first. CPU seconds of each stage, medians of the runs: the
topology from its name, the fabric from the topology, the bound, the forest (its bound included), its verification from
the topology alone. Nothing is drawn at random, so there is no seed. The bound's certificate is checked too, and must
say the same as the forest. Rows called rooted are broadcasts, by whatever method.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from bench.measure import command, markdown, median, seconds, setting
from bench.rowwise import drive

STAGES = ("topology", "fabric", "bound", "forest", "verify", "certificate")
# What a row's goal is about: the fabric and the bound; or the fabric, the forest with its bound, and its verification.
TIMED = {
    "bound": ("fabric", "bound"),
    "packing": ("fabric", "forest", "verify"),
    "symmetric": ("fabric", "forest", "verify"),
    "rooted": ("fabric", "forest", "verify"),
}


@dataclass(frozen=True)
class Row:
    """A topology and a method; the bandwidth (GB/s, two digits) and depth it must reach, and the goal in CPU
    seconds."""

    topology: str
    method: str
    bandwidth: float | None = None
    goal: float | None = None
    depth: int | None = None
    reference: str = ""

    @property
    def name(self) -> str:
        """Return the text in which --only searches."""
        return f"{self.method} {self.topology}"


ODD_EVEN = ":net=odd-even"
ROWS = (
    Row("dgx1", "bound", 171.43),
    Row("dgx-a100", "bound", 342.86),
    Row(f"dgx-a100*2{ODD_EVEN}", "bound", 346.67),
    Row(f"dgx-a100*4{ODD_EVEN}", "bound", 266.67),
    Row("mi250", "bound", 342.86),
    Row("mi250*2", "bound", 354.13),
    Row("dgx-a100*8", "bound", 228.57, 0.1, reference="ForestColl 1.25 s"),
    Row("dgx-a100*128", "bound", 201.57, 0.5),
    Row(f"dgx-a100*2{ODD_EVEN}", "packing", 346.67, 0.05, reference="ForestColl 2.9 s"),
    Row(f"dgx-a100*4{ODD_EVEN}", "packing", 266.67, 0.2, reference="ForestColl 23.0 s"),
    Row(f"dgx-a100*8{ODD_EVEN}", "packing", 228.57, 2, reference="ForestColl ~190 s"),
    Row(f"dgx-a100*16{ODD_EVEN}", "packing", 213.33, 15),
    Row("mi250", "packing", 342.86),
    Row("mi250*2", "packing", 354.13, 0.3, reference="ForestColl 18.8 s"),
    Row("mi250*4", "packing", 341.33, 1.5),
    Row("mi250*8", "packing", 292.57, 15),
    Row("ndv2*4", "packing", 16.67, 0.1, reference="TE-CCL 15.38 GB/s in 222 s"),
    Row("ndv2*4", "symmetric", 16.67, 0.1),
    *(Row(f"dgx-a100*{n}", "symmetric") for n in (2, 4, 8, 16, 32, 64)),
    Row("dgx-a100*128", "symmetric", 201.57, 1, 17),
    *(Row(f"dgx-h100*{n}:net=rail", "symmetric") for n in (2, 8, 32)),
    Row("dgx-h100*128:net=rail", "symmetric", 403.15, 1, 5),
    *(Row(f"torus:{n}x{n}", "symmetric", depth=n) for n in (8, 16, 32, 64)),
    Row("torus:128x128", "symmetric", 4.0, 1, 128),
    Row("hypercube:1024", "symmetric", depth=10),
    *(Row(f"random-regular:{n}", "packing") for n in (32, 64, 128)),
    *(Row(f"fat-tree:{n}", "packing") for n in (16, 64)),
    *(Row(f"dgx-a100*{n}", "rooted", 200.0) for n in (8, 16, 32, 64)),
    Row("dgx-a100*128", "rooted", 200.0, 10, 4),
    Row("dgx-h100*128:net=rail", "rooted", 400.0, 10, 4),
    *(Row(f"mi250*{n}", "rooted") for n in (4, 8)),
    *(Row(f"torus:{n}x{n}", "rooted", 4.0) for n in (16, 32)),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when a row is wrong (not when it is slow)."""
    return drive("scale", __doc__, arguments, ROWS, measure, inside, table, runs=3)


def measure(row: Row, runs: int) -> dict:
    """The medians of some processes, and what is wrong with the answer ("" when nothing is)."""
    found = []
    for _ in range(runs):
        run = command([sys.executable, "-m", "bench.scale", "--inside", row.name], timeout=600)
        if run.code:
            return {"name": row.name, "wrong": (run.stderr.strip().splitlines() or ["stopped"])[-1][:200]}
        found.append(json.loads(run.stdout))
    first = found[0]
    stages = {
        stage: round(median(run["seconds"][stage] for run in found), 4) for stage in STAGES if stage in first["seconds"]
    }
    timed = round(sum(stages[stage] for stage in TIMED[row.method]), 4)
    middle = {"seconds": stages, "timed": timed, "mb": round(median(run["mb"] for run in found))}
    kept = {key: first[key] for key in ("ranks", "bandwidth", "bound", "depth", "trees", "certificate")}
    wrong = ""
    if kept["bandwidth"] != kept["bound"]:
        wrong = f"reaches {kept['bandwidth']} of {kept['bound']} GB/s"
    elif row.bandwidth is not None and round(float(Fraction(kept["bound"])), 2) != row.bandwidth:
        wrong = f"{float(Fraction(kept['bound'])):.2f} GB/s, not {row.bandwidth}"
    elif row.depth is not None and kept["depth"] > row.depth:
        wrong = f"depth {kept['depth']}, not {row.depth}"
    return {
        "name": row.name,
        "topology": row.topology,
        "method": row.method,
        **kept,
        **middle,
        "goal": row.goal,
        "wanted": row.bandwidth,
        "deepest": row.depth,
        "reference": row.reference,
        "wrong": wrong,
    }


def inside(method: str, name: str) -> dict:
    """One row in this process, every library loaded before the clock starts."""
    import resource

    from bench.spanning_forest_check import verify
    from synth.checker.certificates.throughput_cuts import check
    from synth.scale.bounds.throughput_cut import throughput
    from synth.scale.fabric.fabric import fabric
    from synth.scale.forests.build import build
    from synth.topologies import topology

    for small, method_of_small in (("dgx1", "packing"), ("torus:3x3", "symmetric")):
        verify(build(fabric(topology(small)), methods=(method_of_small,)).forest)
    spent: dict[str, float] = {}

    def timed(stage: str, call: Callable, *arguments, **keywords):
        began = time.process_time()
        result = call(*arguments, **keywords)
        spent[stage] = time.process_time() - began
        return result

    machine = timed("topology", topology, name)
    made = timed("fabric", fabric, machine)
    collective, shards = ("broadcast", 1) if method == "rooted" else ("allgather", machine.ranks)
    bound = timed("bound", throughput, made, collective)
    certified = shards / timed("certificate", lambda: check(bound.certificate, machine))
    found: dict = {
        "ranks": machine.ranks,
        "bound": str(bound.bandwidth),
        "certificate": str(certified),
        "depth": None,
        "trees": None,
    }
    found["bandwidth"] = str(certified)
    if method != "bound":
        built = timed("forest", build, made, collective, **({} if method == "rooted" else {"methods": (method,)}))
        checked = timed("verify", verify, built.forest)
        found |= {"bandwidth": str(checked.bandwidth), "depth": checked.depth, "trees": checked.trees}
    return found | {"seconds": spent, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def table(document: dict) -> str:
    """The measurement as Markdown, the rows of a kind in order of size: so it is a growth curve too."""
    head = ("topology", "ranks>", "GB/s>", "goal GB/s>", "depth>", "goal depth>", *(f"{stage} s>" for stage in STAGES))
    head += ("timed s>", "goal s>", "MB>", "others")
    parts = [
        "# Bounds and forests at scale\n",
        "Allgather, and broadcast at the end; rows of a kind by size are its growth in seconds and memory. CPU "
        "seconds, medians;"
        f" *timed* is what the goal is about: fabric and bound, or fabric, forest (its own bound included) and "
        f"verification."
        f" Runs: {document['runs']}. {setting(document['setting'])}\n",
    ]
    titles = (
        ("bound", "The bound"),
        ("packing", "Packing"),
        ("symmetric", "Symmetric forests"),
        ("rooted", "Broadcast"),
    )
    for method, title in titles:
        rows = [row for row in document["rows"] if row["name"].split(" ")[0] == method]
        if rows:
            parts.append(f"## {title}\n\n" + markdown(head, map(_line, rows)))
    return "\n".join(parts)


def _line(row: dict) -> tuple[str, ...]:
    if "seconds" not in row:
        return (row["name"].split(" ", 1)[1], row["wrong"], *[""] * (len(STAGES) + 8))
    times = [seconds(row["seconds"][stage]) if stage in row["seconds"] else "" for stage in STAGES]
    value = row["wrong"] or f"{float(Fraction(row['bandwidth'])):.2f}"
    goal = "" if row["goal"] is None else f"{row['goal']:g}" + ("" if row["timed"] <= row["goal"] else " (missed)")
    depth = "" if row["depth"] is None else str(row["depth"])
    wanted = "" if row.get("wanted") is None else f"{row['wanted']:.2f}"
    deepest = "" if row.get("deepest") is None else str(row["deepest"])
    start = (row["topology"], str(row["ranks"]), value, wanted, depth, deepest)
    return (*start, *times, seconds(row["timed"]), goal, str(row["mb"]), row["reference"])


if __name__ == "__main__":
    sys.exit(main())
