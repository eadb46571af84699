"""Plans of MSCCL++'s own forms that lowering does not write: read, judged, run, and written again with one meaning."""

import json

import pytest

from synth import api
from synth.export.mscclpp.read import read
from synth.program import analysis
from synth.program.program import Program


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
    """Return the errors as ``rule gpu.block.op``."""
    report = analysis.check(program(doc), "mscclpp")
    return [f"{f.rule} {f.gpu}.{f.block}.{f.op}" for f in report.errors]


def runs(doc: dict) -> bool:
    done = program(doc)
    return bool(api.run(done, size=done.loop_chunks * 4096, in_place=done.in_place == "in", dtype="int32"))


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
    assert faults(doc) == []
    assert runs(doc)
    again = [[*packet_allreduce(r), op("upkt", (("s", 2, 1),), (("i", r, 1),))] for r in (0, 1)]
    assert faults(plan("allreduce", [gpu(r, (2, 2, 4), [again[r]]) for r in (0, 1)], "LL")) == []
    plain = op("copy", (("i", 0, 1),), (("o", 0, 1),))
    copies = [[*packet_allreduce(r), plain] for r in (0, 1)]
    assert set(faults(plan("allreduce", [gpu(r, (2, 2, 4), [copies[r]]) for r in (0, 1)], "LL"))) == {
        "join 0.0.4",
        "join 1.0.4",
    }


# ---------------------------------------------------------------- in place


def swap(rank: int, early: bool = False) -> list[dict]:
    put = op("put", (("i", 1 - rank, 1),), ((0, 0, 1),), "memory")
    take = op("copy", (("s", 0, 1),), (("i", 1 - rank, 1),))
    signal, wait = op("signal", kind="memory", ids=(0,)), op("wait", kind="memory", ids=(0,))
    entry = [signal, wait, NOP]
    return [*entry, put, NOP, signal, wait, NOP, take] if not early else [*entry, take, NOP, put, NOP, signal, wait]


def test_an_alltoall_in_place_overwrites_its_input():
    doc = plan("alltoall", [gpu(r, (2, 2, 1), [swap(r)]) for r in (0, 1)])
    assert faults(doc) == []
    assert runs(doc)
    early = plan("alltoall", [gpu(r, (2, 2, 1), [swap(r, early=True)]) for r in (0, 1)])
    assert faults(early)
