"""The tuner on a DGX-1: fitted on half of the sizes, judged on the other half.

python -m bench.tuning [--only TEXT] [-o results.json]
python -m bench.tuning --table

Every point of a frontier and its baselines, in each protocol and in 1, 2 and 4 instances, is timed by the reference executor
(an execution-driven model, no measurement of a machine) at sizes from 1 KiB to 1 GiB, each twice the one before, rounded up
to what all of them divide; where that is no small number (broadcast: 22, 26, 38 .. chunks) each program moves what it divides
of the size, and counts as if it moved all. The tuner sees every other size. The loss is what its choice takes longer, at a size that it has
not seen, than the best that was timed there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from bisect import bisect_left
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm
from pathlib import Path
from random import Random

from bench.measure import RESULTS, keep, markdown, seconds, setting, where
from synth import api
from synth.catalog import tune as tuner
from synth.catalog.fit import SYNC, Model, nominal
from synth.catalog.tune import Candidate, Question
from synth.catalog.tune_candidates import Named, candidates
from synth.catalog.tune_measured import Sample, document, merged
from synth.frontier import Frontier
from synth.plan import Algorithm, Table

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


@dataclass(frozen=True)
class Set:
    """What was timed: candidates with all of their samples, at `sizes`."""

    collective: str
    frontier: Frontier
    found: tuple[Candidate, ...]
    sizes: tuple[int, ...]

    @cached_property
    def times(self) -> Times:
        """Seconds by label and size."""
        return {c.algorithm.label: {s.size: s.seconds for s in c.samples} for c in self.found}

    def time(self, algorithm: Algorithm, size: int) -> float:
        """Seconds of `algorithm` at `size`, timed now where it was not before."""
        row = self.times[algorithm.label]
        if size not in row and algorithm.schedule is not None:
            done = api.bench(algorithm.schedule, [size], protocol=algorithm.protocol, instances=algorithm.instances)
            row[size] = next(r.median for r in done.rows if not r.in_place)
        return row[size]


def timed(topology: str, collective: str, baselines: tuple[str, ...], instances: tuple[int, ...] = INSTANCES) -> Set:
    """Runs everything that is to be chosen from."""
    frontier = api.pareto(topology, collective, max_steps=8)
    if not isinstance(frontier, Frontier):
        raise TypeError(f"{topology} is too large")
    schedules = [Named(f"S{p.steps}-C{p.chunks}", p.schedule) for p in frontier.points]
    schedules += [Named(name, api.baseline(name, frontier.network, frontier.collective)) for name in baselines]
    each = 4 * lcm(*(s.schedule.chunks * n * s.schedule.collective.buffer_units for s in schedules for n in instances))
    exact = each <= SMALL
    sizes = tuple(sorted({-(-(1 << k) // each) * each if exact else 1 << k for k in range(LOW, HIGH + 1)}))
    docs = [
        api.bench(frontier, [s for s in sizes if s <= top], protocol=protocol, instances=n, baselines=baselines).to_json()
        for protocol, top in LARGEST.items()
        for n in instances
    ]
    measured = merged([m for i, doc in enumerate(docs) for m in document(doc, f"run {i}")])
    found = candidates(schedules, measured).candidates
    return Set(collective, frontier, found if exact else tuple(_as_asked(c, sizes) for c in found), sizes)


def _as_asked(given: Candidate, sizes: tuple[int, ...]) -> Candidate:
    """`given` as if it had been run at the next of `sizes` above the one that its chunks divide, and divided all sizes."""
    moved = tuple(s._replace(size=sizes[bisect_left(sizes, s.size)]) for s in given.samples)
    return replace(given, algorithm=replace(given.algorithm, divisor=1), samples=moved)


def seen(given: Set, sizes: set[int]) -> list[Candidate]:
    """The candidates with the samples at `sizes` alone; those of which none is left have none."""
    return [replace(c, samples=tuple(s for s in c.samples if s.size in sizes)) for c in given.found]


def noisy(found: list[Candidate], random: Random) -> list[Candidate]:
    """As if each time were the median of repeats that the machine's noise made longer."""

    def sample(given: Sample) -> Sample:
        repeats = sorted(given.seconds * (1 + random.uniform(0, NOISE)) for _ in range(REPEATS))
        return Sample(given.size, repeats[REPEATS // 2], repeats[REPEATS // 2] - repeats[0])

    return [replace(c, samples=tuple(map(sample, c.samples))) for c in found]


def losses(given: Set, table: Table, algorithms: tuple[Algorithm, ...], held: list[int]) -> list[tuple[int, float]]:
    """(size, loss) at the sizes that were held back: the time of what is chosen there over the best time there, less 1."""
    made = []
    for size in held:
        row = table.at(size)
        chosen = next((algorithms[k] for k in (row.order if row else ()) if algorithms[k].admits(size, 4)), None)
        if chosen is None:
            raise ValueError(f"{given.collective}: nothing was chosen at {size}")
        own = given.time(chosen, size)
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
        model = tuner.fitted(half, "")
        if model is None:
            raise ValueError("nothing to fit")
        fits.append({"rows": model.rows, "typical": model.typical, "greatest": model.greatest})
        found = tuner.answer(question, half, model)
        ranges = max(ranges, len(found.table.ranges))
        ways["measured"] += losses(given, found.table, found.algorithms, held)
        blank = [replace(c, samples=()) for c in half]
        # a model knows no protocol that it was not fitted to, and what was not timed at a size cannot be judged there
        alone = [c for c in blank if c.algorithm.protocol == "Simple"]
        for name, used in (("fit alone", model), ("nominal α, β", _plain(given.frontier))):
            guess = tuner.answer(question, alone, used)
            ways[name] += losses(given, guess.table, guess.algorithms, held)
        for seed in range(NOISES // 2):
            rough = noisy(half, Random(seed))
            shaken = tuner.answer(question, rough, tuner.fitted(rough, ""))
            ways["noise"] += losses(given, shaken.table, shaken.algorithms, held)
    return {
        "collective": given.collective, "points": len(given.frontier.points), "algorithms": len(given.found), "sizes": list(given.sizes),
        "ranges": ranges, "fits": fits,
        "losses": {name: _summary(rows) for name, rows in ways.items()},
        "by_size": [[size, loss] for size, loss in sorted(ways["measured"])],
    }  # fmt: skip


def _plain(frontier: Frontier) -> Model:
    """α and β as the network says; the executor charges nothing else."""
    model = nominal(frontier.network)
    return replace(
        model, coefficients={name: value - SYNC["Simple"] * name.startswith("step") for name, value in model.coefficients.items()}
    )


def _summary(rows: list[tuple[int, float]]) -> dict:
    size, greatest = max(rows, key=lambda row: row[1])
    return {"greatest": greatest, "at": size, "mean": sum(loss for _, loss in rows) / len(rows)}


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 where the goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.tuning", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="collectives whose name contains TEXT")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "tuning.json", metavar="FILE.json")
    given, _ = parser.parse_known_args(arguments)
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    document: dict = {"setting": where(), "goal": GOAL, "noise": NOISE, "repeats": REPEATS, "rows": []}
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
    head = ("collective", "points>", "ways to run>", "sizes>", "ranges>", "fit off by>", *(f"{n}>" for n in COLUMNS.values()), "CPU s>")
    rows = []
    for row in document["rows"]:
        off = max(row["fits"], key=lambda f: f["greatest"])
        cells = [f"{100 * row['losses'][k]['greatest']:.2f}% ({100 * row['losses'][k]['mean']:.2f}%)" for k in COLUMNS]
        rows.append((
            row["collective"], str(row["points"]), str(row["algorithms"]), str(len(row["sizes"])), str(row["ranges"]),
            f"{100 * off['typical']:.1f}%, at most {100 * off['greatest']:.0f}%", *cells, seconds(row["timing_cpu"] + row["tuning_cpu"]),
        ))  # fmt: skip
    lines = [
        "# The tuner on a DGX-1\n",
        "Every way to run a point or a baseline (3 protocols; 1, 2 and 4 instances) was timed by the reference executor, an"
        " execution-driven model of the machine, at sizes from 1 KiB to 1 GiB. The tuner saw every other size; the greatest (mean)"
        f" loss at the others stands here, with the halves exchanged too. Goal: below {100 * document['goal']:.0f}% at every size.\n",
        markdown(head, rows),
        f"*3% noise*: every time was the median of {document['repeats']} repeats up to {100 * document['noise']:.0f}% longer, in 20 draws."
        " *Fit alone*: chosen among the ways in Simple by the fitted model, without the times. *Nominal*: by α and β"
        " of the network, likewise.\n",
        f"{setting(document['setting'])}\n",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
