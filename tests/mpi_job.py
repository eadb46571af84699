"""What the tests of the mpi executor run under one mpirun: ``python mpi_job.py WHAT``; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys

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
from synth.collective import COLLECTIVES
from synth.errors import SynthError
from synth.program.program import Program
from synth.runtime import mpi_world
from synth.runtime.dtypes import DTYPES, OPERATORS

N = 8


def same(program, **options) -> int:
    """Right by the executor's own check, and bit for bit what the reference executor gives. Elements compared."""
    found = api.run(program, executor="mpi", **options)
    if mpi_world.inside().rank:
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


def collectives() -> dict:
    """Every collective on a DGX-1, by direct sends; in place too where it can be."""
    names = [name for name in COLLECTIVES if name not in ("scan", "allgatherv", "reduce-scatterv", "alltoallv")]
    done = {}
    for name in names:
        program = api.lower(api.baseline("direct", "dgx1", name))
        size = program.loop_chunks * 4 * 9
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
    """What is wrong is said alike by all processes, and a right program runs after each."""
    said = {}
    # a deadlock several times: what is said must not depend on which process notices first
    for program in (*[all_send_first(N, 5)] * 5, put_allgather(N), ring_allreduce(4), racing_broadcast()):
        try:
            api.run(program, executor="mpi", size=program.loop_chunks * 4, patience=0.1)
        except SynthError as error:
            text = [type(error).__name__, str(error)]
            assert said.setdefault(program.name, text) == text
        if program.ranks == N:
            same(broadcast_chain(N, 4), size=64)
    return said


def main(what: str, *words: str) -> None:
    made = {
        "programs": lambda: every([ring_allgather(N), direct_allgather(N), ring_allreduce(N, 16), broadcast_chain(N, 8)], size=64 << 10),
        "frontiers": lambda: frontiers(*words), "types": types, "collectives": collectives, "sizes": sizes, "errors": errors,
    }  # fmt: skip
    found = {name: made[name]() for name in (what.split("+"))}
    if mpi_world.inside().rank == 0:
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
