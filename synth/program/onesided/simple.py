"""The one-sided Simple protocol: puts into the peer's output or scratch, then a signal that the peer waits for.

In every step a rank first puts the chunks that it sends, then signals each receiver once, then waits for its senders
and adds up the arrivals. What goes through port channels goes first, with its signal in the same operation where one
thread does both. Copies go straight to the home of the chunk: the output, or scratch on ranks that only pass it on.
Contributions to sums go to scratch slots.

Inside a box a sum reads contributions where they lie, without puts, if that needs no signal more: the ranks that it
reads from get the sum later, by which they know that it has read.

A put needs the destination to be free. If the sender's vector clock does not know of its last use, the owner signals
first ("ready"). If the sender does not even know that the owner has entered the kernel, the owner sends that signal
before all else. An op through a switch needs what puts to all ranks of its group need, and where it reads from them,
their sources too. A put through a port channel is read from memory later: until the receiver is known to have it, or
the port is flushed, its source is not written and the kernel not left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from synth.errors import SynthError
from synth.program.onesided.block_writer import BlockWriter, Key, WrittenBlock
from synth.program.onesided.tasks import BufferOffsets, ChunkGroup, GroupTransfer, SwitchTransfer
from synth.program.plan_limits import OP_BUFFERS, OP_CHANNELS
from synth.program.program import Op, Span


class _Put(NamedTuple):
    """A put of `src` on `writer` to `dst` on `owner`.

    `kind`: "copy", "reduce" (the owner adds it to its sum), "pull" (no put: the owner's sum reads `src` where it lies),
    or "overwritten" (a switch stores there what nobody reads).
    """

    group: int
    kind: str
    writer: int
    owner: int
    src: Span
    dst: Span


class _Read(NamedTuple):
    """A read of a rank's memory by another rank, which has ended with op `time` of `reader`.

    `by_port`: the queue of a port channel to the reader reads it; else a sum of the reader does.
    """

    reader: int
    time: int
    by_port: bool


class SimpleWriter:
    """Writer of one thread block on every rank that moves `groups` by puts and signals.

    `nodes[rank]`: the box of the rank. `pulls`: sums may read contributions where they lie.
    """

    def __init__(
        self, groups: Sequence[ChunkGroup], memory: BufferOffsets, nodes: Sequence[int], pulls: bool = True
    ) -> None:
        self.groups, self.memory, self.pulls = groups, memory, pulls
        self.block = BlockWriter(nodes, memory.keys)
        n = len(nodes)
        self.scratch = [0] * n  # chunks
        # time of the rank's own last use of its memory, and the reads of it by others since
        self.last_use: list[dict[Key, int]] = [{} for _ in range(n)]
        self.reads = [defaultdict[Key, set[_Read]](set) for _ in range(n)]
        # of each group: rank → its contribution, the span where the chunk belongs, and the span of its current value
        self.contribution = memory.spans("i", groups)
        self.home = memory.spans("o", groups)
        self.value = [dict(contribution) for contribution in self.contribution]
        self.copied = set()  # (group, rank) whose contribution is in the output

    def write(self) -> WrittenBlock:
        """Write all steps of the schedule and return the block; to be called once.

        Groups that have more ops than a block takes are not written to their end.
        """
        self._save_inputs()
        for t in range(max((len(group.moves) for group in self.groups), default=0)):
            if self.block.overfull and len(self.groups) > 1:
                return self.block.finish(self.scratch, [0] * len(self.scratch))
            planned, switched = self._plan(t), self._plan_switch_moves(t)
            puts = [put for put in planned if put.kind != "pull"]
            pulls = [put for put in planned if put.kind == "pull"]
            stores = [put for _, op_puts in switched for put in op_puts]

            # What is written must be free, and what is read elsewhere as ready as if its reader wrote there.
            ready = puts + stores
            for move, op_puts in switched:
                ready += [put._replace(dst=put.src) for put in op_puts if move.code == "glres"]
            for put in pulls:
                ready.append(put._replace(writer=put.owner, owner=put.writer, dst=put.src))
            self._make_ready(ready)

            self._send_through_switches(switched)
            self._send(puts, stores)
            if t == 0 and not self.memory.collective.combining and not self.memory.aliased:
                self._copy_inputs()
            self._wait(puts + stores)

            # Copies come first, then one sum of the contributions.
            self._contribute(t, "copy")
            arrived = defaultdict(list)
            for put in (*puts, *stores, *pulls):
                arrived[put.owner, put.group].append(put)
            for (rank, g), arrivals in sorted(arrived.items()):
                arrivals.sort(key=lambda put: (put.kind, put.writer))
                self._take_copies(rank, g, [put for put in arrivals if put.kind == "copy"])
                self._add(rank, g, [put for put in arrivals if put.kind in ("reduce", "pull")])
            self._contribute(t, "reduce")
        self._copy_inputs()

        # No rank leaves the kernel while others may read its memory.
        for rank, reads in enumerate(self.reads):
            self._await_reads(rank, list(reads))
        return self.block.finish(self.scratch, [0] * len(self.scratch))

    # ------------------------------------------------------------ before and after

    def _save_inputs(self) -> None:
        """Copy to scratch each contribution that is sent after its memory is overwritten, in place."""
        for g, group in enumerate(self.groups if self.memory.aliased else ()):
            written = {}  # rank → the first step in which it receives
            for t, moves in enumerate(group.moves):
                for move in moves:
                    overwritten = move.local or written.get(move.src, t) < t
                    source = self.contribution[g].get(move.src)
                    sent_late = move.original and overwritten and move.src in self.home[g]
                    if source is not None and source.buffer == "i" and sent_late:
                        saved = self.contribution[g][move.src] = self._slot(g, move.src)
                        self._local(move.src, Op("cpy", (source,), (saved,), group.count))
                for move in moves:
                    written.setdefault(move.dst, t)

    def _copy_inputs(self) -> None:
        """Copy to the output, out of place, the chunks of the input that belong there unchanged."""
        for g, group in enumerate(self.groups):
            for rank, home in sorted(self.home[g].items()):
                if home.buffer == "o" and (g, rank) not in self.copied and self.value[g].get(rank, home).buffer == "i":
                    self.copied.add((g, rank))
                    if self.memory.in_place != "in":
                        self._local(rank, Op("cpy", (self.value[g][rank],), (home,), group.count))

    # ------------------------------------------------------------ plans of a step

    def _plan(self, t: int) -> list[_Put]:
        """Return the puts of step `t`; scratch slots are reserved for those that cannot go to the chunk's home."""
        puts = []
        for g, group in enumerate(self.groups):
            sending = {move.src for move in group.moves[t] if not move.local}
            holders = set(self.value[g])
            pulling = self._pulling(t, g)
            for move in sorted(group.moves[t], key=lambda move: (move.kind != "copy", move)):
                writer, owner = move.src, move.dst
                if move.local or (not self.memory.collective.combining and owner in holders):
                    continue
                copies = move.kind == "copy" or owner not in holders
                holders.add(owner)
                src = self._source(g, move)
                if owner in pulling and not copies:
                    puts.append(_Put(g, "pull", writer, owner, src, src))
                    continue
                if not copies:
                    puts.append(_Put(g, "reduce", writer, owner, src, self._slot(g, owner)))
                    continue
                home = self.home[g].get(owner)
                if home is None:
                    home = self.home[g][owner] = self._slot(g, owner)
                # a value that the receiver itself reads in this step must not be overwritten during the step
                busy = owner in sending and owner in self.value[g]
                direct = not busy and self.memory.remote_span(writer, owner, home) is not None
                puts.append(_Put(g, "copy", writer, owner, src, home if direct else self._slot(g, owner)))
        return puts

    def _source(self, g: int, move: GroupTransfer) -> Span:
        return self.contribution[g][move.src] if move.original else self.value[g][move.src]

    def _pulling(self, t: int, g: int) -> set[int]:
        """Return the ranks whose sum of group `g` in step `t` reads all contributions, of its box, where they lie.

        They get the sum from that rank later, which tells them that it has read. No other rank reads or writes a
        contribution in that step, and no signal is needed before it but that its rank has entered the kernel.
        """
        group = self.groups[g]
        if group.switch_moves or not self.pulls:
            return set()
        receiving = {move.dst for move in group.moves[t]}
        sending = {move.src for move in group.moves[t]}
        copied = {(move.src, move.dst) for later in group.moves[t + 1 :] for move in later if move.kind == "copy"}
        found = set()
        for rank in receiving - sending:
            sources = [move for move in group.moves[t] if move.dst == rank]
            peers = {move.src for move in sources}
            elsewhere = any(move.src in peers and move.dst != rank for move in group.moves[t])
            if rank not in self.value[g] or peers & receiving or elsewhere:
                continue
            for move in sources:
                peer, src = move.src, self._source(g, move)
                if move.kind != "reduce" or self.block.kind(peer, rank) != "memory" or (rank, peer) not in copied:
                    break
                # the sum can read the contribution as early as a put could begin
                keys = self.memory.keys(peer, src, group.count)
                begun = self.block.clock[peer][rank] >= 1
                ready = self._known(rank, peer, keys) or (not begun and self._untouched(peer, keys))
                if not ready or self.memory.remote_span(rank, peer, src) is None:
                    break
            else:
                found.add(rank)
        return found

    def _plan_switch_moves(self, t: int) -> list[tuple[SwitchTransfer, list[_Put]]]:
        """Return the ops through switches of step `t`, each with the puts to other ranks that have its effect.

        Raises SynthError where the ranks of a group hold a chunk at different places.
        """
        planned = []
        for g, group in enumerate(self.groups):
            sending = {move.src for move in group.moves[t]}
            moving = sending | {move.dst for move in group.moves[t]}
            for move in group.switch_moves[t] if group.switch_moves else ():
                others = [rank for rank in move.members if rank != move.rank]
                if moving.intersection(others) or (move.code == "glres" and move.rank in sending):
                    raise SynthError("a rank sends or receives a chunk in the step in which a switch stores it there")
                homes = {self.home[g].get(rank) for rank in move.members}
                readers = move.members if move.code == "glres" else (move.rank,)
                sources = {self.value[g][rank] for rank in readers}
                target = homes.pop()
                source = sources.pop()
                if target is None or homes or sources:
                    raise SynthError(
                        f"ranks {', '.join(map(str, move.members))} do not hold chunk {group.first} at one place of "
                        "one buffer, as the operations of a switch need"
                    )
                kind = "copy" if move.final else "overwritten"
                planned.append((move, [_Put(g, kind, move.rank, rank, source, target) for rank in others]))
        return planned

    # ------------------------------------------------------------ between ranks

    def _make_ready(self, puts: list[_Put]) -> None:
        """Let each receiver signal that the destination is free to each sender whose clock does not know it."""
        enter, ready = set(), set()
        for put in puts:
            owner, writer = put.owner, put.writer
            keys = self.memory.keys(owner, put.dst, self.groups[put.group].count)
            if self._known(writer, owner, keys):
                continue
            if self.block.clock[writer][owner] < 1 and self._untouched(owner, keys):
                enter.add((writer, owner))
            else:
                ready.add((owner, writer))
                self._await_reads(owner, [key for key in keys if not self._known(owner, owner, [key])])
        entering = _by_first((writer, owner) for writer, owner in enter if (owner, writer) not in ready)
        for writer, owners in entering.items():
            self.block.enter(owners, writer)
        for owner, writers in _by_first(ready).items():
            self.block.signal(owner, writers)
        for writer, owners in _by_first((writer, owner) for owner, writer in ready).items():
            self.block.wait(writer, owners)

    def _send_through_switches(self, switched: Iterable[tuple[SwitchTransfer, list[_Put]]]) -> None:
        """Add the ops through switches: before the puts, which may read what an op stores on its own rank for long."""
        for move, op_puts in switched:
            g, src, dst = op_puts[0].group, op_puts[0].src, op_puts[0].dst
            sources, targets = [], []
            for member in move.members:
                owner = None if member == move.rank else member
                sources.append(src._replace(rank=owner))
                targets.append(dst._replace(rank=owner))
            if move.code == "gstore":
                sources = [src]
            self._local(move.rank, Op(move.code, tuple(sources), tuple(targets), self.groups[g].count))
            self.value[g][move.rank] = self.home[g][move.rank]

    def _send(self, puts: Sequence[_Put], stores: Sequence[_Put]) -> None:
        """Put, and signal each receiver of a put or of a store through a switch once."""
        # Puts of one source to several ranks are one op; those through port channels come first.
        same_source = defaultdict(list)
        for put in sorted(puts, key=lambda put: put.writer):
            kind = self.block.kind(put.writer, put.owner)
            same_source[kind == "memory", put.writer, put.group, put.src].append(put)
        batches = defaultdict(list)
        for (_, rank, *_), same_puts in sorted(same_source.items(), key=lambda item: item[0][0]):
            for i in range(0, len(same_puts), OP_CHANNELS):
                batches[rank].append(same_puts[i : i + OP_CHANNELS])
        for rank, receivers in _by_first((put.writer, put.owner) for put in (*puts, *stores)).items():
            peers_of = []
            for batch in batches[rank]:
                peers_of.append([put.owner for put in batch])
            signalled = set()
            for i, (batch, peers) in enumerate(zip(batches[rank], peers_of, strict=True)):
                src, group = batch[0].src, batch[0].group
                through_port = self.block.kind(rank, peers[0]) == "port"
                if through_port:
                    src = self.memory.port_source(rank, src)
                dst = tuple(self._remote(rank, put.owner, put.dst) for put in batch)
                ports = tuple(self.block.port(rank, peer) for peer in peers)
                self._local(rank, Op("put", (src,), dst, self.groups[group].count, ports=ports))

                # The signal can be one operation with the last put to these peers, if the same threads, one for each
                # channel, do all puts to them.
                alike = all(other == peers or set(other).isdisjoint(peers) for other in peers_of)
                if through_port and alike and peers not in peers_of[i + 1 :]:
                    signalled.update(peers)
                    self.block.signal(rank, peers)
            self.block.signal(rank, [peer for peer in receivers if peer not in signalled])

    def _remote(self, rank: int, owner: int, span: Span) -> Span:
        """Return the name by which `rank` reaches `span` of `owner`: only spans were planned that it can name."""
        return (self.memory.remote_span(rank, owner, span) or span)._replace(rank=owner)

    def _wait(self, puts: Sequence[_Put]) -> None:
        """Let every receiver wait for its senders, and note when the memory of both was used."""
        for rank, senders in _by_first((put.owner, put.writer) for put in puts).items():
            time = self.block.wait(rank, senders)
            for put in puts:
                if put.owner != rank:
                    continue
                count = self.groups[put.group].count
                self.last_use[rank].update(dict.fromkeys(self.memory.keys(rank, put.dst, count), time))
                if self.block.kind(put.writer, rank) == "port":
                    self._note_read(put, time, by_port=True)

    # ------------------------------------------------------------ on one rank

    def _take_copies(self, rank: int, g: int, copies: Iterable[_Put]) -> None:
        """Make the copies that arrived the value of the rank, at the home of the chunk."""
        for put in copies:
            if put.dst != self.home[g][rank]:
                self._local(rank, Op("cpy", (put.dst,), (self.home[g][rank],), self.groups[g].count))
            self.value[g][rank] = self.home[g][rank]

    def _add(self, rank: int, g: int, addends: list[_Put]) -> None:
        """Add to the value of the rank what arrived, or what lies on others if all of it is pulled."""
        if not addends:
            return
        pulled = addends[0].kind == "pull"
        if pulled:
            # no two ranks begin with the same peer
            addends = sorted(addends, key=lambda put: (put.writer - rank) % len(self.scratch))
        home = self._make_home(g, rank)
        for i in range(0, len(addends), OP_BUFFERS - 1):
            batch = addends[i : i + OP_BUFFERS - 1]
            sources = [put.dst for put in batch]
            if pulled:
                sources = [self._remote(rank, put.writer, put.src) for put in batch]
            time = self._local(rank, Op("reduce", (self.value[g][rank], *sources), (home,), self.groups[g].count))
            self.value[g][rank] = home
            for put in batch if pulled else ():
                self._note_read(put, time, by_port=False)

    def _contribute(self, t: int, kind: str) -> None:
        """Let ranks copy their own contribution to the home of the chunk ("copy"), or add it there ("reduce")."""
        for g, group in enumerate(self.groups):
            for move in group.moves[t]:
                rank = move.dst
                if not move.local or move.kind != kind or self.value[g].get(rank) == self.contribution[g].get(rank):
                    continue
                contribution, home = self.contribution[g][rank], self._make_home(g, rank)
                op = Op("cpy", (contribution,), (home,), group.count)
                if kind == "reduce":
                    op = op._replace(code="reduce", src=(self.value[g][rank], contribution))
                self._local(rank, op)
                self.value[g][rank] = home

    def _make_home(self, g: int, rank: int) -> Span:
        """Return the home of a group on `rank`, which is made in scratch where the rank's output has none."""
        if rank not in self.home[g]:
            self.home[g][rank] = self._slot(g, rank)
        return self.home[g][rank]

    def _slot(self, g: int, owner: int) -> Span:
        """Return a new span of the scratch of `owner` for a group."""
        self.scratch[owner] += self.groups[g].count
        return Span("s", self.scratch[owner] - self.groups[g].count)

    def _local(self, rank: int, op: Op) -> int:
        """Append a data op of `rank`, after a wait for those who may still read the memory that it writes.

        Returns its time on the rank's clock.
        """
        read, written = [], []
        for spans, keys in ((op.src, read), (op.dst, written)):
            for span in spans:
                keys += self.memory.keys(rank, span, op.count) if span.rank is None else ()
        self._await_reads(rank, written)
        time = self.block.add(rank, op)
        self.last_use[rank].update(dict.fromkeys(read + written, time))
        return time

    # ------------------------------------------------------------ uses of memory

    def _note_read(self, put: _Put, time: int, by_port: bool) -> None:
        """Record that the source of `put` has been read when op `time` of its receiver has ended."""
        for key in self.memory.keys(put.writer, put.src, self.groups[put.group].count):
            self.reads[put.writer][key].add(_Read(put.owner, time, by_port))

    def _await_reads(self, rank: int, keys: Iterable[Key]) -> None:
        """Add what `rank` must wait for until no other rank reads its memory `keys` any more.

        A rank whose sum reads them signals when it has. What a port channel still has to read, a flush waits for.
        """
        reads = {read for key in keys for read in self.reads[rank].get(key, ())}
        pulling = {read.reader for read in reads if not read.by_port and not self._has_read(rank, read)}
        for reader in sorted(pulling):
            self.block.signal(reader, [rank])
        self.block.wait(rank, sorted(pulling))
        queues = {read.reader for read in reads if read.by_port and not self._has_read(rank, read)}
        if not queues:
            return
        self.block.flush(rank, sorted(queues))
        now = self.block.clock[rank][rank]
        for key, key_reads in self.reads[rank].items():
            left = {read for read in key_reads if not read.by_port or read.reader not in queues}
            if len(left) < len(key_reads):
                self.reads[rank][key] = left
                self.last_use[rank][key] = now

    def _has_read(self, rank: int, read: _Read) -> bool:
        """True if `rank` knows that a read has ended."""
        return self.block.clock[rank][read.reader] >= read.time

    def _known(self, writer: int, owner: int, keys: Iterable[Key]) -> bool:
        """True if `writer` knows that `owner` has entered the kernel, and that all uses of this memory have ended."""
        for key in keys:
            if self.block.clock[writer][owner] < max(1, self.last_use[owner].get(key, 1)):
                return False
            if not all(self._has_read(writer, read) for read in self.reads[owner].get(key, ())):
                return False
        return True

    def _untouched(self, owner: int, keys: Iterable[Key]) -> bool:
        return not any(self.last_use[owner].get(key) or self.reads[owner].get(key) for key in keys)


def _by_first(pairs: Iterable[tuple[int, int]]) -> Mapping[int, list[int]]:
    """Return first → the sorted seconds of `pairs`, in the order of the firsts."""
    found = defaultdict(list)
    for first, second in sorted(set(pairs)):
        found[first].append(second)
    return found
