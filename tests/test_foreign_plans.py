"""Plans of MSCCL++'s own forms that lowering does not write: read, judged, run, and written again with one meaning."""

import json
from dataclasses import replace

import pytest
from host_runs import needs_compiler

from synth.commands import api
from synth.errors import FormatError, SynthError, VerificationError
from synth.export.mscclpp.read import read
from synth.program import analysis, text
from synth.program.program import Dep, Loop, Op, Part, Port, Program, Span
from synth.program.straight_line import straight_line
from tests.command_line import synth


def buffers(*places: tuple) -> list[dict]:
    """Return operands of a plan: (buffer or number of a remote buffer, first chunk, number of chunks)."""
    return [
        {"type" if isinstance(where, str) else "buffer_id": where, "index": index, "size": size}
        for where, index, size in places
    ]


def op(name: str, src: tuple = (), dst: tuple = (), kind: str = "", ids: tuple = (), **more: object) -> dict:
    """Return an operation of a plan."""
    doc: dict = {"name": name, **more}
    doc |= {"src_buff": buffers(*src)} if src else {}
    doc |= {"dst_buff": buffers(*dst)} if dst else {}
    doc |= {"channel_type": kind} if kind else {}
    return doc | ({"channel_ids": list(ids)} if ids else {})


NOP = op("nop")
SIGNAL, WAIT = (op(name, kind="memory", ids=(0,)) for name in ("signal", "wait"))


def gpu(rank: int, sizes: tuple, blocks: list, kind: str = "memory", remote: str = "s", channels: int = 1) -> dict:
    """Return a rank of two, with `channels` channels to the other one and one remote buffer."""
    return {
        "id": rank,
        "input_chunks": sizes[0],
        "output_chunks": sizes[1],
        "scratch_chunks": sizes[2],
        "channels": [{"channel_type": kind, "connected_to": [1 - rank] * channels}],
        "remote_buffers": [{"rank": 1 - rank, "type": remote, "access_channel_types": [kind]}],
        "threadblocks": [
            {
                "id": b,
                "ops": ops,
                "channels": [{"channel_type": kind, "channel_ids": list(range(channels))}],
                "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": [0]}],
            }
            for b, ops in enumerate(blocks)
        ],
    }


def plan(collective: str, gpus: list[dict], protocol: str = "Simple", **more: object) -> dict:
    """Return a plan for calls in place."""
    top = {"name": f"their-{collective}", "collective": collective, "protocol": protocol, "inplace": True, "gpus": gpus}
    return top | {"use_double_scratch_buffer": protocol == "LL"} | more


def program(doc: dict) -> Program:
    return read(json.dumps(doc))


def faults(doc: dict) -> list[str]:
    """Return the errors, and what is not analysed, as ``rule gpu.block.op``."""
    report = analysis.check(program(doc), "mscclpp")
    found = [f for f in report.findings if f.severity in ("error", "not analysed")]
    assert report.verdict == ("wrong" if report.errors else "not analysed" if found else "right")
    return [f"{f.rule} {f.gpu}.{f.block}.{f.op}" for f in found]


def runs(doc: dict, size: int = 4096) -> bool:
    """Run the plan; its text and its JSON give the same program."""
    done = program(doc)
    assert text.parse(text.dump(done)) == done
    assert Program.from_json(json.loads(json.dumps(done.to_json()))) == done
    assert api.run(done, size=done.loop_chunks * size, in_place=done.in_place == "in", dtype="int32")
    return True


def is_right(doc: dict) -> bool:
    """Assert that no fault is found, and that it runs."""
    assert faults(doc) == []
    return runs(doc)


# ---------------------------------------------------------------- what the threads of a block keep in order


def put_with_signal(name: str, rank: int) -> list[dict]:
    ready = [op("signal", kind="port", ids=(0,)), op("wait", kind="port", ids=(0,)), NOP]
    put = op(name, (("o", rank, 1),), ((0, rank, 1),), "port", (0,))
    return [*ready, put, op("wait", kind="port", ids=(0,))]


@pytest.mark.parametrize(("name", "found"), [("pwsf", []), ("pws", ["unfinished 0.0.3", "unfinished 1.0.3"])])
def test_put_with_signal_is_one_trigger_of_one_thread(name, found):
    """No join between put, signal and flush; without the flush the channel may read on after the return."""
    doc = plan("allgather", [gpu(r, (1, 2, 0), [put_with_signal(name, r)], "port", "o") for r in (0, 1)])
    assert faults(doc) == found
    if found:
        assert "must flush the port channel" in analysis.check(program(doc)).errors[0].message
    else:
        assert runs(doc)


def test_a_signal_by_another_thread_is_not_in_order():
    """The second port put of an op is thread 1's, a signal through the same channel alone is thread 0's."""
    blocks = []
    for rank in (0, 1):
        both = op("signal", kind="port", ids=(0, 1)), op("wait", kind="port", ids=(0, 1)), NOP
        put = op("put", (("o", rank, 1),) * 2, ((0, rank, 1),) * 2, "port", (1, 0))
        put["src_buff"][0]["size"] = put["dst_buff"][0]["size"] = 1
        signal = op("signal", kind="port", ids=(0,)), op("wait", kind="port", ids=(0,)), op("flush", kind="port")
        blocks.append([*both, put, *signal[:2]])
    doc = plan("allgather", [gpu(r, (1, 2, 0), [blocks[r]], "port", "o", 2) for r in (0, 1)])
    assert "join 0.0.4" in faults(doc)


def packet_allreduce(rank: int, last: dict | None = None) -> list[dict]:
    own, far = rank, 1 - rank
    return [
        op("ppkt", (("i", far, 1),), ((0, own, 1),), "memory"),
        op("recpkt", (("i", own, 1), ("s", far, 1)), (("i", own, 1), ("s", 2, 1))),
        op("rppkt", (("s", 2, 1),), ((0, 3, 1),), "memory"),
        last or op("upkt", (("s", 3, 1),), (("i", far, 1),)),
    ]


def test_packets_keep_their_threads():
    """Ops with packets deal elements out alike; a packet that one thread wrote orders the elements beside it."""
    doc = plan("allreduce", [gpu(r, (2, 2, 4), [packet_allreduce(r)]) for r in (0, 1)], "LL")
    assert is_right(doc)
    again = [[*packet_allreduce(r), op("upkt", (("s", 2, 1),), (("i", r, 1),))] for r in (0, 1)]
    assert faults(plan("allreduce", [gpu(r, (2, 2, 4), [again[r]]) for r in (0, 1)], "LL")) == []
    plain = op("copy", (("i", 0, 1),), (("o", 0, 1),))
    copies = [[*packet_allreduce(r), plain] for r in (0, 1)]
    beside = plan("allreduce", [gpu(r, (2, 2, 4), [copies[r]]) for r in (0, 1)], "LL")
    assert set(faults(beside)) == {"join 0.0.4", "join 1.0.4"}


@pytest.mark.parametrize(
    ("name", "joined", "found"), [("rppkt", False, set()), ("ppkt", True, set()), ("ppkt", False, {"join"})]
)
def test_a_port_channel_sends_packets_as_they_lie_there(name, joined, found):
    """`rppkt` waits for the flags first, `ppkt` does not: the threads that write the packets must be joined."""
    ranks = []
    for r in (0, 1):
        put = op(name, (("s", 0, 1),), ((0, 1, 1),), "port", (0,))
        take = op("upkt", (("s", 1, 1),), (("o", 1 - r, 1),))
        ops = [op("cpkt", (("o", r, 1),), (("s", 0, 1),)), *([NOP] if joined else []), put, take]
        ranks.append(gpu(r, (1, 2, 2), [ops], "port"))
    doc = plan("allgather", ranks, "LL")
    assert {fault.split()[0] for fault in faults(doc)} == found
    assert found or runs(doc)


def test_signals_and_puts_that_others_write():
    """Put with signal on a port channel, several puts in one op, relaxed signals, a flush that does nothing."""
    ids = {"kind": "port", "ids": (0, 1)}
    puts = op("pws", (("i", 0, 1), ("i", 1, 1)), ((0, 0, 1), (0, 1, 1)), **ids)
    blocks = [op("rlxwait", **ids), NOP, puts, op("flush", **ids)], [op("rlxsignal", **ids), op("wait", **ids)]
    doc = plan("custom", [gpu(r, (2, 2, 0), [blocks[r]], "port", "o", 2) for r in (0, 1)], inplace=False)
    found = program(doc)
    ops = found.gpus[0].blocks[0].ops
    assert [made.code for made in ops] == ["wait", "nop", "put", "signal"]
    assert ops[2] == Op("put", (Span("i", 0), Span("i", 1)), (Span("o", 0, 1), Span("o", 1, 1)), ports=(0, 1))
    assert found.gpus[1].blocks[0].ports == (Port("port", 0, 0), Port("port", 0, 1))
    assert (found.collective, found.max_bytes) == (None, None)


# ---------------------------------------------------------------- in place


def swap(rank: int, early: bool = False) -> list[dict]:
    put = op("put", (("i", 1 - rank, 1),), ((0, 0, 1),), "memory")
    take = op("copy", (("s", 0, 1),), (("i", 1 - rank, 1),))
    entry = [SIGNAL, WAIT, NOP]
    return [*entry, put, NOP, SIGNAL, WAIT, NOP, take] if not early else [*entry, take, NOP, put, NOP, SIGNAL, WAIT]


def test_an_alltoall_in_place_overwrites_its_input():
    doc = plan("alltoall", [gpu(r, (2, 2, 1), [swap(r)]) for r in (0, 1)])
    assert is_right(doc)
    early = plan("alltoall", [gpu(r, (2, 2, 1), [swap(r, early=True)]) for r in (0, 1)])
    assert faults(early)


# ---------------------------------------------------------------- thread-block groups


def dealt_out(rank: int, blocks: int, meet: bool = True) -> list[list[dict]]:
    """Return the blocks of an allgather that share one put; the first one signals for all."""
    barrier = op("barrier", barrier_id=0, num_threadblocks=blocks)
    lists = []
    for b in range(blocks):
        put = op("put", (("o", rank, 1),), ((0, rank, 1),), "memory", tbg_info={"tb_id": b, "tbg_size": blocks})
        ends = [barrier] if meet else []
        mine = [*ends, put, *ends]
        lists.append([SIGNAL, WAIT, NOP, *mine, *([] if meet else [NOP]), SIGNAL, WAIT] if b == 0 else mine)
    return lists


def test_a_group_of_blocks_shares_an_operation():
    doc = plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)])
    assert program(doc).gpus[0].blocks[2].ops[1].part == Part(2, 3)
    assert faults(doc) == []
    for size in (16, 32, 4096):
        assert runs(doc, size)
    apart = plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3, meet=False), remote="o") for r in (0, 1)])
    assert {"unfinished 0.1.0", "unfinished 0.2.0"} <= set(faults(apart))
    twice = plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)])
    twice["gpus"][0]["threadblocks"][1]["ops"][1]["tbg_info"]["tb_id"] = 2
    found = analysis.check(program(twice)).errors
    assert {f.rule for f in found} == {"race"}
    assert "output 0 of rank 1" in found[0].message


def test_shares_with_unlike_ends_are_not_proved():
    """Thirds of one chunk and fifths of it end in an order that depends on the size."""
    doc = plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)])
    doc["gpus"][1]["threadblocks"][1]["ops"][1]["tbg_info"] = {"tb_id": 1, "tbg_size": 5}
    assert {fault.split()[0] for fault in faults(doc)} == {"part"}


def test_small_calls_leave_shares_of_packets_empty():
    """An empty share waits for no packet: what its block does next is then not in order."""
    ranks = []
    for r in (0, 1):
        first = [op("ppkt", (("o", r, 1),), ((0, 0, 1),), "memory"), WAIT]
        cut = {"tbg_info": {"tb_id": 1, "tbg_size": 2}}
        put = op("put", (("o", r, 1),), ((1, r, 1),), "memory")
        second = [op("upkt", (("s", 0, 1),), (("s", 1, 1),), **cut), NOP, put, NOP, SIGNAL]
        ranks.append(gpu(r, (1, 2, 2), [first, second]))
        ranks[r]["remote_buffers"].append({"rank": 1 - r, "type": "o", "access_channel_types": ["memory"]})
        for block in ranks[r]["threadblocks"]:
            block["remote_buffer_refs"][0]["remote_buffer_ids"] = [0, 1]
    doc = plan("allgather", ranks, "LL")
    small, large = (analysis.check(program(doc | {"min_message_size": size})).findings for size in (0, 64))
    assert {finding.rule for finding in small} - {finding.rule for finding in large} == {"entry"}


# ---------------------------------------------------------------- a scratch of bounded size


def test_a_shared_scratch_bounds_the_size():
    doc = plan("allreduce", [gpu(r, (2, 2, 4), [packet_allreduce(r)]) for r in (0, 1)], "LL", reuse_resources=True)
    limit = 2 * (32 << 20) // 4
    found = program(doc)
    assert found.scratch_bytes == 32 << 20
    report = analysis.check(found)
    assert (report.ok, report.safe) == (True, limit)
    assert [f.rule for f in report.findings] == ["scratch"]
    assert not analysis.check(program(doc | {"max_message_size": limit})).findings
    assert faults(doc | {"max_message_size": limit + 32}) == ["scratch None.None.None"]
    assert analysis.check(program(doc | {"max_message_size": limit + 32})).verdict == "not analysed"
    assert runs(doc)
    with pytest.raises(SynthError, match="its scratch has 8388608 for each"):
        api.run(found, size=2 * limit, in_place=True, data=False)


def test_one_scratch_with_packets():
    """A packet of the next launch overwrites one of this launch, unless its writer knows that it was read."""
    one = {"use_double_scratch_buffer": False}
    both = plan("allreduce", [gpu(r, (2, 2, 4), [packet_allreduce(r)]) for r in (0, 1)], "LL", **one)
    assert program(both).one_scratch
    assert faults(both) == []
    assert runs(both)
    once = [
        [op("ppkt", (("o", r, 1),), ((0, 0, 1),), "memory"), op("upkt", (("s", 0, 1),), (("o", 1 - r, 1),))]
        for r in (0, 1)
    ]
    alone = plan("allgather", [gpu(r, (1, 2, 1), [once[r]]) for r in (0, 1)], "LL")
    assert faults(alone) == []  # two halves: who is in the launch after next has heard of the read
    assert faults(alone | one) == ["packet-launch 0.0.0", "packet-launch 1.0.0"]


# ---------------------------------------------------------------- pipelines


def pipelined(credits: int | None = None, unit: int = 1 << 20, **more: object) -> dict:
    """Return an allgather in pieces: block 0 copies them to scratch, block 1 puts them into the other rank's output.

    `credits`: the pieces after which block 0 waits until block 1 gives one back; None: it never waits.
    """
    ranks = []
    for r in (0, 1):
        copy, put = op("copy", (("o", r, 1),), (("s", 0, 1),)), op("put", (("s", 0, 1),), ((0, r, 1),), "memory")
        first = [NOP, copy, NOP, op("sem_release", semaphore_ids=[0]), NOP]
        second = [op("sem_acquire", semaphore_ids=[0]), NOP, put, NOP]
        if credits is not None:
            first = [op("sem_acquire", semaphore_ids=[1]), *first]
            second += [op("sem_release", semaphore_ids=[1]), NOP]
        context = {"iter_context": {"unit_size": unit, "num_chunks": 1}}
        there = [SIGNAL, WAIT, NOP, op("pipeline", **context, ops=second), SIGNAL, WAIT]
        ranks.append(gpu(r, (1, 2, 2), [[op("pipeline", **context, ops=first)], there], remote="o"))
        ranks[r]["semaphores"] = [{"init_value": 0}, *([] if credits is None else [{"init_value": credits}])]
    return json.loads(json.dumps(plan("allgather", ranks, **more)))  # no parts are shared


def test_a_pipeline_moves_pieces():
    doc = pipelined(unit=1 << 12)
    assert program(doc).gpus[0].blocks[0].loops == (Loop(0, 4, 1, 1 << 12),)
    assert faults(doc) == []
    assert analysis.check(program(doc)).safe is not None  # the kernel counts turns in 16 bits
    for size in (64, 1 << 12, 5 << 11):
        assert runs(doc, size)
    line = straight_line(program(doc), 3, 1 << 12)
    assert [op.dst[0].offset for op in line.program.gpus[1].blocks[0].ops if op.dst] == [0, 1, 2]


def test_a_call_beyond_the_safe_size_names_it():
    """The turns of a scratch overwrite each other there; what was found wrong is followed by the reason."""
    found = program(pipelined(unit=1 << 24, reuse_resources=True))
    words = "found .*; `synth lint` proves this program only up to 64 MiB; this call has 128 MiB"
    with pytest.raises(VerificationError, match=words):
        api.run(found, size=128 << 20, in_place=True, dtype="int32")


def test_pieces_go_round_a_bounded_scratch():
    """32 pieces of 1 MiB fit the scratch of 64 MiB in two chunks: later ones need a credit."""
    doc = pipelined(reuse_resources=True)
    report = analysis.check(program(doc))
    assert (report.ok, report.safe) == (True, 64 << 20)
    (found,) = [f for f in report.findings if f.rule == "scratch"]
    assert (found.severity, found.place) == ("warning", "program")
    assert "above 64 MiB" in found.message
    assert found.message.endswith("; set its largest size to 64MiB (max_message_size in a plan)")
    credit = program(pipelined(32, reuse_resources=True))
    assert Dep(1, 5, 32) in credit.gpus[0].blocks[0].ops[0].deps
    assert analysis.check(credit).safe == 64 << 20  # larger calls are not followed
    assert analysis.check(replace(credit, max_bytes=1 << 30)).verdict == "not analysed"
    small = pipelined(4, 1 << 12)
    assert runs(small, 1 << 14)
    far = program(pipelined(1 << 15))
    copies = tuple(far.gpus[0].blocks[0] for _ in range(9))
    wide = replace(far, gpus=(far.gpus[0]._replace(blocks=(*far.gpus[0].blocks, *copies)), far.gpus[1]))
    report = analysis.check(wide)
    assert ([f.rule for f in report.findings], report.verdict) == (["too-large"], "not analysed")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda ops: ops[0]["ops"].append({"name": "pipeline"}), "a pipeline in a pipeline: the kernel has one level"),
        (lambda ops: ops[0].pop("ops"), "a pipeline needs 'iter_context' and 'ops'"),
        (lambda ops: ops[0]["iter_context"].update(unit_size=0), "expected a whole number in 1.."),
        (lambda ops: ops[0]["iter_context"].update(unit_size=24), "is no multiple of 16"),
        (lambda ops: ops[0]["iter_context"].update(num_chunks=1 << 40), "expected a whole number in 1..1048576"),
        (lambda ops: ops[0]["ops"].extend([NOP] * 59), "makes 65 operations of the block, at most 64 are taken"),
        (lambda ops: ops[0]["ops"].insert(0, op("sem_release", semaphore_ids=[0])), "is released before any op"),
        (lambda ops: ops[0]["ops"].append(op("sem_acquire", semaphore_ids=[0])), "a semaphore is acquired last"),
        (lambda ops: ops.append(op("sem_release", semaphore_ids=[0])), "or in other pipelines"),
        (lambda ops: ops[0]["ops"][1].update(tbg_info={"tb_id": 3, "tbg_size": 3}), "expected a whole number in 0..2"),
        (lambda ops: ops[0]["ops"][1].update(tbg_info={"tb_id": 0, "tbg_size": 1 << 20}), "in 1..1024"),
    ],
)
def test_malformed_pipelines_are_refused_with_their_place(change, fault):
    doc = pipelined()
    change(doc["gpus"][1]["threadblocks"][0]["ops"])
    with pytest.raises(FormatError) as caught:
        read(json.dumps(doc), "p.json")
    assert str(caught.value).startswith("p.json:$.gpus[1].threadblocks[0].ops")
    assert fault in str(caught.value)


TWO = op("copy", (("o", 0, 2),), (("s", 0, 2),))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda ops: ops[0]["ops"][1].update(TWO), "moves 2 chunks in a pipeline"),
        (lambda ops: ops[0]["ops"][1].update(tbg_info={"tb_id": 0, "tbg_size": 2}), "moves share 0 of 2 in a pipeline"),
        (lambda ops: ops[0]["ops"][1].update(name="cpkt"), "moves all packets in every turn"),
        (lambda ops: ops[0]["ops"].append(SIGNAL), "which signal a wait gets depends on the size"),
    ],
)
def test_pipelines_that_go_wrong_are_named_by_block_and_step(change, fault):
    doc = pipelined()
    change(doc["gpus"][1]["threadblocks"][0]["ops"])
    report = analysis.check(program(doc))
    assert not report.ok
    assert any(fault in str(found) and "gpu" in str(found) for found in report.findings)


# ---------------------------------------------------------------- plans that are right for two turns only


def with_blocks(doc: dict, *blocks: list) -> dict:
    """Return a copy of a plan in which each rank has `blocks` too."""
    doc = json.loads(json.dumps(doc))
    for each in doc["gpus"]:
        for ops in blocks:
            each["threadblocks"].append({"id": len(each["threadblocks"]), "ops": ops, "channels": []})
    return doc


def turning(*ops: dict, unit: int = 1 << 20, chunks: int = 1) -> dict:
    return op("pipeline", iter_context={"unit_size": unit, "num_chunks": chunks}, ops=list(ops))


def test_blocks_meet_in_the_same_turns():
    """Two meetings outside a pipeline match two turns, and no other number."""
    meet = op("barrier", barrier_id=0, num_threadblocks=2)
    assert faults(with_blocks(pipelined(), [turning(meet)], [turning(meet)])) == []
    assert faults(with_blocks(pipelined(), [turning(meet)], [meet, meet])) == ["barrier 0.3.None", "barrier 1.3.None"]
    double = [turning(meet, meet, unit=2 << 20)]
    assert faults(with_blocks(pipelined(), [turning(meet)], double)) == ["barrier 0.3.None", "barrier 1.3.None"]


def test_blocks_meet_at_two_barriers_in_one_order():
    """Each of two blocks would wait for the other at its own barrier."""
    meet = [op("barrier", barrier_id=number, num_threadblocks=2) for number in (0, 1)]
    assert faults(with_blocks(pipelined(), meet, meet)) == []
    with pytest.raises(FormatError, match="blocks 2, 3 meet at several barriers, in different orders"):
        program(with_blocks(pipelined(), meet, meet[::-1]))


def test_signals_of_more_turns_than_are_waited_for():
    """Two waits, then the use of all that the turns before them put: right for two turns."""
    doc = pipelined()
    for r, each in enumerate(doc["gpus"]):
        ops = each["threadblocks"][1]["ops"]
        turns = ops[3]
        turns["ops"].append(SIGNAL)
        use = op("copy", (("o", 1 - r, 1),), (("s", 1, 1),))
        ops[3:] = [turns, SIGNAL, SIGNAL, WAIT, WAIT, NOP, use, NOP, turning(WAIT)]
    assert "race 0.1.12" in faults(doc)
    for each in doc["gpus"]:
        ops = each["threadblocks"][1]["ops"]
        ops[3:] = [ops[3], turning(NOP, SIGNAL, unit=2 << 20), turning(WAIT, unit=2 << 20), turning(WAIT)]
    assert "signals-left 0.None.None" in faults(doc)


def test_a_semaphore_of_two_pipelines():
    """The first turn of the block that acquires twice passes after two turns of the first pipeline."""
    doc = pipelined()
    for r, each in enumerate(doc["gpus"]):
        copy, release = op("copy", (("o", r, 1),), (("s", 1, 1),)), op("sem_release", semaphore_ids=[0])
        each["threadblocks"][0]["ops"].append(turning(NOP, copy, NOP, release, NOP))
        there = each["threadblocks"][1]["ops"][3]["ops"]
        there[0]["semaphore_ids"] = [0, 0]
        there[2]["src_buff"][0]["index"] = 1
    with pytest.raises(FormatError, match="or in other pipelines"):
        program(doc)


def test_pipelines_over_chunks_that_overlap_in_part():
    """The turns that touch the same bytes are as far apart as a chunk is long."""
    acquire, release = op("sem_acquire", semaphore_ids=[0]), op("sem_release", semaphore_ids=[0])
    ranks = []
    for r in (0, 1):
        first = turning(NOP, op("copy", (("o", 2 * r, 2),), (("s", 1, 2),)), NOP, release, NOP, chunks=2)
        copy = op("copy", (("o", 2 * r, 1),), (("s", 0, 1),))
        second = turning(acquire, NOP, op("copy", (("s", 0, 2),), (("s", 3, 2),)), NOP, chunks=2)
        put = op("put", (("o", 2 * r, 2),), ((0, 2 * r, 2),), "memory")
        there = [SIGNAL, WAIT, NOP, copy, second, put, NOP, SIGNAL, WAIT]
        ranks.append(gpu(r, (2, 4, 5), [[first], there], remote="o"))
        ranks[r]["semaphores"] = [{"init_value": 2}]
    assert any(fault.startswith("part") for fault in faults(plan("allgather", ranks)))


def test_turns_are_counted_in_16_bits_round_a_bounded_scratch_too():
    report = analysis.check(program(pipelined(unit=16, reuse_resources=True)))
    assert report.safe == 2 * 16 * ((1 << 16) - 1)
    credit = analysis.check(program(pipelined(2, 1 << 15, reuse_resources=True, use_double_scratch_buffer=False)))
    assert credit.safe == 64 << 20


@pytest.mark.parametrize("chunks", [1, 1 << 20])
def test_a_plan_that_is_too_long_to_write_out_is_refused_at_once(chunks):
    """Units of 16 bytes beside one of 4 GiB, or a chunk of a million pieces."""
    doc = with_blocks(pipelined(unit=16), [turning(NOP, unit=(1 << 32) - 16, chunks=chunks)])
    assert "too-large None.None.None" in faults(doc)


def test_a_field_that_is_given_twice_is_refused():
    with pytest.raises(FormatError, match="'name' is given twice"):
        read('{"name": "a", "name": "b"}')


# ---------------------------------------------------------------- semaphores, switches, several buffers


def test_a_semaphore_of_several_blocks():
    """All releases, or all acquisitions, at one place: everyone waits for everyone. Otherwise nothing is certain."""

    def blocks(rank: int, counts: list[int]) -> list[list[dict]]:
        release = op("sem_release", semaphore_ids=[0])
        sources = [[op("copy", (("o", rank, 1),), (("s", k, 1),)), NOP, release] for k in range(2)]
        take = op("put", (("s", 0, 1),), ((0, rank, 1),), "memory")
        acquires = []
        for n in counts:
            acquires += [op("sem_acquire", semaphore_ids=[0] * n), NOP]
        return [*sources, [SIGNAL, WAIT, *acquires, take, NOP, SIGNAL, WAIT]]

    doc = plan("allgather", [gpu(r, (1, 2, 2), blocks(r, [2]), remote="o") for r in (0, 1)])
    for each in doc["gpus"]:
        each["semaphores"] = [{"init_value": 0}]
    assert program(doc).gpus[0].blocks[2].ops[2].deps == (Dep(0, 1), Dep(1, 1))
    assert is_right(doc)
    for each, r in zip(doc["gpus"], (0, 1), strict=True):
        each["threadblocks"][2]["ops"] = blocks(r, [1, 1])[2]
    with pytest.raises(FormatError, match="nothing says which release an acquisition waits for"):
        program(doc)


def test_packets_through_a_switch():
    """gstorepkt: own packets, once their flags have come, to the packets of all ranks of the group."""
    ranks = []
    for r in (0, 1):
        store = op(
            "gstorepkt", (("s", 2, 1),), (), "switch", dst_buff=[{"switch_channel_id": 0, "index": r, "size": 1}]
        )
        take = op("upkt", (("s", 1 - r, 1),), (("o", 1 - r, 1),))
        ranks.append(gpu(r, (1, 2, 3), [[op("cpkt", (("o", r, 1),), (("s", 2, 1),)), store, take]]))
        group = {"size": 2, "ranks": [0, 1]}
        ranks[r]["channels"].append({"channel_type": "switch", "buffer_type": "s", "rank_groups": [group]})
        ranks[r]["threadblocks"][0]["channels"].append({"channel_type": "switch", "channel_ids": [0]})
    doc = plan("allgather", ranks, "LL")
    assert is_right(doc)


def test_several_buffers_in_one_operation():
    ranks = []
    for r in (0, 1):
        puts = op("ppkt", (("o", 2 * r, 1), ("o", 2 * r + 1, 1)), ((0, 1, 1), (0, 0, 1)), "memory")
        takes = [op("upkt", (("s", 1 - k, 1),), (("o", 2 * (1 - r) + k, 1),)) for k in range(2)]
        ranks.append(gpu(r, (2, 4, 2), [[puts, *takes]]))
    doc = plan("allgather", ranks, "LL")
    assert [len(op.src) for op in program(doc).gpus[0].blocks[0].ops] == [2, 1, 1]
    assert is_right(doc)


@pytest.mark.parametrize(
    "loops", [[[0, 9, 1, 16]], [[1, 1, 1, 16]], [[0, 2, 0, 16]], [[0, 2, 1, 8]], [[0, 2, 1, 16]] * 2]
)
def test_malformed_loops_and_parts_of_programs_are_refused(loops):
    doc = program(pipelined()).to_json()
    block = doc["gpus"][0]["blocks"][0]
    with pytest.raises(ValueError, match="loops are ranges of ops, in order, in units of 16 bytes"):
        Program.from_json(doc | {"gpus": [doc["gpus"][0] | {"blocks": [block | {"loops": loops}]}]})
    block["ops"][1]["part"] = [3, 3]
    with pytest.raises(ValueError, match="share 3 of 3"):
        Program.from_json(doc)


def shared_packets(senders: int, takers: int) -> dict:
    """Return an allgather whose packets some blocks of a rank write, and some read, each its share."""
    ranks = []
    for r in (0, 1):
        blocks: list[list[dict]] = [[] for _ in range(max(senders, takers))]
        for b in range(senders):
            share = {"tb_id": b, "tbg_size": senders}
            blocks[b].append(op("ppkt", (("o", r, 1),), ((0, 0, 1),), "memory", tbg_info=share))
        for b in range(takers):
            share = {"tb_id": b, "tbg_size": takers}
            blocks[b].append(op("upkt", (("s", 0, 1),), (("o", 1 - r, 1),), tbg_info=share))
        ranks.append(gpu(r, (1, 2, 1), blocks))
    return plan("allgather", ranks, "LL", min_message_size=1024)


def test_what_is_not_analysed_is_not_called_wrong(tmp_path):
    """MSCCL++'s own plan for 128 KiB to 2 MiB deals packets out to groups of two sizes: it was called wrong."""
    assert analysis.check(program(shared_packets(2, 2)), "mscclpp").verdict == "right"
    doc = shared_packets(2, 4)
    report = analysis.check(program(doc), "mscclpp")
    assert (report.verdict, report.errors) == ("not analysed", ())
    assert {finding.rule for finding in report.findings} == {"part"}
    said = "gpu 1 block 0 step 0: divides scratch 0 of rank 0 otherwise than gpu 0 block 0 step 1"
    assert "nothing is proved, and no error was found" in list(report.lines())[-2]
    assert report.to_json()["verdict"] == "not analysed"
    assert runs(doc, 2048) and runs(doc, 2048 + 16)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(doc))
    assert f"not analysed: {said}" in synth("lint", path, code=4).stdout
    assert "not analysed" in synth("audit", path, code=4).stdout
    exported = synth("export", path, "--to mscclpp -o", tmp_path / "again.json", code=4)
    assert f"is not analysed: {said}" in exported.stderr


def test_outputs_that_a_call_in_place_may_fill_are_not_called_wrong():
    """A plan of an unknown collective that sends from its output: in place its input may lie there."""
    doc = plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)])
    for rank in doc["gpus"]:
        for block in rank["threadblocks"]:
            block["ops"] = []
        rank["threadblocks"][0]["ops"] = [op("copy", (("o", 0, 1),), (("o", 1, 1),))]
    unknown = replace(program(doc), collective=None)
    report = analysis.check(unknown, "mscclpp")
    assert (report.verdict, report.errors) == ("not analysed", ())
    assert any("in a call in place it could be input" in finding.message for finding in report.findings)


def test_operands_as_the_loader_reads_them():
    """It takes the rank's own memory whatever `rank` an operand bears, and moves nothing for one of 0 chunks."""
    doc = plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)])
    same = program(doc)
    for rank in doc["gpus"]:
        for block in rank["threadblocks"]:
            for entry in block["ops"]:
                for buffer in entry.get("src_buff", ()):
                    if "type" in buffer:
                        buffer["rank"] = rank["id"]
            block["ops"] += [
                op("copy", (("o", 0, 0),), (("s", 0, 0),)),
                op("put", (("o", 2, 0),), ((0, 2, 0),), "memory"),
            ]
    assert program(doc) == same
    doc["gpus"][0]["threadblocks"][0]["ops"][-1]["src_buff"][0]["rank"] = 2
    with pytest.raises(FormatError, match=r"rank: expected a whole number in 0\.\.1"):
        program(doc)


PLANS = {
    "put-with-signal": plan(
        "allgather", [gpu(r, (1, 2, 0), [put_with_signal("pwsf", r)], "port", "o") for r in (0, 1)]
    ),
    "packets": plan("allreduce", [gpu(r, (2, 2, 4), [packet_allreduce(r)]) for r in (0, 1)], "LL"),
    "alltoall": plan("alltoall", [gpu(r, (2, 2, 1), [swap(r)]) for r in (0, 1)]),
    "group": plan("allgather", [gpu(r, (1, 2, 0), dealt_out(r, 3), remote="o") for r in (0, 1)]),
    "pipeline": pipelined(2, 64),
}


@needs_compiler
@pytest.mark.parametrize("name", PLANS)
def test_plans_of_every_form_on_cpu_threads(name):
    found = program(PLANS[name])
    assert api.run(found, executor="host", dtype="int32", size=96 * found.loop_chunks, in_place=True).checked
