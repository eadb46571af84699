"""Lint of one-sided programs beside an interpreter that runs their launches back to back, in every order.

Small random programs of two or three ranks move chunks by puts, gets and packets, through memory or port channels,
directly, through scratch or from scratch, with the signals, flushes, barriers and dependencies that this needs, or with
one of them missing or misplaced. `tests/launch_judge.py` judges each. Lint must call a program right or wrong as the
judge does, or say that it is not analysed, and why.

    python -m bench.onesided_launches --count 5000 --seed 0

Prints each difference, and a table; ends with 1 where lint proves a program that is wrong, or calls a right one wrong.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import NamedTuple

from bench import roundtrip
from synth.model.collective import Collective, collective
from synth.program import analysis
from synth.program.program import Block, Dep, Gpu, Op, Port, Program, Span

METHODS = ("put", "put-scratch", "get", "get-scratch", "packet", "packet", "forward")


class _Step:
    """An op in the making: `after` are steps of other blocks of the rank that it waits for."""

    def __init__(self, code: str, **fields: object) -> None:
        self.code, self.fields = code, fields
        self.after: list[_Step] = []
        self.group: list[int] | None = None


class _Draft:
    """A program in the making: for each rank and block its steps and ports."""

    def __init__(self, chance: random.Random, task: Collective, in_place: bool) -> None:
        self.chance, self.task, self.in_place = chance, task, in_place
        self.steps: list[list[list[_Step]]] = []
        for _ in range(task.ranks):
            self.steps.append([[] for _ in range(chance.choice((1, 1, 2)))])
        self.scratch = [0] * task.ranks
        self.ports: Counter[tuple[int, int, str]] = Counter()
        self.keep = chance.choice((0.8, 0.9, 1.0))  # the chance that a step which orders others is there
        self.kind = chance.choice(("memory", "port", "mixed"))

    def block(self, rank: int) -> int:
        return self.chance.randrange(len(self.steps[rank]))

    def add(self, rank: int, block: int, step: _Step, surely: bool = True) -> _Step:
        if surely or self.chance.random() < self.keep:
            self.steps[rank][block].append(step)
        return step

    def pair(self, a: int, b: int) -> tuple[Port, Port]:
        """Return a new pair of ports of ranks a and b."""
        kind = self.kind if self.kind != "mixed" else self.chance.choice(("memory", "port"))
        index = self.ports[min(a, b), max(a, b), kind]
        self.ports[min(a, b), max(a, b), kind] += 1
        return Port(kind, b, index), Port(kind, a, index)

    def place(self, rank: int) -> int:
        """Return a chunk of scratch, mostly a new one."""
        if self.scratch[rank] and self.chance.random() < 0.12:
            return self.chance.randrange(self.scratch[rank])
        self.scratch[rank] += 1
        return self.scratch[rank] - 1

    def join(self, rank: int, before: int, after: int, earlier: _Step) -> None:
        """Order what comes next in block `after` behind `earlier` of block `before`, if they are two blocks."""
        if before == after or self.chance.random() > self.keep:
            return
        if self.chance.random() < 0.5:
            step = self.add(rank, after, _Step("nop"))
            step.after.append(earlier)
        else:
            for block in (before, after):
                self.add(rank, block, _Step("barrier")).group = [before, after]

    def move(self, src: int, source: Span, dst: int, target: Span) -> None:
        """Add steps that bring the chunk `source` of rank `src` to `target` of rank `dst`."""
        method = self.chance.choice(METHODS)
        here, there = self.block(src), self.block(dst)
        mine, theirs = self.pair(src, dst)
        handshake = self.chance.random() < 0.6  # before the data, or an answer behind them; both are good
        to = target._replace(rank=dst)
        signal, wait = ("signal", mine), ("wait", mine)
        answer, hear = ("signal", theirs), ("wait", theirs)

        def sync(rank: int, block: int, what: tuple[str, Port], surely: bool = False) -> None:
            self.add(rank, block, _Step(what[0], ports=[what[1]]), surely)

        def flush() -> None:
            if mine.kind == "port" and self.chance.random() < 0.7:
                self.add(src, here, _Step("flush", ports=[mine]), False)

        if method in ("put", "put-scratch"):
            if method == "put-scratch":
                to = Span("s", self.place(dst), dst)
            if handshake or method == "put":
                sync(dst, there, answer)
                sync(src, here, wait, True)
            if self.chance.random() < 0.3:  # from scratch
                own, other = Span("s", self.place(src)), self.block(src)
                copied = self.add(src, other, _Step("cpy", src=[source], dst=[own]))
                self.join(src, other, here, copied)
                source = own
            self.add(src, here, _Step("put", src=[source], dst=[to], ports=[mine]))
            sync(src, here, signal, True)
            flush()
            sync(dst, there, hear)
            if method == "put-scratch":
                self.add(dst, there, _Step("cpy", src=[to._replace(rank=None)], dst=[target]))
            if not handshake and method != "put":
                sync(dst, there, answer)
                sync(src, here, wait)
        elif method in ("get", "get-scratch"):
            if method == "get-scratch":
                own, other = Span("s", self.place(src)), self.block(src)
                copied = self.add(src, other, _Step("cpy", src=[source], dst=[own]))
                self.join(src, other, here, copied)
                source = own
            sync(src, here, signal)
            sync(dst, there, hear, True)
            self.add(dst, there, _Step("get", src=[source._replace(rank=src)], dst=[target]))
            sync(dst, there, answer)
            sync(src, here, wait)
        else:
            packet = Span("s", self.place(dst), dst, True)
            if handshake and self.chance.random() < 0.5:
                sync(dst, there, answer)
                sync(src, here, wait, True)
            if method == "forward" or mine.kind == "port":
                own, other = Span("s", self.place(src), None, True), self.block(src)
                self.add(src, other, _Step("cpy", src=[source], dst=[own]))
                raw = other == here and mine.kind == "port" and self.chance.random() < 0.5
                self.add(src, here, _Step("put", src=[own._replace(packet=not raw)], dst=[packet], ports=[mine]))
                flush()
            else:
                self.add(src, here, _Step("put", src=[source], dst=[packet], ports=[mine]))
            self.add(dst, there, _Step("cpy", src=[packet._replace(rank=None)], dst=[target]))

    def local(self, rank: int, source: Span, target: Span) -> None:
        self.add(rank, self.block(rank), _Step("cpy", src=[source], dst=[target]))

    def change(self) -> None:
        """Change one thing: drop, double, move or exchange a step, or move a span."""
        rank = self.chance.randrange(len(self.steps))
        block = self.chance.choice(self.steps[rank])
        if not block:
            return
        i = self.chance.randrange(len(block))
        what = self.chance.choice(("drop", "sync", "sync", "double", "move", "swap", "span"))
        ordering = [k for k, step in enumerate(block) if step.code in ("signal", "wait", "flush", "barrier")]
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
        elif what == "span" and "dst" in block[i].fields:
            side = self.chance.choice(("src", "dst"))
            span = block[i].fields[side][0]
            owner = rank if span.rank is None else span.rank
            if span.buffer == "s" and self.scratch[owner]:
                block[i].fields[side] = [span._replace(offset=self.chance.randrange(self.scratch[owner]))]

    def program(self, name: str, one_scratch: bool) -> Program:
        """Return the program as it stands."""
        gpus = []
        task = self.task
        for rank, lists in enumerate(self.steps):
            numbers = {id(step): (b, i) for b, steps in enumerate(lists) for i, step in enumerate(steps)}
            needed = {numbers[id(need)] for steps in lists for step in steps for need in step.after
                      if id(need) in numbers}  # fmt: skip
            blocks = []
            for b, steps in enumerate(lists):
                ports: list[Port] = []
                ops = []
                for i, step in enumerate(steps):
                    ops.append(_op(step, numbers, ports)._replace(flag=(b, i) in needed))
                blocks.append(Block(None, None, 0, tuple(ops), (), tuple(ports)))
            held = sum(rank in ranks for ranks in task.pre)
            due = sum(rank in ranks for ranks in task.post)
            scratch = max(self.scratch) or 1
            gpus.append(Gpu(rank, held, due, scratch, tuple(blocks)))
        place = "in" if self.in_place else "out"
        return Program(name, task, 1, tuple(gpus), "LL", place, one_scratch=one_scratch)


def _op(step: _Step, numbers: dict[int, tuple[int, int]], ports: list[Port]) -> Op:
    named = []
    for port in step.fields.get("ports", ()):
        if port not in ports:
            ports.append(port)
        named.append(ports.index(port))
    deps = tuple(sorted({Dep(*numbers[id(need)]) for need in step.after if id(need) in numbers}))
    sides = [tuple(step.fields.get(side, ())) for side in ("src", "dst")]
    return Op(step.code, *sides, 1, deps, ports=tuple(named), group=tuple(step.group or ()))


def random_program(chance: random.Random) -> Program:
    """Return a small program of a collective, right or wrong."""
    name = chance.choice(("broadcast", "alltonext", "allgather", "allreduce"))
    ranks = 2 if name in ("allgather", "allreduce") else chance.choice((2, 2, 2, 3))
    task = collective(name, ranks, (0,) if name == "broadcast" else ())
    in_place = name != "alltonext" and chance.random() < 0.3
    draft = _Draft(chance, task, in_place)
    if name == "allreduce":
        for rank in range(ranks):
            draft.move(rank, Span("i", 0), 1 - rank, Span("s", draft.place(1 - rank)))
        for rank in range(ranks):
            sum_of = [Span("i", 0), Span("s", 0)]
            draft.add(rank, draft.block(rank), _Step("reduce", src=sum_of, dst=[Span("o", 0)]))
    else:
        for chunk, holders in enumerate(task.pre):
            src = min(holders)
            for dst in sorted(task.post[chunk]):
                source = Span("i", sum(src in task.pre[c] for c in range(chunk)))
                target = Span("o", sum(dst in task.post[c] for c in range(chunk)))
                if src != dst:
                    draft.move(src, source, dst, target)
                elif not in_place:
                    draft.local(src, source, target)
    for _ in range(chance.choice((0, 0, 1, 1, 2))):
        draft.change()
    return draft.program(name, chance.random() < 0.5)


class Comparison(NamedTuple):
    """What lint and the judge say of a program. `judged`: "" right, else what is wrong; None: too many states."""

    verdict: str
    judged: str | None
    reason: str

    @property
    def kind(self) -> str:
        """A row of the table."""
        if self.judged is None:
            return "not judged"
        if self.verdict == "not analysed":
            return "not analysed"
        right = self.judged == ""
        if self.verdict == "right":
            return "proved, right" if right else "FALSE PROOF"
        return "FALSE ALARM" if right else "called wrong, wrong"


def compare(program: Program) -> Comparison:
    """Return what lint and the judge say of `program`."""
    judge = roundtrip.tests_own("launch_judge")
    report = analysis.check(program)
    reason = str(report.ranked[0]) if report.findings else ""
    return Comparison(report.verdict, judge.judge(program, program.in_place == "in"), reason)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for number in range(options.count):
        program = random_program(random.Random(f"{options.seed} {number}"))
        compared = compare(program)
        kinds[compared.kind] += 1
        if compared.kind in ("FALSE PROOF", "FALSE ALARM", "not analysed"):
            reasons[compared.reason.rsplit("[", 1)[-1]] += compared.kind == "not analysed"
            print(f"{number}: {compared.kind}; lint: {compared.reason}; judge: {compared.judged}", flush=True)
    for kind, count in sorted(kinds.items()):
        print(f"{count:7} {kind}")
    for reason, count in sorted(reasons.items()):
        print(f"{count:7} not analysed for [{reason}")
    return int(bool(kinds["FALSE PROOF"] or kinds["FALSE ALARM"]))


if __name__ == "__main__":
    raise SystemExit(main())
