"""Program: text and JSON round trips, and the layout of buffers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from synth.errors import FormatError
from synth.model.collective import Collective, collective
from synth.program import text
from synth.program.buffer_layout import Layout
from synth.program.program import (
    BUFFERS,
    CODES,
    PORT_KINDS,
    PROTOCOLS,
    Block,
    Dep,
    Gpu,
    Loop,
    Op,
    Part,
    Port,
    Program,
    Span,
)

small = st.integers(0, 40)
spans = st.builds(Span, st.sampled_from(BUFFERS), small, st.none() | small, st.booleans())
ops = st.builds(
    Op,
    st.sampled_from(sorted(CODES)),
    st.lists(spans, max_size=3).map(tuple),
    st.lists(spans, max_size=3).map(tuple),
    st.integers(1, 71),
    st.lists(st.builds(Dep, small, small, st.integers(0, 2)), max_size=3).map(tuple),
    st.booleans(),
    st.lists(small, max_size=3).map(tuple),
    st.lists(small, max_size=3).map(tuple),
    st.none() | st.builds(Part, small, st.integers(41, 99)),
)
names = st.from_regex(r"[a-z0-9]{1,5}", fullmatch=True)
ports = st.lists(st.builds(Port, st.sampled_from(PORT_KINDS), small, small), max_size=3).map(tuple)
blocks = st.builds(
    Block,
    st.none() | small,
    st.none() | small,
    small,
    st.lists(ops, max_size=5).map(tuple),
    st.lists(names, max_size=2).map(tuple),
    ports,
    st.just(()),
)
looped = st.builds(
    Block, st.none(), st.none(), st.just(0), st.lists(ops, min_size=4, max_size=5).map(tuple), st.just(()), ports,
    st.sampled_from([(Loop(0, 2, 1, 16),), (Loop(1, 2, 3, 1 << 20), Loop(2, 4, 1, 64))]),
)  # fmt: skip
tasks = st.sampled_from(
    [
        None,
        *(
            collective(name, 4)
            for name in ("allgather", "reduce-scatter", "allreduce", "alltoall", "scan", "multi-gather", "alltonext")
        ),
        collective("broadcast", 4, [2]),
        collective("allgatherv", 4, (), [1, 0, 2, 1]),
    ]
)


@st.composite
def programs(draw):
    gpus = tuple(
        Gpu(r, draw(small), draw(small), draw(small), tuple(draw(st.lists(blocks | looped, max_size=3))))
        for r in range(draw(st.integers(1, 3)))
    )
    return Program(
        draw(names), draw(tasks), draw(st.integers(1, 9)), gpus, draw(st.sampled_from(PROTOCOLS)),
        draw(st.sampled_from(["out", "in", "both"])), draw(small), draw(st.none() | small),
        draw(st.none() | small), draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=30)
@given(programs())
def test_text_and_json_give_the_program_back(program):
    assert text.parse(text.dump(program)) == program
    assert Program.from_json(program.to_json()) == program


@pytest.mark.parametrize("via", ["1", "0,-", "leaf0,1"])
def test_names_of_switches_may_look_like_numbers(via):
    block = Block(None, None, 0, (), tuple(via.split(",")))
    program = Program("p", None, 1, (Gpu(0, 0, 0, 0, (block,)),))
    assert text.parse(text.dump(program)) == program


GOOD = """program p
collective allgather ranks 2
chunks 1 protocol Simple in-place both bytes 0..
rank 0: input 1 output 2 scratch 0
  block 0: send 1 recv 1 channel 0
    0 s i[0]
    1 r -> o[1]
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("allgather", "allgathr", 2),
        ("Simple", "LL64", 3),
        ("in-place both", "in-place maybe", 3),
        ("output 2", "output x", 4),
        ("block 0", "block 1", 5),
        ("0 s i[0]", "1 s i[0]", 6),
        ("s i[0]", "send i[0]", 6),
        ("o[1]", "q[1]", 7),
        ("s i[0]", "s i[0] after 1", 6),
        ("send 1", "send one", 5),
        ("s i[0]", "cpy i[0:2] -> o[0]", 6),
        ("1 r ->", "1 ->", 7),
    ],
)
def test_malformed_text_is_refused_with_its_line(old, new, line):
    assert text.parse(GOOD).ranks == 1
    with pytest.raises(FormatError) as caught:
        text.parse(GOOD.replace(old, new, 1), "f.txt")
    assert str(caught.value).startswith(f"f.txt:{line}:")


@pytest.mark.parametrize(
    ("name", "overlap"),
    [
        ("allreduce", (0, 0, 0)), ("allgather", (0, -2, -4)), ("reduce-scatter", (0, 2, 4)), ("broadcast", (0, 0, 0)),
        ("gather", (0, 0, 0)), ("scatter", (0, 0, 0)), ("scan", (0, 0, 0)), ("alltoall", (0, 0, 0)),
    ],
)  # fmt: skip
def test_in_place_is_what_nccl_calls_in_place(name, overlap):
    layout = Layout(collective(name, 3), 2)
    assert layout.overlaps == overlap
    assert layout.can_be_in_place
    assert layout.shares_chunks == (name != "alltoall")  # which overwrites its input


def test_buffers_follow_chunk_ids():
    layout = Layout(collective("alltoall", 2), 2)
    assert layout.inputs == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert layout.outputs == ((0, 1, 4, 5), (2, 3, 6, 7))


@pytest.mark.parametrize("rank", ["", 10**30, -1])
def test_a_rank_that_a_collective_does_not_have_is_refused(rank):
    doc = collective("allgather", 2).to_json(1)
    doc["post"][1][1] = rank
    with pytest.raises(ValueError, match="is no rank of 2"):
        Collective.from_json(doc, 1)
