"""From any schedule to a program, its analysis, its result, its files and back: random machines, collectives and
options.

A schedule is synthesized, or random and verified; it is lowered with random options; lint finds nothing; the reference
executor computes the collective under random delays and FIFO depths; text, JSON and the runtimes' files are read back
as the same program, the files by strict readers of their own too. A refusal names a limit, and few are refused.
"""

import random
from collections import Counter
from dataclasses import replace

import pytest
import random_programs
import randoms
import strict_msccl
import strict_mscclpp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from program_judge import right

from synth.checker.schedule import replay
from synth.commands import api
from synth.errors import SynthError, UsageError
from synth.export.msccl_xml import read
from synth.export.mscclpp import read as mscclpp_read
from synth.model.collective import COLLECTIVES
from synth.program.buffer_layout import Layout
from synth.program.lowering.lower import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.onesided.lower import onesided
from synth.program.program import Program
from synth.program.runtimes import FIFO_DEPTH, RUNTIMES

KINDS = (*COLLECTIVES, "custom", "program")


def made(kind, seed):
    """A verified schedule of the collective `kind`, or of a random program of the chunk language."""
    if kind == "custom":
        found = randoms.schedule(seed)
    else:
        found = random_programs.schedule(seed, None if kind == "program" else kind)
    replay.schedule(found)
    return found


def roots(program: Program) -> int | None:
    return program.collective.roots[0] if program.collective.roots else None


def written(program: Program, runtime: str) -> int:
    """The files of the runtime's form, accepted by its strict reader, hold the program. How many there are."""
    files = api.export_program(
        program, runtime=runtime, assume_root=roots(program), assume_nvlink=True, assume_one_node=True, max_size=1 << 20
    ).files
    for _, content in files:
        strict_msccl.load(content, runtime)
        back = read.read(content, "f.xml", program.collective if 'coll="custom"' in content else None, runtime=runtime)
        gpus = tuple(gpu._replace(blocks=tuple(block._replace(via=()) for block in gpu.blocks)) for gpu in program.gpus)
        in_place = (
            back.in_place if program.in_place == "both" and RUNTIMES[runtime].exact_in_place else program.in_place
        )
        assert back == replace(program, name=back.name, gpus=gpus, in_place=in_place, max_bytes=1 << 20)
        assert program.name.startswith(back.name)
    if len(files) == 2:
        assert sorted(read.read(content, "f.xml", program.collective).in_place for _, content in files) == ["in", "out"]
    return len(files)


def lowered(schedule, seed: int) -> str:
    """One schedule with random options, to MSCCL-IR: what became of it."""
    rng = random.Random(f"{schedule.collective.name} {seed}")
    runtime, protocol = rng.choice(("synth", "msccl", "msccl-executor", "rccl")), rng.choice(tuple(FIFO_DEPTH))
    shared = Layout(schedule.collective, schedule.chunks).shares_chunks
    try:
        program = lower(
            schedule, LoweringOptions(
            runtime=runtime, protocol=protocol, instances=rng.randint(1, 4), fuse=rng.random() < 0.7,
            in_place=rng.choice((None, "out", "in", "both")) if shared else None, aggregate=rng.random() < 0.7,
            lanes=rng.choice((None, None, 1, 2))))  # fmt: skip
    except SynthError as error:
        assert not isinstance(error, UsageError), error
        assert runtime in str(error), error
        return "refused"
    right(program, runtime, rng, schedule.network)
    if runtime == "synth":
        return "executed"
    if runtime != "msccl" and program.collective.name not in (RUNTIMES[runtime].collectives or {}):
        with pytest.raises(SynthError, match=runtime):
            written(program, runtime)
        return "not dispatched"
    assert written(program, runtime) == (2 if runtime == "msccl" and program.in_place == "both" else 1)
    return "written"


def planned(schedule, seed: int) -> str:
    """One schedule with random options, to an MSCCL++ plan."""
    rng = random.Random(f"{schedule.collective.name} {seed}")
    layout = Layout(schedule.collective, schedule.chunks)
    boxes = rng.choice((None, [r % 2 for r in range(schedule.collective.ranks)]))
    in_place = rng.choice(("out", "in", "both")) if layout.shares_chunks else "out"
    try:
        program = onesided(
            schedule, LoweringOptions(
            protocol=rng.choice(("Simple", "LL")), instances=rng.randint(1, 4), in_place=in_place, nodes=boxes,
            blocks=rng.choice((None, None, 1, 2))))  # fmt: skip
    except SynthError as error:
        assert not isinstance(error, UsageError), error
        return "refused"
    right(program, "mscclpp", rng, schedule.network)
    if in_place == "both":
        return "planned for both"  # files are for one of the two
    content = api.export_program(program, "mscclpp", assume_root=roots(program)).files[0][1]
    strict_mscclpp.check(content)
    assert mscclpp_read.read(content, task=program.collective) == program
    return "planned"


def every(examples: int, schedules, *ways) -> Counter:
    """`examples` random schedules, each through `ways`; what became of them, by count."""
    seen: Counter = Counter()

    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 10**9))
    def go(seed):
        schedule = schedules(seed)
        for way in ways:
            seen[way(schedule, seed)] += 1

    go()
    return seen


@pytest.mark.parametrize("kind", KINDS)
def test_random_schedules(kind):
    seen = every(5, lambda seed: made(kind, seed), lowered, planned)
    assert seen["refused"] * 4 <= seen.total(), seen
    assert seen["planned"] + seen["planned for both"], seen


def test_a_flush_at_the_moment_of_its_put():
    """Of this random collective, the executor once let a flush pass before the put at the same moment had read its
    source."""
    assert planned(made("custom", 247), 247) == "planned"


SYNTHESIZED = (
    "broadcast",
    "scatter",
    "gather",
    "reduce",
    "allgather",
    "reduce-scatter",
    "alltoall",
    "alltoallv",
    "multi-gather",
)


def synthesized(seed: int):
    """A point of the frontier of a small random machine."""
    rng = random.Random(seed)
    machine, name = random_programs.machine(rng), rng.choice(SYNTHESIZED)
    points = api.frontier(
        machine,
        random_programs.task(name, machine.ranks, rng),
        max_steps=4,
        max_chunks=2,
        jobs=1,
        deterministic=True,
        fresh=True,
    ).points
    return rng.choice(points).schedule if points else made(name, seed)


def test_synthesized_schedules():
    seen = every(5, synthesized, lowered, planned)
    assert seen["refused"] * 4 <= seen.total(), seen


def test_a_schedule_that_no_runtime_takes_is_refused_with_the_limit():
    found = made("alltoallv", 0)
    refused = 0
    for instances in (1, 200):
        try:
            lower(found, LoweringOptions(runtime="rccl", instances=instances))
        except SynthError as error:
            assert "rccl" in str(error)
            refused += 1
    assert refused == 1
