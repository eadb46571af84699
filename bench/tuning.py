"""The tuner on a DGX-1: fitted on half of the sizes, judged on the other half; and its advice by the model alone on
several machines.

python -m bench.tuning [--only TEXT] [-o results.json]
python -m bench.tuning --advice [-o results.json]
python -m bench.tuning --table

Every point of a frontier and its baselines, in each protocol and in 1, 2 and 4 instances, is timed by the reference
executor on bare links (an execution-driven model, no measurement of a machine) at sizes from 1 KiB to 1 GiB, each twice
the one before, rounded up to what all of them divide; where that is no small number (broadcast: 22, 26, 38 .. chunks)
each program moves what it divides of the size, and counts as if it moved all. The tuner sees every other size. The loss
is what its choice takes longer, at a size that it has not seen, than the best that was timed there.

The advice: `synth tune --topo MACHINE --coll COLLECTIVE --time-limit LIMIT`, 1 KiB to 1 GiB. No size may be without an
answer, nothing may be chosen that is predicted slower than the best candidate, ring, tree and NCCL's own among them;
what a runtime that does not pad gets instead is judged by what `synth export --plan` writes for it. The candidates'
times are worked out here once more, from their schedules.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import lcm
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.measure import RESULTS, keep, markdown, seconds, setting, where
from synth import api
from synth.catalog.tuner import tune as tuner
from synth.catalog.tuner.candidates import NamedSchedule, candidates
from synth.catalog.tuner.cost_model import TimeModel, nominal
from synth.catalog.tuner.cost_terms import shape
from synth.catalog.tuner.measurements import Sample, from_document, merge_measurements
from synth.catalog.tuner.predicted_times import PredictedTimes, Variant
from synth.catalog.tuner.tune import Question, TunerCandidate
from synth.errors import SynthError
from synth.model.frontier import Frontier
from synth.model.number_text import size_text
from synth.model.topology import Topology
from synth.model.tuning_plan import Algorithm, Plan, Table
from synth.program.overheads import NO_OVERHEADS

GOAL = 0.05
LOW, HIGH = 10, 30  # 1 KiB to 1 GiB
SMALL = 1 << 14  # bytes: what all divide, where sizes are to be multiples of it
LARGEST = {"Simple": 1 << 30, "LL128": 1 << 28, "LL": 1 << 26}  # beyond, slices are many and the executor slow
INSTANCES = (1, 2, 4)
NOISES = 20  # draws
NOISE = 0.03  # what a repeat is longer than the model's time, at most, as a share
REPEATS = 5
SUBJECTS = {
    "allgather": ("ring", "direct", "recursive-doubling"),
    "broadcast": ("ring", "direct"),
    "allreduce": ("ring", "tree", "recursive-doubling"),
}
Times = dict[str, dict[int, float]]  # by label, by size
ADVISED = ("dgx1", "dgx-a100", "dgx-h100", "mi250", "pcie-box")
COLLECTIVES = ("allreduce", "allgather", "alltoall")
LIMIT = 30.0  # seconds of wall time for a synthesis
# eight GPUs without NVLink in two halves of a PCIe tree
PCIE_KINDS = ("X", "PXB", "NODE", "SYS")


def _pcie() -> str:
    """Eight GPUs without NVLink: pairs under a PCIe bridge, four on each of two sockets, as nvidia-smi prints them."""
    rows = [[PCIE_KINDS[sum(i // n != j // n for n in (1, 2, 4))] for j in range(8)] for i in range(8)]
    names = [f"GPU{i}" for i in range(8)]
    return (
        "\n".join(["\t" + "\t".join(names), *("\t".join([name, *row]) for name, row in zip(names, rows, strict=True))])
        + "\n"
    )


@dataclass(frozen=True)
class Set:
    """Timed candidates with all of their samples, at `sizes`."""

    collective: str
    frontier: Frontier
    found: tuple[TunerCandidate, ...]
    sizes: tuple[int, ...]

    @cached_property
    def times(self) -> Times:
        """Seconds by label and size."""
        return {c.algorithm.label: {s.size: s.seconds for s in c.samples} for c in self.found}

    def time(self, algorithm: Algorithm, size: int) -> float:
        """Seconds of `algorithm` at `size`, timed now where it was not before."""
        row = self.times[algorithm.label]
        if size not in row and algorithm.schedule is not None:
            done = api.bench(
                algorithm.schedule,
                [size],
                protocol=algorithm.protocol,
                instances=algorithm.instances,
                overheads=False,
            )
            row[size] = next(r.median for r in done.rows if not r.in_place)
        return row[size]


def timed(topology: str, collective: str, baselines: tuple[str, ...], instances: tuple[int, ...] = INSTANCES) -> Set:
    """Runs everything that is to be chosen from."""
    frontier = api.frontier(topology, collective, max_steps=8)
    if not isinstance(frontier, Frontier):
        raise TypeError(f"{topology} is too large")
    schedules = [NamedSchedule(f"S{p.steps}-C{p.chunks}", p.schedule) for p in frontier.points]
    schedules += [NamedSchedule(name, api.baseline(name, frontier.network, frontier.collective)) for name in baselines]
    each = 4 * lcm(*(s.schedule.chunks * n * s.schedule.collective.buffer_units for s in schedules for n in instances))
    exact = each <= SMALL
    sizes = tuple(sorted({-(-(1 << k) // each) * each if exact else 1 << k for k in range(LOW, HIGH + 1)}))
    docs = [
        api.bench(
            frontier,
            [s for s in sizes if s <= top],
            protocol=protocol,
            instances=n,
            baselines=baselines,
            overheads=False,
        ).to_json()
        for protocol, top in LARGEST.items()
        for n in instances
    ]
    measured = merge_measurements([m for i, doc in enumerate(docs) for m in from_document(doc, f"run {i}")])
    found = candidates(schedules, measured).candidates
    return Set(collective, frontier, found if exact else tuple(_as_asked(c, sizes) for c in found), sizes)


def _as_asked(given: TunerCandidate, sizes: tuple[int, ...]) -> TunerCandidate:
    """`given` as if it had been run at the next of `sizes` above the one that its chunks divide, and divided all
    sizes."""
    moved = tuple(s._replace(size=sizes[bisect_left(sizes, s.size)]) for s in given.samples)
    return replace(given, algorithm=replace(given.algorithm, divisor=1), samples=moved)


def seen(given: Set, sizes: set[int]) -> list[TunerCandidate]:
    """The candidates with the samples at `sizes` alone; those of which none is left have none."""
    return [replace(c, samples=tuple(s for s in c.samples if s.size in sizes)) for c in given.found]


def noisy(found: list[TunerCandidate], random: Random) -> list[TunerCandidate]:
    """As if each time were the median of repeats that the machine's noise made longer."""

    def sample(given: Sample) -> Sample:
        repeats = sorted(given.seconds * (1 + random.uniform(0, NOISE)) for _ in range(REPEATS))
        return Sample(given.size, repeats[REPEATS // 2], repeats[REPEATS // 2] - repeats[0])

    return [replace(c, samples=tuple(map(sample, c.samples))) for c in found]


def losses(given: Set, table: Table, algorithms: tuple[Algorithm, ...], held: list[int]) -> list[tuple[int, float]]:
    """(size, loss) at the sizes that were held back: the time of what is chosen there over the best time there, less
    1."""
    made = []
    for size in held:
        row = table.at(size)
        if row is None:
            raise ValueError(f"{given.collective}: nothing was chosen at {size}")
        own = given.time(algorithms[row.order[0]], size)
        made.append((size, own / min(times[size] for times in given.times.values() if size in times) - 1))
    return made


def judged(given: Set) -> dict:
    """The losses of each way to choose, with the sizes dealt out both ways."""
    ways: dict[str, list[tuple[int, float]]] = {"measured": [], "fit alone": [], "nominal α, β": [], "noise": []}
    fits, ranges = [], 0
    for first in (0, 1):
        known, held = given.sizes[first::2], list(given.sizes[1 - first :: 2])
        question = Question(given.collective, given.frontier.network.ranks, given.sizes)
        half = seen(given, set(known))
        model = tuner.fit_model(half, "")
        if model is None:
            raise ValueError("nothing to fit")
        fits.append({"rows": model.rows, "typical": model.typical, "greatest": model.greatest})
        found = tuner.choose_algorithms(question, half, model)
        ranges = max(ranges, len(found.table.ranges))
        ways["measured"] += losses(given, found.table, found.algorithms, held)
        blank = [replace(c, samples=()) for c in half]
        # a model knows no protocol that it was not fitted to, and what was not timed at a size cannot be judged there
        alone = [c for c in blank if c.algorithm.protocol == "Simple"]
        for name, used in (("fit alone", model), ("nominal α, β", _plain(given.frontier))):
            guess = tuner.choose_algorithms(question, alone, used)
            ways[name] += losses(given, guess.table, guess.algorithms, held)
        for seed in range(NOISES // 2):
            rough = noisy(half, Random(seed))
            shaken = tuner.choose_algorithms(question, rough, tuner.fit_model(rough, ""))
            ways["noise"] += losses(given, shaken.table, shaken.algorithms, held)
    return {
        "collective": given.collective,
        "points": len(given.frontier.points),
        "algorithms": len(given.found),
        "sizes": list(given.sizes),
        "ranges": ranges,
        "fits": fits,
        "losses": {name: _summary(rows) for name, rows in ways.items()},
        "by_size": [[size, loss] for size, loss in sorted(ways["measured"])],
    }


def advised(machine: str, collective: str) -> dict:
    """The tuner's plan without measurements, and the part of it that an MSCCL executor runs."""
    start = time.process_time()
    plan = api.tune(_machine(machine), collective, time_limit=LIMIT)
    (one,) = plan.tables
    network = plan.topology
    if network is None:
        raise TypeError(f"{machine} has no network")
    times = _candidates(machine, collective, plan)
    slower = [
        size for size, own in zip(one.sizes, one.seconds, strict=True) if own is None or own > times[size] * (1 + 1e-12)
    ]
    try:
        made = api.export_plan(plan)
        exported = [len(made.files), *(line for line in made.remarks if "what runs is at most" in line)]
    except SynthError as error:
        exported = [0, str(error)]
    left = [
        [size, library, ours]
        for size, k, library, ours in zip(one.sizes, one.chosen, one.library, one.ours, strict=True)
        if k is not None and plan.algorithms[k].backend != "synth"
    ]
    return {
        "machine": machine,
        "collective": collective,
        "sizes": len(one.sizes),
        "judged": list(one.sizes),
        "without": sum(k is None for k in one.chosen),
        "slower": slower,
        "loss": max(x or 0.0 for x in one.losses),
        "left": left,
        "chosen": [None if k is None else plan.algorithms[k].label for k in one.chosen],
        "seconds": list(one.seconds),
        "library": list(one.library),
        "ours": list(one.ours),
        "exported": exported,
        "cpu": time.process_time() - start,
    }


def _machine(name: str) -> Topology:
    if name != "pcie-box":
        return api.topology(name)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "pcie-box.txt"
        file.write_text(_pcie(), encoding="utf-8")
        return api.topology(file)


def _candidates(machine: str, collective: str, plan: Plan) -> dict[int, float]:
    """By size the least time of the plan's schedules and of ring, tree and direct as this file works it out: in every
    protocol that the links allow, with padding; of ring and tree without padding too, as NCCL has them."""
    topology = _machine(machine)
    network, task = topology.network(), api.collective(collective, topology.ranks)
    schedules = [(a.schedule, False) for a in plan.algorithms if a.schedule is not None]
    for name in ("ring", "tree", "direct"):
        try:
            made = api.baseline(name, topology, task)
        except SynthError:
            continue
        schedules += [(made, False)] + [(made, True)] * (name != "direct")
    times = PredictedTimes(network, judged=plan.tables[0].sizes)
    protocols = ("Simple", "LL", "LL128") if {link.kind for link in topology.links} == {"nvlink"} else ("Simple", "LL")
    ways = []
    for schedule, whole in schedules:
        step = 1 if whole else 4 * schedule.chunks * task.buffer_units
        ways += [(step, times.add(Variant(schedule, shape(schedule), protocol))) for protocol in protocols]
    best: dict[int, float] = {}
    for size in plan.tables[0].sizes:
        found = [seconds(-(-size // step) * step) for step, seconds in ways]
        best[size] = min(time for time in found if time is not None)
    return best


def _plain(frontier: Frontier) -> TimeModel:
    """α and β as the network says; the executor charges nothing else."""
    return nominal(frontier.network, overheads=NO_OVERHEADS)


def _summary(rows: list[tuple[int, float]]) -> dict:
    size, greatest = max(rows, key=lambda row: row[1])
    return {"greatest": greatest, "at": size, "mean": sum(loss for _, loss in rows) / len(rows)}


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 where the goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tuning", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="collectives whose name contains TEXT")
    parser.add_argument(
        "--advice", action="store_true", help="the advice by the model alone, on several machines; the rest is kept"
    )
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "tuning.json", metavar="FILE.json")
    given, _ = parser.parse_known_args(arguments)
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    document: dict
    before = json.loads(given.output.read_text(encoding="utf-8")) if given.output.exists() else {}
    if given.advice:
        document = before | {"advised_where": where(), "limit": LIMIT, "advice": []}
        for machine, name in product(ADVISED, COLLECTIVES):
            if given.only in f"{machine} {name}":
                document["advice"].append(advised(machine, name))
                print(machine, name, document["advice"][-1]["exported"], file=sys.stderr)
        keep(document, table(document), given.output)
        print(advice_table(document))
        return int(any(row["without"] or row["slower"] for row in document["advice"]))
    document = {"setting": where(), "goal": GOAL, "noise": NOISE, "repeats": REPEATS, "rows": []}
    document |= {key: before[key] for key in ("advised_where", "limit", "advice") if key in before}
    for name, baselines in SUBJECTS.items():
        if given.only in name:
            start = time.process_time()
            found = timed("dgx1", name, baselines)
            timing, start = time.process_time() - start, time.process_time()
            document["rows"].append(judged(found) | {"timing_cpu": timing, "tuning_cpu": time.process_time() - start})
            print(document["rows"][-1]["losses"], file=sys.stderr)
    keep(document, table(document), given.output)
    print(table(document))
    return int(any(row["losses"]["measured"]["greatest"] >= GOAL for row in document["rows"]))


COLUMNS = {"measured": "measured", "noise": "3% noise", "fit alone": "fit alone", "nominal α, β": "nominal"}


def table(document: dict) -> str:
    """The measurement as Markdown."""
    head = (
        "collective",
        "points>",
        "ways to run>",
        "sizes>",
        "ranges>",
        "fit off by>",
        *(f"{n}>" for n in COLUMNS.values()),
        "CPU s>",
    )
    rows = []
    for row in document.get("rows", ()):
        off = max(row["fits"], key=lambda f: f["greatest"])
        cells = [f"{100 * row['losses'][k]['greatest']:.2f}% ({100 * row['losses'][k]['mean']:.2f}%)" for k in COLUMNS]
        rows.append(
            (
                row["collective"],
                str(row["points"]),
                str(row["algorithms"]),
                str(len(row["sizes"])),
                str(row["ranges"]),
                f"{100 * off['typical']:.1f}%, at most {100 * off['greatest']:.0f}%",
                *cells,
                seconds(row["timing_cpu"] + row["tuning_cpu"]),
            )
        )
    lines = [
        "# The tuner\n",
        *([advice_table(document)] if "advice" in document else []),
        "## Measured on half of the sizes of a DGX-1\n",
        "Every way to run a point or a baseline (3 protocols; 1, 2 and 4 instances) was timed by the reference "
        "executor, an"
        " execution-driven model of the machine, at sizes from 1 KiB to 1 GiB. The tuner saw every other size; the "
        "greatest (mean)"
        f" loss at the others stands here, with the halves exchanged too. Goal: below {100 * document['goal']:.0f}% "
        f"at every size.\n",
        markdown(head, rows),
        f"*3% noise*: every time was the median of {document['repeats']} repeats up to "
        f"{100 * document['noise']:.0f}% longer, in 20 draws."
        " *Fit alone*: chosen among the ways in Simple by the fitted model, without the times. *Nominal*: by α and β"
        " of the network, likewise.\n",
        f"{setting(document['setting'])}\n",
    ]
    return "\n".join(lines)


def advice_table(document: dict) -> str:
    """The advice as Markdown."""
    head = (
        "machine",
        "collective",
        "sizes>",
        "no answer>",
        "slower than the best>",
        "left to the library>",
        "GB/s at 1 GiB>",
        "files of an MSCCL executor>",
        "CPU s>",
    )
    rows, left, lost = [], [], []
    for row in document["advice"]:
        where_ = f"{row['machine']} {row['collective']}"
        rows.append(
            (
                row["machine"],
                row["collective"],
                str(row["sizes"]),
                str(row["without"]),
                str(len(row["slower"])),
                str(len(row["left"])),
                f"{row['judged'][-1] / row['seconds'][-1] / 1e9:.1f}",
                str(row["exported"][0]),
                seconds(row["cpu"]),
            )
        )
        for size, library, ours in row["left"]:
            left.append((where_, size_text(size), f"{1e6 * library:.4g}", f"{1e6 * ours:.4g}"))
        lost += [(where_, line.partition(": ")[2]) for line in row["exported"][1:]]
    lines = [
        "## Advice by the model alone\n",
        f"`synth tune --topo MACHINE --coll COLLECTIVE --time-limit {document['limit']:.0f}s`, 1 KiB to 1 GiB. "
        f"Candidates are all points,"
        " ring, tree and direct, schedules that divide the sizes, and NCCL's own ring and tree by the same model; "
        "times of the best are"
        " worked out here once more."
        " Goal: no size without an answer, nothing chosen that is slower than the best.\n",
        markdown(head, rows),
        "Left to the library, with both times:\n" if left else "",
        markdown(("for", "size>", "the library µs>", "the best schedule µs>"), left) if left else "",
        "What a runtime that does not pad loses (`synth export --plan`, executor):\n",
        markdown(("for", "loss"), lost),
        f"{setting(document['advised_where'])}\n",
    ]
    return "\n".join(line for line in lines if line)


if __name__ == "__main__":
    sys.exit(main())
