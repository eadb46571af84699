"""Writer of one thread block on every rank, common to both protocols; it tracks the order between the ranks' ops.

`BlockWriter` joins the threads of a block (`nop`) wherever MSCCL++'s kernel needs it (thread_joins.py).

The progress of the others that a rank knows of is a vector clock (Mattern 1989): `clock[a][b]` is the last op of b
that is known to have ended before a's next op starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from synth.program.plan_limits import BLOCK_OPS, OP_CHANNELS
from synth.program.program import PORT_KINDS, Op
from synth.program.thread_joins import Keys, UnjoinedAccesses, accesses, is_handed


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
        for ports in self._batches(rank, peers):
            self.add(rank, Op("signal", ports=ports))
        return dict.fromkeys(peers, tuple(self.clock[rank]))

    def wait(self, rank: int, learned: dict[int, tuple[int, ...]]) -> int:
        """Append a wait for one signal of each peer, and merge the clocks ``learned[peer]`` that the signals carry.

        Returns the time of the last wait on the rank's clock.
        """
        for ports in self._batches(rank, learned):
            self.add(rank, Op("wait", ports=ports))
        self.learn(rank, *learned.values())
        return self.clock[rank][rank]

    def flush(self, rank: int, peers: Iterable[int]) -> None:
        """Append a flush: a wait until the puts to `peers` have been read from this rank's memory."""
        for ports in self._batches(rank, peers):
            self.add(rank, Op("flush", ports=ports))

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
            ops = [*entry, *self._after_entry(entry, body)]
            all_ops.append(tuple(op._replace(ports=tuple(map(number.__getitem__, op.ports))) for op in ops))
            all_ports.append(tuple(order))
        return WrittenBlock(tuple(all_ops), tuple(all_ports), tuple(plain), tuple(packets))

    @staticmethod
    def _after_entry(entry: list[Op], body: list[Op]) -> list[Op]:
        signalled = {port for op in entry for port in op.ports}
        for i, op in enumerate(body):
            if op.code == "nop":
                break
            if op.code == "signal" and signalled.intersection(op.ports):
                return [*body[:i], Op("nop"), *body[i:]]
        return body
