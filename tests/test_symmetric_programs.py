"""Symmetric programs of the chunk language: they do what the same program does when it writes all ranks."""

from fractions import Fraction

import pytest

from synth import topologies
from synth.algorithms import alltoall, direct, ring
from synth.checker.documents import schedule_archive
from synth.checker.schedule import compressed_replay, replay
from synth.cli.root import root
from synth.errors import UsageError, VerificationError
from synth.language import algorithm
from synth.model.compressed_schedule import CompressedSchedule


@algorithm("allgather")
def ring_gather(a):
    for rank in a.symmetric(1):
        for part, way in zip(a.input(rank).split(2), (1, -1), strict=True):
            for k in range(1, a.size):
                part = part.to((rank + way * k) % a.size)


@algorithm("allreduce")
def ring_sum(a):
    n = a.size
    for owner in a.symmetric(1):
        for half, way in ((0, 1), (1, -1)):
            total = a.input((owner + way) % n).part(owner, n).part(half, 2)
            for k in range(2, n + 1):
                rank = (owner + way * k) % n
                total = a.input(rank).part(owner, n).part(half, 2).add(total)
            for k in range(1, n):
                total = total.to((owner + way * k) % n)


@algorithm("alltoall")
def two_step(a):
    boxes = [box.ranks for box in a.boxes]
    size = len(boxes[0])
    for src in a.symmetric():
        for dst in a.ranks:
            a.input(src).part(dst, a.size).to(boxes[src // size][dst % size], dst)


@algorithm("reduce-scatter")
def direct_sum(a):
    for owner in a.symmetric():
        a.sum(owner, [a.input(rank).unit(owner) for rank in a.ranks])


@pytest.mark.parametrize(
    ("program", "whole", "topology"),
    [
        (ring_gather, ring.allgather, "ring:8"),
        (ring_sum, ring.allreduce, "ring:8"),
        (two_step, alltoall.two_step, "dgx-a100*2"),
        (direct_sum, direct.reduce_scatter, "fully-connected:6"),
    ],
)
def test_the_same_schedule_as_with_all_ranks(program, whole, topology):
    found, expected = program.schedule(topology), whole.schedule(topology)
    assert replay.schedule(found).rounds_per_chunk == expected.rounds_per_chunk
    rows = [(one.chunks, one.step_count, one.rounds, one.sends) for one in (found, expected)]
    assert rows[0] == rows[1]
    if program is not two_step:  # its chunks may take another of several schedules with as few rounds
        assert found.steps == expected.steps


def test_a_thousand_ranks_by_the_program_of_one():
    schedule = ring_gather.schedule("ring:1024")
    assert isinstance(schedule, CompressedSchedule)
    assert (schedule.step_count, schedule.rounds_per_chunk) == (1023, Fraction(1023, 2))
    assert (len(schedule.step), schedule.images) == (2046, 1024)


def test_limits_of_ports_count_all_images():
    found = two_step.schedule("dgx-a100*9")
    assert isinstance(found, CompressedSchedule)
    assert compressed_replay.replay(found).busiest == 1
    tight = found.step_rounds.copy()
    tight[1] -= 1
    object.__setattr__(found, "step_rounds", tight)
    with pytest.raises(VerificationError):
        compressed_replay.replay(found)


def test_the_file_is_verified(tmp_path, capsys):
    file = tmp_path / "program.py"
    lines = ["from synth.language import algorithm", '@algorithm("allgather")', "def one_way(a):"]
    lines += ["    for rank in a.symmetric(1):", "        a.input(rank).to(*a.others(rank))"]
    file.write_text("\n".join(lines))
    output = tmp_path / "s.npz"
    arguments = ["compile", str(file), "--topo", "ring:70", "--no-bounds", "-o", str(output)]
    with pytest.raises(SystemExit) as end:
        root.main(arguments)
    assert end.value.code == 0
    assert "69 steps, 69 rounds, C=1" in capsys.readouterr().out
    assert compressed_replay.replay(schedule_archive.load(output)).rounds_per_chunk == 69


def turned(collective, turns, write=lambda a, rank: a.input(rank).to(*a.others(rank))):
    def function(a):
        for rank in a.symmetric(*turns(a)):
            write(a, rank)

    return algorithm(collective)(function)


@pytest.mark.parametrize(
    ("program", "topology", "says"),
    [
        (turned("allgather", lambda a: [1]), "line:4", "rank 2 -> 3 is no symmetry of line:4: there is no link 3 -> 0"),
        (turned("allgather", lambda a: [[1, 0, 2, 3]]), "fully-connected:4", "leave rank 2 where it is"),
        (turned("allgather", lambda a: [[1, 1, 2, 3]]), "fully-connected:4", "has each of them once"),
        (turned("broadcast", lambda a: [1]), "ring:4", "a.symmetric is for allgather"),
        (turned("allgather", lambda a: [1] if a.input(0) else []), "ring:4", "before any data"),
    ],
)
def test_mistakes_are_named(program, topology, says):
    with pytest.raises(UsageError, match=says) as error:
        program.schedule(topology)
    assert str(error.value).startswith("test")


def test_missing_outputs_are_named():
    program = turned("allgather", lambda a: [1], lambda a, rank: a.input(rank).to(a.others(rank)[0]))
    with pytest.raises(VerificationError, match="2 of 4 outputs are missing: rank 2 ends without unit 0"):
        program.schedule("ring:4")


def test_machines_with_switches_of_their_own_are_refused():
    machine = topologies.topology("fat-tree:4")
    assert machine.switches
    with pytest.raises(UsageError, match="has switches of its own"):
        ring_gather.schedule(machine)
