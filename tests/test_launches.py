"""Programs carried out by several launches at once, one a rank, on the host executor: right, launch after launch, never
hung."""

import numpy as np
import pytest
from click.testing import CliRunner
from programs import all_send_first, direct_allgather, recursive_doubling_allreduce, ring_allgather, ring_allreduce

from synth.commands import api
from synth.commands.root import root
from synth.errors import SynthError, UsageError
from synth.program import text
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.host.executor import Host, collect_outputs, layout_of, side_by_side
from synth.runtime.kernel import build_host, launches, sources
from synth.runtime.kernel import tables as flat
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.reference.op_tables import compile_program

pytestmark = pytest.mark.skipif(build_host.compiler() is None, reason="no C++ compiler here: apt install g++")
KNOWN = (ring_allgather(4, 2), direct_allgather(4), ring_allreduce(4), recursive_doubling_allreduce(4, 3))


@pytest.mark.parametrize("on", [(0, 0, 0, 0), (0, 0, 1, 1), (3, 1, 0, 2)])
def test_one_launch_a_rank_is_right(on):
    for program in KNOWN:
        for kind, op, elements in (
            ("float32", "sum", 37),
            ("int32", "avg", 1),
            ("bfloat16", "max", 1000),
            ("uint8", "sum", 0),
        ):
            given = reference_data.random_inputs(
                Layout(program.collective, program.chunks), elements, dtype(kind), op, 1
            )
            done = api.run(program, given, executor="host", op=op, ranks_on=on, threads=2, in_place=elements == 37)
            assert done.checked is not None


@pytest.mark.parametrize("how", [{}, {"protocol": "LL"}, {"direct": False}], ids=["direct", "packets", "fifo"])
@pytest.mark.parametrize(
    "program", [KNOWN[0], *(pytest.param(p, marks=pytest.mark.slow) for p in KNOWN[1:])], ids=lambda p: p.name
)
def test_a_thousand_launches_back_to_back_none_waiting_for_the_others_end(program: Program, how):
    kind, elements = dtype("int32"), 5
    host = Host(threads=1, ranks_on=(0, 0, 1, 1), **how)
    machine, arena = host.load(program, elements, kind, in_place=False)
    layout, (call, scale) = layout_of(program), machine.function(kind, "sum")
    puts = (
        not how and program.name != "recursive-doubling"
    )  # partners' exchanges keep each other's order by their messages
    assert machine.feature == (sources.LL if "protocol" in how else sources.DIRECT if puts else sources.PLAIN)
    count = 200 if how else 1000
    for seed, times in ((1, 1), (2, count - 1)):
        given = reference_data.random_inputs(layout, elements, kind, "sum", seed)
        arena.fill(given, layout, 1)
        machine.launch(call, 1, scale, times)
        reference_data.check(layout, kind, "sum", given, collect_outputs(arena, layout, kind, "sum"))
    assert set(machine.run) == {count}


def test_a_deadlock_across_launches_is_reported_and_the_next_run_is_right():
    with pytest.raises(DeadlockError) as one:
        api.run(all_send_first(3, 4), executor="host", timeout=0.2)
    host = Host(threads=2, timeout=0.2, ranks_on=(0, 1, 2))
    kind = dtype("float32")
    machine, _ = host.load(all_send_first(3, 4), 37, kind, in_place=False)
    call = build_host.library("copy").synth_copy
    for _ in range(2):
        with pytest.raises(DeadlockError) as several:
            machine.launch(call, 2, 4, 3)
        assert several.value.cycle == one.value.cycle
        assert not machine.abort.any() and not machine.counters.any()


def test_each_launch_knows_its_own_blocks_and_sees_all_beats():
    program = recursive_doubling_allreduce(4, 3)
    machine, _ = Host(ranks_on=(0, 1, 0, 1)).load(program, 5, dtype("float32"), in_place=False)
    assert [launch.device for launch in machine.launches] == [0, 1, 0, 1]
    assert sum(launch.count for launch in machine.launches) == len(machine.code.place)
    at = machine.beat.__array_interface__["data"][0]
    assert [(int(row["beat"]) - at) // 8 for row in machine.watched] == [launch.first for launch in machine.launches]
    for b, steps in enumerate(machine.code.steps):
        launch = next(c for c in machine.launches if c.first <= b < c.first + c.count)
        for i, step in enumerate(steps):
            op = machine.tables.ops[machine.tables.blocks[b]["op0"] + i]
            own = machine.deps[op["dep0"] : op["dep0"] + op["ndep"]]
            assert [(d["block"] + launch.first, d["op"]) for d in own] == list(step.deps)


def test_what_makes_no_sense_is_one_line():
    for on, why in (((0, 1), "has 3 ranks; --ranks-on names 2 devices"), ((0, -1, 0), "no device -1")):
        with pytest.raises(UsageError, match=why):
            api.run(ring_allgather(3), executor="host", ranks_on=on)
    program = ring_allgather(3)
    arena = Arena(program, layout_of(program), in_place=False, slices=1)
    assert launches.plan_launches(compile_program(program, arena, in_place=False), None, 5) == (
        launches.Launch(None, 0, 3, 5),
    )


def test_where_one_launch_has_no_threads_the_others_leave():
    abort = np.zeros(1, np.uint64)
    calls: list[int] = []

    def waits() -> int:
        while not abort[0]:
            pass
        return 0

    assert side_by_side([lambda: calls.append(1) or 1, waits], abort, 5) == 1
    assert calls == [1]
    with pytest.raises(SynthError, match="does not give"):
        machine, _ = Host(ranks_on=(0, 0, 0)).load(ring_allgather(3), 5, dtype("float32"), in_place=False)
        machine.launch(lambda prog, threads: 1, 4)


def test_the_command_line(tmp_path):
    path = tmp_path / "ring.txt"
    path.write_text(text.dump(ring_allreduce(4)))
    words = ["run", str(path), "--executor", "host", "--size", "4KB"]
    assert CliRunner().invoke(root, [*words, "--ranks-on", "0,0,1,1"]).exit_code == 0
    assert flat.LAUNCH.itemsize == 16
    for bad, why in (("0,1", "names 2 devices"), ("0,x,1,1", "0,0,1,1"), ("0,,1", "0,0,1,1")):
        done = CliRunner().invoke(root, [*words, "--ranks-on", bad])
        assert done.exit_code and why in done.output + str(done.exception), done.output
