"""The timeline of a run as Chrome trace events (JSON), which Perfetto and chrome://tracing open.

A process for each rank with a thread for each thread block: what it did, and in lighter slices named "waits" what it
waited for; one more process with a thread for each link: what it carried. Times are those of the cost model, in
microseconds, as the format has it.

Format: "Trace Event Format", Google, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from synth.errors import SynthError
from synth.export.request import Request
from synth.program.events import Event
from synth.program.program import Block, Program
from synth.program.text import op_text

PICOSECONDS = 1_000_000  # in the format's unit


@dataclass(frozen=True)
class Trace:
    """The exporter of timelines. It draws what `Request.timeline` gives: a run of the program by an executor."""

    suffix: str = ".json"
    runtimes: tuple[str, ...] = ("synth",)

    def emit(self, program: Program, request: Request) -> str:
        """The timeline. Raises SynthError where no times are known."""
        if request.timeline is None or request.network is None:
            raise SynthError(
                "a timeline needs the times of the links: export a schedule, or name the machine with --topo"
            )
        return chrome(program, request.timeline(program, request.network, request.size))


def chrome(program: Program, events: Sequence[Event]) -> str:
    """The trace of `events`, one a line; the same events give the same text."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _all(program, events))
    return (
        f'{{"displayTimeUnit":"ns","otherData":{json.dumps({"program": program.name})},"traceEvents":[\n{lines}\n]}}\n'
    )


def _all(program: Program, events: Sequence[Event]) -> Iterator[dict]:
    links = {link: i for i, link in enumerate(sorted({event.link for event in events if event.link is not None}))}
    for gpu in program.gpus:
        yield from _named("process", gpu.rank, 0, f"rank {gpu.rank}")
        for b, block in enumerate(gpu.blocks):
            yield from _named("thread", gpu.rank, b, f"block {b}{_role(block)}")
    if links:
        yield from _named("process", program.ranks, 0, "links")
    for (src, dst, via), i in links.items():
        yield from _named("thread", program.ranks, i, " ".join([f"{src} to {dst}", *(["via", *via] if via else [])]))
    drawn: set[tuple[int, int, int, int, int]] = set()
    for event in events:
        if event[:5] not in drawn:  # an op of several transfers has an event for each
            drawn.add(event[:5])
            yield from _work(program, event)
        if event.link is not None:
            yield _slice(
                program.ranks,
                links[event.link],
                event.sent,
                event.arrival,
                event.code,
                "link",
                _place(event) | {"bytes": event.bytes},
            )


def _work(program: Program, event: Event) -> Iterator[dict]:
    op = program.gpus[event.rank].blocks[event.block].ops[event.op]
    args = _place(event)
    if event.start > event.ready:
        yield _slice(event.rank, event.block, event.ready, event.start, "waits", "wait", args)
    yield _slice(event.rank, event.block, event.start, event.end, event.code, "op", args | {"text": op_text(op)})


def _place(event: Event) -> dict:
    return {"rank": event.rank, "block": event.block, "op": event.op, "slice": event.slice, "part": event.part}


def _slice(process: int, thread: int, start: int, end: int, name: str, kind: str, args: dict) -> dict:
    times = {"ts": start / PICOSECONDS, "dur": (end - start) / PICOSECONDS}
    return {"ph": "X", "pid": process, "tid": thread, **times, "name": name, "cat": kind, "args": args}


def _named(what: str, process: int, thread: int, name: str) -> Iterator[dict]:
    yield {"ph": "M", "pid": process, "tid": thread, "name": f"{what}_name", "args": {"name": name}}
    yield {
        "ph": "M",
        "pid": process,
        "tid": thread,
        "name": f"{what}_sort_index",
        "args": {"sort_index": thread if what == "thread" else process},
    }


def _role(block: Block) -> str:
    ends = [f"{way} {peer}" for way, peer in (("to", block.send), ("from", block.recv)) if peer is not None]
    return f": {', '.join(ends)}, channel {block.channel}" if ends else ""
