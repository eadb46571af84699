"""The LL protocol, one-sided: packets, data with flags, into the peer's scratch; whoever reads one waits for it.

Nothing else orders data: no signals. A packet that only passes through is forwarded from where it arrived; sums are
taken from packets and a plain chunk into a plain one. Port channels carry only packets that lie in scratch, so plain
data is first turned into packets there. Every arrival has its own packet slot, as a slot's flag changes only with the
launch; the scratch is double, launches take its halves in turn. A rank may therefore be one launch ahead of a peer
that it writes to, not two: where its own end does not depend on that peer's beginning, the peer signals first.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.program.onesided.block_writer import Draft, Scribe
from synth.program.onesided.tasks import Group, Memory, Move
from synth.program.plan_limits import OP_BUFFERS, OP_CHANNELS
from synth.program.program import Op, Span


class Packets:
    """Writes the block that moves `groups` over all ranks. `hold`: (writer, owner) pairs where the owner signals
    first."""

    def __init__(
        self,
        groups: Sequence[Group],
        memory: Memory,
        nodes: Sequence[int],
        hold: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self.groups, self.memory, self.hold = groups, memory, hold
        self.scribe = Scribe(nodes, memory.keys)
        n = len(nodes)
        self.plain, self.slots = [0] * n, [0] * n
        inputs, outputs = memory.places()
        self.value: list[dict[int, Span]] = []  # group → rank → where it has the chunk: plain, or a packet
        self.home: list[dict[int, Span]] = []
        for group in groups:
            self.value.append({r: Span("i", at[group.first]) for r, at in enumerate(inputs) if group.first in at})
            self.home.append({r: Span("o", at[group.first]) for r, at in enumerate(outputs) if group.first in at})
        self.own = [dict(value) for value in self.value]
        self.packed: dict[
            tuple[int, int, Span], Span
        ] = {}  # (rank, group, plain span) → its packets in the rank's own scratch
        self.told: dict[tuple[int, Span], tuple[int, ...]] = {}  # (rank, packet) → what its writer knew
        self.steps = max((len(group.moves) for group in groups), default=0)
        self.pairs = {
            (move.src, move.dst) for group in groups for moves in group.moves for move in moves if not move.local
        }

    def write(self) -> Draft:
        """The block."""
        for writer, owner in sorted(self.pairs & self.hold, key=lambda pair: (pair[1], pair[0])):
            self.scribe.enter(owner, writer)
        self._save_inputs()
        for t in range(self.steps):
            self._receive(self._send(t))
        for g, group in enumerate(self.groups):
            for rank, home in sorted(self.home[g].items()):
                here = self.value[g].get(rank)
                aliased = here is not None and here.buffer == "i" and self.memory.in_place == "in"
                if home.buffer == "o" and here not in (None, home) and not aliased:
                    self._local(rank, Op("cpy", (here,), (home,), group.count))
        return self.scribe.finish(self.plain, self.slots)

    @property
    def known(self) -> list[list[int]]:
        """What each rank knows of the others when it has ended: 0 for those of which it needs not even have seen the
        beginning."""
        return self.scribe.clock

    def _save_inputs(self) -> None:
        """In place, a contribution that is sent after its memory was written is turned into packets first."""
        if not self.memory.aliased:
            return
        for g, group in enumerate(self.groups):
            reduced: set[int] = set()
            for moves in group.moves:
                for move in moves:
                    if (
                        move.original
                        and move.src in reduced
                        and move.src in self.home[g]
                        and not self.own[g][move.src].packet
                    ):
                        self.own[g][move.src] = self._packed(move.src, g, self.own[g][move.src])
                reduced |= {move.dst for move in moves}

    def _send(self, t: int) -> dict[tuple[int, int], list[tuple[Move, Span]]]:
        """Put what step `t` sends; returns (rank, group) → what arrives there."""
        together: dict[tuple[int, int, Span, str], list[tuple[int, Span]]] = {}
        arrivals: dict[tuple[int, int], list[tuple[Move, Span]]] = {}
        for g, group in enumerate(self.groups):
            held = set(self.value[g])
            for move in sorted(group.moves[t]):
                if not self.memory.collective.combining and move.dst in held:
                    continue
                held.add(move.dst)
                if move.local:
                    own = self.own[g][move.src]
                    if move.kind == "reduce" or self.value[g].get(move.src) != own:
                        own = own if own.packet else self._packed(move.src, g, own)
                        arrivals.setdefault((move.dst, g), []).append((move, own))
                    continue
                src = self.own[g][move.src] if move.original else self.value[g][move.src]
                kind = self.scribe.kind(move.src, move.dst)
                if kind == "port" and not src.packet:
                    src = self._packed(move.src, g, src)
                dst = self._slot(move.dst, group.count)
                together.setdefault((move.src, g, src, kind), []).append((move.dst, dst))
                arrivals.setdefault((move.dst, g), []).append((move, dst))
        for (rank, g, src, _), every in sorted(together.items(), key=lambda item: item[0][:2]):
            for i in range(0, len(every), OP_CHANNELS):
                some = every[i : i + OP_CHANNELS]
                dsts = tuple(dst._replace(rank=peer) for peer, dst in some)
                self._local(
                    rank,
                    Op(
                        "put",
                        (src,),
                        dsts,
                        self.groups[g].count,
                        ports=tuple(self.scribe.port(rank, p) for p, _ in some),
                    ),
                )
                # a thread forwards what it read itself; what others of the block read it knows only since the last join
                read = self.told.get((rank, src), self.scribe.sure[rank])
                clock = tuple(map(max, read, self.scribe.sure[rank]))
                self.told.update(((peer, dst), clock) for peer, dst in some)
        return arrivals

    def _receive(self, arrivals: dict[tuple[int, int], list[tuple[Move, Span]]]) -> None:
        """A copy replaces what was there and stays a packet; sums are taken at once."""
        for (rank, g), came in sorted(arrivals.items()):
            for move, slot in came:
                if move.kind == "copy" or rank not in self.value[g]:
                    self.value[g][rank] = slot
            slots = [slot for _, slot in came if slot != self.value[g][rank]]
            if slots:
                self._reduce(rank, g, slots)

    def _reduce(self, rank: int, g: int, slots: list[Span]) -> None:
        count = self.groups[g].count
        if rank not in self.home[g]:
            self.home[g][rank] = Span("s", self.plain[rank])
            self.plain[rank] += count
        home = self.home[g][rank]
        if self.value[g][rank].packet:
            self._local(rank, Op("cpy", (self.value[g][rank],), (home,), count))
            self.value[g][rank] = home
        while slots:
            some, slots = slots[: OP_BUFFERS - 1], slots[OP_BUFFERS - 1 :]
            # the kernel adds up the packets first, then the plain chunk
            self._local(rank, Op("reduce", (*some, self.value[g][rank]), (home,), count))
            self.value[g][rank] = home
        self.packed.pop((rank, g, home), None)

    def _packed(self, rank: int, g: int, src: Span) -> Span:
        """The packets of a plain chunk of the rank, made where they are first needed."""
        if (rank, g, src) not in self.packed:
            slot = self._slot(rank, self.groups[g].count)
            self._local(rank, Op("cpy", (src,), (slot,), self.groups[g].count))
            self.packed[rank, g, src] = slot
        return self.packed[rank, g, src]

    def _local(self, rank: int, op: Op) -> None:
        self.scribe.data(rank, op)
        for span in op.src:
            if (rank, span) in self.told:
                self.scribe.learn(rank, self.told[rank, span])

    def _slot(self, rank: int, count: int) -> Span:
        self.slots[rank] += count
        return Span("s", self.slots[rank] - count, packet=True)
