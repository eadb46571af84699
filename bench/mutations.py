"""Does lint see what is wrong? Good programs with one random change each: caught by lint, or right however they are
run.

A change that lint lets pass is run in the reference executor, in every mode that the program claims: for every way in
which its messages can be split and every FIFO depth from 1 to 8, each with `DELAYS` seeds of random delays, half of
them on the timed network. Where lint's own model says that a depth is too short the run has to stop there, else every
element has to be right. Anything else is a *miss*.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from bench import measure, mutants
from synth.commands import api
from synth.errors import SynthError, VerificationError
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule
from synth.model.topology import Network
from synth.program import analysis
from synth.program.analysis import deadlock
from synth.program.analysis.analysis import modes
from synth.program.analysis.connection_tables import build_connection_tables
from synth.program.buffer_layout import Layout
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program
from synth.program.runtimes import RUNTIMES
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.reference.executor import Reference

DELAYS = 13  # seeds for each split and depth: 104 for each split
DEPTHS = range(1, 9)
SEEDS = 2  # changes of each kind to each program
TYPE = dtype("int64")

# topology, collective, C, S, R and the ways in which it is lowered: (runtime, protocol, instances)
SCHEDULES: tuple[tuple[str, str, int, int, int, tuple[tuple[str, str, int], ...]], ...] = (
    ("dgx1", "allgather", 1, 2, 2, (("synth", "Simple", 1), ("rccl", "LL", 1), ("msccl-executor", "Simple", 2))),
    ("dgx1", "broadcast", 4, 3, 3, (("msccl-executor", "Simple", 1), ("rccl", "Simple", 2), ("mscclpp", "Simple", 1))),
    ("ring:4", "allgather", 2, 2, 3, (("msccl", "LL128", 2), ("mscclpp", "Simple", 2), ("mscclpp", "LL", 1))),
    ("ring:4", "reduce-scatter", 2, 2, 3, (("synth", "Simple", 1), ("mscclpp", "Simple", 1), ("mscclpp", "LL", 1))),
    ("ring:4", "alltoall", 1, 2, 2, (("msccl", "Simple", 1), ("mscclpp", "LL", 1))),
    ("ring:4", "allreduce", 8, 3, 9, (("synth", "Simple", 1), ("rccl", "Simple", 1), ("mscclpp", "LL", 1))),
)


@dataclass(frozen=True)
class Base:
    """A good program, what it was lowered for, and the network that its times come from."""

    name: str
    program: Program
    runtime: str
    network: Network


@cache
def schedule(topology: str, collective: str, chunks: int, steps: int, rounds: int) -> Schedule:
    """A schedule, the same in every process."""
    if collective == "allreduce":
        frontier = api.frontier(topology, collective, max_steps=steps, deterministic=True, fresh=True, engine="exact")
        assert isinstance(frontier, Frontier)  # what the exact engine returns
        return next(p.schedule for p in frontier.points if p.schedule.chunks == chunks)
    found = api.solve(topology, collective, chunks, steps, rounds, deterministic=True)
    return found.schedule  # type: ignore[union-attr]


def bases(schedules: Sequence[tuple] = SCHEDULES) -> Iterator[Base]:
    """The programs that are changed."""
    for *what, ways in schedules:
        made = schedule(*what)
        for runtime, protocol, instances in ways:
            if runtime == "mscclpp":
                place = "both" if Layout(made.collective, made.chunks * instances).shares_chunks else "out"
                options = LoweringOptions(protocol=protocol, instances=instances, in_place=place)
                program = onesided(made, options)
            else:
                program = api.lower(made, runtime=runtime, protocol=protocol, instances=instances)
            name = f"{what[0]} {what[1]} C{what[2]} {runtime} {protocol} x{instances}"
            yield Base(name, program, runtime, made.network)


def changes(base: Base, seeds: int) -> Iterator[tuple[str, int, Program, str]]:
    """(kind, seed, changed program, what was changed) for every kind that applies to `base`."""
    for kind in mutants.KINDS:
        for seed in range(seeds):
            made = mutants.change(kind, base.program, Random(f"{base.name} {kind} {seed}"))
            if made is not None:
                yield kind, seed, *made


def judge(base: Base, program: Program, delays: int = DELAYS) -> tuple[str, list[str], str]:
    """("caught", the rules, ""), ("harmless", [], ..) or ("missed", [], what went wrong)."""
    report = analysis.check(program, base.runtime)
    known = _warnings(base.program, base.runtime)
    rules = sorted({finding.rule for finding in report.findings if finding.severity != "remark"} - known)
    if not report.ok or rules:
        return "caught", rules, ""
    runs = 0
    for what, good in _every(base, program, delays):
        runs += 1
        if not good:
            return "missed", [], what
    return "harmless", [], f"right in {runs} runs"


@cache
def _warnings(program: Program, runtime: str) -> frozenset[str]:
    """Rules that warn of a good program already (the root of a broadcast)."""
    findings = analysis.check(program, runtime).findings
    return frozenset(finding.rule for finding in findings if finding.severity == "warning")


def outcome(program: Program, mode: str, executor: Reference) -> str:
    """``right``, ``wrong``, ``stuck`` or ``refused``."""
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    given = reference_data.random_inputs(layout, 1, TYPE, "sum", executor.delays or 0)
    try:
        done = executor.run(program, given, dtype=TYPE.name, in_place=mode == "in")
        reference_data.check(layout, TYPE, "sum", given, done.outputs or ())
    except DeadlockError:
        return "stuck"
    except VerificationError:
        return "wrong"
    except SynthError:
        return "refused"
    return "right"


def _every(base: Base, program: Program, delays: int) -> Iterator[tuple[str, bool]]:
    """Every mode, split, depth and seed: what it is, and whether it ended as it must."""
    wired = None if program.one_sided else build_connection_tables(program)
    splits = [1] if wired is None else [split.chunks for split in deadlock.splits(program, RUNTIMES[base.runtime])]
    for mode in modes(program):
        for part in splits:
            for depth in DEPTHS:
                must = "right" if wired is None or not deadlock.run_with_fifos(wired, depth, part) else "stuck"
                for k in range(delays):
                    seed = (part * 16 + depth) * 1000 + k
                    network = base.network if seed % 2 else None
                    got = outcome(program, mode, Reference(network=network, delays=seed, depth=depth, part=part))
                    what = f"{mode} place, parts of {part}, depth {depth}, delays {seed}: {got}, expected {must}"
                    yield what, got == must


def main(arguments: Sequence[str]) -> int:
    """Change every program, and print the verdicts by kind; exit code 1 where lint has missed something."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutations", description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="changes of each kind to each program")
    parser.add_argument("--delays", type=int, default=DELAYS, help="random delays for each split and depth")
    given = parser.parse_args(arguments)
    counts: dict[str, Counter] = {kind: Counter() for kind in (*mutants.KINDS, "all")}
    for base in bases():
        report = analysis.check(base.program, base.runtime)
        bad = [what for what, good in _every(base, base.program, 1) if not good]
        if not report.ok or report.safe is not None or bad:
            raise VerificationError(f"{base.name} is no good program: {[*map(str, report.errors), *bad][:1]}")
        for kind, seed, program, text in changes(base, given.seeds):
            verdict, _, ran = judge(base, program, given.delays)
            for row in (counts[kind], counts["all"]):
                row["made"] += 1
                row[verdict] += 1
            if verdict == "missed":
                print(f"{base.name} {kind} {seed}: {text}: {ran}", file=sys.stderr)
    columns = ("made", "caught", "harmless", "missed")
    lines = [[kind, *(str(row[column]) for column in columns)] for kind, row in counts.items()]
    print(measure.markdown(["change", *(f"{column}>" for column in columns)], lines))
    return int(counts["all"]["missed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
