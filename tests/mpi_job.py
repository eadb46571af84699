"""Jobs of the tests of the mpi executor under one mpirun: ``python mpi_job.py JOB``; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from random import Random

from multicast_schedules import random_schedule
from programs import (
    all_send_first,
    broadcast_chain,
    direct_allgather,
    put_allgather,
    racing_broadcast,
    recursive_doubling_allreduce,
    ring_allgather,
    ring_allreduce,
)

from synth import api
from synth.errors import SynthError
from synth.model.collective import COLLECTIVES, Collective
from synth.program.checked_lowering import onesided
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Block, Gpu, Op, Port, Program, Span
from synth.runtime.dtypes import DTYPES, OPERATORS
from synth.runtime.mpi import environment

N = 8


def same(program, **options) -> int:
    """Right by the executor's own check, and bit for bit what the reference executor gives. Elements compared."""
    found = api.run(program, executor="mpi", **options)
    if environment.current_job().rank:
        return found.checked.elements
    want = api.run(program, executor="reference", **{k: v for k, v in options.items() if k != "patience"})
    for mine, theirs in zip(found.outputs, want.outputs, strict=True):
        assert mine.tobytes() == theirs.tobytes(), program.name
    return found.checked.elements


def every(programs, **options) -> dict:
    return {program.name: same(program, **options) for program in programs}


def frontiers(*paths) -> dict:
    """Each file: a frontier; every point of it, in place too where it can be."""
    done = {}
    for path in paths:
        with open(path) as file:
            count = len(json.load(file)["points"])
        for point in range(1, count + 1):
            program: Program = api.load_program(path, point=point)
            size = program.loop_chunks * 4 * 33
            done[program.name] = same(program, size=size)
            if program.in_place == "both":
                same(program, size=size, in_place=True)
    return done


def chain_scan(n: int) -> Program:
    """Each rank adds what it holds to what it is given, keeps that, and hands it on."""

    def ops(r: int) -> tuple[Op, ...]:
        if r == 0:
            return (Op("s", (Span("i", 0),)), Op("cpy", (Span("i", 0),), (Span("o", 0),)))
        return (Op("rrcs" if r < n - 1 else "rrc", (Span("i", 0),), (Span("o", 0),)),)

    blocks = [Block(r + 1 if r < n - 1 else None, r - 1 if r else None, 0, ops(r)) for r in range(n)]
    return Program(
        "chain-scan", api.collective("scan", n), 1, tuple(Gpu(r, 1, 1, 0, (block,)) for r, block in enumerate(blocks))
    )


def collectives() -> dict:
    """Every collective on a DGX-1, by direct sends, and one that has no name, at counts that chunks do not divide; in
    place too where it can be."""
    uneven, pairs = (
        (1, 2, 0, 1, 1, 3, 1, 1),
        tuple(tuple((i * j + i) % 3 if i != j else 0 for j in range(N)) for i in range(N)),
    )
    sizes = {"allgatherv": uneven, "reduce-scatterv": uneven, "alltoallv": pairs}
    tasks = {name: api.collective(name, N, sizes=sizes.get(name)) for name in COLLECTIVES if name != "scan"}
    halves = tuple(frozenset({r}) for r in range(N)), tuple(frozenset({(r + 1) % N, (r + 3) % N}) for r in range(N))
    tasks["custom"] = Collective("custom", N, *halves)
    done = {"scan": same(chain_scan(N), size=4 * 9)}
    for name, task in tasks.items():
        program = api.lower(api.baseline("direct", "dgx1", task), instances=2)
        size = task.buffer_units * 4 * 9
        done[name] = same(program, size=size)
        if program.in_place == "both":
            same(program, size=size, in_place=True)
    return done


def types() -> dict:
    kinds = [(kind.name, op) for kind in DTYPES for op in OPERATORS]
    ring = ring_allreduce(N)
    size = {kind.name: N * kind.size * 5 for kind in DTYPES}
    return {f"{kind} {op}": same(ring, size=size[kind], dtype=kind, op=op, in_place=True) for kind, op in kinds}


def sizes() -> dict:
    """Nothing, one element, more than an operation, parts of several chunks, shallow and deep FIFOs."""
    ring = ring_allgather(N, 3)
    each = ring.loop_chunks * 4
    done = {f"{count} elements": same(ring, size=each * count) for count in (0, 1, 1000)}
    done["sliced"] = same(ring_allreduce(N), size=N * ((32 << 10) + 4), protocol="LL")
    done["depth 1"] = same(broadcast_chain(N, 5), size=20 * 7, depth=1)
    done["parts"] = same(recursive_doubling_allreduce(N, 5), size=20 * 7, part=2, depth=3)
    return done


def switched() -> dict:
    """Puts, and random schedules with multicasts and fetched sums, in place too; packets; puts of several pairs."""
    done = {"puts": same(put_allgather(N), size=N * 4 * 5), "pairs": same(pairs_and_barriers(), size=N * 4 * 3)}
    codes: set[str] = set()
    for seed, (kind, op) in enumerate([("f32", "sum"), ("f16", "avg")]):
        schedule = random_schedule(Random(seed), N)
        in_place = seed % 2 == 1
        options = LoweringOptions("mscclpp", in_place="in" if in_place else "out")
        program = onesided(schedule, options)
        codes.update(op.code for gpu in program.gpus for block in gpu.blocks for op in block.ops)
        size = program.loop_chunks * 8 * 7
        done[f"random {seed}"] = same(program, size=size, dtype=kind, op=op, in_place=in_place)
    assert {"glres", "gstore", "put", "signal", "wait"} <= codes, codes
    packets = onesided(api.baseline("direct", "dgx1", "allgather"), LoweringOptions("mscclpp", "LL"))
    assert any(span.packet for gpu in packets.gpus for block in gpu.blocks for op in block.ops for span in op.dst)
    return done | {"packets": same(packets, size=packets.loop_chunks * 4 * 3)}


def pairs_and_barriers() -> Program:
    """An allgather in which one put serves two peers through port channels, and the blocks of a rank meet."""
    gpus = []
    for rank in range(N):
        peers = [(rank + k) % N for k in range(1, N)]
        ports, meet = tuple(Port("port", peer, 0) for peer in peers), Op("barrier", group=(0, 1))
        put = Op(
            "put",
            (Span("i", 0),) * len(peers),
            tuple(Span("o", rank, peer) for peer in peers),
            ports=tuple(range(len(peers))),
        )
        every = tuple(range(len(peers)))
        ops = (put, Op("signal", ports=every), Op("flush", ports=every), Op("wait", ports=every), meet)
        blocks = (
            Block(None, None, 0, ops, ports=ports),
            Block(None, None, 0, (meet, Op("cpy", (Span("i", 0),), (Span("o", rank),)))),
        )
        gpus.append(Gpu(rank, 1, N, 0, blocks))
    return Program("pairs", api.collective("allgather", N), 1, tuple(gpus))


def without(name: str, program: Program, code: str) -> Program:
    """Return `program` whose rank 0 leaves out the ops of `code`."""
    blocks = []
    for block in program.gpus[0].blocks:
        blocks.append(block._replace(ops=tuple(op for op in block.ops if op.code != code)))
    return replace(program, name=name, gpus=(program.gpus[0]._replace(blocks=tuple(blocks)), *program.gpus[1:]))


def early_get() -> Program:
    """Return a program whose rank 0 reads memory of rank 1 that nothing writes."""
    program = put_allgather(N)
    first = program.gpus[0].blocks[0]
    get = Op("get", (Span("s", 0, 1),), (Span("s", 0),))
    gpus = [gpu._replace(scratch=1) for gpu in program.gpus]
    gpus[0] = gpus[0]._replace(blocks=(first._replace(ops=(get, *first.ops)), *gpus[0].blocks[1:]))
    return replace(program, name="early-get", gpus=tuple(gpus))


def errors() -> dict:
    """All processes raise the same error, and a right program runs after each."""
    said = {}
    # a deadlock several times: what is said must not depend on which process notices first
    silent, early = without("silent", put_allgather(N), "signal"), early_get()
    for program in (*[all_send_first(N, 5)] * 5, silent, early, ring_allreduce(4), racing_broadcast()):
        try:
            api.run(program, executor="mpi", size=program.loop_chunks * 4, patience=0.1)
        except SynthError as error:
            text = [type(error).__name__, str(error)]
            assert said.setdefault(program.name, text) == text
        if program.ranks == N:
            same(broadcast_chain(N, 4), size=64)
            if program in (silent, early):
                same(put_allgather(N), size=N * 4)
    return said


def main(what: str, *words: str) -> None:
    made = {
        "programs": lambda: every(
            [ring_allgather(N), direct_allgather(N), ring_allreduce(N, 16), broadcast_chain(N, 8)], size=64 << 10
        ),
        "frontiers": lambda: frontiers(*words),
        "types": types,
        "collectives": collectives,
        "sizes": sizes,
        "switched": switched,
        "errors": errors,
    }
    found = {name: made[name]() for name in (what.split("+"))}
    if environment.current_job().rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
