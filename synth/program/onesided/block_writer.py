"""Writer of one thread block on every rank, common to both protocols; it tracks the order between the ranks' ops.

`BlockWriter` joins the threads of a block (`nop`) wherever MSCCL++'s kernel needs it.

The kernel runs the ops of a block without joining its threads in between (executor kernel, execution_kernel.hpp):
only some threads wait and signal, and each data op deals the bytes out to threads in its own way. So a `nop` stands
after a wait or flush before anything but a wait; after data before a signal or flush; between two data ops that touch
the same chunk of the rank's memory, one of them writing; between two waits, or two signals, on one port. Packets need
none: each thread reads the flag of what it takes. Ops with packets deal out their spans in one way: one thread moves
the k-th chunk of all, so two of them on the same k-th chunk are in order. Nor does a signal or flush need one after a
put through a port channel, if one thread does both: thread k serves the k-th port of an op, and what it hands over for
a channel stays in order.

The progress of the others that a rank knows of is a vector clock (Mattern 1989): `clock[a][b]` is the last op of b
that is known to have ended before a's next op starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from synth.program.plan_limits import BLOCK_OPS, OP_CHANNELS
from synth.program.program import PORT_KINDS, SWITCHED, Op, Span

Key = tuple[str, int]  # one chunk of a rank's memory; input and output have the same keys where they are one memory
Keys = Callable[[int, Span, int], tuple[Key, ...]]
DATA = SWITCHED | {"put", "get", "cpy", "reduce"}
JOINING = frozenset({"nop", "barrier"})


class ChunkAccess(NamedTuple):
    """An access of an op to a chunk of the rank's own plain memory.

    `element`: the index of the chunk in its span, where that decides which threads move it; None where any thread may.
    """

    key: Key
    writes: bool
    element: int | None


class UnjoinedAccesses:
    """The accesses of a block's threads since they were last joined: memory read and written, ports, waits."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.reads = {}  # chunk → the elements as which it was read
        self.writes = {}
        self.data = self.waited = False
        self.port_ops = set()  # (wait or signal, port)
        self.handed = {}  # port → the threads that have handed puts to it

    def must_join(self, op: Op, accesses: Sequence[ChunkAccess]) -> bool:
        """True if a `nop` is needed before `op`, which accesses the rank's memory so."""
        if op.code in ("wait", "signal") and any((op.code, port) in self.port_ops for port in op.ports):
            return True
        if op.code in ("signal", "flush"):
            others = any(self.handed.get(port, {thread}) != {thread} for thread, port in enumerate(op.ports))
            return self.data or others or (op.code == "signal" and self.waited)
        if op.code not in DATA or self.waited:
            return op.code in DATA
        for key, writes, element in accesses:
            # other threads have made an access that must come before
            earlier = self.writes.get(key, set()) | (self.reads.get(key, set()) if writes else set())
            if earlier and (element is None or earlier != {element}):
                return True
        return False

    def record(self, op: Op, accesses: Sequence[ChunkAccess], handed: bool = False) -> None:
        """Record `op` as the next op of the block. `handed`: single threads hand it to port channels (`is_handed`)."""
        if op.code in JOINING:
            self._reset()
        elif op.code in DATA:
            self.data |= not handed
            for thread, port in enumerate(op.ports if handed else ()):
                self.handed.setdefault(port, set()).add(thread)
            for access in accesses:
                known = self.writes if access.writes else self.reads
                known.setdefault(access.key, set()).add(access.element)
        else:
            self.waited |= op.code in ("wait", "flush")
            self.port_ops |= {(op.code, port) for port in op.ports}


def is_handed(op: Op, kind: Callable[[int], str]) -> bool:
    """Return True for a put of plain chunks through port channels. ``kind(port)``: the kind of a port of its block."""
    return op.code == "put" and not op.src[0].packet and any(kind(port) == "port" for port in op.ports)


def accesses(rank: int, op: Op, keys: Keys, handed: bool) -> list[ChunkAccess]:
    """Return the accesses of `op` to the rank's own plain memory. `handed`: as in `UnjoinedAccesses.record`."""
    dealt = not handed and any(span.packet for span in op.spans)
    found = []
    for writes, spans in ((False, op.src), (True, op.dst)):
        for span in spans:
            if span.rank is not None or span.packet:
                continue
            for k, key in enumerate(keys(rank, span, op.count)):
                found.append(ChunkAccess(key, writes, k if dealt else None))
    return found


class WrittenBlock(NamedTuple):
    """One thread block of every rank: `ops[rank]`, and `ports[rank]` as (kind, peer); ops name a port by its index."""

    ops: tuple[tuple[Op, ...], ...]
    ports: tuple[tuple[tuple[str, int], ...], ...]
    plain: tuple[int, ...]  # scratch chunks
    packets: tuple[int, ...]  # scratch chunks in packet form


class BlockWriter:
    """Writer of one thread block on each of `len(nodes)` ranks.

    `nodes[rank]`: the box of the rank. `keys(rank, span, count)`: the memory keys of the chunks of a span.
    """

    def __init__(self, nodes: Sequence[int], keys: Keys) -> None:
        n = len(nodes)
        self.nodes, self.keys = nodes, keys
        self.ops = [[] for _ in range(n)]
        self.ports = [{} for _ in range(n)]
        # time 1: the rank has entered the kernel, which at first it knows of itself alone
        self.clock = [[0] * n for _ in range(n)]
        for rank in range(n):
            self.clock[rank][rank] = 1
        # the clock at the last join, which all threads of the block know
        self.joined_clock = [list(clock) for clock in self.clock]
        # the peers that a rank signals before all else, to say that it has entered the kernel
        self.entry = [[] for _ in range(n)]
        # True once a rank has more ops than the runtime takes
        self.overfull = False
        self._threads = [UnjoinedAccesses() for _ in range(n)]

    def kind(self, rank: int, peer: int) -> str:
        """Return the kind of channel between two ranks: "memory" inside a box, "port" between boxes."""
        return "memory" if self.nodes[rank] == self.nodes[peer] else "port"

    def port(self, rank: int, peer: int) -> int:
        """Return the number of the block's port to `peer`; the peer's block gets a port to `rank` too."""
        kind = self.kind(rank, peer)
        self.ports[peer].setdefault((kind, rank), len(self.ports[peer]))
        return self.ports[rank].setdefault((kind, peer), len(self.ports[rank]))

    def add(self, rank: int, op: Op) -> int:
        """Append an op; return its time on the rank's clock."""
        kinds = [kind for kind, _ in self.ports[rank]]
        handed = is_handed(op, kinds.__getitem__)
        touched = accesses(rank, op, self.keys, handed)
        threads = self._threads[rank]
        if threads.must_join(op, touched):
            self.ops[rank].append(Op("nop"))
            threads.record(self.ops[rank][-1], ())
            self.joined_clock[rank] = list(self.clock[rank])
        threads.record(op, touched, handed)
        self.ops[rank].append(op)
        self.overfull |= len(self.ops[rank]) > BLOCK_OPS
        self.clock[rank][rank] += 1
        return self.clock[rank][rank]

    def signal(self, rank: int, peers: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Append one signal to each peer; return the clock that each peer has when it has waited for it."""
        self._add_for_peers("signal", rank, peers)
        return dict.fromkeys(peers, tuple(self.clock[rank]))

    def wait(self, rank: int, learned: dict[int, tuple[int, ...]]) -> int:
        """Append a wait for one signal of each peer, and merge the clocks ``learned[peer]`` that the signals carry.

        Returns the time of the last wait on the rank's clock.
        """
        self._add_for_peers("wait", rank, learned)
        self.learn(rank, *learned.values())
        return self.clock[rank][rank]

    def flush(self, rank: int, peers: Iterable[int]) -> None:
        """Append a flush: a wait until the puts to `peers` have been read from this rank's memory."""
        self._add_for_peers("flush", rank, peers)

    def learn(self, rank: int, *clocks: Sequence[int]) -> None:
        """Merge `clocks` into the clock of `rank`."""
        if clocks:
            self.clock[rank] = list(map(max, self.clock[rank], *clocks))

    def enter(self, ranks: Sequence[int], peer: int) -> None:
        """Let each of `ranks` signal `peer` before all else, and `peer` wait for these signals now.

        After it `peer` knows that the ranks have entered the kernel, so their buffers are in no other use.
        """
        learned = {}
        for rank in ranks:
            self.entry[rank].append(peer)
            self.port(rank, peer)
            learned[rank] = tuple(int(r == rank) for r in range(len(self.nodes)))
        self.wait(peer, learned)

    def _add_for_peers(self, code: str, rank: int, peers: Iterable[int]) -> None:
        for ports in self._batches(rank, peers):
            self.add(rank, Op(code, ports=ports))

    def _batches(self, rank: int, peers: Iterable[int]) -> list[tuple[int, ...]]:
        """Return the rank's ports to `peers`, in batches of one kind that one operation can name."""
        batches = []
        for kind in PORT_KINDS:
            ports = [self.port(rank, peer) for peer in peers if self.kind(rank, peer) == kind]
            batches += [tuple(ports[i : i + OP_CHANNELS]) for i in range(0, len(ports), OP_CHANNELS)]
        return batches

    def finish(self, plain: Sequence[int], packets: Sequence[int]) -> WrittenBlock:
        """Return the block with its ports numbered: memory ports first, each kind by peer.

        `plain`, `packets`: the scratch chunks of each rank, plain and in packet form.
        """
        all_ops, all_ports = [], []
        for rank, body in enumerate(self.ops):
            entry = [Op("signal", ports=ports) for ports in self._batches(rank, sorted(self.entry[rank]))]
            order = sorted(self.ports[rank], key=lambda port: (PORT_KINDS.index(port[0]), port[1]))
            number = {self.ports[rank][port]: i for i, port in enumerate(order)}
            # no join between the entry's signals and the body: the body's first signal on such a port needs one
            signalled = {port for op in entry for port in op.ports}
            for i, op in enumerate(body):
                if op.code == "signal" and signalled.intersection(op.ports):
                    body = [*body[:i], Op("nop"), *body[i:]]
                if op.code == "nop" or body[i].code == "nop":
                    break
            ops = [*entry, *body]
            all_ops.append(tuple(op._replace(ports=tuple(map(number.__getitem__, op.ports))) for op in ops))
            all_ports.append(tuple(order))
        return WrittenBlock(tuple(all_ops), tuple(all_ports), tuple(plain), tuple(packets))
