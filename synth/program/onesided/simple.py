"""The one-sided Simple protocol: puts into the peer's output or scratch, then a signal that the peer waits for.

In every step a rank first puts the chunks that it sends, then signals each receiver once, then waits for its senders
and adds up the arrivals. Copies go straight to the home of the chunk: the output, or scratch on ranks that only pass it
on. Contributions to sums go to scratch slots. A put needs the destination to be free. If the sender's vector clock does
not know of its last use, the owner signals first ("ready"). If the sender does not even know that the owner has entered
the kernel, the owner sends that signal before all else. An op through a switch needs what puts to all ranks of its
group need, and where it reads from them, their sources too. A put through a port channel is read from memory later:
until the receiver is known to have it, or the port is flushed, its source is not written and the kernel not left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synth.errors import SynthError
from synth.program.onesided.block_writer import BlockWriter, WrittenBlock
from synth.program.onesided.tasks import BufferOffsets, ChunkGroup, GroupTransfer, SwitchTransfer
from synth.program.plan_limits import OP_BUFFERS, OP_CHANNELS
from synth.program.program import Op, Span
from synth.program.thread_joins import Key


class _Put(NamedTuple):
    """A put of `src` on the sender; `slot`: `dst` is a scratch slot, not the home of the chunk."""

    group: int
    move: GroupTransfer
    src: Span
    dst: Span  # on the receiver
    slot: bool


class _PlannedSwitchOp(NamedTuple):
    """An op through a switch, and puts to the other ranks of its group with the same effect there."""

    move: SwitchTransfer
    puts: list[_Put]


class _Read(NamedTuple):
    """A put through a port channel that may read its source until op `time` of rank `reader`."""

    reader: int
    time: int


class SimpleWriter:
    """Writer of one thread block on every rank that moves `groups` by puts and signals.

    `nodes[rank]`: the box of the rank.
    """

    def __init__(self, groups: Sequence[ChunkGroup], memory: BufferOffsets, nodes: Sequence[int]) -> None:
        self.groups, self.memory = groups, memory
        self.block = BlockWriter(nodes, memory.keys)
        n = len(nodes)
        self.last_use: list[dict[Key, int]] = [{} for _ in range(n)]  # time of the rank's own last use of the memory
        self.port_reads: list[dict[Key, list[_Read]]] = [{} for _ in range(n)]
        self.scratch = [0] * n  # chunks
        self.free: list[dict[int, list[int]]] = [{} for _ in range(n)]  # count → offsets of free slots
        inputs, outputs = memory.offsets()
        self.contribution: list[dict[int, Span]] = []  # group → rank → the rank's contribution
        self.home: list[dict[int, Span]] = []  # group → rank → the span where the chunk belongs
        for group in groups:
            self.contribution.append(
                {r: Span("i", at[group.first]) for r, at in enumerate(inputs) if group.first in at}
            )
            self.home.append({r: Span("o", at[group.first]) for r, at in enumerate(outputs) if group.first in at})
        self.value = [dict(contribution) for contribution in self.contribution]
        self.copied: set[tuple[int, int]] = set()  # (group, rank) whose contribution is in the output
        self.steps = max((len(group.moves) for group in groups), default=0)
        self.last_step = [self._last_steps(group) for group in groups]

    @staticmethod
    def _last_steps(group: ChunkGroup) -> dict[int, int]:
        return {rank: t for t, moves in enumerate(group.moves) for move in moves for rank in (move.src, move.dst)}

    def write(self) -> WrittenBlock:
        """Write all steps of the schedule and return the block; to be called once."""
        self._save_inputs()
        for t in range(self.steps):
            puts = self._plan(t)
            through = self._plan_switch_moves(t)
            stores = [put for _, op_puts in through for put in op_puts]
            self._make_ready([*puts, *stores, *self._read_by_switches(through)])
            arrivals, learned = self._send(puts, through)
            if t == 0 and not self.memory.collective.combining and not self.memory.aliased:
                self._copy_inputs()
            self._wait(arrivals, learned)
            self._contribute(t, "copy")
            self._combine_all(arrivals)
            self._contribute(t, "reduce")
            self._release(t)
        self._copy_inputs()
        for rank, reads in enumerate(self.port_reads):
            self._flush(rank, list(reads))
        return self.block.finish(self.scratch, [0] * len(self.scratch))

    # ------------------------------------------------------------ before and after

    def _save_inputs(self) -> None:
        """Copy to scratch each contribution that is sent after its memory is overwritten, in place."""
        if not self.memory.aliased:
            return
        for g, group in enumerate(self.groups):
            written: dict[int, int] = {}
            for t, moves in enumerate(group.moves):
                for move in moves:
                    overwritten = move.local or written.get(move.src, t) < t
                    source = self.contribution[g].get(move.src)
                    in_input = source is not None and source.buffer == "i"
                    if source is not None and move.original and overwritten and in_input and move.src in self.home[g]:
                        saved = Span("s", self._slot(move.src, move.src, group.count))
                        self._local(move.src, Op("cpy", (source,), (saved,), group.count))
                        self.contribution[g][move.src] = saved
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

    # ------------------------------------------------------------ a step

    def _plan(self, t: int) -> list[_Put]:
        """Return the puts of step `t`; scratch slots are reserved for those that cannot go to the chunk's home."""
        puts = []
        for g, group in enumerate(self.groups):
            sending = {move.src for move in group.moves[t] if not move.local}
            holders = set(self.value[g])
            for move in sorted(group.moves[t], key=lambda move: (move.kind != "copy", move)):
                if move.local or (not self.memory.collective.combining and move.dst in holders):
                    continue
                copy = move.kind == "copy" or move.dst not in holders
                holders.add(move.dst)
                home = self.home[g].get(move.dst) if copy else None
                if copy and home is None:
                    home = self.home[g][move.dst] = Span("s", self._slot(move.dst, move.src, group.count))
                # a value that the receiver itself reads in this step must not be overwritten during the step
                busy = move.dst in sending and move.dst in self.value[g]
                direct = home is not None and not busy and self.memory.remote_span(move.src, move.dst, home) is not None
                dst = home if home is not None and direct else Span("s", self._slot(move.dst, move.src, group.count))
                src = self.contribution[g][move.src] if move.original else self.value[g][move.src]
                puts.append(_Put(g, move._replace(kind="copy" if copy else "reduce"), src, dst, not direct))
        return puts

    def _make_ready(self, puts: list[_Put]) -> None:
        """Let each receiver signal that the destination is free to each sender whose clock does not know it."""
        enter, ready = set(), set()
        for put in puts:
            owner, writer = put.move.dst, put.move.src
            keys = self._keys(owner, put.dst, put)
            if self._known(writer, owner, keys):
                continue
            if self.block.clock[writer][owner] < 1 and self._untouched(owner, keys):
                enter.add((owner, writer))
            else:
                ready.add((owner, writer))
                self._flush(owner, [key for key in keys if not self._known(owner, owner, [key])])
        for owner, writer in sorted(enter - ready):
            self.block.enter(owner, writer)
        learned: dict[int, dict[int, tuple[int, ...]]] = {}
        for owner in sorted({owner for owner, _ in ready}):
            writers = sorted(writer for other, writer in ready if other == owner)
            for writer, clock in self.block.signal(owner, writers).items():
                learned.setdefault(writer, {})[owner] = clock
        for writer, clocks in sorted(learned.items()):
            self.block.wait(writer, clocks)

    def _plan_switch_moves(self, t: int) -> list[_PlannedSwitchOp]:
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
                homes = [self.home[g].get(rank) for rank in move.members]
                readers = move.members if move.code == "glres" else (move.rank,)
                sources = [self.value[g][rank] for rank in readers]
                target = homes[0]
                if target is None or len(set(homes)) > 1 or len(set(sources)) > 1:
                    ranks = ", ".join(map(str, move.members))
                    raise SynthError(
                        f"ranks {ranks} do not hold chunk {group.first} at one place of one buffer, as the operations "
                        f"of a switch need"
                    )
                kind = "copy" if move.final else "overwritten"
                puts = [_Put(g, GroupTransfer(move.rank, rank, kind), sources[0], target, False) for rank in others]
                planned.append(_PlannedSwitchOp(move, puts))
        return planned

    @staticmethod
    def _read_by_switches(through: list[_PlannedSwitchOp]) -> list[_Put]:
        """Return puts to the memory of other ranks that the ops read, which must be as ready as what they write."""
        reads = []
        for move, puts in through:
            if move.code == "glres":
                reads += [put._replace(dst=put.src) for put in puts]
        return reads

    def _switch_op(self, op: _PlannedSwitchOp) -> None:
        """Append an op through a switch to its rank."""
        move, puts = op
        g, rank, first = puts[0].group, move.rank, puts[0]

        sources = _on_all(move, first.src) if move.code == "glres" else (first.src,)
        self._local(rank, Op(move.code, sources, _on_all(move, first.dst), self.groups[g].count))
        self.value[g][rank] = self.home[g][rank]

    def _send(
        self, puts: list[_Put], through: list[_PlannedSwitchOp]
    ) -> tuple[dict[int, dict[int, list[_Put]]], dict[int, dict[int, tuple[int, ...]]]]:
        """Put, store through switches and signal.

        Return receiver → sender → its puts, and receiver → sender → the clock its signal carries.
        """
        arrivals: dict[int, dict[int, list[_Put]]] = {}
        same_source: dict[tuple[int, int, Span, str], list[_Put]] = {}
        for put in sorted(puts, key=lambda put: put.move.src):
            kind = self.block.kind(put.move.src, put.move.dst)
            same_source.setdefault((put.move.src, put.group, put.src, kind), []).append(put)
            arrivals.setdefault(put.move.dst, {}).setdefault(put.move.src, []).append(put)
        for op in through:  # before the puts, which may read what an op stores on its own rank for long
            self._switch_op(op)
            for put in op.puts:
                arrivals.setdefault(put.move.dst, {}).setdefault(put.move.src, []).append(put)
        for (rank, g, src, kind), same_puts in same_source.items():
            for i in range(0, len(same_puts), OP_CHANNELS):
                batch = same_puts[i : i + OP_CHANNELS]
                dsts = tuple(self._remote_target(rank, put) for put in batch)
                src = self.memory.port_source(rank, src) if kind == "port" else src
                ports = tuple(self.block.port(rank, put.move.dst) for put in batch)
                self._local(rank, Op("put", (src,), dsts, self.groups[g].count, ports=ports))
        receivers: dict[int, set[int]] = {}
        for receiver, senders in arrivals.items():
            for sender in senders:
                receivers.setdefault(sender, set()).add(receiver)
        learned: dict[int, dict[int, tuple[int, ...]]] = {}
        for rank in sorted(receivers):
            peers = sorted(receivers[rank])
            for peer, clock in self.block.signal(rank, peers).items():
                learned.setdefault(peer, {})[rank] = clock
        return arrivals, learned

    def _remote_target(self, writer: int, put: _Put) -> Span:
        # `_plan` chose only homes that the writer can name, and scratch is always named as it is
        span = self.memory.remote_span(writer, put.move.dst, put.dst) or put.dst
        return span._replace(rank=put.move.dst)

    def _wait(self, arrivals: dict[int, dict[int, list[_Put]]], learned: dict[int, dict[int, tuple[int, ...]]]) -> None:
        for rank, senders in sorted(arrivals.items()):
            time = self.block.wait(rank, dict(sorted(learned[rank].items())))
            for sender, puts in sorted(senders.items()):
                for put in puts:
                    self.last_use[rank].update(dict.fromkeys(self._keys(rank, put.dst, put), time))
                    if self.block.kind(sender, rank) == "port":
                        for key in self._keys(sender, put.src, put):
                            self.port_reads[sender].setdefault(key, []).append(_Read(rank, time))

    def _combine_all(self, arrivals: dict[int, dict[int, list[_Put]]]) -> None:
        for rank, senders in sorted(arrivals.items()):
            by_group: dict[int, list[_Put]] = {}
            for _, puts in sorted(senders.items()):
                for put in puts:
                    by_group.setdefault(put.group, []).append(put)
            for g, puts in sorted(by_group.items()):
                self._combine(rank, g, sorted(puts, key=lambda put: (put.move.kind != "copy", put.move.src)))

    def _combine(self, rank: int, g: int, puts: list[_Put]) -> None:
        """Take in the arrivals of a group: copies first, then one sum of the others, split by `OP_BUFFERS`."""
        count = self.groups[g].count
        for put in puts:
            if put.move.kind == "copy":
                if put.slot:
                    self._local(rank, Op("cpy", (put.dst,), (self.home[g][rank],), count))
                    self._free(rank, put.dst, count)
                self.value[g][rank] = self.home[g][rank]
        slots = [put.dst for put in puts if put.move.kind == "reduce"]
        if slots and rank not in self.home[g]:
            self.home[g][rank] = Span("s", self._slot(rank, rank, count))
        while slots:
            batch, slots = slots[: OP_BUFFERS - 1], slots[OP_BUFFERS - 1 :]
            self._local(rank, Op("reduce", (self.value[g][rank], *batch), (self.home[g][rank],), count))
            self.value[g][rank] = self.home[g][rank]
            for span in batch:
                self._free(rank, span, count)

    def _contribute(self, t: int, kind: str) -> None:
        """Let ranks copy their own contribution to the home of the chunk ("copy"), or add it there ("reduce")."""
        for g, group in enumerate(self.groups):
            for move in group.moves[t]:
                rank = move.dst
                contribution = self.contribution[g].get(rank)
                if not move.local or move.kind != kind or self.value[g].get(rank) == contribution:
                    continue
                contribution = self.contribution[g][rank]
                if rank not in self.home[g]:
                    self.home[g][rank] = Span("s", self._slot(rank, rank, group.count))
                op = Op("cpy", (contribution,)) if kind == "copy" else Op("reduce", (self.value[g][rank], contribution))
                self._local(rank, op._replace(dst=(self.home[g][rank],), count=group.count))
                self.value[g][rank] = self.home[g][rank]

    def _release(self, t: int) -> None:
        """Free the scratch homes of the chunks that their rank neither sends nor receives after step `t`."""
        for g, group in enumerate(self.groups):
            for rank, step in self.last_step[g].items():
                home = self.home[g].get(rank)
                if step == t and home is not None and home.buffer == "s":
                    self._free(rank, home, group.count)

    # ------------------------------------------------------------ memory

    def _keys(self, rank: int, span: Span, put: _Put) -> tuple[Key, ...]:
        return self.memory.keys(rank, span, self.groups[put.group].count)

    def _local(self, rank: int, op: Op) -> None:
        """Append a data op of `rank`, after a flush if it writes memory that a port channel may still read."""
        local_targets = [span for span in op.dst if span.rank is None]
        self._flush(rank, [key for span in local_targets for key in self.memory.keys(rank, span, op.count)])
        time = self.block.data(rank, op)
        for span in (*op.src, *local_targets):
            self.last_use[rank].update(dict.fromkeys(self.memory.keys(rank, span, op.count), time))

    def _flush(self, rank: int, keys: Sequence[Key]) -> None:
        """Flush the ports through which peers may still read the memory `keys` of `rank`."""
        clock = self.block.clock[rank]
        reads = self.port_reads[rank]
        peers = {read.reader for key in keys for read in reads.get(key, ()) if clock[read.reader] < read.time}
        if peers:
            self.block.flush(rank, sorted(peers))
        for key in list(reads) if peers else keys:
            pending = [
                read for read in reads.get(key, ()) if read.reader not in peers and clock[read.reader] < read.time
            ]
            if len(pending) < len(reads.get(key, ())):
                self.last_use[rank][key] = self.block.clock[rank][rank]
                reads[key] = pending

    def _known(self, writer: int, owner: int, keys: Sequence[Key]) -> bool:
        """True if `writer` knows that `owner` has entered the kernel, and that all uses of this memory have ended."""
        clock = self.block.clock[writer]
        for key in keys:
            if clock[owner] < max(1, self.last_use[owner].get(key, 1)):
                return False
            if any(clock[read.reader] < read.time for read in self.port_reads[owner].get(key, ())):
                return False
        return True

    def _untouched(self, owner: int, keys: Sequence[Key]) -> bool:
        return not any(key in self.last_use[owner] or self.port_reads[owner].get(key) for key in keys)

    def _slot(self, owner: int, writer: int, count: int) -> int:
        """Return the offset of a scratch slot of `owner`: one that `writer` knows to be free, else a new one."""
        pool = self.free[owner].setdefault(count, [])
        for i, offset in enumerate(pool):
            if self._known(writer, owner, self.memory.keys(owner, Span("s", offset), count)):
                return pool.pop(i)
        self.scratch[owner] += count
        return self.scratch[owner] - count

    def _free(self, rank: int, span: Span, count: int) -> None:
        self.free[rank].setdefault(count, []).append(span.offset)


def _on_all(move: SwitchTransfer, span: Span) -> tuple[Span, ...]:
    """Return `span` of each rank of the group, as the op's rank names it."""
    spans = []
    for member in move.members:
        spans.append(span if member == move.rank else span._replace(rank=member))
    return tuple(spans)
