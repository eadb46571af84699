"""MSCCL-IR: what is written passes an independent strict reader and comes back as it was; what cannot run is
refused."""

from dataclasses import replace

import programs
import pytest
import strict_msccl

from synth.errors import FormatError, SynthError
from synth.export.msccl_xml.emit import MscclXml
from synth.export.msccl_xml.read import read
from synth.export.request import ExportRequest, Machine, Target
from synth.model.collective import collective
from synth.program.program import Block, Dep, Gpu, Op, Program, Span
from synth.program.runtimes import RUNTIMES
from synth.topologies import topology
from tests.programs import I0, O0, S0, edit

PROFILES = ("msccl-executor", "msccl", "rccl")


def emit(program, runtime="msccl-executor", machine=None, **request):
    return MscclXml().emit(program, Target(ExportRequest(runtime=runtime, **request), machine=machine))


def gathering(n, wanted_by):
    """gather: every other rank sends its part to the root."""

    def blocks(r):
        if r != wanted_by:
            return (Block(wanted_by, None, 0, (Op("s", I0),)),)
        own = Block(None, None, 0, (Op("cpy", I0, (Span("o", r),)),))
        return (own, *(Block(None, p, 0, (Op("r", (), (Span("o", p),)),)) for p in range(n) if p != r))

    gpus = tuple(Gpu(r, 1, n if r == wanted_by else 0, 0, blocks(r)) for r in range(n))
    return Program("gather", collective("gather", n, [wanted_by]), 1, gpus)


def reducing_chain(n, chunks=2):
    """reduce to the last rank along a chain, with rrs on the way."""

    def block(r):
        whole = I0
        if r == 0:
            return Block(1, None, 0, (Op("s", whole, (), chunks),))
        if r < n - 1:
            return Block(r + 1, r - 1, 0, (Op("rrs", whole, (), chunks),))
        return Block(None, r - 1, 0, (Op("rrc", whole, O0, chunks),))

    gpus = tuple(Gpu(r, chunks, chunks if r == n - 1 else 0, 0, (block(r),)) for r in range(n))
    return Program("chain", collective("reduce", n, [n - 1]), chunks, gpus, in_place="both")


def waiting():
    """Two ranks; a reduction that waits for three others through nops, and a scratch buffer."""

    def gpu(r):
        peer = 1 - r
        sums = tuple(Op("re", (Span("s", c),), (Span("o", c),), 1, (Dep(1, 2 * c + 1),), c == 2) for c in range(2))
        many = (
            Op("nop", deps=(Dep(1, 1),)),
            Op("nop", deps=(Dep(1, 3),)),
            Op("re", (Span("s", 2),), (Span("o", 2),), 1, (Dep(1, 5),), True),
        )
        return Gpu(r, 3, 3, 3, (
            Block(None, None, 0, (Op("cpy", I0, O0, 3), *many, *sums)),
            Block(peer, peer, 0, tuple(op for c in range(3) for op in (
                Op("s", (Span("i", c),)), Op("r", (), (Span("s", c),), 1, (), True)))),
        ))  # fmt: skip

    gpus = tuple(gpu(r) for r in range(2))
    return Program("waiting", collective("allreduce", 2), 3, gpus, max_bytes=1 << 20)


GOOD = {
    "ring-allgather": programs.ring_allgather(4),
    "direct-allgather": programs.direct_allgather(4, 2),
    "ring-allreduce": programs.ring_allreduce(4),
    "doubling": programs.recursive_doubling_allreduce(8, 3),
    "waiting": waiting(),
    "broadcast": programs.broadcast_chain(4, 3),
    "reduce": reducing_chain(4),
    "gather": gathering(4, 2),
    "reduce-1": reducing_chain(2),
    "sendrecv": programs.all_send_first(3, 2),
}


def fitted(program, runtime):
    """`program` in one of the forms that the runtime has: msccl wants one place and a largest size where there is
    scratch."""
    return replace(program, in_place="in" if program.in_place == "both" and runtime == "msccl" else program.in_place)


def takes(program, runtime):
    known = RUNTIMES[runtime]
    return program.collective.name in known.collectives and all(
        op.code in known.codes for gpu in program.gpus for block in gpu.blocks for op in block.ops
    )


@pytest.mark.parametrize("runtime", PROFILES)
@pytest.mark.parametrize("name", GOOD)
def test_what_is_written_is_read_by_the_strict_reader_and_comes_back(name, runtime):
    program = fitted(GOOD[name], runtime)
    request = {"assume_root": next(iter(program.collective.roots), None), "assume_one_node": True}
    if not takes(program, runtime):
        with pytest.raises(SynthError):
            emit(program, runtime, **request)
        return
    text = emit(program, runtime, **request)
    assert text == emit(program, runtime, **request)
    strict_msccl.load(text, runtime)
    custom = program.collective if RUNTIMES[runtime].collectives[program.collective.name] == "custom" else None
    assert read(text, "x.xml", custom) == program
    assert read(text, "x.xml", custom, runtime=runtime) == program


@pytest.mark.parametrize(
    ("name", "runtime"), [("ring-allreduce", "msccl-executor"), ("waiting", "msccl"), ("direct-allgather", "rccl")]
)
def test_golden(golden, name, runtime):
    golden(f"{name}-{runtime}.xml", emit(fitted(GOOD[name], runtime), runtime))


def test_sizes_mean_what_each_loader_takes_them_for():
    bounded = replace(programs.ring_allgather(4), min_bytes=64, max_bytes=4096)
    assert 'minBytes="64" maxBytes="4096"' in emit(bounded)
    assert 'minBytes="64" maxBytes="4097"' in emit(replace(bounded, in_place="out"), "msccl")
    assert 'maxBytes="0"' in emit(programs.ring_allgather(4))
    assert 'maxBytes="0"' not in emit(replace(programs.ring_allgather(4), in_place="in"), "msccl")
    with pytest.raises(SynthError, match="serves no size"):
        emit(replace(bounded, max_bytes=63))


def test_custom_files_declare_whole_buffers_and_give_the_real_ones_back():
    program = gathering(3, 0)
    text = emit(program, "msccl", assume_root=0)
    assert 'coll="custom"' in text
    assert '<gpu id="1" i_chunks="3" o_chunks="0" s_chunks="0">' in text
    assert read(text, "f.xml", program.collective) == program
    assert read(text, "f.xml").collective is None


def test_a_name_that_no_attribute_holds_is_made_one():
    text = emit(replace(programs.ring_allgather(2), name='a"<&é' + "x" * 80))
    strict_msccl.load(text, "msccl-executor")
    assert f'name="a____{"x" * 58}"' in text


RING = programs.ring_allgather(4)
REFUSED = [
    (replace(RING, collective=None), "msccl-executor", {}, "--coll"),
    (programs.put_allgather(3), "msccl-executor", {}, "--to mscclpp"),
    (gathering(3, 0), "msccl-executor", {}, "never dispatches it"),
    (programs.all_send_first(3, 1), "rccl", {}, "has no such collective"),
    (RING, "msccl", {}, "--in-place in or --in-place out"),
    (RING, "rccl", {}, "rccl does not run rcs"),
    (replace(programs.broadcast_chain(3), in_place="in"), "msccl", {}, "add --assume-root 0"),
    (programs.broadcast_chain(3), "msccl-executor", {"assume_root": 1, "assume_one_node": True}, "root is 0"),
    (programs.broadcast_chain(3), "msccl-executor", {"assume_root": 0}, "use --protocol LL"),
    (replace(RING, protocol="LL128"), "msccl-executor", {}, "0 to 1 is unknown"),
    (replace(RING, max_bytes=0), "msccl-executor", {}, "serves no size"),
    (replace(waiting(), max_bytes=None), "msccl", {}, "give --max-size"),
    (programs.ring_allreduce(80), "msccl-executor", {}, "has 159 steps, msccl-executor takes 64"),
    (programs.broadcast_chain(2, 65), "msccl-executor", {"assume_root": 0, "assume_one_node": True}, "has 66 steps"),
    (programs.direct_allgather(3, 72), "rccl", {}, "moves 72 chunks, rccl takes at most 71"),
    (programs.direct_allgather(70), "rccl", {}, "has 70 blocks, rccl takes 64"),
    (programs.direct_allgather(34), "msccl-executor", {}, "33 blocks send on channel 0, msccl-executor takes 32"),
    (edit(RING, 1, 0, 2, deps=(Dep(0, 0), Dep(0, 1))), "msccl-executor", {}, "has 2 dependencies"),
    (edit(RING, 1, 0, 2, deps=(Dep(0, 1),)), "msccl-executor", {}, "has no flag"),
    (edit(RING, 1, 0, 2, deps=(Dep(4, 1),)), "msccl-executor", {}, "waits for block 4"),
    (edit(RING, 1, 0, 1, src=()), "msccl-executor", {}, "cpy has 0 source operands"),
    (edit(RING, 1, 0, 2, dst=(Span("o", 4),)), "msccl-executor", {}, "output chunks 4..4 of rank 1, which has 4"),
    (edit(RING, 1, 0, 2, code="nop", dst=()), "msccl-executor", {}, "a nop without a dependency"),
    (edit(RING, 1, 0, 4, code="nop", dst=(), deps=(Dep(0, 1),)), "msccl-executor", {}, "a nop is the block"),
]  # fmt: skip


@pytest.mark.parametrize(("program", "runtime", "request_", "says"), REFUSED)
def test_what_a_runtime_cannot_take_is_refused_with_the_limit(program, runtime, request_, says):
    with pytest.raises(SynthError) as caught:
        emit(program, runtime, **request_)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ll128_and_boxes_are_judged_by_the_links_of_the_machine():
    ring = replace(programs.ring_allgather(8), protocol="LL128")
    machine = Machine.of(topology("switch:8"))
    with pytest.raises(SynthError, match="is unknown"):
        emit(ring, machine=machine)
    nvlink = Machine.of(topology("dgx2"))
    assert emit(replace(programs.ring_allgather(16), protocol="LL128"), machine=nvlink)
    assert emit(ring, assume_nvlink=True)
    two = Machine.of(topology("dgx2*2"))
    with pytest.raises(SynthError, match=r"15 to 16 is .*net"):
        emit(replace(programs.ring_allgather(32), protocol="LL128"), machine=two)
    with pytest.raises(SynthError, match="over several boxes"):
        emit(programs.broadcast_chain(32), machine=two, assume_root=0)
    assert emit(replace(programs.broadcast_chain(32), protocol="LL"), machine=two, assume_root=0)
    assert emit(programs.broadcast_chain(16), machine=nvlink, assume_root=0)


def test_chains_of_re_that_loaders_merge_wrongly_are_refused():
    def with_sums(counts, flags):
        ops = [Op("cpy", I0, O0, 40)]
        for k, (count, flag) in enumerate(zip(counts, flags, strict=True)):
            ops.append(Op("re", (Span("s", k),), O0, count, (), flag))
        gpus = tuple(Gpu(r, 40, 40, 40, (Block(None, None, 0, tuple(ops)),)) for r in range(2))
        return Program("sums", collective("allreduce", 2), 40, gpus)

    with pytest.raises(SynthError, match="give the one before a flag"):
        emit(with_sums([1, 2], [False, False]))
    with pytest.raises(SynthError, match="give every 16th a flag"):
        emit(with_sums([1] * 17, [False] * 17))
    for counts, flags in (([1, 2], [True, False]), ([1] * 16, [False] * 16), ([1] * 20, [k == 9 for k in range(20)])):
        strict_msccl.load(emit(with_sums(counts, flags)), "msccl-executor")


# what others' generators write: comments, both buffers in one, nops at -1, attributes that nobody reads, blocks out of
# order
THEIRS = """<!-- Licensed under a licence. -->
<algo name="pairs" proto="LL" nchannels="2" nchunksperloop="4" ngpus="2" coll="allreduce" inplace="1" outofplace="0" maxcount="1" minBytes="0" maxBytes="0">
  <gpu id="1" i_chunks="4" o_chunks="0" s_chunks="1">
    <tb id="0" send="0" recv="0" chan="1">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
  </gpu>
  <gpu id="0" i_chunks="4" o_chunks="0" s_chunks="1">
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="1" hasdep="0"/>
      <step s="1" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="0" deps="1" hasdep="0" ></step>
    </tb>
    <tb id="0" send="1" recv="1" chan="1">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="r" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
  </gpu>
</algo>
"""  # noqa: E501


def test_others_files_are_read_as_their_loaders_do():
    program = read(THEIRS, "pairs.xml")
    assert (program.name, program.protocol, program.in_place) == ("pairs", "LL", "in")
    assert (program.chunks, program.max_bytes) == (4, None)
    assert program.gpus[0][:4] == (0, 4, 4, 1)  # in place: the one buffer is both
    assert [block.send for block in program.gpus[0].blocks] == [1, None]
    assert program.gpus[0].blocks[1].ops == (
        Op("nop", deps=(Dep(0, 1),)), Op("re", S0, I0, 1, (Dep(0, 1),)),
    )  # fmt: skip
    old = THEIRS.replace(' outofplace="0"', "").replace(' minBytes="0" maxBytes="0"', "").replace(' ngpus="2"', "")
    assert (read(old, "p.xml").in_place, read(old, "p.xml").max_bytes) == ("in", (1 << 27) - 1)
    oldest = old.replace(' coll="allreduce" inplace="1"', "").replace(' chan="0"', ' chan="-1"')
    found = read(oldest, "p.xml")
    assert (found.collective, found.in_place, found.loop_chunks) == (None, "out", 4)
    assert read(oldest, "p.xml", collective("allreduce", 2)).chunks == 4


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("<algo", "<algorithm", 2, "outermost element; MSCCL-IR has <algo>"),
        ("<!-- Li", "<!DOCTYPE x [<!ENTITY a 'b'>]><!-- Li", 1, "document type"),
        ('proto="LL"', 'proto="LL64"', 2, 'proto="LL64": Simple, LL, LL128 exist'),
        (' nchannels="2"', "", 2, "no attribute 'nchannels'"),
        ('nchunksperloop="4"', 'nchunksperloop="0"', 2, "from 1 to"),
        ('ngpus="2"', 'ngpus="3"', 2, "2 gpus follow"),
        ('coll="allreduce"', 'coll="allredoce"', 2, "allredoce"),
        ('inplace="1"', 'inplace="0"', 2, "never used"),
        ('<gpu id="1"', '<gpu id="2"', 2, "gpus 0, 2"),
        ('<gpu id="1"', '<gpu id="0"', 9, "twice, first in line 3"),
        (' s_chunks="1"', "", 3, "<gpu> has no attribute 's_chunks'"),
        ('s_chunks="1"', 's_chunks="1e9"', 3, 's_chunks="1e9"'),
        ('<tb id="0"', '<tb id="7"', 3, "thread blocks 7; expected"),
        ('send="0"', 'send="9"', 4, 'send="9" is no other rank'),
        ('recv="0"', 'recv="1"', 4, 'recv="1" is no other rank'),
        ('chan="1"', 'chan="2"', 4, 'chan="2"'),
        ('<step s="1"', '<step s="2"', 6, "is step 1"),
        ('type="s"', 'type="send"', 5, 'type="send"'),
        ('type="s"', 'type="put"', 5, 'type="put"'),
        ('cnt="1"', 'cnt="1000000000"', 5, 'cnt="1000000000": expected a whole number from 1'),
        ('cnt="1"', 'cnt="0"', 5, 'cnt="0"'),
        ('srcoff="0"', 'srcoff="-1"', 5, 'srcoff="-1"'),
        ('srcbuf="i"', 'srcbuf="x"', 5, 'srcbuf="x"'),
        ('deps="-1" hasdep="0"', 'deps="-1" hasdep="2"', 5, "hasdep"),
        ('depid="-1"', 'depid="0"', 5, "without deps"),
        ("<step", "<stepp", 5, "<stepp> is not an element"),
        ("    </tb>\n", "", 7, "not well-formed"),
        ("<gpu", "<gpu><gpu", 3, "<gpu> has no attribute 'id'"),
        ('cnt="1"', 'cnt="&#49;"', 5, "<step> has a reference (&#49;)"),
        ('coll="allreduce"', 'coll="all&amp;"', 2, "<algo> has a reference"),
        ("</algo>", "<other/></algo>", 19, "<other> is not an element"),
        (' cnt="1"', "", 5, "<step> has no attribute 'cnt'"),
    ],
)
def test_bad_input_gets_one_line_that_names_the_element_and_the_line(old, new, line, says):
    assert old in THEIRS
    with pytest.raises(FormatError) as caught:
        read(THEIRS.replace(old, new, 1), "f.xml")
    message = str(caught.value)
    assert says in message
    assert message.startswith(f"f.xml:{line}:") or "well-formed" in message
    assert "\n" not in message


def test_comments_may_hold_anything():
    assert read(THEIRS.replace("<!-- ", "<!-- R&D <step &x; ", 1), "f.xml") == read(THEIRS, "f.xml")


@pytest.mark.parametrize(
    "text", ["", "<", "<algo/>", "<html><body/></html>", "<algo></algo>", "not xml", "<a>" * 100_000]
)
def test_what_is_no_algorithm_is_refused(text):
    with pytest.raises(FormatError):
        read(text, "f.xml")


def test_a_million_thread_blocks_end_at_the_first_too_many():
    head = '<algo name="x" proto="LL" nchannels="1" nchunksperloop="1" coll="allreduce" inplace="0">'
    head += '<gpu id="0" i_chunks="1" o_chunks="1" s_chunks="0">'
    many = "".join(f'\n<tb id="{i}" send="-1" recv="-1" chan="0"/>' for i in range(1_000_000))
    with pytest.raises(FormatError, match=r'f\.xml:1026: <tb> id="1024"'):
        read(head + many + "</gpu></algo>", "f.xml")
    ops = "".join(
        f'\n<step s="{i}" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="65536" depid="-1" deps="-1" '
        f'hasdep="0"/>'
        for i in range(300)
    )
    with pytest.raises(FormatError, match="move more than"):
        read(head + '<tb id="0" send="-1" recv="-1" chan="0">' + ops + "</tb></gpu></algo>", "f.xml")


@pytest.mark.parametrize("in_place", ["in", "out"])
def test_a_root_that_is_said_is_believed_where_the_data_allow_it(in_place):
    chain = replace(programs.broadcast_chain(4, 2), in_place=in_place)
    text = emit(chain, assume_root=0, assume_one_node=True)
    assert read(text, "f.xml") == chain
    mixed = text.replace('type="rcs"', 'type="r"').replace('srcbuf="i"', 'srcbuf="o"')
    if in_place == "out":
        assert read(text, "f.xml", root=1).collective.roots == (1,)
    assert read(mixed, "f.xml", root=3).collective.roots == (3,)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("<algo", '<?xml version="1.0"?><algo'),
        (" inplace", "\tinplace"),
        ('inplace="1"', "inplace='1'"),
        (' cnt="1"', ""),
        ('hasdep="1"', 'hasdep="0"'),
        ('recv="1"', 'recv="0"'),
        ('chan="0"', 'chan="1"'),
        ('type="rrc"', 'type="ra"'),
        ("</gpu>", ""),
        ('deps="1"', 'deps="0"'),
        (' outofplace="1"', ""),
        ('ring"', 'ri&amp;ng"'),
        ("dstoff", "dst"),
        ('s="1"', 's="64"'),
    ],
)
def test_the_strict_reader_is_strict(old, new):
    text = emit(replace(programs.recursive_doubling_allreduce(4), name="ring"))
    strict_msccl.load(text, "msccl-executor")
    assert old in text
    with pytest.raises(strict_msccl.Refused):
        strict_msccl.load(text.replace(old, new, 1), "msccl-executor")
