"""Writes one thread block on every rank, with the orders that hold between them: the common part of both protocols.

`Scribe` joins the threads of a block (`nop`) wherever MSCCL++'s kernel needs it (joins.py).

What a rank knows of the others' progress is a vector clock (Mattern 1989): `clock[a][b]` is the last op of b that
is known to have ended before a's next op starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from synth.program.plan_limits import OP_CHANNELS
from synth.program.program import PORT_KINDS, Op
from synth.program.thread_joins import Keys, Threads, touched


class Draft(NamedTuple):
    """A block as written: on every rank its ops and its ports (kind, peer); ops name ports by place in this list."""

    ops: tuple[tuple[Op, ...], ...]
    ports: tuple[tuple[tuple[str, int], ...], ...]
    plain: tuple[int, ...]  # scratch chunks
    packets: tuple[int, ...]  # scratch chunks in packet form


class Scribe:
    """One thread block on each of `len(nodes)` ranks. `keys(rank, span, count)`: the chunks of memory of a span."""

    def __init__(self, nodes: Sequence[int], keys: Keys) -> None:
        n = len(nodes)
        self.nodes, self.keys = nodes, keys
        self.ops: list[list[Op]] = [[] for _ in range(n)]
        self.ports: list[dict[tuple[str, int], int]] = [{} for _ in range(n)]
        self.clock = [[int(a == b) for b in range(n)] for a in range(n)]  # 1: the rank has entered the kernel
        self.sure = [
            list(clock) for clock in self.clock
        ]  # what all threads of the block know: the clock at the last join
        self.entry: list[list[int]] = [
            [] for _ in range(n)
        ]  # the peers that learn first thing that this rank has entered
        self._threads = [Threads() for _ in range(n)]

    def kind(self, rank: int, peer: int) -> str:
        """The kind of channel between two ranks: memory inside a box, port between boxes."""
        return "memory" if self.nodes[rank] == self.nodes[peer] else "port"

    def port(self, rank: int, peer: int) -> int:
        """The block's port to `peer`; the peer gets one back."""
        kind = self.kind(rank, peer)
        self.ports[peer].setdefault((kind, rank), len(self.ports[peer]))
        return self.ports[rank].setdefault((kind, peer), len(self.ports[rank]))

    def _add(self, rank: int, op: Op) -> int:
        reads, writes = touched(rank, op, self.keys)
        threads = self._threads[rank]
        if threads.must_join(op, reads, writes):
            self.ops[rank].append(Op("nop"))
            threads.did(self.ops[rank][-1], set(), set())
            self.sure[rank] = list(self.clock[rank])
        threads.did(op, reads, writes)
        self.ops[rank].append(op)
        self.clock[rank][rank] += 1
        return self.clock[rank][rank]

    def data(self, rank: int, op: Op) -> int:
        """An op that moves data; returns its time."""
        return self._add(rank, op)

    def signal(self, rank: int, peers: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Signal each peer once; returns, for each, the clock that it learns."""
        for ports in self._batches(rank, peers):
            self._add(rank, Op("signal", ports=ports))
        return dict.fromkeys(peers, tuple(self.clock[rank]))

    def wait(self, rank: int, learned: dict[int, tuple[int, ...]]) -> int:
        """Wait for one signal of each peer and learn what it knew; returns the time of the last wait."""
        for ports in self._batches(rank, learned):
            self._add(rank, Op("wait", ports=ports))
        for clock in learned.values():
            self.learn(rank, clock)
        return self.clock[rank][rank]

    def flush(self, rank: int, peers: Iterable[int]) -> None:
        """Wait until the puts to these peers have been read from this rank's memory."""
        for ports in self._batches(rank, peers):
            self._add(rank, Op("flush", ports=ports))

    def learn(self, rank: int, clock: Sequence[int]) -> None:
        """What `clock` knows, the rank knows from now on."""
        self.clock[rank] = [max(a, b) for a, b in zip(self.clock[rank], clock, strict=True)]

    def enter(self, rank: int, peer: int) -> None:
        """`rank` signals `peer` before all else, and `peer` waits for it now: the rank's buffers are no longer in other
        use."""
        self.entry[rank].append(peer)
        self.port(rank, peer)
        self.wait(peer, {rank: tuple(int(r == rank) for r in range(len(self.nodes)))})

    def _batches(self, rank: int, peers: Iterable[int]) -> list[tuple[int, ...]]:
        found = []
        for kind in PORT_KINDS:
            ports = [self.port(rank, peer) for peer in peers if self.kind(rank, peer) == kind]
            found += [tuple(ports[i : i + OP_CHANNELS]) for i in range(0, len(ports), OP_CHANNELS)]
        return found

    def finish(self, plain: Sequence[int], packets: Sequence[int]) -> Draft:
        """The block, memory ports first, each kind by peer."""
        all_ops, all_ports = [], []
        for rank, body in enumerate(self.ops):
            first = [Op("signal", ports=ports) for ports in self._batches(rank, sorted(self.entry[rank]))]
            order = sorted(self.ports[rank], key=lambda port: (PORT_KINDS.index(port[0]), port[1]))
            place = {self.ports[rank][port]: i for i, port in enumerate(order)}
            # no join between the entry's signals and the body: the body's first signal on such a port needs one
            ops = [*first, *self._after_entry(first, body)]
            all_ops.append(tuple(op._replace(ports=tuple(place[p] for p in op.ports)) for op in ops))
            all_ports.append(tuple(order))
        return Draft(tuple(all_ops), tuple(all_ports), tuple(plain), tuple(packets))

    @staticmethod
    def _after_entry(first: list[Op], body: list[Op]) -> list[Op]:
        signalled = {port for op in first for port in op.ports}
        for i, op in enumerate(body):
            if op.code == "nop":
                break
            if op.code == "signal" and signalled.intersection(op.ports):
                return [*body[:i], Op("nop"), *body[i:]]
        return body
