"""Logical time kept by the kernel on CPU threads: the reference executor's to the picosecond."""

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from host_runs import KNOWN, fifo_options, needs_compiler
from programs import all_send_first, ring_allgather, ring_allreduce

from synth.commands import api
from synth.errors import SynthError, UsageError
from synth.program.buffer_layout import Layout
from synth.runtime import reference_data
from synth.runtime.dtypes import dtype
from synth.runtime.host.executor import Host
from synth.runtime.kernel import logical_clock
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.runtime.reference.executor import Reference
from tests.command_line import synth

pytestmark = needs_compiler


def network(name):
    return api.topology(name).network()


def both(program, links, elements, kind="float32", op="sum", in_place=False, **options):
    """The kernel's times, after comparing all that both executors say."""
    given = reference_data.random_inputs(Layout(program.collective, program.chunks), elements, dtype(kind), op, 0)
    host = Host(**{"network": links, "threads": 1, "clock": "logical", "timeout": 30.0} | options)
    found = host.run(program, given, dtype=kind, op=op, in_place=in_place)
    wanted = Reference(network=links, **fifo_options(options)).run(program, given, dtype=kind, op=op, in_place=in_place)
    assert (found.picoseconds, found.links) == (wanted.picoseconds, wanted.links)
    assert found.outputs and wanted.outputs
    assert [a.tobytes() for a in found.outputs] == [b.tobytes() for b in wanted.outputs]
    return found


@pytest.mark.parametrize("program", KNOWN, ids=lambda program: program.name)
def test_known_algorithms(program):
    links = network("fully-connected:4")
    for elements, kind, options in (
        (0, "float32", {}), (1, "int8", {}), (1000, "float64", {"threads": 3}), (9_001, "float32", {"protocol": "LL"}),
        (70, "uint8", {"part": 1, "depth": 8}),
    ):  # fmt: skip
        both(program, links, elements, kind, in_place=elements == 1, **options)


@pytest.mark.parametrize("machine, name, task", [
    pytest.param("dgx2", "direct", "alltoall", marks=pytest.mark.slow),
    ("switch:5", "ring", "allreduce"), ("rail:2x2", "direct", "allgather"),
    pytest.param("mi250", "ring", "reduce-scatter", marks=pytest.mark.slow),
    ("dgx1-v100", "ring", "allreduce"), ("ring:4", "ring", "broadcast"),
])  # fmt: skip
def test_machines_whose_links_share_limits_and_connections_that_share_links(machine, name, task):
    made = api.baseline(name, machine, task, roots=(0,) if task == "broadcast" else ())
    for program in (api.lower(made, lanes=1), api.lower(made, lanes=1, instances=2, protocol="LL")):
        assert both(program, made.network, 11).picoseconds > 0


def test_the_kernel_works_the_time_out_by_itself():
    """The kernel gets an order alone: with another network's tables, or a table with a wrong makespan, its time is its
    own."""
    links, program = network("fully-connected:4"), ring_allreduce(4)
    plain = both(program, links, 5000).picoseconds
    slow = replace(links, routes=tuple(route._replace(latency=10 * route.latency) for route in links.routes))
    kept = logical_clock.timetable

    def lying(*given, **named):
        return kept(*given, **named)._replace(picoseconds=0, network=slow)

    host = Host(network=links, threads=1, clock="logical")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logical_clock, "timetable", lying)
        found = host.time(program, 5000)
    assert found.picoseconds == Reference(network=slow).time(program, 5000).picoseconds > plain


def test_one_machine_launch_after_launch():
    links, program, kind = network("fully-connected:4"), ring_allreduce(4), dtype("int32")
    machine, arena = Host(network=links, threads=2, clock="logical").load(program, 100, kind, in_place=False)
    layout = Layout(program.collective, program.chunks)
    function, scale = machine.function(kind, "sum")
    wanted = Reference(network=links).time(program, 100, dtype="int32").picoseconds
    for seed in range(20):
        given = reference_data.random_inputs(layout, 100, kind, "sum", seed)
        arena.fill(given, layout, 1)
        machine.launch(function, 2, scale)
        reference_data.check(layout, kind, "sum", given, [arena.view(r, "o", 4) for r in range(4)])
        assert machine.timed is not None and machine.timed.picoseconds == wanted


def test_a_deadlock_is_named_by_the_model_that_gives_the_order():
    with pytest.raises(DeadlockError, match="room to rank"):
        Host(network=network("ring:3"), clock="logical").time(all_send_first(3, 4), 7)


def test_the_command_says_that_it_is_a_model():
    words = "run --baseline ring --topo ring:3 --coll allgather --size 24KB --executor"
    said = synth(words, "host --threads 1 --clock logical").stdout
    assert "an execution-driven model of ring:3, not a measurement" in said and "real time of the launch" in said
    plain, doc, model = (
        json.loads(synth(words, more, "--format json").stdout)
        for more in ("host --threads 1", "host --threads 1 --clock logical", "reference")
    )
    assert doc["picoseconds"] == model["picoseconds"] and "says" in doc and doc["nanoseconds"] > 0
    assert plain["picoseconds"] is None and "says" not in plain


def test_what_is_refused():
    program, links = ring_allgather(3), network("ring:3")
    for options, why in (
        ({"clock": "logical"}, "name the machine"), ({"clock": "atomic", "network": links}, "logical exists"),
        ({"clock": "logical", "network": links, "ranks_on": (0, 0, 0)}, "one launch"), ({}, "knows no times"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            Host(**options).time(program, 5)
    with pytest.raises(SynthError, match="is for 3 ranks"):
        Host(network=network("ring:4"), clock="logical").time(program, 5)
    odd = replace(links, unit=links.unit * Fraction(10**15 + 1, 10**15 + 3))
    with pytest.raises(SynthError, match="does not fit the kernel's clock"):
        Host(network=odd, clock="logical").time(program, 1 << 20)
