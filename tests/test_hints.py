"""Hints of programs, `a.hints`: blocks, channels, connections and pieces of the lowered program, and their errors."""

import random
from collections import Counter
from pathlib import Path

import pytest
from program_judge import right
from test_lower import TWO_SIDED

import synth
from synth.commands import api
from synth.commands.programs.compile import load_algorithm
from synth.errors import SynthError, UsageError
from synth.language import algorithm
from synth.language.library import direct, hierarchical
from synth.program.checked_lowering import lower, onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.send_hints import SendHint
from tests.command_line import synth as run

EXAMPLE = Path(__file__).parent.parent / "examples" / "language" / "hinted.py"


def lowered(program, topology, runtime="synth", protocol="Simple", chunks=None, **parameters):
    compiled = program.compile(topology, None, synth.language.CompileOptions(multiple=chunks, parameters=parameters))
    return lower(compiled.schedule, LoweringOptions(runtime, protocol, hints=compiled.hints))


def blocks(program):
    return [(gpu.rank, block) for gpu in program.gpus for block in gpu.blocks]


def sends(program):
    """The number of sending instructions of the program."""
    return sum(op.code in ("s", "rcs", "rrs", "rrcs") for _, block in blocks(program) for op in block.ops)


@algorithm("broadcast")
def chain(a, hint=None):
    if hint is None:
        a.input(0).to(*a.others(0))
        return
    with a.hints(**hint):
        a.input(0).to(*a.others(0))


@algorithm("allgather")
def exchange(a, name="{}", parts=1):
    """Ranks 0 and 1 exchange their inputs; each direction has the block of its name."""
    for rank in a.ranks:
        with a.hints(block=name.format(rank)):
            for part in a.input(rank).split(parts):
                part.to(1 - rank)


@pytest.mark.parametrize("runtime", TWO_SIDED)
def test_pieces_are_messages(runtime):
    whole, cut = (lowered(chain, "line:4", runtime, chunks=4, hint=hint) for hint in (None, {"pieces": 4}))
    assert (sends(whole), sends(cut)) == (3, 12)
    assert sends(lowered(chain, "line:4", runtime, chunks=1, hint={"pieces": 3})) == 9
    right(cut, runtime)


def test_pieces_of_more_than_the_chunks_can_be_are_refused():
    @algorithm("broadcast")
    def thirds(a):
        with a.hints(pieces=4096):
            for part in a.input(0).split(3):
                part.to(1)

    with pytest.raises(UsageError, match="needs 12288 chunks of a unit; at most 4096"):
        thirds.compile("line:2")


@pytest.mark.parametrize("runtime", TWO_SIDED)
def test_a_channel_is_the_one_of_the_hint(runtime):
    program = lowered(chain, "line:4", runtime, hint={"channel": 3})
    assert {block.channel for _, block in blocks(program) if block.ops} == {3}
    right(program, runtime)


def test_other_connections_avoid_the_channel_of_a_hint():
    @algorithm("broadcast")
    def halves(a):
        one, other = a.input(0).split(2)
        other.to(1)
        with a.hints(channel=0):
            one.to(1)

    program = lowered(halves, "line:2")
    assert sorted(block.channel for rank, block in blocks(program) if rank == 0) == [0, 1]
    (first,) = [block for rank, block in blocks(program) if rank == 0 and block.channel == 0]
    assert first.ops[0].src[0].offset == 0
    right(program)


def test_lanes_are_the_connections_of_a_route():
    for lanes in (1, 2, 3):
        program = lowered(chain, "dgx-a100", chunks=12, hint={"lanes": lanes})
        pairs = Counter((rank, block.send) for rank, block in blocks(program) if block.send is not None)
        assert set(pairs.values()) == {lanes}
    right(program)


def test_a_block_has_what_a_rank_sends_and_receives():
    apart, together = (lowered(exchange, "line:2", protocol="LL", name=name) for name in ("{}", "both"))
    assert [len(gpu.blocks) for gpu in apart.gpus] == [2, 2]
    assert [len(gpu.blocks) for gpu in together.gpus] == [1, 1]
    assert {(block.send, block.recv) for _, block in blocks(together)} == {(0, 0), (1, 1)}
    for program in (apart, together):
        right(program)


def test_a_block_that_would_wait_for_ever_is_refused():
    with pytest.raises(SynthError, match=r"hints put what rank \d receives from rank \d into the block of its sends"):
        lowered(exchange, "line:2", name="both", chunks=6)
    right(lowered(exchange, "line:2", name="{}", chunks=6))


def test_blocks_of_both_ways_round_a_ring():
    program = load_algorithm(str(EXAMPLE))
    for runtime in TWO_SIDED:
        made = lowered(program, "ring:4", runtime)
        right(made, runtime)
        for gpu in made.gpus:
            assert len(gpu.blocks) == 2
            by_peer = {block.send: block for block in gpu.blocks}
            up, down = by_peer[(gpu.rank + 1) % 4], by_peer[(gpu.rank - 1) % 4]
            assert (up.recv, down.recv, up.channel) == ((gpu.rank - 1) % 4, (gpu.rank + 1) % 4, 1)
            count = [sum(op.code in ("s", "rcs") for op in block.ops) for block in (up, down)]
            assert count == [3, 6]


def test_inner_hints_count_first():
    @algorithm("broadcast")
    def nested(a):
        with a.hints(channel=1, pieces=2):
            middle = a.input(0).to(1)
            with a.hints(channel=2):
                middle.to(2)

    compiled = nested.compile("line:3")
    assert {key[2:]: hint for key, hint in compiled.hints.items()} == {
        (0, 1): SendHint(channel=1, pieces=2), (1, 2): SendHint(channel=2, pieces=2)
    }  # fmt: skip
    assert len(compiled.hints) == 4
    assert chain.compile("line:3").hints == {}


def test_a_copy_that_is_added_as_it_comes_keeps_its_hint():
    @algorithm("reduce")
    def added(a):
        with a.hints(channel=5):
            data = a.input(1).to(0)
        a.input(0).add(data)

    assert set(added.compile("line:2").hints.values()) == {SendHint(channel=5)}


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ({}, "says nothing"),
        ({"block": ""}, "is no name"),
        ({"block": 3}, "is no name"),
        ({"channel": -1}, "a number from 0 to 255"),
        ({"lanes": 0}, "a number from 1 to"),
        ({"pieces": True}, "a number from 1 to"),
        ({"pieces": 1.5}, "a number from 1 to"),
        ({"block": "up", "lanes": 2}, "leave lanes out"),
    ],
)
def test_hints_that_make_no_sense_name_the_line(hint, message):
    with pytest.raises(UsageError, match=rf"test_hints.py:\d+: a.hints.*{message}"):
        chain.compile("line:3", None, synth.language.CompileOptions(parameters={"hint": hint}))


def test_a_channel_beyond_the_runtime_is_refused():
    with pytest.raises(SynthError, match=r"rccl has at most 128 channels.* needs 201.*, or without its hints"):
        lowered(chain, "line:3", "rccl", hint={"channel": 200})


def test_a_block_of_two_peers_is_refused():
    schedule = direct.allgather.schedule("fully-connected:3", chunks=1)
    with pytest.raises(SynthError, match="block 'up' of rank 0 has two connections on one side; it has one peer"):
        api.lower(schedule, hints={(1, 0, 0, rank): SendHint("up") for rank in (1, 2)})


def test_given_tables_are_checked_too():
    schedule = exchange.compile("line:2", None, synth.language.CompileOptions(multiple=2)).schedule
    clash = {(1, 0, 0, 1): SendHint("x", 0), (1, 1, 0, 1): SendHint("y", 0)}
    with pytest.raises(SynthError, match="channel 0 of hints has no room for the connection from rank 0 to 1"):
        api.lower(schedule, hints=clash)
    star = chain.schedule("fully-connected:3")
    assert api.lower(star, hints={}) == api.lower(star)


@pytest.mark.parametrize("program", [direct.allreduce, hierarchical.allreduce, hierarchical.allgather])
def test_random_hints_keep_programs_right(program):
    """Every send may have any number of lanes and pieces, any channel, or a block of its pair's own."""
    topology = "rail:2x2" if program.name == "hierarchical" else "fully-connected:3"
    schedule = program.schedule(topology, chunks=2)
    for seed in range(6):
        rng = random.Random(seed)
        hints = {}
        for t, step in enumerate(schedule.steps, 1):
            for send in step.sends:
                pieces = rng.choice((None, 2, 3))
                lanes, channel = rng.randint(1, 3), rng.randint(0, 4)
                kinds = [SendHint(lanes=lanes, pieces=pieces), SendHint(channel=channel, pieces=pieces)]
                kinds.append(SendHint(f"{send.src} to {send.dst}", pieces=pieces))
                if rng.random() < 0.8:
                    hints[t, send.chunk, send.src, send.dst] = rng.choice(kinds)
        runtime, protocol = rng.choice(TWO_SIDED), rng.choice(("Simple", "LL"))
        right(lower(schedule, LoweringOptions(runtime, protocol, hints=hints)), runtime, rng)


def test_instances_have_the_connections_of_hints():
    compiled = chain.compile("line:3", None, synth.language.CompileOptions(parameters={"hint": {"channel": 1}}))
    program = lower(compiled.schedule, LoweringOptions(instances=2, hints=compiled.hints))
    assert {block.channel for _, block in blocks(program)} == {1, 3}
    right(program)


def test_the_command_line_writes_hints(tmp_path):
    xml = tmp_path / "hinted.xml"
    compiling = f"compile {EXAMPLE} --topo ring:4 --no-bounds"
    assert "left out" not in run(compiling, "--to msccl-xml -o", xml).output
    assert 'chan="1"' in xml.read_text()
    run("lint", xml)
    for more in ("--to mscclpp", ""):
        assert "hints are left out" in run(compiling, more, "-o", tmp_path / "x.json").output


def test_plans_and_rank_maps_take_no_hints():
    compiled = chain.compile("line:3", None, synth.language.CompileOptions(parameters={"hint": {"pieces": 2}}))
    with pytest.raises(UsageError, match="lanes and hints are of two-sided programs"):
        api.export_program(compiled.schedule, "mscclpp", hints=compiled.hints)
    with pytest.raises(UsageError, match="they take no rank map"):
        api.export_program(compiled.schedule, "msccl-xml", hints=compiled.hints, rank_map=[2, 1, 0])
    assert onesided(compiled.schedule)
