"""A Program as text that people read and golden tests compare, and back.

    program ring-allgather
    collective allgather ranks 4
    chunks 1 protocol Simple in-place both bytes 0..
    rank 0: input 1 output 4 scratch 0
      block 0: send 1 recv 3 channel 0
        0 cpy i[0] -> o[0] flag
        1 s o[0] after 1.2
        2 rcs -> o[3]
      block 1: send 2 recv - channel 0 via s0 ports memory:2:0
        0 put i[0:2] -> 2.s[4:6] ports 0

``b[x:y]`` are chunks x to y - 1 of buffer b, ``b[x]`` one chunk; ``2.s[..]`` lies on rank 2, ``s[..]!`` is a packet
span. ``after b.o``: dependencies (``b.o-2``: two turns before); ``flag``: others may wait for this op; ``part 2/7``:
its share. ``loops 0-8:1:65536``: ops 0 to 7 run in turns, for 65536 bytes of 1 chunk at a time. ``scratch-bytes N``
and ``one-scratch`` may end the third line. A collective that its name and roots do not give (custom, uneven) is written
as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from synth.errors import FormatError, UsageError
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.program.program import (
    BUFFERS,
    CODES,
    PORT_KINDS,
    PROTOCOLS,
    Block,
    Dep,
    Gpu,
    Loop,
    Op,
    Part,
    Port,
    Program,
    Span,
    checked_loops,
    checked_part,
)

T = TypeVar("T")

_SPAN = re.compile(r"(?:(\d+)\.)?([a-z])\[(\d+)(?::(\d+))?\](!?)")
_HEAD = re.compile(
    r"chunks (\d+) protocol (\S+) in-place (out|in|both) bytes (\d+)\.\.(\d*)(?: scratch-bytes (\d+))?( one-scratch)?"
)
_RANK = re.compile(r"rank (\d+): input (\d+) output (\d+) scratch (\d+)")
_BLOCK = re.compile(
    r"block (\d+): send (\d+|-) recv (\d+|-) channel (\d+)(?: via (\S+))?(?: ports (\S+))?(?: loops (\S+))?"
)
_LOOP = re.compile(r"(\d{1,9})-(\d{1,9}):(\d{1,9}):(\d{1,12})")
_DEP = re.compile(r"(\d{1,9})\.(\d{1,9})(?:-(\d{1,9}))?")


def dump(program: Program) -> str:
    """Return the text of `program`, one line for each op; equal programs have equal texts."""
    top = "" if program.max_bytes is None else str(program.max_bytes)
    scratch = "" if program.scratch_bytes is None else f" scratch-bytes {program.scratch_bytes}"
    scratch += " one-scratch" if program.one_scratch else ""
    lines = [
        f"program {program.name}",
        f"collective {_collective_text(program.collective)}",
        f"chunks {program.chunks} protocol {program.protocol} in-place {program.in_place} bytes "
        f"{program.min_bytes}..{top}{scratch}",
    ]
    for gpu in program.gpus:
        lines.append(f"rank {gpu.rank}: input {gpu.input} output {gpu.output} scratch {gpu.scratch}")
        for b, block in enumerate(gpu.blocks):
            lines.append("  " + _block_text(b, block))
            lines += [f"    {i} {op_text(op)}" for i, op in enumerate(block.ops)]
    return "\n".join(lines) + "\n"


def op_text(op: Op) -> str:
    """Return the text of one op, such as ``rrc o[3] -> o[3] after 1.2 flag``."""
    parts = [op.code, *(span_text(span, op.count) for span in op.src)]
    if op.dst:
        parts += ["->", *(span_text(span, op.count) for span in op.dst)]
    if not op.src and not op.dst and op.count != 1:
        parts.append(f"count {op.count}")
    if op.ports:
        parts += ["ports", ",".join(map(str, op.ports))]
    if op.group:
        parts += ["group", ",".join(map(str, op.group))]
    if op.deps:
        deps = [f"{dep.block}.{dep.op}-{dep.turns}".removesuffix("-0") for dep in op.deps]
        parts += ["after", ",".join(deps)]
    if op.part is not None:
        parts += ["part", f"{op.part.index}/{op.part.of}"]
    if op.flag:
        parts.append("flag")
    return " ".join(parts)


def span_text(span: Span, count: int) -> str:
    """Return the text of one span of `count` chunks, such as ``2.s[4:6]!``."""
    owner = "" if span.rank is None else f"{span.rank}."
    end = f":{span.offset + count}" if count != 1 else ""
    return f"{owner}{span.buffer}[{span.offset}{end}]{'!' if span.packet else ''}"


def parse(text: str, file: str | None = None) -> Program:
    """Return the program of a text that `dump` gave. Raises FormatError with the line."""
    return _Reader(text, file).program()


def _collective_text(task: Collective | None) -> str:
    if task is None:
        return "unknown"
    named = task.name in COLLECTIVES and COLLECTIVES[task.name][1] in ((), ("root",))
    named |= task.name in ("allgather", "reduce-scatter", "alltoall")
    if named and collective(task.name, task.ranks, task.roots) == task:
        roots = f" roots {','.join(map(str, task.roots))}" if task.roots else ""
        return f"{task.name} ranks {task.ranks}{roots}"
    return json.dumps(task.document, separators=(",", ":"), sort_keys=True)


def _block_text(number: int, block: Block) -> str:
    send = "-" if block.send is None else block.send
    recv = "-" if block.recv is None else block.recv
    text = f"block {number}: send {send} recv {recv} channel {block.channel}"
    ports = ["{}:{}:{}".format(*port) for port in block.ports]
    loops = ["{}-{}:{}:{}".format(*loop) for loop in block.loops]
    for name, parts in (("via", block.via), ("ports", ports), ("loops", loops)):
        text += f" {name} {','.join(parts)}" if parts else ""
    return text


class _Reader:
    """Recursive-descent reader of the text; `at` is the index of the next line that is not empty."""

    def __init__(self, text: str, file: str | None) -> None:
        self.lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
        self.at, self.file = 0, file

    def fail(self, fault: str) -> NoReturn:
        line = self.lines[min(self.at, len(self.lines) - 1)][0] if self.lines else 1
        raise FormatError(fault, self.file, line)

    def peek(self) -> str:
        return self.lines[self.at][1] if self.at < len(self.lines) else ""

    def match(self, pattern: re.Pattern[str], expected: str) -> re.Match[str]:
        match = pattern.fullmatch(self.peek())
        if match is None:
            self.fail(f"expected {expected}, found {self.peek()[:60]!r}")
        self.at += 1
        return match

    def program(self) -> Program:
        name = self.match(re.compile(r"program (.*)"), "`program NAME`")[1]
        task = self.collective(self.match(re.compile(r"collective (.*)"), "`collective NAME ranks N`")[1])
        head = self.match(_HEAD, "`chunks N protocol P in-place both bytes MIN..MAX`")
        if head[2] not in PROTOCOLS:
            self.at -= 1
            self.fail(f"unknown protocol {head[2]!r}; {', '.join(PROTOCOLS)} exist")
        gpus = []
        while self.at < len(self.lines):
            gpus.append(self.gpu())
        low, high = int(head[4]), int(head[5]) if head[5] else None
        scratch = int(head[6]) if head[6] else None
        sizes = (low, high, scratch, bool(head[7]))
        return Program(name, task, int(head[1]), tuple(gpus), head[2], head[3], *sizes)  # type: ignore[arg-type]

    def collective(self, text: str) -> Collective | None:
        if text == "unknown":
            return None
        match = re.fullmatch(r"(\S+) ranks (\d{1,6})(?: roots ([\d,]+))?", text)
        try:
            if text.startswith("{"):
                return Collective.from_json(json.loads(text), 1)
            if match is None:
                raise ValueError(f"expected `collective NAME ranks N [roots R,..]`, found {text[:60]!r}")
            return collective(match[1], int(match[2]), [int(r) for r in (match[3] or "").split(",") if r])
        except (UsageError, ValueError, KeyError, TypeError, RecursionError) as error:
            self.at -= 1
            self.fail(f"{error}")

    def gpu(self) -> Gpu:
        rank, inputs, outputs, scratch = map(int, self.match(_RANK, "`rank R: input N output N scratch N`").groups())
        blocks = []
        while self.peek().startswith("block "):
            blocks.append(self.block(len(blocks)))
        return Gpu(rank, inputs, outputs, scratch, tuple(blocks))

    def block(self, number: int) -> Block:
        head = self.match(_BLOCK, "`block B: send P recv P channel C`")
        if int(head[1]) != number:
            self.at -= 1
            self.fail(f"block {head[1]}, expected block {number}: blocks are numbered from 0 without gaps")
        ports = []
        for text in head[6].split(",") if head[6] else ():
            port = re.fullmatch(r"([a-z]+):(\d+):(\d+)", text)
            if port is None or port[1] not in PORT_KINDS:
                self.at -= 1
                self.fail(f"expected a port such as memory:2:0, found {text!r}")
            ports.append(Port(port[1], int(port[2]), int(port[3])))
        ops = []
        while (line := self.peek()) and line[0].isdigit():
            ops.append(self.op(line, len(ops)))
            self.at += 1
        send = None if head[2] == "-" else int(head[2])
        recv = None if head[3] == "-" else int(head[3])
        via = tuple(head[5].split(",")) if head[5] else ()
        loops = []
        for text in filter(None, (head[7] or "").split(",")):
            loops.append(Loop(*self.parsed(_LOOP, text, "a loop such as 0-8:1:65536")))
        return Block(
            send, recv, int(head[4]), tuple(ops), via, tuple(ports), self.checked(checked_loops, loops, len(ops))
        )

    def checked(self, check: Callable[..., T], *values: object) -> T:
        """Return the value that `check` lets pass."""
        try:
            return check(*values)
        except ValueError as error:
            self.at = min(self.at, len(self.lines) - 1)
            self.fail(f"{error}")

    def op(self, line: str, number: int) -> Op:
        index, code, *words = [*line.split(), ""][: max(2, len(line.split()))]
        if index != str(number):
            self.fail(f"op {index}, expected op {number}: ops are numbered from 0 without gaps")
        if code not in CODES:
            self.fail(f"unknown instruction {code!r}")
        src = []
        dst = []
        counts = set()
        spans, fields, flag = src, {}, False
        words = iter(words)
        for word in words:
            if word == "->":
                spans = dst
            elif word == "flag":
                flag = True
            elif word in ("ports", "group", "after", "count", "part"):
                fields[word] = next(words, "")
            else:
                spans.append(self.span(word, counts))
        if len(counts) > 1:
            self.fail(f"the spans of one op have one length; found {sorted(counts)}")
        count = counts.pop() if counts else self.numbers(fields.get("count", "1"))[0]
        deps = []
        for item in filter(None, fields.get("after", "").split(",")):
            deps.append(Dep(*self.parsed(_DEP, item, "a dependency such as 1.2")))
        part = self.checked(checked_part, Part(*self.numbers(fields["part"], "/", 2))) if "part" in fields else None
        ports = tuple(self.numbers(fields["ports"])) if "ports" in fields else ()
        group = tuple(self.numbers(fields["group"])) if "group" in fields else ()
        return Op(code, tuple(src), tuple(dst), count, tuple(deps), flag, ports, group, part)

    def parsed(self, pattern: re.Pattern[str], text: str, expected: str) -> Iterator[int]:
        """Return the numbers of `text`, 0 for those that it leaves out."""
        match = pattern.fullmatch(text)
        if match is None:
            self.fail(f"expected {expected}, found {text!r}")
        return (int(number or 0) for number in match.groups())

    def numbers(self, text: str, separator: str = ",", count: int | None = None) -> list[int]:
        parts = text.split(separator)
        if not all(re.fullmatch(r"\d{1,9}", part) for part in parts) or count not in (None, len(parts)):
            self.fail(f"expected numbers, found {text!r}")
        return list(map(int, parts))

    def span(self, word: str, counts: set[int]) -> Span:
        match = _SPAN.fullmatch(word)
        if match is None or match[2] not in BUFFERS:
            self.fail(f"expected a span such as o[3] or 2.s[0:4], found {word!r}")
        start = int(match[3])
        counts.add(int(match[4]) - start if match[4] else 1)
        return Span(match[2], start, None if match[1] is None else int(match[1]), bool(match[5]))
