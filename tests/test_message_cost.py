"""A cost per message at both ends: its text, known times, and what it does to programs of many messages."""

import pytest
from click.testing import CliRunner

from synth.commands import api, root
from synth.errors import UsageError
from synth.program.checked_lowering import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.runtimes import RUNTIMES
from synth.runtime.reference.executor import Reference
from synth.runtime.reference.program_times import ProgramTimes

ALPHA = 1_000_000  # ps, of full:N
COST = 300_000  # ps


def time(name, topology, collective, size, cost="0.3us", **options):
    done = api.run(
        api.baseline(name, topology, collective), size=size, topology=topology, bound=False, overheads=False,
        per_send=MessageCost.parse(cost), **options,
    )  # fmt: skip
    return done.execution.picoseconds or 0


def wire(topology, size):
    """Return the ps of `size` bytes on a link of `topology`, rounded up."""
    network = api.topology(topology).network()
    rate = network.routes[0].units * network.unit
    return -(-size * 1000 * rate.denominator // rate.numerator)


@pytest.mark.parametrize("text", ["0.3us", "300 ns", "0.0003ms", "0.3µs", "3/10us"])
def test_the_same_cost_in_several_words(text):
    cost = MessageCost.parse(text)
    assert (cost.picoseconds, str(cost), MessageCost.parse(str(cost))) == (300_000, "0.3us", cost)
    assert cost and not NO_COST and not MessageCost.parse("0us")
    assert MessageCost.parse("1/3us").picoseconds == 333_334


@pytest.mark.parametrize("text", ["0.3", "-1us", "fast", "3 lightyears", "LL=1us", "9999ms", "nanus", ""])
def test_what_is_no_cost_is_refused_in_one_line(text):
    done = CliRunner().invoke(root, ["run", "--baseline", "direct", "--topo", "full:4", "--coll", "alltoall",
                                     "--per-send", text])  # fmt: skip
    assert done.exit_code == 2
    assert "is no time from 0 to a second" in " ".join(done.stderr.replace("│", " ").split())


def test_functions_take_a_cost_as_text():
    asked = {"size": 1024, "topology": "full:2", "bound": False}
    program = api.baseline("direct", "full:2", "alltoall")
    costs = ("0.3us", MessageCost.parse("0.3us"))
    first, second = (api.run(program, per_send=cost, **asked).execution.picoseconds for cost in costs)
    assert first == second
    first, second = (api.tune("full:2", "alltoall", [1024], per_send=cost) for cost in costs)
    assert first.tables == second.tables
    with pytest.raises(UsageError, match="per_send: '-1us' is no time from 0 to a second"):
        api.tune("full:2", "alltoall", [1024], per_send="-1us")


def test_one_message_costs_both_ends():
    """Two ranks exchange a message: o to send it, bytes/β, α, o to receive it."""
    assert time("direct", "full:2", "alltoall", 8192) == COST + wire("full:2", 4096) + ALPHA + COST


def test_a_rank_sends_and_receives_one_message_at_a_time():
    """The last of 7 messages leaves after 7 o; before it arrives, those before it have been received."""
    assert time("direct", "full:8", "alltoall", 8192) == 7 * COST + wire("full:8", 1024) + ALPHA + COST


def test_parts_that_follow_each_other_are_one_message():
    """A chunk of many slices on one link: its message is paid once, not once a slice."""
    size = 64 << 20
    with_cost, without = (time("direct", "full:2", "alltoall", size, cost, protocol="LL", data=False)
                          for cost in ("0.3us", "0us"))  # fmt: skip
    assert without < with_cost < without + 8 * COST


def test_no_cost_changes_no_time():
    for name, collective in (("ring", "allreduce"), ("direct", "alltoall")):
        schedule = api.baseline(name, "dgx1", collective)
        plain = api.run(schedule, size=1 << 20, bound=False, overheads=False).execution.picoseconds
        assert time(name, "dgx1", collective, 1 << 20, "0us") == plain


def test_it_needs_a_network_and_fifos():
    program = lower(api.baseline("direct", "full:4", "alltoall"))
    with pytest.raises(UsageError, match="needs the times of the links"):
        Reference(per_send=MessageCost.parse("1us")).time(program, 4)
    with pytest.raises(UsageError, match="has no such option: per_send"):
        api.run(program, executor="host", per_send=MessageCost.parse("1us"))


@pytest.mark.parametrize("protocol", ["Simple", "LL"])
@pytest.mark.parametrize("cost", ["0us", "0.3us"])
def test_times_over_sizes_are_those_of_the_executor(protocol, cost):
    """Extrapolated times lie within 2% of a run at that very size, exact ones are that run."""
    schedule = api.baseline("ring", "dgx1", "allreduce")
    program = lower(schedule, LoweringOptions(protocol=protocol))
    message_cost = MessageCost.parse(cost)
    times, exact = (ProgramTimes(program, schedule.network, message_cost, exact=one) for one in (False, True))
    reference = Reference(network=schedule.network, per_send=message_cost)
    for elements in (1, 7, 100, 5000, 65_536, 300_000):
        run = reference.time(program, elements).picoseconds * 1e-12
        size = 4 * elements * program.loop_chunks
        assert times.seconds(size) == pytest.approx(run, rel=0.02)
        assert exact.seconds(size) == exact.seconds(size - 1) == pytest.approx(run, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "machine", "collective", "protocol", "cost", "rel"),
    [
        ("ring", "full:4", "allreduce", "LL", "0.6us", 0.01),
        # Where flows share links each slice costs more than the last for a while: 27 took 5% more than predicted.
        ("halving-doubling", "pcie-8", "allgather", "Simple", "0.3us", 0.02),
    ],
)
def test_times_of_many_slices_wait_for_a_steady_rhythm_and_know_the_jumps_at_slices(
    name, machine, collective, protocol, cost, rel
):
    schedule = api.baseline(name, machine, collective)
    program = lower(schedule, LoweringOptions(protocol=protocol))
    times = ProgramTimes(program, schedule.network, MessageCost.parse(cost))
    sliced = RUNTIMES["synth"].operation_bytes(protocol, collective) // 4
    for elements in (sliced + 1, 7 * sliced + 40, 16 * sliced, 17 * sliced + 1, 27 * sliced - 100):
        seconds = times.seconds(4 * elements * program.loop_chunks)
        assert seconds == pytest.approx(times.computed(elements) * 1e-12, rel=rel)
