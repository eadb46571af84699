"""Costs and gains of sketches: bounds with and without each one, and the time of one query over seeds.

python -m bench.sketches [--seeds 10] [--chunks 1]
python -m bench.sketches --table [--chunks 1]   the table again, from the JSON

The query is allgather on dgx-a100*2 in two steps, of C chunks in 2 C rounds, by the `step` encoding and CaDiCaL, in one
process. Seconds are CPU time of the solver, after encoding. Each schedule is replayed, with the rules of its sketch.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import synth
from bench import measure
from synth import bounds
from synth.checker.schedule import replay
from synth.encodings.step import StepEncoding
from synth.model.rational import show
from synth.model.schedule import Problem
from synth.solvers.cadical import Cadical

MACHINE, COLLECTIVE, STEPS = "dgx-a100*2", "allgather", 2
SKETCHES = (
    synth.Sketch("free"),
    synth.Sketch("rail only", across="rail"),
    synth.Sketch("own rail", ways="own rail"),
    synth.Sketch("home", ways="home"),
    synth.Sketch("across first", ways="own rail", phases={"across": (1, 1)}),
)


def measured(sketch: synth.Sketch, chunks: int, seeds: int) -> dict:
    """Return the bounds under a sketch, and the size and the times of the query."""
    network = sketch.applied(synth.topology(MACHINE)).network()
    collective = synth.collective(COLLECTIVE, network.ranks)
    problem = Problem(network, collective, chunks, STEPS, 2 * chunks)
    model, inverse = StepEncoding().apply(problem)
    row: dict = {
        "sketch": sketch.name, "links": len(network.routes), "variables": model.variables,
        "least_steps": int(bounds.steps(network, collective).value), "seconds": [], "answers": [],
    }  # fmt: skip
    for key, steps in (("bound_at_steps", STEPS), ("bound", None)):
        row[key] = show(bounds.flow(network, collective, steps).value)
    for seed in range(seeds):
        began = time.process_time()
        answer = Cadical(seed=seed).solve(model)
        row["seconds"].append(round(time.process_time() - began, 3))
        row["answers"].append(answer.status)
        if answer.status == "sat":
            replay.schedule(StepEncoding().invert(inverse, answer.values))
    return row


def results(chunks: int) -> Path:
    """Return the file of the results of so many chunks: beside those of one chunk, a file for each other number."""
    return measure.RESULTS / ("sketches.json" if chunks == 1 else f"sketches-{chunks}-chunks.json")


def page(found: dict) -> str:
    """Return the results as Markdown."""
    free = measure.median(found["rows"][0]["seconds"])
    rows = []
    for row in found["rows"]:
        middle, answers = measure.median(row["seconds"]), ", ".join(sorted(set(row["answers"])))
        rows.append((
            row["sketch"], str(row["links"]), str(row["least_steps"]), row["bound_at_steps"], row["bound"],
            str(row["variables"]), answers, f"{middle:.2f}", f"{min(row['seconds']):.2f}-{max(row['seconds']):.2f}",
            f"{free / middle:.2f}",
        ))  # fmt: skip
    head = (
        "sketch", "links", "least steps", f"R/C at S={STEPS}, at least", "at any S, at least", "variables", "answer",
        "median s", "range", "free / it",
    )  # fmt: skip
    seeds = len(found["rows"][0]["seconds"])
    return (
        f"# Sketches\n\n{COLLECTIVE} on {MACHINE}: the bounds under each sketch, and the query (C={found['chunks']}, "
        f"S={STEPS}, R={2 * found['chunks']}) by the step encoding and CaDiCaL, {seeds} seeds: CPU seconds of the "
        "solver. Every schedule was replayed under its rules. Answers under a sketch say nothing about the others.\n\n"
    ) + measure.markdown(head, rows) + f"\n{measure.setting(found['where'])}\n"  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the JSON and the table."""
    parser = argparse.ArgumentParser(prog="bench.sketches", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--chunks", type=int, default=1)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    if options.table:
        found = json.loads(results(options.chunks).read_text())
    else:
        found = {"where": measure.where(), "chunks": options.chunks, "rows": []}
        for sketch in SKETCHES:
            found["rows"].append(measured(sketch, options.chunks, options.seeds))
            print(found["rows"][-1], flush=True)
    measure.keep(found, page(found), results(options.chunks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
