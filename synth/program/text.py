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

from synth.errors import FormatError, UsageError
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.program.program import SCHEMA, Block, Op, Program, Span, block_from_json, op_from_json

# The kinds of lines. An integer has 18 digits at most.
_COLLECTIVE = re.compile(r"(?P<name>\S+) ranks (?P<ranks>\d{1,6})(?: roots (?P<roots>[\d,]{1,9999}))?")
_HEAD = re.compile(
    r"chunks (?P<chunks>\d{1,18}) protocol (?P<protocol>\S+) in-place (?P<in_place>\S+) "
    r"bytes (?P<min_bytes>\d{1,18})\.\.(?P<max_bytes>\d{0,18})"
    r"(?: scratch-bytes (?P<scratch_bytes>\d{1,18}))?(?P<one_scratch> one-scratch)?"
)
_RANK = re.compile(
    r"rank (?P<rank>\d{1,18}): input (?P<input>\d{1,18}) output (?P<output>\d{1,18}) scratch (?P<scratch>\d{1,18})"
)
_BLOCK = re.compile(
    r"block (?P<number>\d{1,18}): send (?P<send>\d{1,18}|-) recv (?P<recv>\d{1,18}|-) channel (?P<channel>\d{1,18})"
    r"(?: via (?P<via>\S+))?(?: ports (?P<ports>\S+))?(?: loops (?P<loops>\S+))?"
)
_SPAN = re.compile(r"(?:(\d{1,18})\.)?([a-z])\[(\d{1,18})(?::(\d{1,18}))?\](!?)")
_NUMBERS = re.compile(r"\d{1,18}(?:[-.,:/]\d{1,18})*")


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
    doc: dict = {"schema": SCHEMA, "gpus": []}
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    number, line = 1, ""
    try:
        for number, line in lines:  # noqa: B007
            # the first three lines are the head, in this order
            if "name" not in doc:
                keyword, _, doc["name"] = line.partition(" ")
                if keyword != "program":
                    raise ValueError("expected `program NAME`")
            elif "collective" not in doc:
                doc["collective"] = _collective_json(line.removeprefix("collective "))
            elif "chunks" not in doc:
                doc |= _fields(_HEAD, line, "chunks N protocol P in-place both bytes MIN..MAX")
                Program.from_json(doc)
            else:
                _read_line(line, doc["gpus"])
        if "chunks" not in doc:
            raise ValueError("the text ends before its third line")
        return Program.from_json(doc)
    except (UsageError, ValueError, KeyError, TypeError, RecursionError) as fault:
        raise FormatError(f"{fault}; found {line[:60]!r}", file, number) from None


def _read_line(line: str, gpus: list[dict]) -> None:
    """Add a line of a rank, a block or an op to the documents of the ranks. Raises ValueError."""
    if line.startswith("rank "):
        gpus.append(_fields(_RANK, line, "rank R: input N output N scratch N") | {"blocks": []})
        return
    blocks = gpus[-1]["blocks"] if gpus else []
    if gpus and line.startswith("block "):
        block = _fields(_BLOCK, line, "block B: send P recv P channel C")
        if block.pop("number") != len(blocks):
            raise ValueError(f"expected block {len(blocks)}: blocks are numbered from 0 without gaps")
        # the block is checked with its line, its loops at the end, when its ops are known
        ports = []
        for port in filter(None, (block["ports"] or "").split(",")):
            kind, _, numbers = port.partition(":")
            ports.append([kind, *_numbers(numbers)])
        loops = list(map(_numbers, filter(None, (block["loops"] or "").split(","))))
        via = line.partition(" via ")[2].partition(" ")[0]  # names of switches, which may look like numbers
        block |= {"via": via.split(",") if via else [], "ports": ports, "loops": [], "ops": []}
        block_from_json(block)
        block["loops"] = loops
        blocks.append(block)
        return
    index, *words = line.split()
    if not blocks or index != str(len(blocks[-1]["ops"])) or not words:
        raise ValueError("expected a rank, a block or the next op: ops are numbered from 0 without gaps")
    op = _op_json(words)
    op_from_json(op)
    blocks[-1]["ops"].append(op)


def _op_json(words: list[str]) -> dict:
    """Return the document of an op from the words of its line after the number. Raises ValueError."""
    op: dict = {"code": words[0], "src": [], "dst": []}
    # a word that names a field has its value in the next word; all others are spans
    counts, side = set(), "src"
    rest = iter(words[1:])
    for word in rest:
        if word == "->":
            side = "dst"
        elif word == "flag":
            op["flag"] = True
        elif word == "after":
            op["deps"] = [_numbers(dep) for dep in next(rest, "").split(",")]
        elif word in ("ports", "group", "part"):
            op[word] = _numbers(next(rest, ""))
        elif word == "count":
            (op["count"],) = _numbers(next(rest, ""))
        elif span := _SPAN.fullmatch(word):
            rank, buffer, first, end, packet = span.groups()
            counts.add(int(end or int(first) + 1) - int(first))
            op[side].append([buffer, int(first), None if rank is None else int(rank), bool(packet)])
        else:
            raise ValueError(f"expected a span such as o[3] or 2.s[0:4] instead of {word!r}")
    if len(counts) > 1:
        raise ValueError(f"the spans of one op have one length, not {sorted(counts)}")
    if counts:
        op["count"] = counts.pop()
    return op


def _fields(pattern: re.Pattern[str], line: str, expected: str) -> dict:
    """Return the named fields of a line, with numbers as such: None for ``-`` and "". Raises ValueError."""
    match = pattern.fullmatch(line)
    if match is None:
        raise ValueError(f"expected `{expected}`")
    fields = {}
    for name, text in match.groupdict().items():
        fields[name] = int(text) if text and text.isdecimal() else text
        if text in ("", "-"):
            fields[name] = None
    return fields


def _numbers(text: str) -> list[int]:
    """Return the numbers of a text such as ``1.2-3`` or ``0,4``. Raises ValueError."""
    if not _NUMBERS.fullmatch(text):
        raise ValueError(f"expected numbers, not {text!r}")
    return list(map(int, re.findall(r"\d+", text)))


def _collective_json(text: str) -> dict | None:
    if text == "unknown":
        return None
    if text.startswith("{"):
        return json.loads(text)
    match = _COLLECTIVE.fullmatch(text)
    if match is None:
        raise ValueError("expected `collective NAME ranks N [roots R,..]`")
    roots = _numbers(match["roots"]) if match["roots"] else []
    return collective(match["name"], int(match["ranks"]), roots).to_json(1)


def _collective_text(task: Collective | None) -> str:
    if task is None:
        return "unknown"
    # a collective that its name, ranks and roots give is written so
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
