"""An interpreter that runs launches of a small one-sided program back to back, in every order that exists.

It shares no code with lint. Each rank goes from launch to launch by itself: when all its blocks have ended, its user
takes the output, writes the next launch's input, and spoils the output; then the blocks begin anew. Nothing else orders
ranks. Signals are counted, and counts go on from launch to launch. A port channel is a queue that something else works
off, in order, at any time, also after the launch has ended; flush waits until it is empty. A packet bears the number of
its launch, and its reader waits for the number of its own.

An execution is wrong if an output is, if nobody can go on, if two accesses to a chunk, of which one writes, are
possible at the same time, if memory is read that nobody wrote, if a packet is written twice in a launch, and if a
packet is read as plain data.

Steps that touch no memory that others touch are taken at once: they commute with all others and hinder none (partial
order reduction with such steps as persistent sets; Godefroid, "Partial-Order Methods for the Verification of Concurrent
Systems", 1996). Of the others all orders are tried; states are kept.
"""

from collections import defaultdict

MOST = 200_000  # states of one program
MANY = 1 << 20  # signals that lie at a port which gets more of them in each launch than are waited for


class Wrong(Exception):
    """An execution that ends wrong, and why."""


def judge(program, in_place=False, launches=None):
    """Return why `program` is wrong in some order of its launches, "" if it is right in all, None if there are too
    many states."""
    judges = [Judge(program, in_place, launches, late) for late in (False, True)]
    if not any(judges[1].backlog.values()):
        judges.pop()  # no signals are left over: a later launch is like the second
    try:
        return "" if all(each.explore() for each in judges) else None
    except Wrong as wrong:
        return str(wrong)


class Judge:
    """`late`: the launches are late ones, to which earlier ones have left many surplus signals."""

    def __init__(self, program, in_place, launches, late):
        self.p, self.in_place = program, in_place
        task, c = program.collective, program.chunks
        self.task = task
        self.blocks = [(gpu.rank, b) for gpu in program.gpus for b in range(len(gpu.blocks))]
        self.block_number = {place: n for n, place in enumerate(self.blocks)}
        spans = [span for r, b in self.blocks for op in self.ops(r, b) for span in (*op.src, *op.dst)]
        self.halves = 2 if any(span.packet for span in spans) and not program.one_scratch else 1
        self.launches = launches or 1 + self.halves
        self.held = [[u * c + k for u, has in enumerate(task.pre) if r in has for k in range(c)] for r in self.ranks()]
        self.due = [[u * c + k for u, has in enumerate(task.post) if r in has for k in range(c)] for r in self.ranks()]
        self.cells = {}
        self.own = [[] for _ in self.ranks()]  # cells of a rank's input and output
        for r in self.ranks():
            self.add_cells(r)
        self.memory_size = len(set(self.cells.values()))
        self.ports = sorted(
            {(r, *block.ports[p]) for r, b in self.blocks for block in [program.gpus[r].blocks[b]]
             for op in block.ops for p in op.ports}
        )  # fmt: skip
        ends = {*self.ports, *((peer, kind, r, k) for r, kind, peer, k in self.ports)}
        self.ends = {end: n for n, end in enumerate(sorted(ends))}
        self.queues = {port: n for n, port in enumerate(p for p in self.ports if p[1] == "port")}
        given, taken = defaultdict(int), defaultdict(int)
        for r, b in self.blocks:
            for op in self.ops(r, b):
                for r_, kind, peer, k in self.named(r, b, op):
                    if op.code == "signal":
                        given[peer, kind, r_, k] += 1
                    elif op.code == "wait":
                        taken[r_, kind, peer, k] += 1
        self.backlog = {end: MANY if late and given[end] > taken[end] else 0 for end in self.ends}
        self.touched = defaultdict(set)  # cell → (actor, writes) of all steps in any launch
        for launch in range(1, self.launches + 1):
            for r, b in self.blocks:
                for op in self.ops(r, b):
                    for actor, cell, writes in self.all_accesses(r, b, op, launch):
                        self.touched[cell].add((actor, writes))
        for r in self.ranks():
            for cell in self.own[r]:
                self.touched[cell].add((("user", r), True))
        users = defaultdict(set)
        for r, b in self.blocks:
            for op in self.ops(r, b):
                for port in self.named(r, b, op):
                    users[port].add(b)
        self.shared = {port for port, blocks in users.items() if len(blocks) > 1}

    # ------------------------------------------------------------ places

    def ranks(self):
        return range(len(self.p.gpus))

    def ops(self, r, b):
        return self.p.gpus[r].blocks[b].ops

    def named(self, r, b, op):
        """The ports that an op names, as (rank, kind, peer, index)."""
        return [(r, *self.p.gpus[r].blocks[b].ports[p]) for p in op.ports]

    def add_cells(self, r):
        gpu, held, due = self.p.gpus[r], self.held[r], self.due[r]
        shared = [chunk for chunk in due if chunk in held] if self.in_place else []
        shift = held.index(shared[0]) - due.index(shared[0]) if shared else None
        for k in range(max(gpu.input, gpu.output)):
            self.cells[r, "i", k] = len(self.cells)
            self.cells[r, "o", k] = len(self.cells)
        if shift is not None:  # the output's chunk k is the input's chunk k + shift
            for k in range(gpu.output):
                self.cells[r, "o", k] = self.cells.get((r, "i", k + shift), self.cells[r, "o", k])
        self.own[r] = sorted(
            {self.cells[r, "i", k] for k in range(gpu.input)} | {self.cells[r, "o", k] for k in range(gpu.output)}
        )
        for k in range(gpu.scratch):
            for half in range(self.halves):
                self.cells[r, "s", k, half] = len(self.cells)

    def cell(self, r, span, k, launch, packet):
        owner = r if span.rank is None else span.rank
        if span.buffer != "s":
            return self.cells[owner, span.buffer, span.offset + k]
        return self.cells[owner, "s", span.offset + k, launch % self.halves if packet else 0]

    def transfers(self, r, b, op):
        """Yield (sources, destination, port or None) of each part of a data op; a port channel carries it later."""
        if op.code == "put":
            named = self.named(r, b, op)
            for n, dst in enumerate(op.dst):
                src = op.src[n] if len(op.src) > 1 else op.src[0]
                port = (named[n] if len(named) == len(op.dst) else named[0]) if named else None
                yield [src], dst, port if port is not None and port[1] == "port" else None
        else:
            for dst in op.dst:
                yield list(op.src), dst, None

    def moves(self, r, b, op, launch):
        """Yield (cells read, cell written, port, packet read, packet written) of each chunk of each transfer."""
        for sources, dst, port in self.transfers(r, b, op):
            for k in range(op.count):
                raw = port is not None and dst.packet  # carries packets as they lie
                read = [(self.cell(r, s, k, launch, s.packet or raw), s.packet) for s in sources]
                yield read, self.cell(r, dst, k, launch, dst.packet), port, dst.packet

    def all_accesses(self, r, b, op, launch):
        for read, written, port, _ in self.moves(r, b, op, launch):
            actor = ("block", r, b) if port is None else ("queue", *port)
            for cell, packet in read:
                yield actor, cell, False
                if packet:
                    yield ("block", r, b), cell, False
            yield actor, written, True

    # ------------------------------------------------------------ states

    def begin(self):
        """(launch of each rank, op of each block, queues, signals, memory)"""
        signals = [0] * len(self.ends)
        for end, n in self.backlog.items():
            signals[self.ends[end]] = n
        return (0,) * len(self.p.gpus), (0,) * len(self.blocks), ((),) * len(self.queues), tuple(signals), frozenset()

    def steps(self, state):
        """Yield (actor, accesses, alone, following state) of each step that is possible. alone: it commutes with all
        others."""
        launches, at, queues = state[:3]
        for r in self.ranks():
            mine = [n for n, (rank, _) in enumerate(self.blocks) if rank == r]
            ended = launches[r] == 0 or all(at[n] == len(self.ops(*self.blocks[n])) for n in mine)
            if ended and launches[r] <= self.launches:
                yield self.user_step(r, mine, state)
        for n, (r, b) in enumerate(self.blocks):
            ops = self.ops(r, b)
            if launches[r] == 0 or launches[r] > self.launches or at[n] == len(ops):
                continue
            op = ops[at[n]]
            if any(at[self.block_number[r, dep.block]] <= dep.op for dep in op.deps):
                continue
            made = self.block_step(n, r, b, op, state)
            if made is not None:
                yield made
        for port, q in self.queues.items():
            if queues[q]:
                yield self.queue_step(port, q, state)

    def user_step(self, r, mine, state):
        launches, at, queues, signals, memory = state
        launch, values = launches[r], dict(memory)
        if launch:
            for k, chunk in enumerate(self.due[r]):
                unit = chunk // self.p.chunks
                ranks = frozenset(self.task.wanted(unit, r)) if self.task.combining else frozenset()
                found, wanted = values.get(self.cells[r, "o", k]), ("plain", (launch, chunk, ranks))
                if found != wanted:
                    raise Wrong(f"launch {launch}: output {k} of rank {r} is {found}, not {wanted}")
        for cell in self.own[r]:
            values.pop(cell, None)
        for k, chunk in enumerate(self.held[r]):
            ranks = frozenset([r]) if self.task.combining else frozenset()
            values[self.cells[r, "i", k]] = ("plain", (launch + 1, chunk, ranks))
        following = (
            tuple(x + (n == r) for n, x in enumerate(launches)),
            tuple(0 if n in mine else x for n, x in enumerate(at)), queues, signals, frozenset(values.items()),
        )  # fmt: skip
        accesses = [(cell, True) for cell in self.own[r]]
        return ("user", r), accesses, self.alone(("user", r), accesses), following

    def block_step(self, n, r, b, op, state):
        launches, at, queues, signals, memory = state
        actor = ("block", r, b)
        on = tuple(x + (k == n) for k, x in enumerate(at))
        if op.code == "nop":
            return actor, (), True, (launches, on, queues, signals, memory)
        if op.code == "barrier":
            members = [self.block_number[r, member] for member in set(op.group)]
            for member in members:
                ops = self.ops(*self.blocks[member])
                here = ops[at[member]] if at[member] < len(ops) else None
                if here is None or here.code != "barrier" or set(here.group) != set(op.group):
                    return None
                waits = [at[self.block_number[r, dep.block]] <= dep.op for dep in here.deps]
                if any(waits):
                    return None
            on = tuple(x + (k in members) for k, x in enumerate(at))
            return actor, (), True, (launches, on, queues, signals, memory)
        named = self.named(r, b, op)
        counts, lines = list(signals), list(queues)
        if op.code == "wait":
            for end in named:
                counts[self.ends[end]] -= 1
            if min(counts) < 0:
                return None
            return actor, (), not self.shared.intersection(named), (launches, on, queues, tuple(counts), memory)
        if op.code == "flush":
            if any(queues[self.queues[port]] for port in named if port[1] == "port"):
                return None
            return actor, (), True, (launches, on, queues, signals, memory)
        alone = not self.shared.intersection(named)
        if op.code == "signal":
            for rank, kind, peer, k in named:
                if kind == "port":
                    lines[self.queues[rank, kind, peer, k]] += (("signal",),)
                else:
                    counts[self.ends[peer, kind, rank, k]] += 1
            return actor, (), alone, (launches, on, tuple(lines), tuple(counts), memory)
        return self.data_step(actor, r, b, op, on, alone, state)

    def data_step(self, actor, r, b, op, on, alone, state):
        launches, _, queues, signals, memory = state
        launch, lines, values = launches[r], list(queues), dict(memory)
        accesses = []
        moves = list(self.moves(r, b, op, launch))
        for read, _, _, _ in moves:
            for cell, packet in read:
                if packet and values.get(cell, ("plain",))[:2] != ("packet", launch):
                    return None
        if not self.in_place and any(span.buffer == "i" for span in op.dst):
            raise Wrong("writes its input")
        totals = []  # all reads come before the first write
        for read, _, port, _ in moves:
            fetched = [] if port else [self.fetch(values, cell, packet) for cell, packet in read]
            totals.append(self.total(fetched) if fetched else None)
        for (read, written, port, to_packet), value in zip(moves, totals, strict=True):
            if port is not None:
                accesses += [(cell, False) for cell, packet in read if packet]
                lines[self.queues[port]] += (("put", read[0][0], written, to_packet, launch),)
                continue
            accesses += [(cell, False) for cell, _ in read]
            accesses.append((written, True))
            values[written] = self.content(values, written, value, to_packet, launch)
        following = (launches, on, tuple(lines), signals, frozenset(values.items()))
        return actor, accesses, alone and self.alone(actor, accesses), following

    def queue_step(self, port, q, state):
        launches, at, queues, signals, memory = state
        entry, lines, counts, values = queues[q][0], list(queues), list(signals), dict(memory)
        lines[q] = queues[q][1:]
        if entry == ("signal",):
            rank, kind, peer, k = port
            counts[self.ends[peer, kind, rank, k]] += 1
            return ("queue", *port), (), True, (launches, at, tuple(lines), tuple(counts), memory)
        _, read, written, to_packet, launch = entry
        found = values.get(read)
        if found is None:
            raise Wrong(f"{port} sends memory that nobody wrote")
        if not to_packet:
            values[written] = self.content(values, written, self.fetch(values, read, False), False, launch)
        else:
            if found[0] == "packet" and values.get(written, ())[:2] == found[:2]:
                raise Wrong("a packet is written twice in a launch")
            values[written] = found  # with its flag, if it has one
        accesses = [(read, False), (written, True)]
        alone = self.alone(("queue", *port), accesses)
        return ("queue", *port), accesses, alone, (launches, at, tuple(lines), signals, frozenset(values.items()))

    @staticmethod
    def fetch(values, cell, packet):
        found = values.get(cell)
        if found is None:
            raise Wrong("reads memory that nobody wrote")
        if found[0] == "packet" and not packet:
            raise Wrong("reads a packet as plain data")
        return found[-1]

    @staticmethod
    def content(values, cell, value, packet, launch):
        if not packet:
            return "plain", value
        if values.get(cell, ())[:2] == ("packet", launch):
            raise Wrong("a packet is written twice in a launch")
        return "packet", launch, value

    @staticmethod
    def total(parts):
        """The sum of values; one that is no sum of one chunk's contributions is only seen in an output."""
        result = parts[0]
        for part in parts[1:]:
            if "bad" in (result, part) or result[:2] != part[:2] or result[2] & part[2] or not result[2]:
                return "bad"
            result = (*result[:2], result[2] | part[2])
        return result

    def alone(self, actor, accesses):
        """Return True if no other actor touches the memory that a step touches, one of them writing. A rank's blocks
        and its user never touch it at once."""
        for cell, writes in accesses:
            for other, wrote in self.touched[cell]:
                together = {actor[0], other[0]} == {"block", "user"} and actor[1] == other[1]
                if other != actor and (writes or wrote) and not together:
                    return False
        return True

    def explore(self):
        """Try all orders. Return False if there are too many states. Raises Wrong."""
        first = self.begin()
        seen, stack = {first}, [first]
        while stack:
            state = stack.pop()
            possible = list(self.steps(state))
            if not possible and min(state[0]) <= self.launches:
                raise Wrong(f"nobody can go on: launches {state[0]}, blocks at {state[1]}")
            for k, (actor, accesses, _, _) in enumerate(possible):
                for other, others, _, _ in possible[:k]:
                    for cell, writes in accesses:
                        if any(cell == touched and (writes or wrote) for touched, wrote in others):
                            raise Wrong(f"{actor} and {other} touch one chunk at the same time")
            for _, _, alone, following in possible:
                if alone:
                    possible = [(None, (), True, following)]
                    break
            for _, _, _, following in possible:
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
            if len(seen) > MOST:
                return False
        return True
