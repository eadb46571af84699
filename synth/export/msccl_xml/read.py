"""Reader of MSCCL-IR from any source: msccl-tools, RCCL, this project. The Program means what the loaders would run.

Files differ. Those for the first runtime omit `outofplace`, and often `minBytes`, `maxBytes`, `ngpus` or `coll`. Those
for calls in place declare one of the two buffers empty and use the other for both. Comments come first; nops point at
-1. A file that no loader would accept, or that contradicts itself, is one FormatError with its line. No memory is
allocated because of a number in the file: counts are bounded, and elements are read one at a time.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import NoReturn

from synth.errors import FormatError, UsageError
from synth.export.msccl_xml.emit import MSCCL_UNLIMITED
from synth.model.collective import Collective, collective
from synth.model.documents import xml_tree
from synth.model.documents.text_file import bytes_of
from synth.program.buffer_layout import Layout
from synth.program.program import BUFFERS, PROTOCOLS, RECEIVING, SENDING, Block, Dep, Gpu, InPlace, Op, Program, Span
from synth.program.runtimes import ROOTED, RUNTIMES, Runtime, named

# bounds of a file that is read, far above those of any loader
MAX_BYTES = 1 << 26  # of the text
MAX_ELEMENTS = 1 << 19  # XML elements
MAX_RANKS, MAX_BLOCKS, MAX_OPS, MAX_CHANNELS = 4096, 1024, 1 << 14, 1024  # per file, rank, block, file
MAX_CHUNKS, MAX_MOVED = 1 << 16, 1 << 22  # chunks of a buffer; chunks that all steps move together
MAX_SIZE = 1 << 63  # bytes in `minBytes` and `maxBytes`
NAMES = {name: name for name in ("allreduce", "allgather", "reduce", "broadcast", "alltoall", "gather", "scatter")}
NAMES |= {"reduce_scatter": "reduce-scatter", "reducescatter": "reduce-scatter"}
OPERANDS = {"s": "s", "r": "d", "rcs": "d", "rrs": "s", "rrc": "sd", "rrcs": "sd", "cpy": "sd", "re": "sd", "nop": ""}
# An element of TACCL's and TE-CCL's files: a chunk of the input that is also one of the output. All loaders skip it.
SKIPPED = "copy"
# The elements around each element.
PARENTS = {"algo": [], "gpu": ["algo"], "tb": ["algo", "gpu"], "step": ["algo", "gpu", "tb"], SKIPPED: ["algo", "gpu"]}
DEFAULT_MAX = 1 << 27  # msccl's `maxBytes` for a file without one
_WHOLE = re.compile(r"-?\d{1,20}")


def read(
    text: str, file: str, task: Collective | None = None, root: int | None = None, runtime: str | None = None
) -> Program:
    """Return the Program in `text`.

    `task`: the collective if the file does not name it (``custom``, or no name at all). `root`: the root of a broadcast
    or reduce; by default the rank that the data comes from or goes to. `runtime`: the runtime that gives sizes and
    "in place" their meaning; by default msccl for a file that only msccl would load, else msccl-executor.
    Raises FormatError.
    """
    reader = _Reader(file, None if runtime is None else named(runtime))
    if "&" in text:
        # The loaders' lexers do not resolve references such as ``&#49;``: a reader that does reads another program.
        bare = re.sub(r"<!--.*?(-->|\Z)", lambda comment: "\n" * comment[0].count("\n"), text, flags=re.DOTALL)
        at = bare.find("&")
        if at >= 0:
            tag = (bare[bare.rfind("<", 0, at) + 1 : at].split(maxsplit=1) or ["?"])[0]
            what = re.split(r"[;\s\"]", bare[at : at + 12], maxsplit=1)[0]
            fault = f"<{tag[:24]}> has a reference ({what};), which no loader resolves"
            raise FormatError(fault, file, bare.count("\n", 0, at) + 1)
    xml_tree.scan(text, file, reader.start, reader.end, MAX_ELEMENTS)
    return reader.program(task, root)


def skipped_in(path: Path) -> int:
    """Return the number of elements in a file of MSCCL-IR that readers and loaders skip; 0 in any other file."""
    try:
        data = bytes_of(path, MAX_BYTES)
    except FormatError:
        return 0
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return 0
    return len(re.findall(rb"<copy[\s/>]", re.sub(rb"<!--.*?-->", b"", data, flags=re.DOTALL)))


@dataclass
class _Gpu:
    line: int
    sizes: tuple[int, int, int]
    blocks: dict[int, Block] = field(default_factory=dict)
    lines: dict[int, int] = field(default_factory=dict)


class _Reader:
    """Collector of the elements' contents; `tag`, `attributes` and `line` are those of the current element."""

    def __init__(self, file: str, runtime: Runtime | None) -> None:
        self.file, self.runtime = file, runtime
        self.path = []
        self.tag, self.attributes, self.line = "", {}, 1
        self.algo = {}
        self.gpus: dict[int, _Gpu] = {}
        self.gpu = _Gpu(0, (0, 0, 0))
        self.number, self.block, self.ops = 0, Block(None, None, 0, ()), list[Op]()
        self.moved = self.channels = 0

    def fail(self, what: str, line: int | None = None) -> NoReturn:
        raise FormatError(f"<{self.tag}> {what}", self.file, line or self.line)

    def text(self, name: str) -> str:
        if name not in self.attributes:
            self.fail(f"has no attribute {name!r}")
        return self.attributes[name]

    def whole(self, name: str, low: int, high: int) -> int:
        text = self.text(name)
        number = _number(text)
        if number is None or not low <= number <= high:
            self.fail(f'{name}="{text[:24]}": expected a whole number from {low} to {high}')
        return number

    def choice(self, name: str, known: Collection[str]) -> str:
        text = self.text(name)
        if text not in known:
            self.fail(f'{name}="{text[:24]}": {", ".join(known)} exist')
        return text

    def start(self, tag: str, attributes: dict[str, str], line: int) -> None:
        outer = self.tag
        self.tag, self.attributes, self.line = tag, attributes, line
        if not self.path and tag != "algo":
            self.fail("is the outermost element; MSCCL-IR has <algo>")
        if tag not in PARENTS:
            self.fail("is not an element of MSCCL-IR")
        if PARENTS[tag] != self.path:
            self.fail(f"stands inside <{outer}>")
        self.path.append(tag)
        if tag == "algo":
            self.algo = dict(attributes, line=str(line))
            self.whole("nchunksperloop", 1, MAX_CHUNKS)
            self.channels = self.whole("nchannels", 0, MAX_CHANNELS)
            self.choice("proto", PROTOCOLS)
        elif tag == "gpu":
            rank = self.whole("id", 0, MAX_RANKS - 1)
            if rank in self.gpus:
                self.fail(f'id="{rank}" stands twice, first in line {self.gpus[rank].line}')
            inputs, outputs, scratch = (self.whole(f"{name}_chunks", 0, MAX_CHUNKS) for name in "ios")
            self.gpu = self.gpus[rank] = _Gpu(line, (inputs, outputs, scratch))
        elif tag == "tb":
            self.number = number = self.whole("id", 0, MAX_BLOCKS - 1)
            if number in self.gpu.blocks:
                self.fail(f'id="{number}" stands twice on its gpu')
            send, recv = (self.whole(name, -1, MAX_RANKS - 1) for name in ("send", "recv"))
            lowest = -1 if send == recv == -1 else 0  # the oldest files give a block without peers no channel
            channel = max(0, self.whole("chan", lowest, max(0, self.channels - 1)))
            self.gpu.lines[number] = line
            receiver = None if send < 0 else send
            sender = None if recv < 0 else recv
            self.block = Block(receiver, sender, channel, ())
            self.ops = []
        elif tag == "step":
            self.step()

    def end(self, tag: str) -> None:
        self.path.pop()
        self.tag = self.path[-1] if self.path else tag
        if tag == "tb":
            self.gpu.blocks[self.number] = self.block._replace(ops=tuple(self.ops))

    def step(self) -> None:
        # Dependencies count steps in the order of the file, so numbers must be that order.
        number = self.whole("s", 0, MAX_OPS - 1)
        if number != len(self.ops):
            self.fail(
                f's="{number}" is step {len(self.ops)} of its tb; dependencies count steps from 0 in the order of '
                f"the file"
            )
        code = self.choice("type", OPERANDS)
        src, dst = self.span("src", "s" in OPERANDS[code]), self.span("dst", "d" in OPERANDS[code])
        count = self.whole("cnt", 0 if code == "nop" else 1, MAX_CHUNKS)
        block, step = self.whole("depid", -1, MAX_BLOCKS - 1), self.whole("deps", -1, MAX_OPS - 1)
        if block >= 0 > step:
            self.fail(f'depid="{block}" without deps')
        self.moved += count
        if self.moved > MAX_MOVED:
            self.fail(f'cnt="{count}": the steps move more than {MAX_MOVED} chunks by here')
        deps = (Dep(block, step),) if block >= 0 else ()
        flag = bool(self.whole("hasdep", 0, 1))
        self.ops.append(Op(code, src, dst, 1 if code == "nop" else count, deps, flag))

    def span(self, which: str, used: bool) -> tuple[Span, ...]:
        name = self.choice(f"{which}buf", BUFFERS)
        offset = self.whole(f"{which}off", 0 if used else -1, MAX_CHUNKS)
        return (Span(name, offset),) if used else ()

    def program(self, task: Collective | None, root: int | None) -> Program:
        """Return the program of the collected elements, once the document has ended."""
        self.tag, self.attributes, self.line = "algo", self.algo, int(self.algo["line"])
        ranks = len(self.gpus)
        if "ngpus" in self.algo and self.whole("ngpus", 1, MAX_RANKS) != ranks:
            self.fail(f'ngpus="{self.algo["ngpus"]}", and {ranks} gpus follow')
        if sorted(self.gpus) != list(range(ranks)) or not ranks:
            self.fail(f"has gpus {_some(self.gpus)}; expected 0, 1, .. without gaps")
        gpus = tuple(self.gpu_value(rank) for rank in range(ranks))
        # only msccl would load a file without an attribute that the others need, or with a name that they do not know
        needed = {"inplace", "outofplace", "minBytes", "maxBytes", "ngpus"}
        old = needed - self.algo.keys() or self.algo.get("coll") in ("reduce_scatter", "custom")
        runtime = self.runtime or RUNTIMES["msccl" if old else "msccl-executor"]

        # The calls and sizes that it serves, whose attributes the first runtime does not need.
        exact = runtime.exact_in_place
        if exact:
            self.attributes = {"inplace": "0", "minBytes": "0", "maxBytes": str(DEFAULT_MAX), **self.algo}
        within = self.whole("inplace", 0, 1)
        beside = 1 - within if exact else self.whole("outofplace", 0, 1)
        if not within and not beside:
            self.fail('inplace="0" outofplace="0": such a file is never used')
        kinds: dict[tuple[int, int], InPlace] = {(0, 1): "out", (1, 0): "in", (1, 1): "both"}
        low, high = self.whole("minBytes", 0, MAX_SIZE), self.whole("maxBytes", 0, MAX_SIZE)
        top = high or None
        if exact:
            top = None if high >= MSCCL_UNLIMITED else max(high - 1, 0)
        total = self.whole("nchunksperloop", 1, MAX_CHUNKS)
        title = self.algo.get("name") or Path(self.file).stem
        program = Program(title, None, total, gpus, self.text("proto"), kinds[within, beside], low, top)
        task = self.task(program, task, root)
        if task is None:
            return program
        if total % task.buffer_units:
            self.fail(
                f'nchunksperloop="{total}" is not a multiple of {task.buffer_units}, the parts of a buffer of '
                f"{task.name}"
            )
        program = replace(program, collective=task, chunks=total // task.buffer_units)
        return replace(program, gpus=_actual_buffers(program, self.algo.get("coll") == "custom"))

    def gpu_value(self, rank: int) -> Gpu:
        gpu = self.gpus[rank]
        if sorted(gpu.blocks) != list(range(len(gpu.blocks))):
            self.tag = "gpu"
            self.fail(f'id="{rank}" has thread blocks {_some(gpu.blocks)}; expected 0, 1, .. without gaps', gpu.line)
        for number, block in gpu.blocks.items():
            for attribute, peer in (("send", block.send), ("recv", block.recv)):
                if peer is not None and (peer == rank or peer >= len(self.gpus)):
                    self.tag = "tb"
                    self.fail(f'{attribute}="{peer}" is no other rank of 0..{len(self.gpus) - 1}', gpu.lines[number])
        return Gpu(rank, *gpu.sizes, tuple(gpu.blocks[b] for b in range(len(gpu.blocks))))

    def task(self, program: Program, task: Collective | None, root: int | None) -> Collective | None:
        name = self.algo.get("coll")
        if name is None or name == "custom":
            if task is not None and task.ranks != program.ranks:
                raise UsageError(
                    f"{task.name} over {task.ranks} ranks was asked for; {self.file} has {program.ranks} gpus"
                )
            return task
        our_name = NAMES[self.choice("coll", NAMES)]
        if our_name not in ROOTED:
            return collective(our_name, program.ranks)
        if root is None:  # the one rank that only sends, or that only receives
            codes = RECEIVING if our_name in ("broadcast", "scatter") else SENDING
            roots = {gpu.rank for gpu in program.gpus}
            roots -= {rank for (rank, _, _), op in program.placed_ops() if op.code in codes}
            root = roots.pop() if len(roots) == 1 else None
        if root is None:
            self.fail(f'coll="{name}": which rank is the root does not follow from the steps; give it with --root')
        return collective(our_name, program.ranks, [root])


@lru_cache(1 << 12)
def _number(text: str) -> int | None:
    """Return the whole number in `text`, or None. It is cached, because files repeat few numbers many times."""
    return int(text) if _WHOLE.fullmatch(text) else None


def _actual_buffers(program: Program, custom: bool) -> tuple[Gpu, ...]:
    """Return the ranks with the buffers of the collective instead of the declared ones.

    Files for calls in place may declare one buffer empty; msccl's custom files declare every buffer as large as the
    largest.
    """
    layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
    gpus = []
    for gpu, inputs, outputs in zip(program.gpus, layout.inputs, layout.outputs, strict=True):
        # Each runtime has its own way to declare a buffer that a rank does not have.
        input_size, output_size = gpu.input, gpu.output
        if program.in_place == "in":
            input_size, output_size = input_size or len(inputs), output_size or len(outputs)
        if custom:
            input_size = len(inputs) if input_size == program.loop_chunks else input_size
            output_size = len(outputs) if output_size == program.loop_chunks else output_size
        gpus.append(gpu._replace(input=input_size, output=output_size))
    return tuple(gpus)


def _some(numbers: object) -> str:
    listed = sorted(numbers)  # type: ignore[call-overload]
    if not listed:
        return "none"
    return ", ".join(map(str, listed[:8])) + (", .." if len(listed) > 8 else "")
