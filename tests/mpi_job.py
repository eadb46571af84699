"""Jobs of the tests of the mpi executor under one mpirun: ``python mpi_job.py JOB``; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys

from programs import (
    all_send_first,
    broadcast_chain,
    direct_allgather,
    racing_broadcast,
    recursive_doubling_allreduce,
    ring_allgather,
    ring_allreduce,
)

from synth.commands import api
from synth.errors import SynthError
from synth.model.collective import COLLECTIVES, Collective
from synth.program.program import Block, Gpu, Op, Program, Span
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


def errors() -> dict:
    """All processes raise the same error, and a right program runs after each."""
    said = {}
    # a deadlock several times: what is said must not depend on which process notices first
    for program in (*[all_send_first(N, 5)] * 5, ring_allreduce(4), racing_broadcast()):
        try:
            api.run(program, executor="mpi", size=program.loop_chunks * 4, patience=0.1)
        except SynthError as error:
            text = [type(error).__name__, str(error)]
            assert said.setdefault(program.name, text) == text
        if program.ranks == N:
            same(broadcast_chain(N, 4), size=64)
    return said


def main(what: str) -> None:
    made = {
        "programs": lambda: every(
            [ring_allgather(N), direct_allgather(N), ring_allreduce(N, 16), broadcast_chain(N, 8)], size=64 << 10
        ),
        "types": types,
        "collectives": collectives,
        "sizes": sizes,
        "errors": errors,
    }
    found = {name: made[name]() for name in (what.split("+"))}
    if environment.current_job().rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
