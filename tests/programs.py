"""Programs written by hand that many tests use: known algorithms, one rank after the other, right in place and out of
place.

`chunks` is the number of chunks per unit of data; an op then moves that many at once, unless said otherwise.
"""

from dataclasses import replace
from typing import Any

from synth.model.collective import collective
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span

I0, O0, S0 = (Span("i", 0),), (Span("o", 0),), (Span("s", 0),)


def _i(offset: int) -> tuple[Span]:
    return (Span("i", offset),)


def _o(offset: int) -> tuple[Span]:
    return (Span("o", offset),)


def ring_allgather(n: int, chunks: int = 1) -> Program:
    """Each rank sends its own part to the next, then forwards what arrives: n - 1 steps, one block a rank."""

    def ops(r: int) -> tuple[Op, ...]:
        def part(steps: int) -> tuple[Span]:
            return _o((r - steps) % n * chunks)

        own = (Op("s", _i(0), (), chunks), Op("cpy", _i(0), part(0), chunks))
        return (*own, *(Op("rcs", (), part(k), chunks) for k in range(1, n - 1)), Op("r", (), part(n - 1), chunks))

    gpus = tuple(Gpu(r, chunks, n * chunks, 0, (Block((r + 1) % n, (r - 1) % n, 0, ops(r)),)) for r in range(n))
    return Program("ring-allgather", collective("allgather", n), chunks, gpus, in_place="both")


def direct_allgather(n: int, chunks: int = 1) -> Program:
    """Each rank sends its part to every other at once: one step, a block a peer."""

    def blocks(r: int) -> tuple[Block, ...]:
        peers = [(r + k) % n for k in range(1, n)]
        found = [Block(p, p, 0, (Op("s", _i(0), (), chunks), Op("r", (), _o(p * chunks), chunks))) for p in peers]
        return (*found, Block(None, None, 0, (Op("cpy", _i(0), _o(r * chunks), chunks),)))

    gpus = tuple(Gpu(r, chunks, n * chunks, 0, blocks(r)) for r in range(n))
    return Program("direct-allgather", collective("allgather", n), chunks, gpus, in_place="both")


def ring_allreduce(n: int, chunks: int | None = None) -> Program:
    """Reduce-scatter and allgather round the ring in 2 (n - 1) steps; `chunks` (default n) is a multiple of n."""
    count = (chunks or n) // n

    def ops(r: int) -> tuple[Op, ...]:
        def src(k: int) -> tuple[Span]:
            return _i((r - k) % n * count)

        def dst(k: int) -> tuple[Span]:
            return _o((r - k) % n * count)

        sums = (Op("rrs", src(k), (), count) for k in range(1, n - 1))
        last = Op("rrcs", src(n - 1), dst(n - 1), count)
        copies = (Op("rcs", (), dst(k), count) for k in range(n, 2 * n - 2))
        return (Op("s", src(0), (), count), *sums, last, *copies, Op("r", (), dst(2 * n - 2), count))

    gpus = tuple(Gpu(r, n * count, n * count, 0, (Block((r + 1) % n, (r - 1) % n, 0, ops(r)),)) for r in range(n))
    return Program("ring-allreduce", collective("allreduce", n), n * count, gpus, in_place="both")


def recursive_doubling_allreduce(n: int, chunks: int = 1) -> Program:
    """Partners at distance 1, 2, 4, .. exchange all they have: log2 n steps, a block a partner; n is a power of two."""

    def block(r: int, k: int) -> Block:
        before = (Dep(k - 1, 1),) if k else ()
        has = _o(0) if k else _i(0)
        ops = (Op("s", has, (), chunks, before), Op("rrc", has, _o(0), chunks, flag=2 << k < n))
        return Block(r ^ 1 << k, r ^ 1 << k, 0, ops)

    gpus = tuple(Gpu(r, chunks, chunks, 0, tuple(block(r, k) for k in range(n.bit_length() - 1))) for r in range(n))
    return Program("recursive-doubling", collective("allreduce", n), chunks, gpus, in_place="both")


def broadcast_chain(n: int, chunks: int = 1) -> Program:
    """Rank 0 to 1 to 2 ..: chunk after chunk, an op each, so that they follow one another down the chain."""

    def block(r: int) -> Block:
        if r == 0:
            ops = (*(Op("s", _i(c)) for c in range(chunks)), Op("cpy", _i(0), _o(0), chunks))
        else:
            ops = tuple(Op("r" if r == n - 1 else "rcs", (), _o(c)) for c in range(chunks))
        return Block(r + 1 if r < n - 1 else None, r - 1 if r else None, 0, ops)

    gpus = tuple(Gpu(r, 0 if r else chunks, chunks, 0, (block(r),)) for r in range(n))
    return Program("broadcast-chain", collective("broadcast", n), chunks, gpus, in_place="both")


def put_allgather(n: int, chunks: int = 1, enters: bool = False) -> Program:
    """One-sided: each rank puts its part into every other's output, signals, and waits for theirs; a block a peer.

    `enters`: before that each lets the others know that it has entered the call.
    """

    def block(r: int, p: int) -> Block:
        put = Op("put", _i(0), (Span("o", r * chunks, p),), chunks, ports=(0,))
        signal, wait = Op("signal", ports=(0,)), Op("wait", ports=(0,))
        first = (signal, wait) if enters else ()
        return Block(None, None, 0, (*first, put, signal, wait), (), (Port("memory", p, 0),))

    def blocks(r: int) -> tuple[Block, ...]:
        own = Block(None, None, 0, (Op("cpy", _i(0), _o(r * chunks), chunks),))
        return (*(block(r, (r + k) % n) for k in range(1, n)), own)

    gpus = tuple(Gpu(r, chunks, n * chunks, 0, blocks(r)) for r in range(n))
    return Program("put-allgather", collective("allgather", n), chunks, gpus, in_place="both")


def all_send_first(n: int, messages: int) -> Program:
    """A ring of ranks that all send `messages` chunks before they receive: stuck above the FIFO depth."""
    task = collective("sendrecv", n)

    def ops() -> tuple[Op, ...]:
        return (*(Op("s", _i(c)) for c in range(messages)), *(Op("r", (), _o(c)) for c in range(messages)))

    gpus = tuple(Gpu(r, messages, messages, 0, (Block((r + 1) % n, (r - 1) % n, 0, ops()),)) for r in range(n))
    return Program("all-send-first", task, messages, gpus)


def racing_broadcast() -> Program:
    """Wrong on purpose: a block of rank 0 sends scratch that another fills, and does not wait for it."""
    fill = Block(None, None, 0, (Op("cpy", _i(0), (Span("s", 0),)), Op("cpy", _i(0), _o(0))))
    send = Block(1, None, 0, (Op("s", (Span("s", 0),)),))
    gpus = (Gpu(0, 1, 1, 1, (fill, send)), Gpu(1, 0, 1, 0, (Block(None, 0, 0, (Op("r", (), _o(0)),)),)))
    return Program("racing-broadcast", collective("broadcast", 2), 1, gpus, in_place="both")


def edit(program: Program, rank: int, block: int, op: int, **changes: Any) -> Program:
    """Return `program` with one op changed; `ops` replaces all ops of the block."""
    gpu = program.gpus[rank]
    old = gpu.blocks[block]
    ops = changes.pop("ops", None)
    if ops is None:
        ops = (*old.ops[:op], old.ops[op]._replace(**changes), *old.ops[op + 1 :])
    gpu = gpu._replace(blocks=(*gpu.blocks[:block], old._replace(ops=tuple(ops)), *gpu.blocks[block + 1 :]))
    return replace(program, gpus=(*program.gpus[:rank], gpu, *program.gpus[rank + 1 :]))
