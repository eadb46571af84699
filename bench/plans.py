"""MSCCL++ plans of random schedules, each run under random delays by two judges: what is exported is right, or refused
with a reason.

python -m bench.plans [--each 10000] [--seed 0] [--minutes 40] [--jobs 2]

A kind is a collective × {Simple, LL} × the channels between its ranks: memory (one box), port (each rank a box of its
own), both (random boxes). Every random schedule is replayed, lowered with random options and written as a plan. The
plan is taken by the tests' strict reader, then by their own loader and machine, which share no code with lowering and
exporter: random interleavings, the orders and addresses of MSCCL++'s kernel, two launches of packets. Lint finds
nothing in the program, and the reference executor computes every element under random delays. All kinds get equal
shares of the time.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product

from bench import measure, roundtrip
from synth.errors import SynthError, UsageError, VerificationError
from synth.export.mscclpp.emit import document
from synth.model.collective import COLLECTIVES
from synth.model.schedule import Schedule
from synth.program import analysis
from synth.program.buffer_layout import Layout
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.reference.executor import Reference

CHANNELS = ("memory", "port", "both")
KINDS = tuple(product((*COLLECTIVES, "custom"), ("Simple", "LL"), CHANNELS))
ELEMENTS = 2
SHOWN = 20  # wrong plans that are kept, with what reproduces them

Kind = tuple[str, str, str]


def schedule(name: str, seed: str) -> Schedule:
    """A random schedule of the collective."""
    return (
        roundtrip.tests_own("randoms").schedule(seed)
        if name == "custom"
        else roundtrip.tests_own("floods").schedule(name, seed)
    )


def boxes(channels: str, ranks: int, rng: random.Random) -> list[int]:
    """The box of each rank."""
    if channels == "memory":
        return [0] * ranks
    if channels == "port" or ranks < 3:
        return list(range(ranks))
    found = [0, 0, 1, *(rng.randrange(3) for _ in range(ranks - 3))]
    rng.shuffle(found)
    return found


def attempt(kind: Kind, seed: str) -> tuple[str, str]:
    """The result of one random plan: ``right``, ``refused`` or ``wrong``, and why."""
    name, protocol, channels = kind
    rng = random.Random(f"{seed} {kind}")
    given = schedule(name, seed)
    ranks, can_be_in_place = given.collective.ranks, Layout(given.collective, given.chunks).shares_chunks
    in_place = "in" if can_be_in_place and rng.random() < 0.5 else "out"
    nodes, instances, blocks = boxes(channels, ranks, rng), rng.randint(1, 2), rng.choice((None, None, 1, 2))
    try:
        program = onesided(
            given,
            LoweringOptions(protocol=protocol, instances=instances, in_place=in_place, nodes=nodes, blocks=blocks),
        )
        text = json.dumps(document(program))
    except (UsageError, VerificationError) as error:
        return "wrong", f"no refusal that a good schedule may get: {error}"
    except SynthError as error:
        return "refused", str(error)
    try:
        judge(program, text, rng)
    except Exception as error:  # whatever a judge says, in its own way
        return "wrong", f"{type(error).__name__}: {error}"
    return "right", ""


def judge(program: Program, text: str, rng: random.Random) -> None:
    """Raises where the plan, or the program that it was written from, is wrong."""
    machine, task = roundtrip.tests_own("onesided_machine"), program.collective
    assert task is not None
    plan = roundtrip.tests_own("strict_mscclpp").check(text)
    machine.launches(machine.decoded(plan, task, program.chunks), rng.randrange(10**6))
    bad = [
        str(finding)
        for finding in analysis.check(program, "mscclpp").findings
        if finding.severity != "remark" and finding.rule != "root"
    ]
    if bad:
        raise AssertionError(f"lint: {bad[0]}")
    layout, kind, combine = Layout(task, program.chunks), dtype("int32"), "sum"
    given = reference_data.random_inputs(layout, ELEMENTS, kind, combine, rng.randrange(99))
    executor = Reference(delays=rng.randrange(10**6))
    done = executor.run(program, given, dtype=kind.name, op=combine, in_place=program.in_place == "in")
    reference_data.check(layout, kind, combine, given, done.outputs or ())


def campaign(kind: Kind, each: int, seed: int, seconds: float) -> dict:
    """A row: what became of up to `each` plans of a kind within `seconds` of CPU."""
    began, ended, wrong = time.process_time(), Counter(), []
    for k in range(each):
        if time.process_time() - began > seconds:
            break
        outcome, why = attempt(kind, f"{seed} {k}")
        ended[outcome] += 1
        if outcome == "wrong" and len(wrong) < SHOWN:
            wrong.append({"seed": f"{seed} {k}", "why": why})
    spent = round(time.process_time() - began, 1)
    return {
        "kind": kind,
        "plans": ended.total(),
        **{k: ended[k] for k in ("right", "refused", "wrong")},
        "faults": wrong,
        "cpu": spent,
    }


def table(results: dict) -> str:
    """The results as Markdown: a line for each collective, its kinds side by side."""
    rows = {tuple(row["kind"]): row for row in results["rows"]}
    ways = list(product(("Simple", "LL"), CHANNELS))
    lines = [
        [
            name,
            *(
                f"{rows[name, *way]['plans']} / {rows[name, *way]['refused']} / {rows[name, *way]['wrong']}"
                for way in ways
            ),
        ]
        for name in dict.fromkeys(kind[0] for kind in rows)
    ]
    plans, wrong = (sum(row[key] for row in rows.values()) for key in ("plans", "wrong"))
    cpu = sum(row["cpu"] for row in rows.values())
    return (
        f"# MSCCL++ plans of random schedules\n\n{plans} plans of {len(rows)} kinds, up to {results['each']} of "
        f"each (seed "
        f"{results['seed']}) in {cpu / 60:.0f} minutes of CPU: plans / refused with a limit / wrong. Right: taken "
        f"by the strict reader, "
        "right in every chunk on the tests' machine under a random interleaving with the kernel's orders and "
        "addresses (with packets "
        "two launches), nothing found by lint, every element right in the reference executor under random delays. "
        "Random are the "
        f"machine, the schedule, the boxes, in or out of place, instances and blocks. {wrong} are wrong.\n\n"
        + measure.markdown(["collective", *(f"{protocol}, {channels}>" for protocol, channels in ways)], lines)
        + "\n"
        + measure.setting(results["where"])
        + "\n"
    )


def main(arguments: Sequence[str]) -> int:
    """Runs the campaign; exit code 1 where a plan is wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench.plans", description=__doc__)
    parser.add_argument("--each", type=int, default=10_000, help="plans of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=40, help="of CPU, of all processes together")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    given = parser.parse_args(arguments)
    share = given.minutes * 60 / len(KINDS)
    count = len(KINDS)
    with ProcessPoolExecutor(given.jobs) as pool:
        rows = []
        for row in pool.map(campaign, KINDS, [given.each] * count, [given.seed] * count, [share] * count):
            rows.append(row)
            print(row, file=sys.stderr)
    results = {"where": measure.where(), "each": given.each, "seed": given.seed, "rows": rows}
    measure.keep(results, table(results), measure.RESULTS / "plans.json")
    wrong = [(row["kind"], fault) for row in rows for fault in row["faults"]]
    print(json.dumps({"plans": sum(row["plans"] for row in rows), "wrong": sum(row["wrong"] for row in rows)}))
    for kind, fault in wrong[:SHOWN]:
        print(*kind, fault["seed"], fault["why"])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
