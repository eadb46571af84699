"""Lower bounds in time: known answers, on machines with switches, and no run below them."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import pytest
import randoms

import synth
from synth.commands import api
from synth.commands.tuning.point_times import clock_bound_at, times_at
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import FormatError, InfeasibleError, SynthError, UsageError, VerificationError
from synth.model.collective import collective
from synth.model.graphs import latency
from synth.model.topology import Limit, Link, Topology
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.overheads import NCCL, NO_OVERHEADS
from synth.runtime.reference.deadlock_diagnosis import DeadlockError
from synth.scale.search import bound
from synth.scale.time_bound import time_bound
from synth.topologies import topology, topology_files
from synth.view import frontier_text, plans, rate_tables
from tests.command_line import synth as cli

SIZES = (4096, 1 << 18)
TECCL = Path(__file__).parent.parent / "examples" / "teccl"


def line(latencies: list[int], gbps: int = 1) -> Topology:
    """A one-way line of ranks."""
    links = [Link(i, i + 1, Fraction(gbps), Fraction(late)) for i, late in enumerate(latencies)]
    return Topology("line", len(latencies) + 1, tuple(links))


def microseconds(machine: Topology, task: str, size: int) -> Fraction:
    return time_bound(machine, task, [size]).rows[0].microseconds


@pytest.mark.parametrize(
    ("file", "task", "size", "expected"),
    [
        ("ndv2-x2", "allgather", 1_000, "4.1"),  # two links of 0.7 µs beside the NIC's 2.7
        ("ndv2-x2", "allgather", 10**9, "40000.7"),
        ("ndv2-x4", "allgather", 10**6, "60.7"),
        ("dgx2-x2", "alltoall", 10**9, "80000.7"),
    ],
)
def test_the_machines_of_teccl(file: str, task: str, size: int, expected: str) -> None:
    assert microseconds(api.topology(TECCL / f"{file}.yaml"), task, size) == Fraction(expected)


def test_the_farthest_pair_or_one_latency_and_all_bytes() -> None:
    machine = line([1, 5, 2], gbps=4)
    assert microseconds(machine, "broadcast", 8000) == 8
    assert microseconds(machine, "broadcast", 80_000) == 1 + 20


def test_a_sum_waits_for_its_farthest_contribution_and_a_copy_comes_from_the_nearest_holder() -> None:
    machine = Topology("back", 3, tuple(Link(i + 1, i, Fraction(1), Fraction(3)) for i in range(2)))
    assert microseconds(machine, "reduce", 4) == 6
    nearest = synth.Collective("copy", 3, [{1, 2}], [{0}])
    assert time_bound(machine, nearest, [4]).rows[0].microseconds == Fraction(3004, 1000)


def test_the_latency_of_the_farthest_pair_is_not_added_to_the_time_of_all_bytes() -> None:
    """A far rank behind a wide link has all of a broadcast before a near one behind a narrow link."""
    links = (Link(0, 1, Fraction(1), Fraction(1)), Link(0, 2, Fraction(100), Fraction(50)))
    machine = Topology("far", 3, links)
    star = api.baseline("direct", machine, "broadcast")
    took = api.run(star, size=80_000, topology=machine, overheads=False, data=False).execution.picoseconds
    assert took == 81 * 10**6 and microseconds(machine, "broadcast", 80_000) == 81


def test_a_limit_holds_all_its_links_together() -> None:
    links = (Link(0, 1, Fraction(4), Fraction(1)), Link(0, 2, Fraction(4), Fraction(2)))
    machine = Topology("nic", 3, links, (Limit("nic", (0, 1), Fraction(2)),))
    assert microseconds(machine, "scatter", 6000) == 1 + 2  # two units of 2000 bytes through 2 GB/s


def test_a_transfer_through_a_switch_takes_the_latencies_of_both_links_and_one_hop() -> None:
    links = [Link(*pair, Fraction(2), Fraction(1, 2)) for rank in range(3) for pair in ((rank, 3), (3, rank))]
    hub = Topology("hub", 3, links, switches=("s",))
    assert microseconds(hub, "allgather", 3000) == 1 + 1
    (row,) = time_bound(hub, "allgather", [3000], overheads=NCCL, protocols=("Simple",)).rows
    assert row.microseconds == Fraction("8.4") + 1 + Fraction("2.9") + 1
    network = time_bound(hub.network(), collective("allgather", 3), [3000], overheads=NCCL, protocols=("Simple",))
    assert network.rows == (row,)


def test_the_least_of_the_protocols_counts_with_its_launch() -> None:
    rows = api.time_bound("dgx1", "allgather", [1 << 10, 1 << 20, 1 << 30]).rows
    assert [row.launch for row in rows] == [0, 0, 0]
    network = api.topology("dgx1").network()
    clock = time_bound(network, collective("allgather", 8), [1 << 10, 1 << 30], overheads=NCCL)
    assert [row.protocol for row in clock.rows] == ["LL", "Simple"]
    assert clock.rows[0].microseconds == Fraction("3.6") + Fraction("1.4")


def test_the_certificate_of_the_rate_is_that_of_synth_bound() -> None:
    found = api.time_bound("dgx1", "allreduce", 1 << 30)
    large = api.scale_bound("dgx1", "allreduce")
    assert large is not None and found.certificate == large.certificate
    doc = json.loads(json.dumps(found.to_json()))
    assert doc["bounds"][0]["size"] == 1 << 30 and Fraction(doc["rounds_per_chunk"]) == large.bound
    with pytest.raises(FormatError, match="has no schema"):
        api.verify(doc)


def test_the_impossible_and_the_idle() -> None:
    with pytest.raises(InfeasibleError):
        time_bound(line([1, 1]), "allgather", [1000])
    assert time_bound(Topology("one", 1, ()), "allreduce", [1000]).rows[0].microseconds == 0
    with pytest.raises(UsageError, match="not a size"):
        api.time_bound("dgx1", "allgather", "much")


def test_a_value_that_makes_no_claim_is_not_verified() -> None:
    with pytest.raises(UsageError, match="a Sat is not verified; give a frontier"):
        api.verify(api.solve("ring:4", "allgather", 1, 2, 2))  # pyright: ignore[reportArgumentType]


def test_a_point_and_a_plan_are_compared_with_the_bound() -> None:
    frontier = synth.frontier("ring:4", "allgather", max_steps=2)
    size = 1 << 20
    table = frontier_text.choice(frontier, size, clock_bound_at(frontier, size), times_at(frontier, size))
    said = "\n".join(table.sentences)
    assert "no program takes less than 406 µs by this clock (8.4 µs launch in Simple" in said
    plan = api.tune("ring:4", "allgather", sizes=[1 << 10, 1 << 20], frontiers=[], time_limit=600)
    rows = plans.reports(plan, api.plan_bounds(plan))[1].rows
    assert all(float(row[-1]) >= 1 for row in rows) and float(rows[1][-2]) == 406


@pytest.mark.parametrize("name", ["gather", "scan", "scatter", "alltoall"])
def test_parallel_links_count_together(name):
    """They were refused: "topology.links[1]: appears twice"."""
    ends = ((1, 2), (2, 0))
    others = tuple(Link(a, b, Fraction(1), Fraction(1)) for a, b in ends)
    two = (Link(0, 1, Fraction(1), Fraction(1)), Link(0, 1, Fraction(2), Fraction(1)))
    one = (Link(0, 1, Fraction(3), Fraction(1)),)
    bounds = []
    for links in (two, one):
        found = api.time_bound(Topology("parallel", 3, links + others), name, [1 << 10, 1 << 24])
        bounds.append([row.microseconds for row in found.rows])
    assert bounds[0] == bounds[1]


def test_a_limit_of_one_of_two_parallel_links_is_left_out():
    links = (Link(0, 1, Fraction(1)), Link(0, 1, Fraction(2)), Link(1, 0, Fraction(1)))
    limits = (Limit("one", (0, 2), Fraction(1)), Limit("both", (0, 1, 2), Fraction(2)))
    network = Topology("parallel", 2, links, limits).network().without_parallel_routes()
    assert [(route.src, route.dst, route.units) for route in network.routes] == [(0, 1, 3), (1, 0, 1)]
    assert [(cap.routes, cap.units) for cap in network.caps] == [((1,), 1), ((0, 1), 2)]
    assert network.without_parallel_routes() is network


@pytest.mark.parametrize("name", ["allgather", "allreduce", "broadcast"])
def test_a_machine_whose_limits_flow_methods_cannot_read_has_an_exact_bound(name):
    """It was refused: a link shares two limits on one side."""
    machine = api.topology("fat-tree:4").network().as_topology()
    assert microseconds(machine, name, 1 << 20) == microseconds(api.topology("fat-tree:4"), name, 1 << 20)


# ---------------------------------------------------------------- switches that multicast


def test_a_bound_holds_for_the_sums_of_the_switches():
    """It left them out: 1773 µs at least, where a plan through the switch takes 1700."""
    machine, task, size = api.topology("dgx-h100"), collective("allreduce", 8), 256 << 20
    schedule = MulticastPipelining(machine.multicast_network(), task).plain((size,), 16)
    done = api.run(onesided(schedule), size=size, topology=machine, collective=task, data=False)
    bound = api.time_bound(machine, task, size, protocol="Simple")
    assert bound.switches and bound.microseconds(size) * 10**6 == done.bound <= done.execution.picoseconds
    messages = time_bound(machine.network(), task, [size], overheads=NCCL, protocols=("Simple",))
    assert not messages.switches and messages.microseconds(size) * 10**6 > done.execution.picoseconds


def test_the_bound_of_many_ranks_holds_with_switches_only_where_its_cut_does():
    boxes = api.time_bound("dgx-h100*32", "allgather", 1 << 30)
    assert boxes.switches and boxes.rounds_per_chunk == 31
    pairs = api.time_bound("dgx-h100*32", "alltoall", 1 << 30)
    assert pairs.switches and pairs.certificate is None and pairs.rows[0].reason.startswith("latency from rank")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--topo dgx-h100 --sizes 1MB --protocol Simple", "and of multicasts and sums in switches"),
        ("--topo ring:4 --sizes 1MB", "without multicasts and sums in switches"),
        ("--topo dgx-h100*32 --coll alltoall --sizes 1MB", "no bound on rounds per chunk is known"),
    ],
)
def test_the_table_says_for_what_it_holds(words, says):
    command = f"bound {words}" if "--coll" in words else f"bound {words} --coll allreduce"
    assert says in cli(command).stdout


# ---------------------------------------------------------------- programs on random machines


@pytest.mark.parametrize("name", ["allgather", "allreduce", "alltoall", "broadcast"])
def test_no_run_on_a_random_machine_is_below_a_bound(name: str) -> None:
    runs = 0
    for number, protocol, plan, overheads in itertools.product(
        range(6), ("Simple", "LL"), (False, True), (False, True)
    ):
        machine, words = randoms.machine(3, number), {"data": False, "overheads": overheads, "protocol": protocol}
        task = collective(name, machine.ranks)
        clock = {"overheads": NCCL if overheads else NO_OVERHEADS, "protocols": (protocol,)}
        try:
            schedule = api.baseline("direct", machine.network(), task)
            options = LoweringOptions("mscclpp", protocol, 1, nodes=machine.nodes)
            program = onesided(schedule, options) if plan else api.lower(schedule, protocol=protocol)
            done = [api.run(program, size=size, topology=machine, collective=task, **words) for size in SIZES]
        except (VerificationError, DeadlockError):
            raise
        except SynthError:  # no such schedule, or none that the runtime takes
            continue
        for run in done:
            runs += 1
            least = time_bound(machine, task, [run.size], **clock).microseconds(run.size)
            assert run.execution.picoseconds >= max(least * 10**6, run.bound)
    assert runs > 10


# ---------------------------------------------------------------- the latency of a whole way


UNLIKE = """
name: two-speeds
ranks: 4
switches: [near, far, top]
links:
  - {src: 0, dst: near, bandwidth: 10, latency: 1, both: true}
  - {src: 1, dst: near, bandwidth: 10, latency: 3, both: true}
  - {src: 2, dst: far, bandwidth: 10, latency: 1, both: true}
  - {src: 3, dst: far, bandwidth: 10, latency: 2, both: true}
  - {src: near, dst: top, bandwidth: 10, latency: 5, both: true}
  - {src: top, dst: far, bandwidth: 10, latency: 7, both: true}
"""


@pytest.mark.parametrize(
    "name", ["dgx1", "dgx-a100*2", "dgx2", "mi250", "ndv2*2", "fat-tree:4", "fat-tree:8", "torus:3x3", "dgx1*2"]
)
def test_as_where_all_ways_are_listed(name):
    machine = topology(name)
    assert latency(machine) == machine.network().latency
    assert bound(machine, "allgather").latency == machine.network().latency


def test_links_of_one_way_add_up(tmp_path):
    (tmp_path / "m.yaml").write_text(UNLIKE)
    machine = topology_files.load(tmp_path / "m.yaml")
    assert latency(machine) == machine.network().latency == 3 + 5 + 7 + 2


@pytest.mark.parametrize(
    ("name", "message"),
    [("ring:16", "1 µs"), ("dgx-a100*17", "2.7 µs"), ("torus:9x16", "1 µs"), ("fat-tree:8", "2 µs")],
)
def test_the_title_of_explain_shows_it_at_any_size(name, message):
    machine = topology(name)
    assert rate_tables.title(machine, collective("broadcast", machine.ranks, roots=[3])).endswith(f"latency {message}")
    assert " from 3 on " in rate_tables.title(machine, collective("broadcast", machine.ranks, roots=[3]))
