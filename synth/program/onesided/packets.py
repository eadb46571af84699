"""The one-sided LL protocol: packets (data with flags) are put into the peer's scratch, and their reader awaits them.

Data is ordered by packets alone, without signals. A packet that only passes through a rank is forwarded from the slot
in which it arrived. Sums are taken from packets and a plain chunk into a plain chunk; the op that adds up stores the
sum as packets, too, where the next step sends it. Port channels carry only packets that lie in scratch, so plain data
is first turned into packets there. Every arrival has its own packet slot, because
the flag of a slot changes only with the launch. The scratch is double, and launches take its halves in turn. A rank may
therefore be one launch ahead of a peer that it writes to, but not two: where the rank can end before that peer has
begun, the peer signals first. A port channel reads packets from its rank's scratch some time after the put: where who
overwrites them two launches later cannot know that they have been received, the rank flushes the channel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from synth.program.onesided.block_writer import BlockWriter, WrittenBlock
from synth.program.onesided.tasks import BufferOffsets, ChunkGroup, GroupTransfer
from synth.program.plan_limits import OP_BUFFERS, OP_CHANNELS
from synth.program.program import Op, Span


class PacketWriter:
    """Writer of one thread block on every rank that moves `groups` by packets.

    `nodes[rank]`: the box of the rank. `signal_first`: the pairs (writer, owner) of ranks in which the owner of the
    memory signals before all else. `entered`: the pairs (a, b) of ranks of which a knows at its end that b has begun;
    None: not known yet, and no port channel is flushed.
    """

    def __init__(
        self,
        groups: Sequence[ChunkGroup],
        memory: BufferOffsets,
        nodes: Sequence[int],
        signal_first: frozenset[tuple[int, int]] = frozenset(),
        entered: frozenset[tuple[int, int]] | None = None,
    ) -> None:
        self.groups, self.memory, self.signal_first, self.entered = groups, memory, signal_first, entered
        self.block = BlockWriter(nodes, memory.keys)
        self.plain, self.slots = [0] * len(nodes), [0] * len(nodes)
        self.value = memory.spans("i", groups)  # group → rank → span of its current value: plain, or packets
        self.home = memory.spans("o", groups)  # group → rank → span of the output, or of scratch for partial sums
        self.contribution = [dict(value) for value in self.value]
        self.packets = {}  # (rank, group, plain span) → packets in its own scratch
        # (step, group, transfer of a sum) → the packets in which the op that added it up has stored it
        self.stored = {}
        self.writer_clock = {}  # (rank, span) → clock of the threads that wrote
        # (rank, its packets, peer, packets of the peer) of each put through a port channel
        self.handed_over = []
        self.written_by = {}  # (rank, packets) → the rank that writes them
        self.read_at = {}  # (rank, packets) → when it first reads them
        self.steps = max((len(group.moves) for group in groups), default=0)
        self.pairs = set()
        for group in groups:
            for moves in group.moves:
                self.pairs.update((move.src, move.dst) for move in moves if not move.local)

    def write(self) -> WrittenBlock:
        """Write all steps of the schedule and return the block; to be called once.

        Groups that have more ops than a block takes are not written to their end.
        """
        first = self.pairs & self.signal_first
        for writer in sorted({writer for writer, _ in first}):
            self.block.enter(sorted(owner for other, owner in first if other == writer), writer)
        self._save_inputs()
        for t in range(self.steps):
            if self.block.overfull and len(self.groups) > 1:
                return self.block.finish(self.plain, self.slots)
            # a copy replaces the value and stays a packet, sums are taken at once
            for (rank, g), arrived in sorted(self._send(t).items()):
                for move, slot in arrived:
                    if move.kind == "copy" or rank not in self.value[g]:
                        self.value[g][rank] = slot
                slots = [slot for _, slot in arrived if slot != self.value[g][rank]]
                if slots:
                    self._reduce(t, rank, g, slots)
        for g, group in enumerate(self.groups):
            for rank, home in sorted(self.home[g].items()):
                value = self.value[g].get(rank)
                aliased = value is not None and value.buffer == "i" and self.memory.in_place == "in"
                if home.buffer == "o" and value not in (None, home) and not aliased:
                    self._local(rank, Op("cpy", (value,), (home,), group.count))
        if self.entered is not None:
            self._flush(self.entered)
        return self.block.finish(self.plain, self.slots)

    def _flush(self, entered: frozenset[tuple[int, int]]) -> None:
        """Let ranks flush the port channels whose packets the writer of the launch after next may overwrite unsent.

        That writer knows, of the ranks that it knew to have entered the next launch, all that they knew at the end of
        this one; if it has waited for a rank's entry, the same of the ranks that this one knew to have entered.
        """
        at_end = {rank: {rank} for rank in range(len(self.block.clock))}
        for rank, other in entered:
            at_end[rank].add(other)
        known = {rank: set(others) for rank, others in at_end.items()}
        for rank, other in self.pairs & self.signal_first:
            known[rank] |= at_end[other]
        unsure = defaultdict(set)
        for rank, src, peer, packets in self.handed_over:
            ranks, read = known[self.written_by[rank, src]], self.read_at.get((peer, packets))
            if read is None or not any(b == peer or self.block.clock[b][peer] >= read for b in ranks):
                unsure[rank].add(peer)
        for rank, peers in sorted(unsure.items()):
            self.block.flush(rank, sorted(peers))

    @property
    def clocks_at_end(self) -> list[list[int]]:
        """The vector clock of each rank after `write`: ``clocks_at_end[a][b]`` is 0 if rank a can end before rank b has
        begun."""
        return self.block.clock

    def _save_inputs(self) -> None:
        """Turn into packets each contribution that is sent after its memory is overwritten, in place."""
        if not self.memory.aliased:
            return
        for g, group in enumerate(self.groups):
            reduced = set()
            for moves in group.moves:
                for move in moves:
                    overwritten = move.src in reduced and move.src in self.home[g]
                    if move.original and overwritten and not self.contribution[g][move.src].packet:
                        self.contribution[g][move.src] = self._as_packets(move.src, g, self.contribution[g][move.src])
                reduced |= {move.dst for move in moves}

    def _send(self, t: int) -> dict[tuple[int, int], list[tuple[GroupTransfer, Span]]]:
        """Put the sends of step `t`; return (rank, group) → the moves that arrive there, each with its packets."""
        targets, arrivals = defaultdict(list), defaultdict(list)
        for g, group in enumerate(self.groups):
            holders = set(self.value[g])
            for move in sorted(group.moves[t]):
                if not self.memory.collective.combining and move.dst in holders:
                    continue
                holders.add(move.dst)
                src = (self.contribution if move.original or move.local else self.value)[g][move.src]
                if move.local:
                    # the rank's own contribution, unless it is there
                    if move.kind != "reduce" and self.value[g].get(move.src) == src:
                        continue
                    dst = src if src.packet else self._as_packets(move.src, g, src)
                elif (t, g, move) in self.stored:
                    dst = self.stored[t, g, move]
                else:
                    kind = self.block.kind(move.src, move.dst)
                    if kind == "port" and not src.packet:
                        src = self._as_packets(move.src, g, src)
                    dst = self._slot(move.dst, group.count)
                    targets[move.src, g, src, kind].append((move.dst, dst))
                arrivals[move.dst, g].append((move, dst))

        # What goes to other boxes goes first.
        in_order = sorted(targets.items(), key=lambda item: (item[0][0], item[0][3] == "memory", item[0][1]))
        for (rank, g, src, kind), peers in in_order:
            for i in range(0, len(peers), OP_CHANNELS):
                batch = peers[i : i + OP_CHANNELS]
                dsts = tuple(dst._replace(rank=peer) for peer, dst in batch)
                ports = tuple(self.block.port(rank, peer) for peer, _ in batch)
                self.handed_over += [(rank, src, peer, dst) for peer, dst in batch if kind == "port"]
                self._local(rank, Op("put", (src,), dsts, self.groups[g].count, ports=ports))
        return arrivals

    def _reduce(self, t: int, rank: int, g: int, slots: list[Span]) -> None:
        """Add the packets `slots`, which arrived in step `t`, to the value of the rank; store the sum where the next
        step sends it."""
        count = self.groups[g].count
        if rank not in self.home[g]:
            self.home[g][rank] = Span("s", self.plain[rank])
            self.plain[rank] += count
        home = self.home[g][rank]
        if self.value[g][rank].packet:
            self._local(rank, Op("cpy", (self.value[g][rank],), (home,), count))
            self.value[g][rank] = home
        self.packets.pop((rank, g, home), None)
        while slots:
            batch, slots = slots[: OP_BUFFERS - 1], slots[OP_BUFFERS - 1 :]
            stores = []
            moves = sorted(self.groups[g].moves[t + 1]) if not slots and t + 1 < self.steps else []
            sent = [move for move in moves if move.src == rank and not move.local and not move.original]
            if any(self.block.kind(rank, move.dst) == "port" for move in sent):
                # own packets where port channels carry it, since what goes to other boxes goes first
                stores = [self._slot(rank, count)]
                self.packets[rank, g, home] = stores[0]
                sent = []
            for move in sent[: OP_BUFFERS - 1]:
                slot = self.stored[t + 1, g, move] = self._slot(move.dst, count)
                self.block.port(rank, move.dst)
                stores.append(slot._replace(rank=move.dst))
            # the kernel adds up the packets first, then the plain chunk
            self._local(rank, Op("reduce", (*batch, self.value[g][rank]), (home, *stores), count))
            self.value[g][rank] = home

    def _as_packets(self, rank: int, g: int, src: Span) -> Span:
        """Return the packets of a plain chunk of the rank; its first use writes them."""
        if (rank, g, src) not in self.packets:
            slot = self._slot(rank, self.groups[g].count)
            self._local(rank, Op("cpy", (src,), (slot,), self.groups[g].count))
            self.packets[rank, g, src] = slot
        return self.packets[rank, g, src]

    def _local(self, rank: int, op: Op) -> None:
        """Append a data op. Of what its threads read, or knew when they wrote what it reads, they tell the readers of
        what it writes; of other threads' reads they know since the last join."""
        time = self.block.add(rank, op)
        for span in op.src:
            if span.packet:
                self.read_at.setdefault((rank, span), time)
        clock = tuple(self.block.joined_clock[rank])
        for span in op.src:
            if (rank, span) in self.writer_clock:
                known = self.writer_clock[rank, span]
                self.block.learn(rank, known)
                clock = tuple(map(max, clock, known))
        for span in op.dst:
            owner = span.owner(rank)
            self.written_by[owner, span._replace(rank=None)] = rank
            self.writer_clock[owner, span._replace(rank=None)] = clock

    def _slot(self, rank: int, count: int) -> Span:
        self.slots[rank] += count
        return Span("s", self.slots[rank] - count, packet=True)
