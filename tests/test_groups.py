import copy
import json
import random
from fractions import Fraction

import pytest
from click.testing import CliRunner

from synth import api
from synth.checker.certificates import process_groups
from synth.checker.schedule import replay as verify
from synth.cli.root import root
from synth.errors import FormatError, UsageError, VerificationError
from synth.model.process_groups import Group, units
from synth.model.topology import Link, Topology
from synth.scale.groups import joint as groupflows
from synth.scale.groups.joint_bound import joint_bound
from synth.scale.groups.step_assignment import assign_steps
from synth.topologies.process_group_files import load

BOXES = "dgx-a100*4"  # per GPU 300 GB/s of NVSwitch and 25 GB/s of NIC, each way


def read(tmp_path, text, ranks=32, name="groups.yaml"):
    file = tmp_path / name
    file.write_text(text)
    return load(file, ranks)


def seconds(topology, groups):
    machine = api.topology(topology)
    network = machine.network()
    found = joint_bound(network, machine.nodes, groups)
    assert process_groups.check(found.certificate, network, groups) == found.seconds
    return found.seconds


def strided(size, stride, collective="allreduce", nbytes=1, ranks=32):
    blocks = range(0, ranks, size * stride)
    rows = [tuple(range(a + i, a + i + size * stride, stride)) for a in blocks for i in range(stride)]
    return [Group(row, collective, Fraction(nbytes)) for row in rows]


# ---------------------------------------------------------------- bounds by hand


def test_disjoint_boxes_do_not_slow_each_other_down():
    two = strided(8, 1)[:2]
    alone = seconds("dgx-a100", two[:1])
    assert alone == Fraction(14, 8 * 300)  # 2 (m - 1) crossings of 8 ports of 300 GB/s
    # with NICs beside the ports a rank leaves by 325 GB/s: 14 crossings of 8 ranks
    assert seconds(BOXES, strided(8, 1)) == Fraction(14, 8 * 325)


def test_groups_that_share_nics_are_as_many_times_slower():
    eight = strided(4, 8)
    one = seconds(BOXES, eight[:1])
    assert one == Fraction(6, 4 * 200)  # 2 (4 - 1) crossings of four boxes of 8 NICs
    for n in (2, 4, 8):
        assert seconds(BOXES, eight[:n]) == n * one


def test_tensor_and_data_parallel_together():
    data, tensor = strided(4, 8), strided(8, 1, nbytes=100)
    # data-parallel traffic alone fills the NICs for 0.06 s; with 100 times as much in the boxes all bandwidth of a rank
    # counts
    assert seconds(BOXES, data + strided(8, 1, nbytes=1)) == Fraction(6, 100)
    assert seconds(BOXES, data + tensor) == Fraction(8 * 6 + 4 * 14 * 100, 32 * 325)


def test_alltoall_by_distances_and_with_an_allreduce():
    # 4 ranks on a ring of 1 GB/s both ways: 12 messages of 1/4, 4/3 hops on average, 8 links
    one = [Group((0, 1, 2, 3), "alltoall", Fraction(1))]
    assert seconds("ring:4", one) == Fraction(12 * 4, 3 * 4 * 8)
    both = [*one, Group((0, 1, 2, 3), "allreduce", Fraction(2))]
    assert seconds("ring:4", both) == Fraction(1, 2) + Fraction(2 * 6, 8)


@pytest.mark.parametrize(
    ("collective", "known"),
    [
        ("allgather", Fraction(7, 1200)),
        ("reduce-scatter", Fraction(7, 1200)),
        ("allreduce", Fraction(7, 600)),
        ("alltoall", Fraction(1, 75)),
    ],
)
def test_one_group_of_all_ranks_has_the_known_optimum(collective, known):
    assert seconds("dgx1", [Group(tuple(range(8)), collective, Fraction(1))]) == known


def test_directions_and_roots():
    # a chain 0 -> 1 -> 2 that is narrow one way and wide the other
    links = (Link(0, 1, Fraction(1)), Link(1, 2, Fraction(2)), Link(1, 0, Fraction(8)), Link(2, 1, Fraction(16)))
    chain = Topology("chain", 3, links, nodes=(0, 0, 0))
    everyone = (0, 1, 2)
    assert seconds(chain, [Group(everyone, "broadcast", Fraction(1), 0)]) == 1
    assert seconds(chain, [Group(everyone, "broadcast", Fraction(1), 2)]) == Fraction(1, 8)
    assert seconds(chain, [Group(everyone, "reduce", Fraction(1), 2)]) == 1
    assert seconds(chain, [Group(everyone, "reduce", Fraction(1), 0)]) == Fraction(1, 8)
    assert seconds(chain, [Group(everyone, "allgather", Fraction(3))]) == 1  # one shard over 0 -> 1, two over 1 -> 2
    assert seconds(chain, [Group(everyone, "reduce-scatter", Fraction(3))]) == 2  # to 1 and 2 over 0 -> 1


# ---------------------------------------------------------------- certificates


RING = [
    Group(tuple(range(8)), "alltoall", Fraction(1)),
    Group((0, 2, 4, 6), "allreduce", Fraction(2)),
    Group((1, 3, 5), "allgather", Fraction(3)),
    Group((7, 3), "broadcast", Fraction(1), 7),
]


def prepared():
    machine = api.topology("ring:8")
    network = machine.network()
    return network, RING, joint_bound(network, machine.nodes, RING)


def test_corrupted_certificates_prove_no_more_than_the_truth():
    network, groups, found = prepared()
    # what a schedule attains is the truth; a certificate that says more is wrong
    upper = api.groups("ring:8", groups, chunks=64).seconds
    assert upper is not None and found.seconds <= upper < found.seconds * Fraction(5, 4)
    rng, refused = random.Random(5), 0
    for _ in range(400):
        bad = copy.deepcopy(found.certificate)
        packing = rng.choice(bad["packings"])
        family = rng.choice(packing["families"])
        which = rng.choice(["routes", "weight", "label", "way", "groups"])
        if which == "routes":
            rng.choice(bad["routes"])[1] = rng.choice(["0", "-1", "1/7", "3", "x", "1/1000"])
        elif which == "weight":
            family[0] = rng.choice(["2", "-1", "100", "1/3"])
        elif which == "label":
            family[2][rng.randrange(8)] = rng.choice([-1, 0, 3, 99])
        elif which == "way":
            family[1] = rng.choice(["leaving", "entering", "both"])
        else:
            packing["groups"] = rng.choice([[0, 0], [99], [0, 1, 2, 3], []])
        try:
            value = process_groups.check(bad, network, groups)
        except VerificationError:
            refused += 1
            continue
        assert value <= upper
    assert refused > 50


def test_certificates_of_other_groups_and_malformed_ones_are_refused():
    network, groups, found = prepared()
    with pytest.raises(VerificationError, match="other groups"):
        process_groups.check(found.certificate, network, groups[:-1])
    with pytest.raises(VerificationError, match="other groups"):
        process_groups.check(found.certificate, api.topology("ring:8", without=["0-1"]).network(), groups)
    for key in found.certificate:
        for wrong in (None, "x", [[0]], {"a": 1}):
            with pytest.raises(VerificationError):
                process_groups.check({**found.certificate, key: wrong}, network, groups)
    with pytest.raises(VerificationError, match="nothing has a price"):
        process_groups.check({**found.certificate, "routes": [], "caps": []}, network, groups)


def test_a_relay_outside_of_all_regions_earns_an_allreduce_no_more():
    # three ranks around a hub: the hub sums and copies, 3 + 3 sends, so 2 (3 - 1) = 4 holds, 2 (4 - 1) would not
    links = [Link(a, b, Fraction(1)) for r in range(3) for a, b in ((r, 3), (3, r))]
    star = Topology("star", 4, tuple(links), nodes=(0,) * 4)
    group = [Group((0, 1, 2), "allreduce", Fraction(1))]
    found = api.groups(star, group, chunks=8)
    assert found.bound.seconds == 1
    assert found.seconds is not None and 1 <= found.seconds < 2


# ---------------------------------------------------------------- schedules


def test_the_joint_schedule_is_replayed_and_near_the_bound():
    found = api.groups(BOXES, strided(4, 8), chunks=64)
    assert found.schedule is not None and found.gap is not None
    assert 0 <= found.gap < Fraction(10, 100)
    replay = verify.schedule(found.schedule)
    assert Fraction(replay.rounds, replay.chunks) * found.task.unit / found.network.unit == found.seconds


@pytest.mark.parametrize(
    "collective",
    [
        "allgather", "reduce", "alltoall",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("reduce-scatter", "broadcast", "allreduce")),
    ],
)  # fmt: skip
def test_each_collective_beside_an_allreduce(collective):
    root_ = 2 if collective in ("broadcast", "reduce") else None
    groups = [Group((0, 2, 5), collective, Fraction(3), root_), Group((1, 4, 7, 6), "allreduce", Fraction(1, 2))]
    found = api.groups("dgx1", groups, chunks=6)
    assert found.schedule is not None and found.gap is not None and found.gap >= 0
    verify.schedule(found.schedule)
    assert found.bound.seconds >= max(found.alone)
    assert found.bound.seconds <= sum(found.alone)
    # the schedule is for what the groups ask for, not for something easier
    doc = found.schedule.collective.to_json(1)
    first = [row for row in doc["pre"] if row[1] in (0, 2, 5)]
    wanted = {"allgather": 3, "reduce-scatter": 9, "broadcast": 1, "reduce": 3, "allreduce": 3, "alltoall": 6}[
        collective
    ]
    assert len(first) == wanted * found.groups[0].part / found.task.unit


def test_machines_in_pieces_and_one_way_serve_what_they_can():
    links = (
        Link(0, 1, Fraction(1)),
        Link(1, 0, Fraction(2)),
        Link(2, 3, Fraction(1)),
        Link(3, 2, Fraction(1)),
        Link(3, 4, Fraction(1)),
    )
    pieces = Topology("pieces", 5, links, nodes=(0,) * 5)
    groups = [
        Group((0, 1), "alltoall", Fraction(2)),
        Group((2, 3), "allreduce", Fraction(1)),
        Group((2, 3, 4), "broadcast", Fraction(2), 2),
        Group((4, 3), "reduce", Fraction(1), 4),
    ]
    found = api.groups(pieces, groups, chunks=16)
    assert found.bound.seconds == 3  # over 2 -> 3 and over 3 -> 4
    assert found.seconds is not None and 3 <= found.seconds < 4


def test_switches_are_passed_and_their_wires_shared():
    links = tuple(Link(a, b, Fraction(1)) for r in range(4) for a, b in ((r, 4), (4, r)))
    hub = Topology("hub", 4, links, switches=("s",), nodes=(0,) * 4)
    groups = [Group((0, 1, 2, 3), "allreduce", Fraction(1)), Group((0, 1), "allgather", Fraction(2))]
    found = api.groups(hub, groups, chunks=32)
    assert found.bound.seconds == 2  # 6 crossings and 2 shards, out of four ranks
    assert found.schedule is not None and all(
        send.via == ("s",) for step in found.schedule.steps for send in step.sends
    )
    assert found.seconds is not None and 2 <= found.seconds < Fraction(5, 2)


def test_units_are_equal_and_cover_all_bytes():
    task = units([Group((0, 1), "allgather", Fraction(3)), Group((1, 2, 3), "allreduce", Fraction(1))], 4)
    assert task.unit == Fraction(1, 2)
    assert task.parts == ((0, 0),) * 3 + ((0, 1),) * 3 + ((1, 0),) * 2
    assert task.collective.pre[0] == {0} and task.collective.post[0] == {0, 1}
    assert task.collective.pre[7] == task.collective.post[7] == {1, 2, 3}
    with pytest.raises(UsageError, match="rounder"):
        units([Group((0, 1), "allreduce", Fraction(1)), Group((1, 2), "allreduce", Fraction(99991, 99989))], 4)


def test_no_schedule_is_looked_for_when_only_bounds_are_asked_for():
    found = api.groups("ring:4", strided(2, 2, ranks=4), search=False)
    assert found.schedule is None and found.gap is None and found.bound.seconds > 0


# ---------------------------------------------------------------- files


def test_files_say_groups_in_full_and_in_short(tmp_path):
    rows = read(
        tmp_path,
        "groups:\n- {size: 8, collective: ar, bytes: 2.5}\n- {stride: 8, collective: broadcast, root: 2, name: data}\n",
    )
    assert len(rows) == 12
    assert rows[1] == Group(tuple(range(8, 16)), "allreduce", Fraction(5, 2))
    assert rows[4] == Group((0, 8, 16, 24), "broadcast", Fraction(1), 16, "data")
    rows = read(tmp_path, '{"groups": [{"size": 2, "stride": 8, "collective": "alltoall"}]}', name="g.json")
    assert [g.ranks for g in rows][:2] == [(0, 8), (1, 9)] and rows[8].ranks == (16, 24)
    rows = read(tmp_path, "groups: [{ranks: [3, 1], collective: reduce, root: 1}]")
    assert rows == (Group((3, 1), "reduce", Fraction(1), 1),)


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("groups: []", "groups", "no group"),
        ("group: []", None, "unknown key"),
        ("groups: [{collective: allreduce}]", "groups[0]", "either ranks"),
        ("groups: [{ranks: [0, 1], size: 2, collective: allreduce}]", "groups[0]", "either ranks"),
        ("groups: [{ranks: [0, 1]}]", "groups[0]", "'collective' is missing"),
        ("groups: [{ranks: [0, 0], collective: allreduce}]", "groups[0]", "two different ranks"),
        ("groups: [{ranks: [0], collective: allreduce}]", "groups[0]", "two different ranks"),
        ("groups: [{ranks: [0, 32], collective: allreduce}]", "groups[0].ranks[1]", "0 to 31"),
        ("groups: [{ranks: [0, 1], collective: scan}]", "groups[0].collective", "not run in groups"),
        ("groups: [{ranks: [0, 1], collective: allreduce, bytes: 0}]", "groups[0].bytes", "positive"),
        ("groups: [{ranks: [0, 1], collective: allreduce, bytes: -1}]", "groups[0].bytes", "positive"),
        ("groups: [{ranks: [0, 1], collective: allreduce, root: 0}]", "groups[0].root", "no root"),
        ("groups: [{ranks: [0, 1], collective: reduce, root: 2}]", "groups[0].root", "place in the group"),
        ("groups: [{size: 5, collective: allreduce}]", "groups[0]", "not made of"),
        ("groups: [{stride: 32, collective: allreduce}]", "groups[0]", "not made of"),
        ("groups: [&a {size: 8, collective: allreduce}, *a]", "1", "alias"),
        ("groups: !!python/object:os.system {}", "1", "tag"),
        ("groups: [", "1", "not YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, text, place, message):
    with pytest.raises(FormatError) as caught:
        read(tmp_path, text)
    said = str(caught.value)
    assert message in said and "\n" not in said and "groups.yaml" in said
    assert place is None or place in said


# ---------------------------------------------------------------- the command


def test_the_command_prints_a_table_and_json(tmp_path):
    file = tmp_path / "g.yaml"
    file.write_text(
        "groups:\n- {ranks: [0, 1, 2, 3], collective: allreduce}\n- {ranks: [4, 5, 6, 7], collective: alltoall, "
        "bytes: 2}\n"
    )
    run = CliRunner().invoke(root, ["groups", "--topo", "ring:8", "--file", str(file), "--chunks", "4"])
    assert run.exit_code == 0 and "2 groups at once on ring:8" in run.output and "replayed" in run.output
    run = CliRunner().invoke(
        root, ["groups", "--topo", "ring:8", "--file", str(file), "--chunks", "4", "--format", "json"]
    )
    doc = json.loads(run.output)
    assert doc["schema"] == "synth.groups/1" and [g["bytes"] for g in doc["groups"]] == ["1", "2"]
    verify.schedule(doc["schedule"])
    groups = load(file, 8)
    proved = process_groups.check(doc["bound"]["certificate"], api.topology("ring:8").network(), groups)
    assert proved == Fraction(doc["bound"]["seconds"]) <= Fraction(doc["seconds"])


def test_the_schedule_goes_on_to_a_program_that_computes_right(tmp_path):
    file, out = tmp_path / "g.yaml", tmp_path / "s.json"
    file.write_text(
        "groups:\n- {ranks: [0, 1, 2], collective: allreduce}\n- {ranks: [4, 5, 6], collective: allgather}\n"
    )
    run = CliRunner().invoke(
        root, ["groups", "--topo", "dgx1", "--file", str(file), "--chunks", "3", "--schedule", str(out)]
    )
    assert run.exit_code == 0
    assert "postcondition holds" in api.verify(out)[0]
    ran = CliRunner().invoke(root, ["run", str(out), "--size", "64KB"])
    assert ran.exit_code == 0 and "right" in ran.output


def test_the_command_refuses_in_one_line(tmp_path):
    for extra, code, message in (
        (["--file", str(tmp_path / "none.yaml"), "--bound-only", "--schedule", "s.json"], 2, "remove one"),
        ([], 2, "no groups given"),
        (["--file", str(tmp_path / "none.yaml")], 1, "does not exist"),
    ):
        run = CliRunner().invoke(root, ["groups", "--topo", "ring:8", *extra])
        assert run.exit_code == code and message in run.output + run.stderr
    links = (Link(0, 1, Fraction(1)), Link(1, 0, Fraction(1)), Link(1, 2, Fraction(1)))
    with pytest.raises(Exception, match="rank 0 cannot hear from rank 2"):
        api.groups(Topology("one-way", 3, links, nodes=(0,) * 3), [Group((0, 2), "allreduce", Fraction(1))])


@pytest.mark.parametrize(
    ("name", "missing"), [("ring:8", "a better schedule"), ("fully-connected:8", "a schedule of fewer steps")]
)
def test_an_optimal_schedule_that_the_time_ended_may_be_one_of_more_steps(monkeypatch, name, missing):
    monkeypatch.setattr(groupflows, "assign_steps", lambda *given: (assign_steps(*given)[0], False))
    found = groupflows.synthesize_jointly(
        api.topology(name), [Group(tuple(range(8)), "allgather", Fraction(1))], chunks=1
    )
    assert (found.gap == 0, found.open) == (name != "ring:8", (missing,))
