"""Choice by size: plans made at 11 sizes, judged at 40 others, with α and the cost of a message × 1/2, 1 and 2.

python -m bench.choice [--only TEXT] [-o results.json]
python -m bench.choice --table

On each machine, for each collective, the candidates of `synth tune` (points of a frontier of `LIMIT` seconds, and the
baselines that apply; each protocol that the links allow; one instance) have times by the reference executor, an
execution-driven model and no measurement. A message costs 0.3 µs at either end. The tuner chooses at 1 KB, 4 KB, ..
1 GB and draws its ranges; at 40 sizes in between the program that the ranges name runs, and so do its rivals: every
candidate that the tuner predicts to take at most `CLOSE` times its least prediction there. Regret is the additional
time of the choice over the fastest of them. *Over baseline* is its additional time over the fastest baseline. Programs
of many slices are not run again; they count with the tuner's extrapolated times. Schedules of more than `MOST_SENDS`
sends are no candidates here.

Each factor has a plan of its own. *Plan of × 1* judges the plan of factor 1 on the links of factors 1/2 and 2. *Any
choice* is what no plan can avoid that does not know the factor: at each size the least, over all candidates, of the
greatest regret with the three factors, by the tuner's predictions.

A further run on the same commit measures the missing rows, and the first one on another begins anew. With --only the
named rows alone are measured anew, and the table says of which commit they are.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path

from bench.measure import RESULTS, keep, markdown, seconds, setting, where
from synth import api
from synth.catalog.tuner.candidates import NamedSchedule, candidates
from synth.catalog.tuner.predicted_times import PredictedTimes
from synth.catalog.tuner.tune import Question, TunerCandidate, choose_algorithms
from synth.errors import SynthError
from synth.export.request import Machine
from synth.model.frontier import Frontier
from synth.model.number_text import size_text
from synth.model.topology import Network, Topology
from synth.model.tuning_plan import Table
from synth.program.checked_lowering import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import MessageCost
from synth.runtime.dtypes import dtype
from synth.runtime.reference.program_times import ProgramTimes
from synth.runtime.slicing import cut

GOAL, BASELINE_GOAL = 0.03, 0.01
LIMIT = 2.0  # seconds of wall time for a frontier
MOST_SENDS = 2500
MOST_OPS = 3000  # ops of a program, times slices, up to which it is run at a judged size
CLOSE = 1.06
COST = MessageCost.parse("0.3us")
FACTORS = (Fraction(1, 2), Fraction(1), Fraction(2))
SIZES = tuple(1 << k for k in range(10, 31, 2))
# 40 sizes between, none of them a size at which a plan is made
JUDGED = tuple(sorted(int(1024 * 2 ** (20 * (k + 0.5) / 40)) // 4 * 4 for k in range(40)))
MACHINES = (
    "dgx1", "dgx-a100", "dgx-h100", "mi300x", "pcie-2x4", "pcie-8", "ring:8", "hypercube:8", "fully-connected:8",
    "torus:3x3", "ndv2*2", "dgx-a100*2",
)  # fmt: skip
COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "alltoall")
BASELINES = (
    "ring", "tree", "direct", "hierarchical", "two-step", "halving-doubling", "binomial", "bruck",
)  # fmt: skip
FLOAT32 = dtype("float32")


@dataclass(frozen=True)
class Cell:
    """The schedules of a collective on a machine."""

    machine: Topology
    network: Network
    collective: str
    schedules: tuple[NamedSchedule, ...]


class World:
    """The candidates of a cell where α and the cost of a message are `factor` times the machine's, and their plan."""

    def __init__(self, cell: Cell, factor: Fraction) -> None:
        routes = [route._replace(latency=factor * route.latency) for route in cell.network.routes]
        self.network = replace(cell.network, routes=tuple(routes))
        self.cost = COST.times(factor)
        self.times = PredictedTimes(self.network, self.cost)
        own = [one._replace(schedule=replace(one.schedule, network=self.network)) for one in cell.schedules]
        self.found = candidates(own, [], None, "", Machine.of(cell.machine), self.times).candidates
        question = Question(cell.collective, cell.network.ranks, SIZES)
        self.answer = choose_algorithms(question, self.found, self.times.model)
        self._programs: dict[str, ProgramTimes] = {}

    def candidate(self, label: str) -> TunerCandidate:
        """Return the candidate with this label."""
        return next(c for c in self.found if c.algorithm.label == label)

    def predicted(self, one: TunerCandidate, size: int) -> float:
        """Return the tuner's seconds, of the next size that the chunks divide."""
        step = one.algorithm.divisor * 4
        time = one.predicted(-(-size // step) * step) if one.predicted else None
        return float("inf") if time is None else time

    def run(self, one: TunerCandidate, size: int) -> float:
        """Return the seconds of a run of the program, the tuner's where it has too many slices."""
        algorithm = one.algorithm
        if algorithm.schedule is None:
            raise ValueError(f"{algorithm.label} has no schedule")
        if algorithm.label not in self._programs:
            program = lower(algorithm.schedule, LoweringOptions(protocol=algorithm.protocol))
            network = self.times.slower(algorithm.protocol)
            launch = self.times.overheads.launch(algorithm.protocol)
            self._programs[algorithm.label] = ProgramTimes(program, network, self.cost, launch)
        times = self._programs[algorithm.label]
        elements = -(-size // (4 * algorithm.divisor))
        if len(cut(times.program, elements, FLOAT32).bounds) * times.program.ops > MOST_OPS:
            return self.predicted(one, size)
        return times.computed(elements) * 1e-12


def judged(world: World, table: Table, labels: tuple[str, ...]) -> list[tuple[int, str, float, float]]:
    """Return (size, choice, regret, additional time over the fastest baseline) at the judged sizes."""
    rows = []
    for size in JUDGED:
        pieces = table.at(size)
        if pieces is None:
            raise ValueError(f"nothing was chosen at {size}")
        chosen = world.candidate(labels[pieces.order[0]])
        predicted = {one.algorithm.label: world.predicted(one, size) for one in world.found}
        baselines = [label for label in predicted if label.rsplit("-L", 1)[0] in BASELINES]
        least, least_baseline = min(predicted.values()), min(predicted[label] for label in baselines)
        own = world.run(chosen, size)
        rivals, rival_baselines = [own], []
        for one in world.found:
            label = one.algorithm.label
            if predicted[label] <= CLOSE * least:
                rivals.append(world.run(one, size))
            if label in baselines and predicted[label] <= CLOSE * least_baseline:
                rival_baselines.append(world.run(one, size))
        fastest = min([*rivals, *rival_baselines])
        rows.append((size, chosen.algorithm.label, own / fastest - 1, own / min(rival_baselines) - 1))
    return rows


def cell_of(machine: str, collective: str) -> Cell:
    """Return the points of a short synthesis, and the baselines that apply."""
    topology = api.topology(machine)
    network = topology.network()
    found = api.frontier(topology, collective, time_limit=LIMIT, jobs=1, fresh=True, multicast=False)
    schedules = []
    for point in found.points if isinstance(found, Frontier) else ():
        label = f"S{point.steps}-R{point.rounds}-C{point.chunks}"
        schedules.append(NamedSchedule(label, replace(point.schedule, network=network)))
    for name in BASELINES:
        try:
            made = api.baseline(name, topology, collective)
        except SynthError:
            continue
        schedules.append(NamedSchedule(name, replace(made, network=network)))
    few = [one for one in schedules if sum(len(step.sends) for step in one.schedule.steps) <= MOST_SENDS]
    return Cell(topology, network, collective, tuple(few))


def measured(machine: str, collective: str) -> dict:
    """Return the row of a cell: what was chosen, and the losses for each factor."""
    start = time.process_time()
    cell = cell_of(machine, collective)
    row: dict = {"machine": machine, "collective": collective, "schedules": [s.name for s in cell.schedules]}
    synthesis = time.process_time() - start
    worlds = {factor: World(cell, factor) for factor in FACTORS}
    for factor, world in worlds.items():
        labels = tuple(a.label for a in world.answer.algorithms)
        row[f"× {factor}"] = [list(r) for r in judged(world, world.answer.table, labels)]
    plan = worlds[Fraction(1)].answer
    labels = tuple(a.label for a in plan.algorithms)
    row["plan of × 1"] = [list(r) for f in FACTORS if f != 1 for r in judged(worlds[f], plan.table, labels)]
    row["any choice"] = [list(r) for r in least_regrets(worlds)]
    return row | {"synthesis_cpu": synthesis, "cpu": time.process_time() - start - synthesis}


def least_regrets(worlds: dict[Fraction, World]) -> list[tuple[int, str, float]]:
    """Return (size, candidate, regret) at the judged sizes: the candidate whose greatest regret is the least."""
    rows = []
    labels = [one.algorithm.label for one in worlds[Fraction(1)].found]
    for size in JUDGED:
        greatest = dict.fromkeys(labels, 0.0)
        for world in worlds.values():
            times = {label: world.predicted(world.candidate(label), size) for label in labels}
            best = min(times.values())
            for label, time_there in times.items():
                greatest[label] = max(greatest[label], time_there / best - 1)
        label = min(greatest, key=greatest.__getitem__)
        rows.append((size, label, greatest[label]))
    return rows


def started(earlier: dict, setting_now: dict, only: str = "") -> dict:
    """Return the document to go on with: that of an earlier run on the same commit, else one without rows.

    So all rows of a table are of one commit, or with `only` those that do not hold this text. Uncommitted changes are
    of none.
    """
    if only and earlier["rows"]:
        now = setting_now["commit"] + " with uncommitted changes" * setting_now["changed"]
        others = []
        for row in earlier["rows"]:
            if only not in f"{row['machine']} {row['collective']}" or row.get("commit") == now:
                others.append(row)
        return earlier | {"rows": others, "now": now}
    document = {"setting": setting_now, "goal": GOAL, "baseline_goal": BASELINE_GOAL, "limit": LIMIT}
    document |= {"sends": MOST_SENDS, "rows": []}
    before = earlier.get("setting", {})
    committed = not before.get("changed") and not setting_now["changed"]
    if committed and setting_now["commit"] and before.get("commit") == setting_now["commit"]:
        document["rows"] = earlier["rows"]
    return document


KINDS = (*(f"× {factor}" for factor in FACTORS), "plan of × 1")


def table(document: dict) -> str:
    """Return the measurement as Markdown."""
    head = (
        "machine",
        "collective",
        "candidates>",
        *(f"{k}>" for k in KINDS),
        "any choice>",
        "over baseline>",
        "at",
        "CPU s>",
    )
    rows, worst, over = [], 0.0, 0.0
    for row in document["rows"]:
        own = [r for kind in KINDS[:-1] for r in row[kind]]
        greatest = max(own, key=lambda r: r[2])
        baseline = max(r[3] for r in own)
        worst, over = max(worst, greatest[2]), max(over, baseline)
        cells = [f"{100 * max(r[2] for r in row[kind]):.1f}%" for kind in KINDS]
        cells.append(f"{100 * max(r[2] for r in row['any choice']):.1f}%" if "any choice" in row else "")
        place = f"{size_text(greatest[0])} ({greatest[1]})" if greatest[2] > GOAL else ""
        rows.append((row["machine"], row["collective"], str(len(row["schedules"])), *cells,
                     f"{100 * baseline:.1f}%", place, seconds(row["cpu"])))  # fmt: skip
    missed = []
    for row in document["rows"]:
        own = [r for kind in KINDS[:-1] for r in row[kind]]
        if max(r[2] for r in own) > document["goal"] or max(r[3] for r in own) > document["baseline_goal"]:
            missed.append(f"{row['machine']} {row['collective']}")
    of_commit: dict[str, list[str]] = {}
    for row in document["rows"]:
        if "commit" in row:
            of_commit.setdefault(row["commit"], []).append(f"{row['machine']} {row['collective']}")
    cells = len(document["rows"])
    judgements = cells * len(FACTORS) * len(JUDGED)
    above = sum(r[2] > document["goal"] for row in document["rows"] for kind in KINDS[:-1] for r in row[kind])
    said = f"Missed in {len(missed)} of {cells} cells: {', '.join(missed)}." if missed else f"Met in all {cells} cells."
    lines = [
        "# Choice by size\n",
        f"Plans made at {len(SIZES)} sizes (1 KB to 1 GB), judged at {len(JUDGED)} others. Times are runs of the "
        "reference executor, a model and no measurement; a message costs 0.3 µs at either end. Each column is the "
        "greatest regret with α and the cost of a message × 1/2, 1 and 2; `over baseline` the greatest loss against "
        "the fastest baseline. `plan of × 1`: the plan of factor 1 judged with the other factors; "
        "`any choice`: the greatest regret there that no "
        "choice avoids which does not know the factor.\n",
        f"Goal: regret at most {100 * document['goal']:.0f}%, never slower than the best baseline by more than "
        f"{100 * document['baseline_goal']:.0f}%. Greatest regret {100 * worst:.1f}%, over baseline {100 * over:.1f}%; "
        f"above the goal at {above} of {judgements} judged sizes. {said}\n",
        markdown(head, rows),
        f"{cells} of {len(MACHINES) * len(COLLECTIVES)} cells are measured. "
        f"Frontiers of {document['limit']:g} s of synthesis; schedules of more than {document['sends']} sends are left "
        "out.\n",
        f"{setting(document['setting'])}\n",
        *(f"Of commit {commit}: {', '.join(names)}.\n" for commit, names in of_commit.items()),
    ]  # fmt: skip
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Measure, or print the table of what was measured. Returns 1 where the goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.choice", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="cells whose name contains TEXT")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "choice.json", metavar="FILE.json")
    given, _ = parser.parse_known_args(arguments)
    earlier = json.loads(given.output.read_text(encoding="utf-8")) if given.output.exists() else {"rows": []}
    if given.table:
        print(table(earlier))
        return 0
    document = started(earlier, where(), given.only)
    now = document.pop("now", None)
    rows = {(row["machine"], row["collective"]): row for row in document["rows"]}
    for machine, collective in product(MACHINES, COLLECTIVES):
        if given.only in f"{machine} {collective}" and (machine, collective) not in rows:
            rows[machine, collective] = row = measured(machine, collective)
            if now:
                row["commit"] = now
            greatest = max(r[2] for kind in KINDS[:-1] for r in row[kind])
            print(machine, collective, f"{100 * greatest:.2f}%", f"{row['cpu']:.0f} s", file=sys.stderr, flush=True)
            document["rows"] = [rows[key] for key in product(MACHINES, COLLECTIVES) if key in rows]
            keep(document, table(document), given.output)
    print(table(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
