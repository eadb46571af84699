"""The one-sided Simple protocol: puts into the peer's output or scratch, then a signal that the peer waits for.

In every step a rank first puts the chunks that it sends, then signals each receiver once, then waits for its senders
and adds up the arrivals. What goes through port channels goes first, with its signal in the same operation where one
thread does both. Copies go straight to the home of the chunk: the output, or scratch on ranks that only pass it on.
Contributions to sums go to scratch slots.

Inside a box a sum reads contributions where they lie, without puts, if that needs no signal more: the ranks that it
reads from get the sum later, by which they know that it has read. Where the ranks that get the sum in the next step are
ready for it, the op that adds up stores it there too.

A put needs the destination to be free. If the sender's vector clock does not know of its last use, the owner signals
first ("ready"). If the sender does not even know that the owner has entered the kernel, the owner sends that signal
before all else. An op through a switch needs what puts to all ranks of its group need, and where it reads from them,
their sources too. A put through a port channel is read from memory later: until the receiver is known to have it, or
the port is flushed, its source is not written and the kernel not left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from synth.errors import SynthError
from synth.program.onesided.block_writer import BlockWriter, Key, WrittenBlock
from synth.program.onesided.tasks import BufferOffsets, ChunkGroup, GroupTransfer, SwitchTransfer
from synth.program.plan_limits import OP_BUFFERS, OP_CHANNELS
from synth.program.program import Op, Span


class _Put(NamedTuple):
    """A put of `src` on the sender; `slot`: `dst` is a scratch slot, not the home of the chunk.

    `pulled`: no put; the receiver's sum reads `src` on the sender. `done`: the sum that is sent was stored at `dst` by
    the op that added it up.
    """

    group: int
    move: GroupTransfer
    src: Span
    dst: Span  # on the receiver
    slot: bool = False
    pulled: bool = False
    done: bool = False


class _Read(NamedTuple):
    """A read of a rank's memory that has ended with op `time` of rank `reader`: of a sum of that rank, or of a put
    through a port channel to it."""

    reader: int
    time: int


class SimpleWriter:
    """Writer of one thread block on every rank that moves `groups` by puts and signals.

    `nodes[rank]`: the box of the rank. `reads`: sums may read contributions where they lie.
    """

    def __init__(
        self, groups: Sequence[ChunkGroup], memory: BufferOffsets, nodes: Sequence[int], reads: bool = True
    ) -> None:
        self.groups, self.memory, self.reads = groups, memory, reads
        self.block = BlockWriter(nodes, memory.keys)
        n = len(nodes)
        self.last_use: list[dict[Key, int]] = [{} for _ in range(n)]  # time of the rank's own last use of the memory
        self.port_reads = [defaultdict[Key, list[_Read]](list) for _ in range(n)]
        self.pulls = [defaultdict[Key, list[_Read]](list) for _ in range(n)]  # reads by sums of other ranks
        self.stored = set()  # sends of sums by (step, group, src, dst) that are done
        self.scratch = [0] * n  # chunks
        self.free = [defaultdict(list) for _ in range(n)]  # count → offsets of free slots
        self.contribution = memory.spans("i", groups)  # group → rank → the rank's contribution
        self.home = memory.spans("o", groups)  # group → rank → the span where the chunk belongs
        self.value = [dict(contribution) for contribution in self.contribution]
        self.copied = set()  # (group, rank) whose contribution is in the output
        self.steps = max((len(group.moves) for group in groups), default=0)

    def write(self) -> WrittenBlock:
        """Write all steps of the schedule and return the block; to be called once.

        Groups that have more ops than a block takes are not written to their end.
        """
        last_step = [{} for _ in self.groups]  # of each group: rank → the last step in which it sends or receives it
        for steps, group in zip(last_step, self.groups, strict=True):
            for t, moves in enumerate(group.moves):
                steps.update((rank, t) for move in moves for rank in move[:2])
        self._save_inputs()
        for t in range(self.steps):
            if self.block.overfull and len(self.groups) > 1:
                return self.block.finish(self.scratch, [0] * len(self.scratch))
            planned = self._plan(t)
            puts = [put for put in planned if not put.pulled]
            pulls = [put for put in planned if put.pulled]
            through = self._plan_switch_moves(t)
            stores = [put for _, op_puts in through for put in op_puts]

            # What is written must be free, and what is read elsewhere as ready as if its rank were written to.
            ready = [*(put for put in puts if not put.done), *stores]
            ready += [put._replace(dst=put.src) for move, op_puts in through if move.code == "glres" for put in op_puts]
            for put in pulls:
                reader = put.move._replace(src=put.move.dst, dst=put.move.src)
                ready.append(put._replace(move=reader, dst=put.src))
            self._make_ready(ready)
            arrivals, learned = self._send(puts, through)
            if t == 0 and not self.memory.collective.combining and not self.memory.aliased:
                self._copy_inputs()
            self._wait(arrivals, learned)
            self._contribute(t, "copy")

            sums = self._plan_sums(t, planned)
            self._make_ready([put for targets in sums.values() for put in targets])
            arrived = defaultdict(list)
            for put in (*puts, *stores, *pulls):
                arrived[put.move.dst, put.group].append(put)
            for (rank, g), some in sorted(arrived.items()):
                some.sort(key=lambda put: (put.move.kind != "copy", put.move.src))
                self._combine(rank, g, some, sums.get((g, rank), []))
            self._contribute(t, "reduce")

            # Scratch homes of chunks that their rank neither sends nor receives after this step are free.
            for g, group in enumerate(self.groups):
                for rank, step in last_step[g].items():
                    home = self.home[g].get(rank)
                    if step == t and home is not None and home.buffer == "s":
                        self.free[rank][group.count].append(home.offset)
        self._copy_inputs()
        for rank, reads in enumerate(self.port_reads):
            self._flush(rank, [*reads, *self.pulls[rank]])
        return self.block.finish(self.scratch, [0] * len(self.scratch))

    # ------------------------------------------------------------ before and after

    def _save_inputs(self) -> None:
        """Copy to scratch each contribution that is sent after its memory is overwritten, in place."""
        for g, group in enumerate(self.groups if self.memory.aliased else ()):
            written = {}
            for t, moves in enumerate(group.moves):
                for move in moves:
                    overwritten = move.local or written.get(move.src, t) < t
                    source = self.contribution[g].get(move.src)
                    sent_late = move.original and overwritten and move.src in self.home[g]
                    if source is not None and source.buffer == "i" and sent_late:
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
            pulling = self._pulling(t, g)
            for move in sorted(group.moves[t], key=lambda move: (move.kind != "copy", move)):
                if move.local or (not self.memory.collective.combining and move.dst in holders):
                    continue
                copy = move.kind == "copy" or move.dst not in holders
                holders.add(move.dst)
                src = self._source(g, move)
                if move.dst in pulling and not copy:
                    puts.append(_Put(g, move, src, src, pulled=True))
                    continue
                home = self.home[g].get(move.dst) if copy else None
                if copy and home is None:
                    home = self.home[g][move.dst] = Span("s", self._slot(move.dst, move.src, group.count))
                # a value that the receiver itself reads in this step must not be overwritten during the step
                busy = move.dst in sending and move.dst in self.value[g]
                direct = home is not None and not busy and self.memory.remote_span(move.src, move.dst, home) is not None
                dst = home if home is not None and direct else Span("s", self._slot(move.dst, move.src, group.count))
                done = (t, g, move.src, move.dst) in self.stored
                move = move._replace(kind="copy" if copy else "reduce")
                puts.append(_Put(g, move, src, dst, not direct, done=done))
        return puts

    def _source(self, g: int, move: GroupTransfer) -> Span:
        return self.contribution[g][move.src] if move.original else self.value[g][move.src]

    def _pulling(self, t: int, g: int) -> set[int]:
        """Return the ranks whose sum of group `g` in step `t` reads all contributions, of its box, where they lie.

        They get the sum from that rank later, which tells them that it has read. No other rank reads or writes a
        contribution in that step, and no signal is needed before it but that its rank has entered the kernel.
        """
        moves = self.groups[g].moves
        found = set()
        if self.groups[g].switch_moves or not self.reads:
            return found
        receiving = {move.dst for move in moves[t]}
        sending = {move.src for move in moves[t]}
        copied = {(move.src, move.dst) for later in moves[t + 1 :] for move in later if move.kind == "copy"}
        for rank in receiving - sending:
            sources = [move for move in moves[t] if move.dst == rank]
            peers = {move.src for move in sources}
            near = all(self.block.kind(peer, rank) == "memory" for peer in peers)
            alone = not peers & receiving and all((rank, peer) in copied for peer in peers)
            alone &= all(move.dst == rank for move in moves[t] if move.src in peers)
            if not near or not alone or rank not in self.value[g] or any(move.kind != "reduce" for move in sources):
                continue
            # the sum can read each contribution as early as a put could begin
            for move in sources:
                src = self._source(g, move)
                keys = self.memory.keys(move.src, src, self.groups[g].count)
                begun = self.block.clock[move.src][rank] >= 1
                ready = self._known(rank, move.src, keys) or (not begun and self._untouched(move.src, keys))
                if not ready or self.memory.remote_span(rank, move.src, src) is None:
                    break
            else:
                found.add(rank)
        return found

    def _plan_sums(self, t: int, planned: list[_Put]) -> dict[tuple[int, int], list[_Put]]:
        """Return (group, rank) → the puts of step `t` + 1 that the rank's sum of step `t` does.

        The sum is final, its receivers have it in the box and neither receive nor send the chunk otherwise in the two
        steps, and they are ready for it, or only have not entered the kernel.
        """
        sums = {}
        if t + 1 == self.steps:
            return sums
        for g, rank in sorted({(put.group, put.move.dst) for put in planned if put.move.kind == "reduce"}):
            group, following = self.groups[g], self.groups[g].moves[t + 1]
            final = not any(move.dst == rank for move in following)
            # what goes to other boxes goes first
            final &= all(self.block.kind(rank, move.dst) == "memory" for move in following if move.src == rank)
            local = any(move.src == rank for move in group.moves[t])
            home = self.home[g].get(rank)
            if not final or local or home is None or group.switch_moves:
                continue
            targets = []
            for move in following:
                owner, target = move.dst, self.home[g].get(move.dst)
                others = [other for other in (*group.moves[t], *following) if owner in other[:2] and other != move]
                alone = all(other[:3] == (owner, rank, "reduce") for other in others)
                if move.src != rank or move.kind != "copy" or move.original or not alone or target is None:
                    continue
                keys = self.memory.keys(owner, target, group.count)
                ready = self._known(rank, owner, keys) or self._untouched(owner, keys)
                if ready and self.memory.remote_span(rank, owner, target) is not None:
                    targets.append(_Put(g, move, home, target))
            sums[g, rank] = sorted(targets, key=lambda put: self._turn(rank, put.move.dst))[: OP_BUFFERS - 1]
            self.stored.update((t + 1, g, rank, put.move.dst) for put in sums[g, rank])
        return sums

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
        for writer in sorted({writer for _, writer in enter - ready}):
            self.block.enter(sorted(owner for owner, other in enter - ready if other == writer), writer)
        learned = defaultdict(dict)
        for owner in sorted({owner for owner, _ in ready}):
            writers = sorted(writer for other, writer in ready if other == owner)
            for writer, clock in self.block.signal(owner, writers).items():
                learned[writer][owner] = clock
        for writer, clocks in sorted(learned.items()):
            self.block.wait(writer, clocks)

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
                puts = [_Put(g, GroupTransfer(move.rank, rank, kind), sources[0], target) for rank in others]
                planned.append((move, puts))
        return planned

    def _send(
        self, puts: list[_Put], through: list[tuple[SwitchTransfer, list[_Put]]]
    ) -> tuple[Mapping[int, Mapping[int, list[_Put]]], Mapping[int, Mapping[int, tuple[int, ...]]]]:
        """Put, store through switches and signal.

        Return receiver → sender → its puts, and receiver → sender → the clock its signal carries.
        """
        arrivals = defaultdict(lambda: defaultdict(list))
        same_source = defaultdict(list)
        for put in sorted(puts, key=lambda put: put.move.src):
            if not put.done:
                kind = self.block.kind(put.move.src, put.move.dst)
                same_source[put.move.src, put.group, put.src, kind].append(put)
            arrivals[put.move.dst][put.move.src].append(put)

        # Ops through switches come before the puts, which may read what an op stores on its own rank for long.
        for move, op_puts in through:
            g, rank = op_puts[0].group, move.rank
            src, dst = ([], [])
            for member in move.members:
                owner = None if member == rank else member
                src.append(op_puts[0].src._replace(rank=owner))
                dst.append(op_puts[0].dst._replace(rank=owner))
            sources = tuple(src) if move.code == "glres" else (op_puts[0].src,)
            self._to_home(g, rank, Op(move.code, sources, tuple(dst), self.groups[g].count))
            for put in op_puts:
                arrivals[put.move.dst][rank].append(put)

        # Puts of one source to several ranks are one op; those through port channels come first.
        batches = defaultdict(list)
        for (rank, *_), same_puts in sorted(same_source.items(), key=lambda item: item[0][3] == "memory"):
            for i in range(0, len(same_puts), OP_CHANNELS):
                batches[rank].append(same_puts[i : i + OP_CHANNELS])
        receivers = defaultdict(set)
        for receiver, senders in arrivals.items():
            for sender in senders:
                receivers[sender].add(receiver)
        learned = defaultdict(dict)
        for rank in sorted(receivers):
            signalled = set()
            for i, batch in enumerate(batches[rank]):
                first, peers = batch[0], [put.move.dst for put in batch]
                through_port = self.block.kind(rank, peers[0]) == "port"
                src = self.memory.port_source(rank, first.src) if through_port else first.src
                dst = tuple(self._remote(rank, put.move.dst, put.dst) for put in batch)
                ports = tuple(self.block.port(rank, peer) for peer in peers)
                self._local(rank, Op("put", (src,), dst, self.groups[first.group].count, ports=ports))

                # A signal can be one operation with it where one thread hands all puts of the step to a channel, the
                # last ones in this op.
                later = {put.move.dst for other in batches[rank][i + 1 :] for put in other}
                threads = {(put.move.dst, k) for other in batches[rank][:i] for k, put in enumerate(other)}
                one = all(thread == peers.index(peer) for peer, thread in threads if peer in peers)
                if through_port and one and not later.intersection(peers):
                    signalled.update(peers)
                    for peer, clock in self.block.signal(rank, peers).items():
                        learned[peer][rank] = clock
            for peer, clock in self.block.signal(rank, sorted(receivers[rank] - signalled)).items():
                learned[peer][rank] = clock
        return arrivals, learned

    def _remote(self, rank: int, owner: int, span: Span) -> Span:
        """Return the name by which `rank` reaches `span` of `owner`: only spans were planned that it can name."""
        return (self.memory.remote_span(rank, owner, span) or span)._replace(rank=owner)

    def _wait(
        self, arrivals: Mapping[int, Mapping[int, list[_Put]]], learned: Mapping[int, Mapping[int, tuple[int, ...]]]
    ) -> None:
        for rank, senders in sorted(arrivals.items()):
            time = self.block.wait(rank, dict(sorted(learned[rank].items())))
            for sender, puts in sorted(senders.items()):
                for put in puts:
                    self.last_use[rank].update(dict.fromkeys(self._keys(rank, put.dst, put), time))
                    for key in self._keys(sender, put.src, put) if self.block.kind(sender, rank) == "port" else ():
                        self.port_reads[sender][key].append(_Read(rank, time))

    def _combine(self, rank: int, g: int, puts: list[_Put], targets: list[_Put]) -> None:
        """Take in the arrivals of a group: copies first, then one sum of the others, split by `OP_BUFFERS`.

        The last op of the sum stores it at `targets` too.
        """
        count = self.groups[g].count
        for put in puts:
            if put.move.kind == "copy":
                if put.slot:
                    self._local(rank, Op("cpy", (put.dst,), (self.home[g][rank],), count))
                    self.free[rank][count].append(put.dst.offset)
                self.value[g][rank] = self.home[g][rank]
        addends = [put for put in puts if put.move.kind == "reduce"]  # all of them are pulled, or none
        if addends and addends[0].pulled:
            addends.sort(key=lambda put: self._turn(rank, put.move.src))
        if addends:
            self._give_home(g, rank)
        while addends:
            batch, addends = addends[: OP_BUFFERS - 1], addends[OP_BUFFERS - 1 :]
            sources = []
            for put in batch:
                sources.append(self._remote(rank, put.move.src, put.src) if put.pulled else put.dst)
            stores = [self._remote(rank, put.move.dst, put.dst) for put in targets if not addends]
            op = Op("reduce", (self.value[g][rank], *sources), (self.home[g][rank], *stores), count)
            time = self._to_home(g, rank, op)
            for put in batch:
                if not put.pulled:
                    self.free[rank][count].append(put.dst.offset)
                for key in self._keys(put.move.src, put.src, put) if put.pulled else ():
                    self.pulls[put.move.src][key].append(_Read(rank, time))

    def _turn(self, rank: int, peer: int) -> int:
        """Return the place of `peer` in the order in which sums of `rank` reach others: no two ranks begin with the
        same one."""
        return (peer - rank) % len(self.scratch)

    def _contribute(self, t: int, kind: str) -> None:
        """Let ranks copy their own contribution to the home of the chunk ("copy"), or add it there ("reduce")."""
        for g, group in enumerate(self.groups):
            for move in group.moves[t]:
                rank = move.dst
                if not move.local or move.kind != kind or self.value[g].get(rank) == self.contribution[g].get(rank):
                    continue
                contribution = self.contribution[g][rank]
                self._give_home(g, rank)
                op = Op("cpy", (contribution,)) if kind == "copy" else Op("reduce", (self.value[g][rank], contribution))
                self._to_home(g, rank, op._replace(dst=(self.home[g][rank],), count=group.count))

    def _give_home(self, g: int, rank: int) -> None:
        if rank not in self.home[g]:
            self.home[g][rank] = Span("s", self._slot(rank, rank, self.groups[g].count))

    # ------------------------------------------------------------ memory

    def _keys(self, rank: int, span: Span, put: _Put) -> tuple[Key, ...]:
        return self.memory.keys(rank, span, self.groups[put.group].count)

    def _local(self, rank: int, op: Op) -> int:
        """Append a data op of `rank`, after a flush or a signal if it writes memory that others may still read.

        Returns its time on the rank's clock.
        """
        sources = [span for span in op.src if span.rank is None]
        targets = [span for span in op.dst if span.rank is None]
        self._flush(rank, [key for span in targets for key in self.memory.keys(rank, span, op.count)])
        time = self.block.add(rank, op)
        for span in (*sources, *targets):
            self.last_use[rank].update(dict.fromkeys(self.memory.keys(rank, span, op.count), time))
        return time

    def _to_home(self, g: int, rank: int, op: Op) -> int:
        """Append a data op that gives the rank the chunks of group `g` at their home. Returns its time."""
        self.value[g][rank] = self.home[g][rank]
        return self._local(rank, op)

    def _flush(self, rank: int, keys: Sequence[Key]) -> None:
        """Flush the ports through which peers may still read the memory `keys` of `rank`, and let those signal that
        may still read it themselves."""
        clock, pulls, reads = self.block.clock[rank], self.pulls[rank], self.port_reads[rank]
        pulling = {read.reader for key in keys for read in pulls.get(key, ()) if clock[read.reader] < read.time}
        if pulling:
            self.block.wait(rank, {reader: self.block.signal(reader, [rank])[rank] for reader in sorted(pulling)})
            clock = self.block.clock[rank]
        peers = {read.reader for key in keys for read in reads.get(key, ()) if clock[read.reader] < read.time}
        if peers:
            self.block.flush(rank, sorted(peers))
        for key in list(reads) if peers else keys:
            before = reads.get(key, [])
            pending = [read for read in before if read.reader not in peers and clock[read.reader] < read.time]
            if len(pending) < len(before):
                self.last_use[rank][key] = self.block.clock[rank][rank]
                reads[key] = pending

    def _known(self, writer: int, owner: int, keys: Sequence[Key]) -> bool:
        """True if `writer` knows that `owner` has entered the kernel, and that all uses of this memory have ended."""
        clock = self.block.clock[writer]
        for key in keys:
            if clock[owner] < max(1, self.last_use[owner].get(key, 1)):
                return False
            reads = (*self.port_reads[owner].get(key, ()), *self.pulls[owner].get(key, ()))
            if any(clock[read.reader] < read.time for read in reads):
                return False
        return True

    def _untouched(self, owner: int, keys: Sequence[Key]) -> bool:
        uses = self.last_use[owner], self.port_reads[owner], self.pulls[owner]
        return not any(use.get(key) for use in uses for key in keys)

    def _slot(self, owner: int, writer: int, count: int) -> int:
        """Return the offset of a scratch slot of `owner`: one that `writer` knows to be free, else a new one."""
        pool = self.free[owner][count]
        for i, offset in enumerate(pool):
            if self._known(writer, owner, self.memory.keys(owner, Span("s", offset), count)):
                return pool.pop(i)
        self.scratch[owner] += count
        return self.scratch[owner] - count
