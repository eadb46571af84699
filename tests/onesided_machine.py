"""A small symbolic machine for one-sided programs, with the orders and addresses of MSCCL++'s kernel.

Blocks run op by op in a random interleaving; chunks are sets of contributions. Beside it, happens-before: every data op
is an event; the threads of a block learn of a wait, a flush, a packet or an earlier op only at the next `nop`; a signal
tells what was known at the last `nop`. Two uses of one chunk of memory, one a write, must be ordered. A put through a
port channel reads its source later: until flushed, or until its receiver is known to have waited. Thread k hands the
k-th put of an op to its channel, and the k-th signal or flush: those of one thread are in order. Packets need no such
order, but no writer may be two launches ahead of the owner of the scratch it writes to. Ops with packets deal their
spans out alike: what two of them have as the k-th chunk, the same threads move, which know what they did before.

Addresses, in chunks. With packets (LL) scratch is double and every second launch uses the upper half, which a rank
seeks in the middle of its *own* scratch, on other ranks too; a packet is two chunks long. The place of a buffer in its
allocation is the user's too: in another rank's input or output a rank counts from where its own lies in its allocation,
and what it sends through a port channel from the beginning of the allocation. In place, the smaller buffer lies in the
larger one, with which the allocation begins.
"""

import random
from collections import defaultdict


class Wrong(Exception):
    pass


def launches(program, seed=0, in_place=None):
    """Two launches, one after the other."""
    for launch in (0, 1) if program.protocol == "LL" else (0,):
        Machine(program, seed + launch, in_place, launch).run()


class Machine:
    def __init__(self, program, seed=0, in_place=None, launch=0):
        self.p, self.random = program, random.Random(seed)
        self.in_place = program.in_place == "in" if in_place is None else in_place
        self.double, self.upper = program.protocol == "LL", launch % 2
        self.n = program.ranks
        task, c = program.collective, program.chunks
        self.task = task
        self.inputs = [
            [u * c + i for u, has in enumerate(task.pre) if r in has for i in range(c)] for r in range(self.n)
        ]
        self.outputs = [
            [u * c + i for u, has in enumerate(task.post) if r in has for i in range(c)] for r in range(self.n)
        ]
        for gpu, held, wanted in zip(program.gpus, self.inputs, self.outputs, strict=True):
            if (gpu.input, gpu.output) != (len(held), len(wanted)):
                raise Wrong(f"rank {gpu.rank}: buffers of {gpu.input} and {gpu.output} chunks")
        self.from_start = [self.starts(held, wanted) for held, wanted in zip(self.inputs, self.outputs, strict=True)]
        self.mem, self.packets, self.form = {}, {}, {}
        for r, held in enumerate(self.inputs):
            for i, chunk in enumerate(held):
                self.mem[self.at(r, "i", i)] = self.start(chunk, r)
        self.bits = 0
        self.begun = [self.bit() for _ in range(self.n)]
        self.uses = defaultdict(list)  # place → (event, writes)
        self.blocks = [(g.rank, b) for g in program.gpus for b in range(len(g.blocks))]
        self.known = {key: self.begun[key[0]] for key in self.blocks}
        self.open = dict.fromkeys(self.blocks, 0)
        self.pc = dict.fromkeys(self.blocks, 0)
        self.released = {}
        self.signals, self.waited = defaultdict(list), defaultdict(int)
        self.flying = defaultdict(list)  # port end → events of puts through it
        self.threads = defaultdict(dict)  # block → (place, chunk of a span): what its threads know since the last join
        self.handed = defaultdict(list)  # block → (port end, thread, event) of such puts since the last join
        self.reads = defaultdict(list)  # rank → events of reads by port channels
        self.packet_pairs = set()
        self.barriers = defaultdict(set)

    def start(self, chunk, rank):
        return frozenset([(chunk, rank if self.task.combining else None)])

    def bit(self):
        self.bits += 1
        return 1 << self.bits

    def starts(self, held, wanted):
        """Where a rank's input and output begin in their allocations."""
        shared = [chunk for chunk in wanted if chunk in held] if self.in_place else []
        shift = held.index(shared[0]) - wanted.index(shared[0]) if shared else 0
        return {"i": max(0, -shift), "o": max(0, shift)}

    def at(self, rank, buffer, i):
        return self.address(rank, buffer, self.from_start[rank][buffer] + i)

    def address(self, rank, buffer, i):
        """Chunk i of the allocation that a buffer lies in; in place there is one for both."""
        one = self.in_place and self.inputs[rank] and self.outputs[rank]
        return rank, "io" if one else buffer, i

    def places(self, rank, span, count, sent_by_port=False):
        owner = rank if span.rank is None else span.rank
        if span.buffer == "s":
            return self.in_scratch(rank, owner, span, count)
        if span.packet:
            raise Wrong(f"packets outside scratch: {span}")
        start = 0 if sent_by_port else self.from_start[rank][span.buffer]
        if self.p.in_place == "both":  # for the reference executor, and no plan
            start = self.from_start[owner][span.buffer]
        ends = {
            b: self.from_start[owner][b] + len(held[owner]) for b, held in (("i", self.inputs), ("o", self.outputs))
        }
        size = max(ends.values()) if self.in_place else ends[span.buffer]
        if start + span.offset + count > size:
            raise Wrong(f"rank {owner}: {span} with {count} chunks is outside a buffer of {size}")
        return [self.address(owner, span.buffer, start + span.offset + i) for i in range(count)]

    def in_scratch(self, rank, owner, span, count):
        half, wide = 2 * self.p.gpus[rank].scratch * self.upper if self.double else 0, 2 if span.packet else 1
        size = self.p.gpus[owner].scratch * (4 if self.double else 1)
        if half + wide * (span.offset + count) > size:
            raise Wrong(f"rank {owner}: {span} with {count} chunks is outside a scratch of {size} chunks")
        found = [(owner, "packet" if span.packet else "s", half + wide * (span.offset + i)) for i in range(count)]
        for _, form, first in found:
            if any(self.form.setdefault((owner, first + k), form) != form for k in range(wide)):
                raise Wrong(f"rank {owner}: scratch {first} is both plain and packets")
        return found

    def run(self):
        ready = list(self.blocks)
        while True:
            live = [key for key in ready if self.pc[key] < len(self.ops(key))]
            self.random.shuffle(live)
            if not live:
                break
            if not any(self.step(key) for key in live):
                stuck = [(*key, self.pc[key], self.ops(key)[self.pc[key]]) for key in sorted(live)]
                raise Wrong(f"deadlock: {stuck[:4]}")
        self.finish()
        return self

    def ops(self, key):
        return self.p.gpus[key[0]].blocks[key[1]].ops

    def step(self, key):
        rank, b = key
        block = self.p.gpus[rank].blocks[b]
        op = block.ops[self.pc[key]]
        ends = [(rank, block.ports[i].peer, block.ports[i].kind, block.ports[i].index) for i in op.ports]
        if any(self.pc[rank, d.block] <= d.op for d in op.deps):
            return False
        if op.code == "wait" and any(
            len(self.signals[peer, me, k, x]) <= self.waited[me, peer, k, x] for me, peer, k, x in ends
        ):
            return False
        if any(place not in self.packets for s in op.src if s.packet for place in self.places(rank, s, op.count)):
            return False
        if op.code == "barrier":
            self.barriers[rank, op.group, b].add(self.pc[key])
            turn = sum(o.code == "barrier" and o.group == op.group for o in block.ops[: self.pc[key] + 1])
            if any(len(self.barriers[rank, op.group, q]) < turn for q in op.group):
                return False
            for q in op.group:
                self.open[key] |= self.known[rank, q] | self.open[rank, q]
        for d in op.deps:
            if not self.ops((rank, d.block))[d.op].flag:
                raise Wrong(f"{key}: waits for an op without flag")
            self.open[key] |= self.released[rank, d.block, d.op]
        if op.code in ("put", "cpy", "reduce", "glres", "gstore"):
            self.move(key, op, ends)
        elif op.code == "signal":
            for thread, end in enumerate(ends):
                mask = self.known[key]
                for e in self.flying[end]:
                    if e & self.known[key]:
                        mask |= e << 1
                    elif (end, thread, e) in self.handed[key]:
                        mask |= e | e << 1
                self.signals[end].append(mask)
        elif op.code == "wait":
            for me, peer, k, x in ends:
                self.open[key] |= self.signals[peer, me, k, x][self.waited[me, peer, k, x]]
                self.waited[me, peer, k, x] += 1
        elif op.code == "flush":
            for thread, end in enumerate(ends):
                for e in self.flying[end]:
                    if e & self.known[key] or (end, thread, e) in self.handed[key]:
                        self.open[key] |= e | e << 1
        elif op.code in ("nop", "barrier"):
            self.known[key] |= self.open[key]
            self.handed[key], self.threads[key] = [], {}
        else:
            raise Wrong(f"{op.code} in a one-sided program")
        self.released[rank, b, self.pc[key]] = self.known[key]
        self.pc[key] += 1
        return True

    def use(self, key, place, event, writes, known=None):
        known = self.known[key] if known is None else known
        if not known & self.begun[place[0]]:
            raise Wrong(f"{key} op {self.pc[key]}: {place} is touched before its rank is known to have begun")
        for other, wrote in self.uses[place]:
            if (writes or wrote) and not known & other and other != event:
                raise Wrong(f"{key} op {self.pc[key]}: race on {place}")
        self.uses[place].append((event, writes))

    def move(self, key, op, ends):
        rank = key[0]
        event = self.bit()
        far = self.bit()  # where a port channel carries it: the transfer, after the op
        port = op.code == "put" and ends and ends[0][2] == "port"
        if op.code == "cpy" and any(s.rank is not None for s in (*op.src, *op.dst)):
            raise Wrong(f"{key} op {self.pc[key]}: {op.code} reaches another rank")
        if op.code == "put" and (
            len(ends) != len(op.dst) or any(s.rank != end[1] for s, end in zip(op.dst, ends, strict=True))
        ):
            raise Wrong(f"{key} op {self.pc[key]}: ports and destinations differ")
        dealt_out = not port and any(span.packet for span in (*op.src, *op.dst))
        own = []  # the rank's plain memory that the op touches: (place, which chunk of its span)
        for span in (*op.src, *op.dst) if dealt_out else ():
            if span.rank is None and not span.packet:
                own += [(place, k) for k, place in enumerate(self.places(rank, span, op.count))]
        seen = [self.known[key]] * op.count  # what the threads of each chunk know
        for place, k in own:
            seen[k] |= self.threads[key].get((place, k), 0)
        values = None
        for span in op.src:
            got = []
            for k, place in enumerate(self.places(rank, span, op.count, port)):
                if span.packet:
                    value, mask = self.packets[place]
                    self.open[key] |= mask
                    seen[k] |= mask
                else:
                    self.use(key, place, event, False, seen[k])
                    if port:
                        self.uses[place].append((far, False))
                        self.reads[rank].append(far)
                    value = self.mem.get(place)
                if value is None:
                    raise Wrong(f"{key} op {self.pc[key]}: {place} is read before it was written")
                got.append(value)
            if values is not None and any(a & b for a, b in zip(values, got, strict=True)):
                raise Wrong(f"{key} op {self.pc[key]}: a contribution counts twice")
            values = got if values is None else [a | b for a, b in zip(values, got, strict=True)]
        if port and op.dst[0].packet and not op.src[0].packet:
            raise Wrong(f"{key} op {self.pc[key]}: a port channel carries packets only from packets")
        for span in op.dst:
            for k, (place, value) in enumerate(zip(self.places(rank, span, op.count), values, strict=True)):
                if span.packet:
                    if place in self.packets:
                        raise Wrong(f"{key} op {self.pc[key]}: packet {place} is written twice")
                    self.packets[place] = (value, seen[k] | event)
                    if place[0] != rank and not self.known[key] & self.begun[place[0]]:
                        self.packet_pairs.add((rank, place[0]))
                else:
                    self.use(key, place, far if port else event, True, seen[k])
                    self.mem[place] = value
        self.threads[key].update(((place, k), seen[k] | event) for place, k in own)
        self.open[key] |= event
        for thread, end in enumerate(ends):
            if port:
                self.flying[end].append(event)
                if not op.src[0].packet:
                    self.handed[key].append((end, thread, event))
        assert far == event << 1

    def finish(self):
        for end, given in self.signals.items():
            me, peer, k, x = end
            if len(given) != self.waited[peer, me, k, x]:
                raise Wrong(f"{len(given)} signals {end}, {self.waited[peer, me, k, x]} waits")
        ended = [0] * self.n
        for key in self.blocks:
            ended[key[0]] |= self.known[key] | self.open[key]
        for r in range(self.n):
            for event in self.reads[r]:
                if not ended[r] & event:
                    raise Wrong(f"rank {r} ends while a port channel may still read its memory")
        for place, uses in self.uses.items():
            for event, wrote in uses:
                if wrote and not ended[place[0]] & event:
                    raise Wrong(f"rank {place[0]} ends before {place} is known to be written")
        for writer, owner in sorted(self.packet_pairs):
            if not ended[writer] & self.begun[owner]:
                raise Wrong(f"rank {writer} can be two launches ahead of rank {owner}, to which it writes packets")
        for r, wanted in enumerate(self.outputs):
            for i, chunk in enumerate(wanted):
                unit = chunk // self.p.chunks
                want = (
                    frozenset((chunk, s) for s in self.task.wanted(unit, r))
                    if self.task.combining
                    else self.start(chunk, r)
                )
                got = self.mem.get(self.at(r, "o", i))
                if got != want:
                    raise Wrong(f"rank {r} output {i}: {got}, wanted {want}")
        if not self.in_place:
            for r, held in enumerate(self.inputs):
                for i, chunk in enumerate(held):
                    if self.mem[self.at(r, "i", i)] != self.start(chunk, r):
                        raise Wrong(f"rank {r}: its input is overwritten")
