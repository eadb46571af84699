"""Writes one thread block on every rank, with the orders that hold between them: the common part of both protocols.

MSCCL++'s kernel runs the ops of a block without joining its threads in between (executor kernel, execution_kernel.hpp):
only some threads wait and signal, and each data op deals the bytes out to threads in its own way. A `nop` joins them.
`Scribe` puts one in wherever an op needs what an earlier one did: after a wait or flush before anything but a wait;
after data before a signal or flush; between two data ops that touch the same chunk, one of them writing; between two
waits, or two signals, on one port.

What a rank knows of the others' progress is a vector clock (Mattern 1989): `clock[a][b]` is the last op of b that
is known to have ended before a's next op starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from synth.program.plan_limits import OP_CHANNELS
from synth.program.program import PORT_KINDS, Op, Span

Key = tuple[str, int]  # one chunk of a rank's memory; input and output have the same keys where they are one memory
Keys = Callable[[int, Span, int], tuple[Key, ...]]


class Draft(NamedTuple):
    """A block as written: on every rank its ops and its ports (kind, peer); ops name ports by place in this list."""

    ops: tuple[tuple[Op, ...], ...]
    ports: tuple[tuple[tuple[str, int], ...], ...]
    plain: tuple[int, ...]  # scratch chunks
    packets: tuple[int, ...]  # scratch chunks in packet form


class _Open:
    """What the threads of a block have not been joined after."""

    def __init__(self) -> None:
        self.reads: set[Key] = set()
        self.writes: set[Key] = set()
        self.data = self.waited = False
        self.on: set[tuple[str, int]] = set()  # (wait or signal, port)


class Scribe:
    """One thread block on each of `len(nodes)` ranks. `keys(rank, span, count)`: the chunks of memory of a span."""

    def __init__(self, nodes: Sequence[int], keys: Keys) -> None:
        n = len(nodes)
        self.nodes, self.keys = nodes, keys
        self.ops: list[list[Op]] = [[] for _ in range(n)]
        self.ports: list[dict[tuple[str, int], int]] = [{} for _ in range(n)]
        self.clock = [[int(a == b) for b in range(n)] for a in range(n)]  # 1: the rank has entered the kernel
        self.entry: list[list[int]] = [[] for _ in range(n)]  # the peers that learn first thing that this rank has entered
        self._open = [_Open() for _ in range(n)]

    def kind(self, rank: int, peer: int) -> str:
        """The kind of channel between two ranks: memory inside a box, port between boxes."""
        return "memory" if self.nodes[rank] == self.nodes[peer] else "port"

    def port(self, rank: int, peer: int) -> int:
        """The block's port to `peer`; the peer gets one back."""
        kind = self.kind(rank, peer)
        self.ports[peer].setdefault((kind, rank), len(self.ports[peer]))
        return self.ports[rank].setdefault((kind, peer), len(self.ports[rank]))

    def _add(self, rank: int, op: Op) -> int:
        self.ops[rank].append(op)
        self.clock[rank][rank] += 1
        return self.clock[rank][rank]

    def join(self, rank: int) -> None:
        """A `nop`: all threads of the block meet."""
        self._add(rank, Op("nop"))
        self._open[rank] = _Open()

    def data(self, rank: int, op: Op) -> int:
        """An op that moves data; returns its time."""
        plain = [span for span in (*op.src, *op.dst) if span.rank is None and not span.packet]
        reads = {key for span in op.src if span in plain for key in self.keys(rank, span, op.count)}
        writes = {key for span in op.dst if span in plain for key in self.keys(rank, span, op.count)}
        seen = self._open[rank]
        if seen.waited or reads & seen.writes or writes & (seen.reads | seen.writes):
            self.join(rank)
            seen = self._open[rank]
        seen.data = True
        seen.reads |= reads
        seen.writes |= writes
        return self._add(rank, op)

    def signal(self, rank: int, peers: Iterable[int]) -> dict[int, tuple[int, ...]]:
        """Signal each peer once; returns, for each, the clock that it learns."""
        for ports in self._batches(rank, peers):
            seen = self._open[rank]
            if seen.data or seen.waited or any(("signal", port) in seen.on for port in ports):
                self.join(rank)
            self._add(rank, Op("signal", ports=ports))
            self._open[rank].on |= {("signal", port) for port in ports}
        return dict.fromkeys(peers, tuple(self.clock[rank]))

    def wait(self, rank: int, learned: dict[int, tuple[int, ...]]) -> int:
        """Wait for one signal of each peer and learn what it knew; returns the time of the last wait."""
        for ports in self._batches(rank, learned):
            if any(("wait", port) in self._open[rank].on for port in ports):
                self.join(rank)
            self._add(rank, Op("wait", ports=ports))
            self._open[rank].waited = True
            self._open[rank].on |= {("wait", port) for port in ports}
        for clock in learned.values():
            self.learn(rank, clock)
        return self.clock[rank][rank]

    def flush(self, rank: int, peers: Iterable[int]) -> None:
        """Wait until the puts to these peers have been read from this rank's memory."""
        for ports in self._batches(rank, peers):
            if self._open[rank].data:
                self.join(rank)
            self._add(rank, Op("flush", ports=ports))
            self._open[rank].waited = True

    def learn(self, rank: int, clock: Sequence[int]) -> None:
        """What `clock` knows, the rank knows from now on."""
        self.clock[rank] = [max(a, b) for a, b in zip(self.clock[rank], clock, strict=True)]

    def enter(self, rank: int, peer: int) -> None:
        """`rank` signals `peer` before all else, and `peer` waits for it now: the rank's buffers are no longer in other use."""
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
