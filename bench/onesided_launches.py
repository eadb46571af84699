"""Lint of one-sided programs beside an interpreter that runs their launches back to back, in every order.

Small random programs of two or three ranks move chunks by puts, gets, remote sums, multicasts and packets, through
memory or port channels, directly, through scratch or from scratch, with the signals, flushes, barriers and dependencies
that this needs, or with some of them missing or misplaced. `tests/launch_judge.py` judges each. Lint must call a
program right or wrong as the judge does, or say that it is not analysed, and why.

    python -m bench.onesided_launches --count 5000 --seed 0

Prints each difference, and a table; ends with 1 where lint proves a program that is wrong, or calls a right one wrong.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from synth.model.collective import Collective, collective
from synth.program import analysis
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span
from tests import launch_judge

METHODS = ("put", "put-scratch", "get", "get-scratch", "packet", "packet", "forward")
ORDERING = ("signal", "wait", "flush", "barrier")
CHANGES = ("drop", "sync", "sync", "double", "move", "swap", "span", "block")


@dataclass(eq=False)
class _Step:
    """An op in the making: it waits for the step `after` of another block of its rank."""

    code: str
    src: list[Span] = field(default_factory=list)
    dst: list[Span] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    after: _Step | None = None
    group: tuple[int, ...] = ()


class _Draft:
    """A program in the making: for each rank and block its steps."""

    def __init__(self, chance: random.Random, task: Collective, chunks: int, in_place: bool) -> None:
        self.chance, self.task, self.chunks, self.in_place = chance, task, chunks, in_place
        self.steps: list[list[list[_Step]]] = []
        for _ in range(task.ranks):
            self.steps.append([[] for _ in range(chance.choice((1, 1, 2, 2, 3)))])
        self.scratch = [0] * task.ranks
        self.ports: Counter[tuple[int, int, str]] = Counter()
        self.declared: dict[tuple[int, int], list[Port]] = defaultdict(list)
        self.keep = chance.choice((0.85, 0.95, 1.0, 1.0))  # the chance that a step which orders others is there
        self.kind = chance.choice(("memory", "port", "mixed"))

    def block(self, rank: int) -> int:
        return self.chance.randrange(len(self.steps[rank]))

    def add(self, rank: int, block: int, step: _Step, surely: bool = True) -> _Step:
        if surely or self.chance.random() < self.keep:
            self.steps[rank][block].append(step)
        return step

    def pair(self, a: int, here: int, b: int, there: int) -> tuple[Port, Port]:
        """Return a new pair of ports, of block `here` of rank a and block `there` of rank b."""
        kind = self.kind if self.kind != "mixed" else self.chance.choice(("memory", "port"))
        index = self.ports[min(a, b), max(a, b), kind]
        self.ports[min(a, b), max(a, b), kind] += 1
        mine, theirs = Port(kind, b, index), Port(kind, a, index)
        self.declared[a, here].append(mine)
        self.declared[b, there].append(theirs)
        return mine, theirs

    def place(self, rank: int) -> int:
        """Return the first of a few chunks of scratch, mostly new ones."""
        if self.scratch[rank] and self.chance.random() < 0.12:
            return self.chance.randrange(self.scratch[rank] // self.chunks) * self.chunks
        self.scratch[rank] += self.chunks
        return self.scratch[rank] - self.chunks

    def join(self, rank: int, before: int, after: int, earlier: _Step) -> None:
        """Order what comes next in block `after` behind `earlier` of block `before`, if they are two blocks."""
        if before == after or self.chance.random() > self.keep:
            return
        if self.chance.random() < 0.5:
            self.add(rank, after, _Step("nop", after=earlier))
        else:
            for block in (before, after):
                self.add(rank, block, _Step("barrier", group=(before, after)))

    def keep_copy(self, rank: int, block: int, source: Span) -> Span:
        """Copy `source` into scratch in some block, for a step of `block`; return where."""
        own, other = Span("s", self.place(rank)), self.block(rank)
        copied = self.add(rank, other, _Step("cpy", [source], [own]))
        self.join(rank, other, block, copied)
        return own

    def move(self, src: int, source: Span, dst: int, target: Span, sums: Span | None = None) -> None:
        """Add steps that bring the chunks `source` of rank `src` to `target` of rank `dst`.

        `sums`: chunks of `dst` that are added to them.
        """
        method = self.chance.choice(METHODS)
        here, there = self.block(src), self.block(dst)
        mine, theirs = self.pair(src, here, dst, there)
        apart = self.chance.random() < 0.1  # the signals have a channel of their own
        tell, hear = self.pair(src, here, dst, there) if apart else (mine, theirs)
        handshake = self.chance.random() < 0.6  # before the data, or an answer behind them; both are good

        near, far = (src, here, tell), (dst, there, hear)

        def sync(code: str, at: tuple[int, int, Port], surely: bool = False) -> None:
            rank, block, port = at
            self.add(rank, block, _Step(code, ports=[port]), surely)

        def answer(surely: bool = False) -> None:
            """Rank `dst` tells rank `src`, which waits for it."""
            sync("signal", far)
            sync("wait", near, surely)

        def arrive(at: Span) -> None:
            """Take what has come to `at` of rank `dst`, unless that is the target."""
            if sums is not None:
                self.add(dst, there, _Step("reduce", [sums, at], [target]))
            elif at != target:
                self.add(dst, there, _Step("cpy", [at], [target]))

        def flush() -> None:
            if mine.kind == "port" and self.chance.random() < 0.8:
                self.add(src, here, _Step("flush", ports=[mine]), False)

        if method in ("put", "put-scratch"):
            direct = method == "put" and sums is None
            to = target._replace(rank=dst) if direct else Span("s", self.place(dst), dst)
            if handshake or direct:
                answer(True)
            if self.chance.random() < 0.3:
                source = self.keep_copy(src, here, source)
            self.add(src, here, _Step("put", [source], [to], [mine]))
            if apart:
                flush()
            sync("signal", near, True)
            flush()
            sync("wait", far)
            arrive(to._replace(rank=None))
            if not handshake and not direct:
                answer()
        elif method in ("get", "get-scratch"):
            if method == "get-scratch":
                source = self.keep_copy(src, here, source)
            sync("signal", near)
            sync("wait", far, True)
            away = source._replace(rank=src)
            code, sources = ("get", [away]) if sums is None else ("reduce", [sums, away])
            self.add(dst, there, _Step(code, sources, [target]))
            answer()
        else:
            packet = Span("s", self.place(dst), dst, True)
            if handshake and self.chance.random() < 0.6:
                answer(True)
            if method == "forward" or mine.kind == "port":
                own, other = Span("s", self.place(src), None, True), self.block(src)
                self.add(src, other, _Step("cpy", [source], [own]))
                raw = other == here and mine.kind == "port" and self.chance.random() < 0.5
                self.add(src, here, _Step("put", [own._replace(packet=not raw)], [packet], [mine]))
                flush()
            else:
                self.add(src, here, _Step("put", [source], [packet], [mine]))
            arrive(packet._replace(rank=None))
            if not handshake and self.chance.random() < 0.6:
                answer()

    def multicast(self, code: str, source: Span, target: Span) -> None:
        """Add steps by which rank 0 loads `source` (of all ranks for glres), and stores to `target` of all, through a
        switch."""
        ranks = range(self.task.ranks)
        here, blocks = self.block(0), [self.block(rank) for rank in ranks]
        pairs = [self.pair(0, here, rank, blocks[rank]) for rank in ranks[1:]]
        for rank, (mine, theirs) in zip(ranks[1:], pairs, strict=True):
            self.add(rank, blocks[rank], _Step("signal", ports=[theirs]))
            self.add(0, here, _Step("wait", ports=[mine]), False)
        sources = [source._replace(rank=rank or None) for rank in ranks] if code == "glres" else [source]
        self.add(0, here, _Step(code, sources, [target._replace(rank=rank or None) for rank in ranks]))
        for rank, (mine, theirs) in zip(ranks[1:], pairs, strict=True):
            self.add(0, here, _Step("signal", ports=[mine]))
            self.add(rank, blocks[rank], _Step("wait", ports=[theirs]), False)

    def change(self) -> None:
        """Change one thing: drop, double, move or exchange a step, move it to another block, or move a span."""
        rank = self.chance.randrange(len(self.steps))
        block = self.chance.choice(self.steps[rank])
        if not block:
            return
        i = self.chance.randrange(len(block))
        what = self.chance.choice(CHANGES)
        ordering = [k for k, step in enumerate(block) if step.code in ORDERING]
        if what == "sync" and ordering:
            del block[self.chance.choice(ordering)]
        elif what == "drop":
            del block[i]
        elif what == "double":
            block.insert(i, block[i])
        elif what == "move":
            block.insert(self.chance.randrange(len(block)), block.pop(i))
        elif what == "swap" and i + 1 < len(block):
            block[i], block[i + 1] = block[i + 1], block[i]
        elif what == "block" and not block[i].group and block[i].after is None and self.chance.random() < 0.3:
            step = block.pop(i)
            other = self.chance.choice(self.steps[rank])
            other.insert(self.chance.randint(0, len(other)), step)
        elif what == "span" and block[i].dst:
            side = self.chance.choice((block[i].src, block[i].dst))
            owner = rank if side[0].rank is None else side[0].rank
            if side[0].buffer == "s" and self.scratch[owner]:
                side[0] = side[0]._replace(offset=self.chance.randrange(self.scratch[owner] - self.chunks + 1))

    def program(self, one_scratch: bool) -> Program:
        """Return the program as it stands."""
        gpus = []
        for rank, lists in enumerate(self.steps):
            numbers: dict[_Step, tuple[int, int]] = {}
            for b, steps in enumerate(lists):
                numbers |= {step: (b, i) for i, step in enumerate(steps)}
            needed = {numbers[step.after] for steps in lists for step in steps if step.after in numbers}
            blocks = []
            for b, steps in enumerate(lists):
                named = [port for step in steps for port in step.ports]
                ports = tuple(dict.fromkeys((*self.declared[rank, b], *named)))
                ops = []
                for i, step in enumerate(steps):
                    deps = (Dep(*numbers[step.after]),) if step.after in numbers else ()
                    uses = tuple(ports.index(port) for port in step.ports)
                    sides = tuple(step.src), tuple(step.dst)
                    count = self.chunks if step.dst else 1
                    op = Op(step.code, *sides, count, deps, (b, i) in needed, uses, step.group)
                    ops.append(op)
                blocks.append(Block(None, None, 0, tuple(ops), (), ports))
            held = sum(rank in ranks for ranks in self.task.pre) * self.chunks
            due = sum(rank in ranks for ranks in self.task.post) * self.chunks
            gpus.append(Gpu(rank, held, due, max(*self.scratch, 1), tuple(blocks)))
        place = "in" if self.in_place else "out"
        return Program(self.task.name, self.task, self.chunks, tuple(gpus), "LL", place, one_scratch=one_scratch)


def random_program(chance: random.Random) -> Program:
    """Return a small program of a collective, right or wrong."""
    name = chance.choice(("broadcast", "alltonext", "allgather", "allreduce"))
    ranks = 2 if name in ("allgather", "allreduce") else chance.choice((2, 2, 2, 3))
    task = collective(name, ranks, (0,) if name == "broadcast" else ())
    in_place = name != "alltonext" and chance.random() < 0.3
    chunks = chance.choice((1, 1, 1, 2))
    draft = _Draft(chance, task, chunks, in_place)
    if name in ("broadcast", "allreduce") and chance.random() < 0.2:
        draft.multicast("glres" if name == "allreduce" else "gstore", Span("i", 0), Span("o", 0))
    elif name == "allreduce":
        for rank in range(ranks):
            own = draft.keep_copy(rank, 0, Span("i", 0)) if in_place and chance.random() < 0.5 else Span("i", 0)
            draft.move(rank, own, 1 - rank, Span("o", 0), Span("i", 0))
    else:
        for chunk, holders in enumerate(task.pre):
            near = min(holders)
            for dst in sorted(task.post[chunk]):
                source = Span("i", chunks * sum(near in task.pre[c] for c in range(chunk)))
                target = Span("o", chunks * sum(dst in task.post[c] for c in range(chunk)))
                if near != dst:
                    draft.move(near, source, dst, target)
                elif not in_place:
                    draft.add(dst, draft.block(dst), _Step("cpy", [source], [target]))
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        draft.change()
    return draft.program(chance.random() < 0.5)


class Comparison(NamedTuple):
    """The row of the table; what the judge says (empty: right; None: too many states); lint's first finding."""

    kind: str
    judged: str | None
    reason: Any


def compare(program: Program) -> Comparison:
    """Return the verdicts of lint and of the judge on `program`."""
    report = analysis.check(program)
    judged = launch_judge.judge(program, program.in_place == "in")
    right = judged == ""
    if judged is None:
        kind = "not judged"
    elif report.verdict == "not analysed":
        kind = "not analysed"
    elif report.verdict == "right":
        kind = "proved, right" if right else "FALSE PROOF"
    else:
        kind = "FALSE ALARM" if right else "called wrong, wrong"
    return Comparison(kind, judged, report.ranked[0] if report.findings else None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for number in range(options.count):
        compared = compare(random_program(random.Random(f"{options.seed} {number}")))
        kinds[compared.kind] += 1
        if compared.kind == "not analysed":
            reasons[compared.reason.rule] += 1
        elif compared.kind.isupper():
            print(f"{number}: {compared.kind}; lint: {compared.reason}; judge: {compared.judged}", flush=True)
    for kind, count in sorted(kinds.items()):
        print(f"{count:7} {kind}")
    for rule, count in sorted(reasons.items()):
        print(f"{count:7} not analysed [{rule}]")
    return int(bool(kinds["FALSE PROOF"] or kinds["FALSE ALARM"]))


if __name__ == "__main__":
    raise SystemExit(main())
