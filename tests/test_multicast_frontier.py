"""Schedules through switches that multicast, and the frontier whose points they are."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.checker.certificates.cuts import check
from synth.checker.schedule import replay
from synth.commands import api
from synth.commands.bound import HOLDS_NOTE
from synth.commands.framework.documents import write_schedules
from synth.encodings import multicast_pipelining
from synth.encodings.bounds.multicast import bound_at_steps, multicast_bound, parts_bound
from synth.encodings.engine import FrontierProblem, Options
from synth.encodings.multicast_pipelining import MulticastPipelining
from synth.errors import FormatError, VerificationError
from synth.model.collective import collective
from synth.model.frontier import Frontier
from synth.model.schedule import Schedule, Step, SwitchSend
from synth.model.sends.bitwise_equality import same_bits
from synth.model.sends.unicast import unicast
from synth.model.topology import MULTICAST_NOTE, Link, Multicast, Network, Topology
from synth.pareto import multicast
from synth.pareto.synthesize import through_switches
from synth.scale.composition.switch_boxes import SwitchBoxes, boxes_of_switches
from synth.topologies import topology
from tests.command_line import synth
from tests.finer_units import finer

SWITCHES = [(ranks, units, own) for ranks in (2, 3, 5, 8) for units in (1, 3) for own in ("local", "through")]


def network(ranks: int, units: int, own: str) -> Network:
    return finer(topology(f"switch:{ranks}:multicast={own}").multicast_network(), units)


@pytest.mark.parametrize(("ranks", "units", "own"), SWITCHES)
def test_pipelined_allreduces_take_the_rounds_of_the_formula(ranks: int, units: int, own: str) -> None:
    made, task = network(ranks, units, own), collective("allreduce", ranks)
    family = MulticastPipelining(made, task)
    for steps in (2, 3, 4, 7):
        schedule = family.schedule(steps)
        assert schedule is not None and len(schedule.steps) == steps
        value = replay.schedule(schedule).rounds_per_chunk * units
        assert same_bits(schedule)
        if own == "through":
            assert value == Fraction(ranks + 1, ranks) + (1 - Fraction(3, ranks)) / (steps - 1)
            if ranks > 2:
                assert value == bound_at_steps(made, task, steps, multicast_bound(made, task)).value * units
        else:
            assert value == 1 + (1 - Fraction(2, ranks)) / (steps - 1)


def test_groups_of_uneven_sizes_replay() -> None:
    for own in ("local", "through"):
        family = MulticastPipelining(network(4, 3, own), collective("allreduce", 4), 14)
        for steps in range(1, 9):
            schedule = family.schedule(steps)
            assert schedule is not None and schedule.chunks <= 14
            replay.schedule(schedule)


def test_links_that_are_too_narrow_for_a_share_of_a_port_are_left_out() -> None:
    made, task = network(4, 4, "through"), collective("allreduce", 4)
    narrow = replace(made, routes=tuple(route._replace(units=1) for route in made.routes))
    for one, linked in ((made, True), (narrow, False)):
        schedule = MulticastPipelining(one, task).schedule(3)
        assert schedule is not None and any(step.sends for step in schedule.steps) == linked
        replay.schedule(schedule)


@pytest.mark.parametrize(("ranks", "units", "own"), SWITCHES)
def test_one_step_takes_half_a_fetch_and_half_a_multicast_of_every_rank(ranks: int, units: int, own: str) -> None:
    schedule = MulticastPipelining(network(ranks, units, own), collective("allreduce", ranks)).schedule(1)
    assert schedule is not None
    members = ranks if own == "through" else ranks - 1
    assert replay.schedule(schedule).rounds_per_chunk == Fraction(members + 1, 2 * units)


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
@pytest.mark.parametrize(("ranks", "units", "own"), SWITCHES)
def test_one_rank_takes_one_step_and_the_bound(name: str, ranks: int, units: int, own: str) -> None:
    made, task = network(ranks, units, own), collective(name, ranks, (1,))
    schedule = MulticastPipelining(made, task).schedule(1)
    assert schedule is not None
    assert replay.schedule(schedule).rounds_per_chunk == Fraction(1, units) == multicast_bound(made, task).value


@pytest.mark.parametrize("own", ["local", "through"])
@pytest.mark.parametrize(("name", "steps"), [("dgx-h100", 34), ("gb200-nvl72", 40)])
def test_nvswitches_come_within_three_per_cent_of_the_bound(monkeypatch, name: str, steps: int, own: str) -> None:
    monkeypatch.setattr(multicast_pipelining, "LOSS", 1)  # in however many chunks
    machine = topology(name)
    made = replace(machine, multicast=(replace(machine.multicast[0], own=own),)).multicast_network()
    task = collective("allreduce", made.ranks)
    schedule = MulticastPipelining(made, task).schedule(steps)
    assert schedule is not None
    assert replay.schedule(schedule).rounds_per_chunk * Fraction(97, 100) <= multicast_bound(made, task).value


def test_at_most_so_many_chunks_are_used() -> None:
    made = network(4, 2, "through")
    family = MulticastPipelining(made, collective("allreduce", 4), 6)
    sizes = [None if schedule is None else schedule.chunks for schedule in map(family.schedule, (1, 2, 4, 9))]
    assert sizes == [4, 4, 6, None]


def test_points_through_switches_are_marked_and_verified(tmp_path) -> None:
    path = tmp_path / "frontier.json"
    output = synth("pareto --topo dgx-h100 --coll allreduce -o", path).output
    assert "switches multicast and reduce" in output and MULTICAST_NOTE not in output
    assert "S=1: R/C 9/2 with C=2, 16 sends replayed, optimal for any C, bits may differ" in api.verify(path)
    doc = json.loads(path.read_text())
    frontier = Frontier.from_json(doc)
    assert frontier.to_json() == doc
    for point in frontier.points:
        assert point.schedule.uses_multicast == point.construction.startswith("switch: ")
    values = [point.rounds_per_chunk for point in frontier.points]
    assert values[:3] == [Fraction(9, 2), Fraction(7, 4), Fraction(23, 16)]  # in two steps multicast gains nothing
    assert values[-1] * Fraction(99, 100) <= Fraction(9, 8)
    assert all(point.status == "optimal" for point in frontier.points if point.steps <= 8)


FALSE: dict[str, Callable[[dict], object]] = {
    "a dropped send": lambda doc: doc["points"][-1]["schedule"]["steps"][1]["switch_sends"].pop(),
    "a doubled send": lambda doc: doc["points"][-1]["schedule"]["steps"][1].update(
        switch_sends=2 * doc["points"][-1]["schedule"]["steps"][1]["switch_sends"]
    ),
    "fewer rounds": lambda doc: doc["points"][-1]["schedule"]["steps"][1].update(rounds=1),
    "another bound": lambda doc: doc["bounds"][-1].update(value="3/2"),
    "another status": lambda doc: doc["points"][-1].update(status="best-known"),
    "local": lambda doc: [
        row["topology"]["multicast"][0].update(own="local")
        for row in (doc, *(point["schedule"] for point in doc["points"]))
    ],
    "another collective": lambda doc: doc["collective"]["post"].pop(),
    "another machine": lambda doc: doc["topology"]["limits"][0].update(units=9),
    "no switches": lambda doc: doc["topology"].pop("multicast"),
}


@pytest.mark.parametrize("change", FALSE)
def test_a_false_frontier_with_multicast_is_refused(change: str) -> None:
    found = api.frontier("switch:4:multicast=through", "allreduce", max_steps=6).to_json()
    api.verify(found)
    doc = json.loads(json.dumps(found))
    FALSE[change](doc)
    assert doc != found
    with pytest.raises((VerificationError, FormatError)):
        api.verify(doc)


@pytest.mark.parametrize("name", ["broadcast", "reduce"])
def test_one_rank_has_a_complete_frontier(name: str) -> None:
    frontier = api.frontier("switch:4:multicast=through", name, max_steps=3)
    assert frontier.complete and [p.rounds_per_chunk for p in frontier.points] == [1]
    api.verify(frontier.to_json())


def test_limits_of_the_search_hold() -> None:
    """Without them there are points of 4 steps and 9 chunks, and of more."""
    limits = {"max_steps": 4, "max_chunks": 7, "same_bits": True}
    points = api.frontier("switch:3:multicast=local", "allreduce", **limits).points
    assert all(p.steps <= 4 and p.chunks <= 7 and p.same_bits for p in points)
    plain = api.frontier("switch:3:multicast=local", "allreduce", multicast=False, max_steps=4)
    assert points[-1].rounds_per_chunk < plain.points[-1].rounds_per_chunk and not plain.network.multicast


def test_other_collectives_keep_the_note() -> None:
    output = synth("pareto --topo dgx-h100 --coll allgather").output
    assert MULTICAST_NOTE in output and "switches multicast and reduce\n" not in output


def test_frontiers_of_flow_methods_get_such_points() -> None:
    frontier = api.frontier("switch:70:multicast=through", "broadcast")
    assert frontier.complete
    assert any(line.startswith("S=1: R/C 1 ") for line in api.verify(api.frontier_document(frontier)))


def test_what_no_time_is_left_for_is_open() -> None:
    """The point of the least R/C is replayed in any case."""
    frontier = api.frontier("switch:4:multicast=through", "allreduce", time_limit=10)
    ended = through_switches(
        replace(frontier, machine=replace(frontier.network, multicast=()), points=(), open=()),
        FrontierProblem(
            topology("switch:4:multicast=through"), frontier.collective, Options(time_limit=0, multicast=True)
        ),
    )
    assert ended.points[-1].rounds_per_chunk == frontier.points[-1].rounds_per_chunk and not ended.complete


def emulated(name: str, steps: int, own: str = "through") -> Schedule:
    schedule = MulticastPipelining(network(4, 1, own), collective(name, 4)).schedule(steps)
    assert schedule is not None
    return schedule


def test_unicasts_take_the_routes_through_their_switch() -> None:
    links = []
    for rank in range(3):
        links += [Link(rank, 3, Fraction(2)), Link(3, rank, Fraction(2))]
    links.append(Link(0, 1, Fraction(1)))
    made = Topology("star", 3, tuple(links), (), ("sw",), multicast=(Multicast("sw"),))
    sends = (SwitchSend(0, 0, (0, 1, 2), "multicast", "sw"),)
    schedule = Schedule(made.multicast_network(), collective("broadcast", 3), 1, (Step(1, (), sends),))
    replay.schedule(schedule)
    plain = unicast(schedule)
    assert {send.via for send in plain.steps[0].sends} == {("sw",)}
    replay.schedule(plain)


@pytest.mark.parametrize("executor", ["reference", "host"])
@pytest.mark.parametrize(("name", "steps"), [("allreduce", 1), ("allreduce", 3), ("broadcast", 1), ("reduce", 1)])
def test_executors_emulate_switch_sends(tmp_path, name: str, steps: int, executor: str) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(emulated(name, steps).to_json()))
    assert "right" in synth("run", path, "--size 4KB --executor", executor).output


@pytest.mark.parametrize(
    ("form", "steps", "code", "message"),
    [
        ("msccl-xml", 3, 2, "hold no sends of switches that multicast"),
        ("mscclpp", 1, 1, "a rank uses a chunk in the step in which its sum is fetched"),
    ],
)
def test_files_for_other_runtimes_are_refused_in_one_line(tmp_path, form, steps, code, message):
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(emulated("allreduce", steps).to_json()))
    output = synth("export", path, "--to", form, "-o", tmp_path / "out", code=code).output
    assert message in output and len(output.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_schedules_with_switch_sends_are_written_like_others(tmp_path) -> None:
    found = api.frontier("switch:4:multicast=local", "allreduce", max_steps=3)
    names = [name for _, name in write_schedules(found, tmp_path)]
    assert [name[3:] for name in names] == [f"allreduce-S{steps}.json" for steps in (1, 2, 3)]
    for name in names:
        api.verify(tmp_path / name)


def test_explain_says_what_nothing_exceeds_with_multicast() -> None:
    rates = api.explain("switch:4:units=8,multicast=through", "allreduce").rates
    assert rates[-1].name == "switches multicast and reduce"
    assert rates[-1].units == Fraction(4, 5) and rates[0].units == Fraction(2, 3)
    assert "multicast" not in api.explain("switch:4", "allreduce").rates[-1].name


def test_explain_compares_no_rate_with_the_bound_of_another_model() -> None:
    """The bound with multicast stood at 1.556 of the bound without, beside a note that it is not compared."""
    output = synth("explain --topo dgx-h100 --coll allreduce").output
    (row,) = [line.split() for line in output.splitlines() if line.startswith("switches multicast")]
    assert row[4:7] == ["8/9", "400", "-"] and MULTICAST_NOTE not in output


@pytest.mark.parametrize(
    ("machine", "name", "holds"),
    [
        ("dgx-h100*8", "allgather", True),  # a cut round a box
        ("dgx-h100*4", "allgather", False),  # a cut round a rank, which its switch crosses
        ("dgx-h100*4", "allreduce", False),  # parts of one rank
        ("dgx-h100*8", "allreduce", True),  # parts of a box
        ("dgx-h100*4", "alltoall", False),  # no cut
    ],
)
def test_the_note_on_a_bound_at_scale_says_whether_it_holds(machine: str, name: str, holds: bool) -> None:
    found = api.scale_bound(machine, name)
    assert found is not None
    assert [note for note in found.notes if "NVLS" in note] == [HOLDS_NOTE if holds else MULTICAST_NOTE]


def test_points_too_long_to_be_written_out_are_not_lost_to_worse_ones_through_switches(monkeypatch):
    """On 128 ranks a default `pareto` ended at 6 steps, 32% above the bound that others came within 0.2% of."""
    machine = topology("dgx-h100*2")
    found = api.frontier(machine, "allreduce", engine="flow", multicast=False, max_steps=12)
    monkeypatch.setattr(multicast, "FEW_SENDS", 1)
    task = collective("allreduce", machine.ranks)
    assert through_switches(found, FrontierProblem(machine, task, Options(max_steps=4, multicast=True))) is found


# ---------------------------------------------------------------- boxes that have a switch each


def boxes(sizes: tuple[int, ...], units: int = 4, nic: int = 1, own: str = "through") -> Topology:
    """Boxes of these sizes: `units` between each two ranks of a box, `nic` between each two ranks of two boxes."""
    home = [box for box, size in enumerate(sizes) for _ in range(size)]
    links = []
    for a in range(len(home)):
        for b in range(len(home)):
            if a != b:
                links.append(Link(a, b, Fraction(units if home[a] == home[b] else nic), Fraction(1)))
    switches = []
    for box, size in enumerate(sizes):
        if size > 1:
            members = tuple(rank for rank, b in enumerate(home) if b == box)
            switches.append(Multicast(f"sw{box}", members, own))
    return Topology("boxes", len(home), tuple(links), nodes=tuple(home), multicast=tuple(switches))


def schedules(machine: Topology, max_chunks: int | None = None, alike: bool = False) -> SwitchBoxes:
    network = machine.multicast_network()
    return SwitchBoxes(machine, network, collective("allreduce", machine.ranks), max_chunks, alike)


def test_boxes_are_the_ranks_of_switches_then_nodes() -> None:
    machine = boxes((3, 2, 1))
    assert boxes_of_switches(machine.multicast_network(), machine.nodes) == {(0, 1, 2): "sw0", (3, 4): "sw1", (5,): ""}
    one = replace(machine, multicast=machine.multicast[1:])
    assert boxes_of_switches(one.multicast_network(), one.nodes) == {(3, 4): "sw1", (0, 1, 2): "", (5,): ""}


@settings(max_examples=15, deadline=None)
@given(
    own=st.sampled_from(["through", "local"]),
    sizes=st.lists(st.integers(1, 4), min_size=2, max_size=3).filter(lambda sizes: max(sizes) > 1),
    units=st.integers(1, 5),
    nic=st.integers(1, 3),
    steps=st.integers(3, 6),
    alike=st.booleans(),
)
def test_composed_schedules_replay_and_keep_their_bounds(
    own: str, sizes: list[int], units: int, nic: int, steps: int, alike: bool
) -> None:
    machine = boxes(tuple(sizes), units, nic, own)
    composition = schedules(machine, 60, alike)
    found = composition.at_steps(steps)
    if found is None:  # of so few steps only with fewer boxes
        assert steps < 5
        return
    schedule = composition.schedule(found)
    assert schedule.step_count == steps and schedule.chunks == found.chunks <= 60
    rate = replay.schedule(schedule).rounds_per_chunk
    assert rate == found.rounds_per_chunk
    assert rate >= multicast_bound(schedule.network, schedule.collective).value
    assert same_bits(schedule) or not alike


@pytest.mark.parametrize(("name", "bound"), [("dgx-h100*2", Fraction(1, 8)), ("dgx-h100*4", Fraction(3, 16))])
def test_clusters_are_bounded_by_what_boxes_exchange(name: str, bound: Fraction) -> None:
    machine = topology(name)
    network, task = machine.multicast_network(), collective("allreduce", machine.ranks)
    assert multicast_bound(network, task).value == bound
    parts = parts_bound(network, task)
    assert parts is not None and parts.value == bound


def test_a_partition_that_divides_a_switch_proves_nothing() -> None:
    network = boxes((2, 2)).multicast_network()
    task = collective("allreduce", 4)
    bound = parts_bound(network, task)
    assert bound is not None
    false = bound.certificate | {"parts": [[0], [1, 2, 3]]}
    with pytest.raises(VerificationError, match="divide the ranks of a switch that multicasts"):
        check(false, network.document, task.document)


def test_two_boxes_come_within_five_per_cent_of_the_bound() -> None:
    composition = schedules(topology("dgx-h100*2"))
    found = composition.at_steps(48)
    assert found is not None
    assert found.template.name == "fetch inside, exchange over rails, multicast inside"
    assert replay.schedule(composition.schedule(found)).rounds_per_chunk * Fraction(95, 100) <= Fraction(1, 8)


def test_clusters_have_points_through_switches() -> None:
    machine = boxes((3, 3))
    none = Frontier(machine.network(), collective("allreduce", 6), ())
    frontier = through_switches(none, FrontierProblem(machine, none.collective, Options(max_steps=8, multicast=True)))
    assert len(frontier.points) > 3 and all(point.schedule.uses_multicast for point in frontier.points)
    api.verify(frontier.to_json())
