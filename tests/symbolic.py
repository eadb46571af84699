"""A small symbolic machine for two-sided programs: every chunk is the set of ranks whose contributions it holds.

Shares nothing with lowering but the Program itself. Blocks advance in a random order, part by part, over FIFOs of a
given depth. In place, input and output are one memory.
"""

import random
from collections import deque


def play(program, *, in_place=False, depth=2, whole=1, seed=0):
    """Runs `program`; raises AssertionError where it stops, reads what is not there, adds twice or ends wrong."""
    task, chunks = program.collective, program.chunks
    held, wanted = [[] for _ in range(task.ranks)], [[] for _ in range(task.ranks)]
    for unit in range(task.units):
        for i in range(chunks):
            for rank in sorted(task.pre[unit]):
                held[rank].append((unit * chunks + i, frozenset([rank]) if task.combining else frozenset()))
            for rank in sorted(task.post[unit]):
                wanted[rank].append((unit * chunks + i, task.wanted(unit, rank) if task.combining else frozenset()))
    memory = []
    for rank, gpu in enumerate(program.gpus):
        assert (gpu.rank, gpu.input, gpu.output) == (rank, len(held[rank]), len(wanted[rank]))
        cells = {("s", k): None for k in range(gpu.scratch)}
        cells.update({("o", k): None for k in range(gpu.output)})
        cells.update({("i", k): value for k, value in enumerate(held[rank])})
        memory.append(cells)
    shift = [overlap(held[rank], wanted[rank]) if in_place else None for rank in range(task.ranks)]

    def cell(rank, span, k):
        assert span.rank is None
        name, size = (
            (span.buffer, span.offset + k),
            getattr(program.gpus[rank], {"i": "input", "o": "output", "s": "scratch"}[span.buffer]),
        )
        assert name[1] < size, (rank, span, k)
        if shift[rank] is not None and span.buffer == "o" and 0 <= name[1] + shift[rank] < len(held[rank]):
            return "i", name[1] + shift[rank]
        return name

    def read(rank, span, k):
        value = memory[rank][cell(rank, span, k)]
        assert value is not None, f"rank {rank} reads {span} + {k} before it is written"
        return value

    def write(rank, span, k, value):
        assert span.buffer != "i", "the input is never written"
        memory[rank][cell(rank, span, k)] = value

    def add(a, b):
        assert a[0] == b[0] and not a[1] & b[1], (a, b)
        return a[0], a[1] | b[1]

    fifos, ends = {}, set()
    state = []
    for rank, gpu in enumerate(program.gpus):
        for b, block in enumerate(gpu.blocks):
            for end in [("send", rank, block.send, block.channel)] * (block.send is not None) + [
                ("recv", block.recv, rank, block.channel)
            ] * (block.recv is not None):
                assert end not in ends, "two blocks on one end of a connection"
                ends.add(end)
                fifos.setdefault(end[1:], deque())
            state.append([rank, b, 0, 0])
    done = {}
    ops = [
        (rank, b, i, op)
        for rank, gpu in enumerate(program.gpus)
        for b, block in enumerate(gpu.blocks)
        for i, op in enumerate(block.ops)
    ]
    flags = {(rank, b, i) for rank, b, i, op in ops if op.flag}
    deps = {(rank, dep.block, dep.op) for rank, _, _, op in ops for dep in op.deps}
    assert flags == deps

    def step(entry):
        """One part of one op, if it can go on."""
        rank, b, at, part = entry
        block = program.gpus[rank].blocks[b]
        if at == len(block.ops):
            return False
        op = block.ops[at]
        if any(done.get((rank, dep.block), 0) <= dep.op for dep in op.deps):
            return False
        receives, sends = op.code in ("r", "rcs", "rrs", "rrc", "rrcs"), op.code in ("s", "rcs", "rrs", "rrcs")
        source = fifos[block.recv, rank, block.channel] if receives else None
        target = fifos[rank, block.send, block.channel] if sends else None
        if (receives and not source) or (sends and len(target) >= depth):
            return False
        size = min(whole, op.count - part * whole) if receives or sends else op.count
        arrived = source.popleft() if receives else None
        assert arrived is None or len(arrived) == size, "the two ends of a connection disagree on a count"
        sent = []
        for k in range(size):
            place = part * whole + k
            if op.code in ("s", "cpy"):
                value = read(rank, op.src[0], place)
            elif op.code == "re":
                value = add(read(rank, op.dst[0], place), read(rank, op.src[0], place))
            elif op.code in ("rrc", "rrs", "rrcs"):
                value = add(arrived[k], read(rank, op.src[0], place))
            else:
                value = arrived[k] if receives else None
            if op.dst:
                write(rank, op.dst[0], place, value)
            sent.append(value)
        if sends:
            target.append(sent)
        if (part + 1) * whole >= op.count or not (receives or sends):
            entry[2:] = [at + 1, 0]
            done[rank, b] = at + 1
        else:
            entry[3] += 1
        return True

    rng = random.Random(seed)
    alive = list(state)
    while alive:
        rng.shuffle(alive)
        moved = False
        for entry in alive:
            for _ in range(rng.choice((0, 1, 1, 5))):
                if not step(entry):
                    break
                moved = True
        alive = [e for e in alive if e[2] < len(program.gpus[e[0]].blocks[e[1]].ops)]
        if alive and not moved:
            assert any(step(entry) for entry in alive), f"deadlock at {alive[:8]}"
    assert not any(fifos.values()), "data is left in a FIFO"
    for rank, want in enumerate(wanted):
        for k, value in enumerate(want):
            name = ("o", k)
            if shift[rank] is not None and 0 <= k + shift[rank] < len(held[rank]):
                name = ("i", k + shift[rank])
            assert memory[rank][name] == value, (rank, k, memory[rank][name], value)
        if shift[rank] is None:
            assert [memory[rank]["i", k] for k in range(len(held[rank]))] == held[rank]


def overlap(held, wanted):
    """Where the output begins in the input, or None where the two share nothing."""
    shared = [(held.index(h), k) for k, w in enumerate(wanted) for h in held if h[0] == w[0]]
    return shared[0][0] - shared[0][1] if shared else None
