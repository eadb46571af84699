"""The Simple protocol, one-sided: puts into the peer's output or scratch, then a signal that the peer waits for.

In every step a rank first puts what it sends, then signals each receiver once, then waits for its senders and adds up
what came. Copies go straight to where the chunk belongs (output, or scratch on ranks that only pass it on), sums to
scratch slots. A put needs the destination to be free: if the sender's vector clock does not know the last use of it,
the owner signals first ("ready"), and if it does not know that the owner has entered the kernel at all, the owner's
first act is that signal. A put through a port channel is read from memory later: its source is not written, and the
kernel not left, before the receiver is known to have it, or the port is flushed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synth.program.onesided.block_writer import Draft, Scribe
from synth.program.onesided.tasks import Group, Memory, Move
from synth.program.plan_limits import OP_BUFFERS, OP_CHANNELS
from synth.program.program import Op, Span
from synth.program.thread_joins import Key


class _Put(NamedTuple):
    group: int
    move: Move
    src: Span
    dst: Span  # on the receiver
    slot: bool


class _Read(NamedTuple):
    """A put through a port channel reads this memory until `reader`'s op `time`."""

    reader: int
    time: int


class Simple:
    """Writes the block that moves `groups` over all ranks."""

    def __init__(self, groups: Sequence[Group], memory: Memory, nodes: Sequence[int]) -> None:
        self.groups, self.memory = groups, memory
        self.scribe = Scribe(nodes, memory.keys)
        n = len(nodes)
        self.last: list[dict[Key, int]] = [{} for _ in range(n)]  # the rank's own last use of a chunk of memory
        self.reading: list[dict[Key, list[_Read]]] = [{} for _ in range(n)]
        self.scratch = [0] * n
        self.free: list[dict[int, list[int]]] = [{} for _ in range(n)]  # count → offsets of free slots
        inputs, outputs = memory.places()
        self.own: list[dict[int, Span]] = []  # group → rank → the rank's contribution
        self.home: list[dict[int, Span]] = []  # group → rank → where the chunk belongs
        for group in groups:
            self.own.append({r: Span("i", at[group.first]) for r, at in enumerate(inputs) if group.first in at})
            self.home.append({r: Span("o", at[group.first]) for r, at in enumerate(outputs) if group.first in at})
        self.value = [dict(own) for own in self.own]
        self.kept: set[tuple[int, int]] = set()
        self.steps = max((len(group.moves) for group in groups), default=0)
        self.last_step = [self._last_steps(group) for group in groups]

    @staticmethod
    def _last_steps(group: Group) -> dict[int, int]:
        return {rank: t for t, moves in enumerate(group.moves) for move in moves for rank in (move.src, move.dst)}

    def write(self) -> Draft:
        """The block."""
        self._save_inputs()
        for t in range(self.steps):
            puts = self._plan(t)
            self._make_ready(puts)
            arrivals, learned = self._send(puts)
            if t == 0 and not self.memory.collective.combining and not self.memory.aliased:
                self._keep_own()
            self._wait(arrivals, learned)
            self._own(t, "copy")
            self._combine_all(arrivals)
            self._own(t, "reduce")
            self._release(t)
        self._keep_own()
        for rank, reads in enumerate(self.reading):
            self._flush(rank, list(reads))
        return self.scribe.finish(self.scratch, [0] * len(self.scratch))

    # ------------------------------------------------------------ before and after

    def _save_inputs(self) -> None:
        """In place, a contribution that is sent after its memory was written is copied aside first."""
        if not self.memory.aliased:
            return
        for g, group in enumerate(self.groups):
            written: dict[int, int] = {}
            for t, moves in enumerate(group.moves):
                for move in moves:
                    late = move.local or written.get(move.src, t) < t
                    if move.original and late and self.own[g][move.src].buffer == "i" and move.src in self.home[g]:
                        saved = Span("s", self._slot(move.src, move.src, group.count))
                        self._local(move.src, Op("cpy", (self.own[g][move.src],), (saved,), group.count))
                        self.own[g][move.src] = saved
                for move in moves:
                    written.setdefault(move.dst, t)

    def _keep_own(self) -> None:
        """Out of place, what a rank contributes and keeps is copied to its output."""
        for g, group in enumerate(self.groups):
            for rank, home in sorted(self.home[g].items()):
                if home.buffer == "o" and (g, rank) not in self.kept and self.value[g].get(rank, home).buffer == "i":
                    self.kept.add((g, rank))
                    if self.memory.in_place != "in":
                        self._local(rank, Op("cpy", (self.value[g][rank],), (home,), group.count))

    # ------------------------------------------------------------ a step

    def _plan(self, t: int) -> list[_Put]:
        puts = []
        for g, group in enumerate(self.groups):
            sending = {move.src for move in group.moves[t] if not move.local}
            held = set(self.value[g])
            for move in sorted(group.moves[t], key=lambda move: (move.kind != "copy", move)):
                if move.local or (not self.memory.collective.combining and move.dst in held):
                    continue
                copy = move.kind == "copy" or move.dst not in held
                held.add(move.dst)
                home = self.home[g].get(move.dst) if copy else None
                if copy and home is None:
                    home = self.home[g][move.dst] = Span("s", self._slot(move.dst, move.src, group.count))
                # what the receiver itself reads in this step is not overwritten under it
                busy = move.dst in sending and move.dst in self.value[g]
                direct = home is not None and not busy and self.memory.found_by(move.src, move.dst, home) is not None
                dst = home if home is not None and direct else Span("s", self._slot(move.dst, move.src, group.count))
                src = self.own[g][move.src] if move.original else self.value[g][move.src]
                puts.append(_Put(g, move._replace(kind="copy" if copy else "reduce"), src, dst, not direct))
        return puts

    def _make_ready(self, puts: list[_Put]) -> None:
        enter, ready = set(), set()
        for put in puts:
            owner, writer = put.move.dst, put.move.src
            keys = self._keys(owner, put.dst, put)
            if self._known(writer, owner, keys):
                continue
            if self.scribe.clock[writer][owner] < 1 and self._untouched(owner, keys):
                enter.add((owner, writer))
            else:
                ready.add((owner, writer))
                self._flush(owner, [k for k in keys if not self._known(owner, owner, [k])])
        for owner, writer in sorted(enter - ready):
            self.scribe.enter(owner, writer)
        learned: dict[int, dict[int, tuple[int, ...]]] = {}
        for owner in sorted({owner for owner, _ in ready}):
            writers = sorted(w for o, w in ready if o == owner)
            for writer, clock in self.scribe.signal(owner, writers).items():
                learned.setdefault(writer, {})[owner] = clock
        for writer, clocks in sorted(learned.items()):
            self.scribe.wait(writer, clocks)

    def _send(self, puts: list[_Put]) -> tuple[dict[int, dict[int, list[_Put]]], dict[int, dict[int, tuple[int, ...]]]]:
        """Put and signal; returns receiver → sender → what it put, and what its signal tells."""
        arrivals: dict[int, dict[int, list[_Put]]] = {}
        together: dict[tuple[int, int, Span, str], list[_Put]] = {}
        for put in sorted(puts, key=lambda put: put.move.src):
            kind = self.scribe.kind(put.move.src, put.move.dst)
            together.setdefault((put.move.src, put.group, put.src, kind), []).append(put)
            arrivals.setdefault(put.move.dst, {}).setdefault(put.move.src, []).append(put)
        for (rank, g, src, kind), every in together.items():
            for i in range(0, len(every), OP_CHANNELS):
                some = every[i : i + OP_CHANNELS]
                found = [
                    self.memory.found_by(rank, put.move.dst, put.dst) or put.dst for put in some
                ]  # as `_plan` saw to
                dsts = tuple(dst._replace(rank=put.move.dst) for dst, put in zip(found, some, strict=True))
                src = self.memory.from_start(rank, src) if kind == "port" else src
                ports = tuple(self.scribe.port(rank, put.move.dst) for put in some)
                self._local(rank, Op("put", (src,), dsts, self.groups[g].count, ports=ports))
        learned: dict[int, dict[int, tuple[int, ...]]] = {}
        for rank in sorted({put.move.src for put in puts}):
            for peer, clock in self.scribe.signal(
                rank, sorted({put.move.dst for put in puts if put.move.src == rank})
            ).items():
                learned.setdefault(peer, {})[rank] = clock
        return arrivals, learned

    def _wait(self, arrivals: dict[int, dict[int, list[_Put]]], learned: dict[int, dict[int, tuple[int, ...]]]) -> None:
        for rank, senders in sorted(arrivals.items()):
            time = self.scribe.wait(rank, dict(sorted(learned[rank].items())))
            for sender, puts in sorted(senders.items()):
                for put in puts:
                    self.last[rank].update(dict.fromkeys(self._keys(rank, put.dst, put), time))
                    if self.scribe.kind(sender, rank) == "port":
                        for key in self._keys(sender, put.src, put):
                            self.reading[sender].setdefault(key, []).append(_Read(rank, time))

    def _combine_all(self, arrivals: dict[int, dict[int, list[_Put]]]) -> None:
        for rank, senders in sorted(arrivals.items()):
            came: dict[int, list[_Put]] = {}
            for _, puts in sorted(senders.items()):
                for put in puts:
                    came.setdefault(put.group, []).append(put)
            for g, puts in sorted(came.items()):
                self._combine(rank, g, sorted(puts, key=lambda put: (put.move.kind != "copy", put.move.src)))

    def _combine(self, rank: int, g: int, puts: list[_Put]) -> None:
        """Copies land, then sums add: one op for all that came, split where it has too many sources."""
        count = self.groups[g].count
        for put in puts:
            if put.move.kind == "copy":
                if put.slot:
                    self._local(rank, Op("cpy", (put.dst,), (self.home[g][rank],), count))
                    self._give(rank, put.dst, count)
                self.value[g][rank] = self.home[g][rank]
        slots = [put.dst for put in puts if put.move.kind == "reduce"]
        if slots and rank not in self.home[g]:
            self.home[g][rank] = Span("s", self._slot(rank, rank, count))
        while slots:
            some, slots = slots[: OP_BUFFERS - 1], slots[OP_BUFFERS - 1 :]
            self._local(rank, Op("reduce", (self.value[g][rank], *some), (self.home[g][rank],), count))
            self.value[g][rank] = self.home[g][rank]
            for span in some:
                self._give(rank, span, count)

    def _own(self, t: int, kind: str) -> None:
        """Ranks put their own contribution where they have the chunk ("copy"), or add it there ("reduce")."""
        for g, group in enumerate(self.groups):
            for move in group.moves[t]:
                rank = move.dst
                if not move.local or move.kind != kind or self.value[g].get(rank) == self.own[g].get(rank):
                    continue
                own = self.own[g][rank]
                if rank not in self.home[g]:
                    self.home[g][rank] = Span("s", self._slot(rank, rank, group.count))
                op = Op("cpy", (own,)) if kind == "copy" else Op("reduce", (self.value[g][rank], own))
                self._local(rank, op._replace(dst=(self.home[g][rank],), count=group.count))
                self.value[g][rank] = self.home[g][rank]

    def _release(self, t: int) -> None:
        for g, group in enumerate(self.groups):
            for rank, step in self.last_step[g].items():
                home = self.home[g].get(rank)
                if step == t and home is not None and home.buffer == "s":
                    self._give(rank, home, group.count)

    # ------------------------------------------------------------ memory

    def _keys(self, rank: int, span: Span, put: _Put) -> tuple[Key, ...]:
        return self.memory.keys(rank, span, self.groups[put.group].count)

    def _local(self, rank: int, op: Op) -> None:
        """A data op of `rank`; what a port channel may still read is not written before it was flushed."""
        mine = [span for span in op.dst if span.rank is None]
        self._flush(rank, [key for span in mine for key in self.memory.keys(rank, span, op.count)])
        time = self.scribe.data(rank, op)
        for span in (*op.src, *mine):
            self.last[rank].update(dict.fromkeys(self.memory.keys(rank, span, op.count), time))

    def _flush(self, rank: int, keys: Sequence[Key]) -> None:
        clock = self.scribe.clock[rank]
        peers = {
            read.reader for key in keys for read in self.reading[rank].get(key, ()) if clock[read.reader] < read.time
        }
        if peers:
            self.scribe.flush(rank, sorted(peers))
        for key in list(self.reading[rank]) if peers else keys:
            left = [
                read
                for read in self.reading[rank].get(key, ())
                if read.reader not in peers and clock[read.reader] < read.time
            ]
            if len(left) < len(self.reading[rank].get(key, ())):
                self.last[rank][key] = self.scribe.clock[rank][rank]
                self.reading[rank][key] = left

    def _known(self, writer: int, owner: int, keys: Sequence[Key]) -> bool:
        """Whether `writer` knows that `owner` has entered, and that all uses of this memory have ended."""
        clock = self.scribe.clock[writer]
        return all(
            clock[owner] >= max(1, self.last[owner].get(key, 1))
            and all(clock[read.reader] >= read.time for read in self.reading[owner].get(key, ()))
            for key in keys
        )

    def _untouched(self, owner: int, keys: Sequence[Key]) -> bool:
        return not any(key in self.last[owner] or self.reading[owner].get(key) for key in keys)

    def _slot(self, owner: int, writer: int, count: int) -> int:
        """Scratch of `owner`: a free slot that `writer` knows to be free, else a new one."""
        pool = self.free[owner].setdefault(count, [])
        for i, offset in enumerate(pool):
            if self._known(writer, owner, self.memory.keys(owner, Span("s", offset), count)):
                return pool.pop(i)
        self.scratch[owner] += count
        return self.scratch[owner] - count

    def _give(self, rank: int, span: Span, count: int) -> None:
        self.free[rank].setdefault(count, []).append(span.offset)
