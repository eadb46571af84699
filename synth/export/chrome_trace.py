"""The timeline of a run as Chrome trace events (JSON), which Perfetto and chrome://tracing open.

Each rank is a process with a thread for each thread block: its ops, and lighter slices named "waits" before them. One
more process has a thread for each link, with the transfers that it carried. Times are those of the cost model, in
microseconds, the unit of the format.

Format: "Trace Event Format", Google, https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from synth.errors import SynthError
from synth.export.request import Target
from synth.program.events import OpEvent
from synth.program.program import Program
from synth.program.text import op_text

PICOSECONDS = 1_000_000  # picoseconds in a microsecond, the unit of the format


@dataclass(frozen=True)
class Trace:
    """The exporter of timelines: it runs the program by `Target.timeline` and draws the events of the run."""

    suffix: str = ".json"
    runtimes: tuple[str, ...] = ("synth",)

    def emit(self, program: Program, target: Target) -> str:
        """Return the timeline as JSON. Raises SynthError if the target has no network or no timeline function."""
        if target.timeline is None or target.network is None:
            raise SynthError(
                "a timeline needs the times of the links: export a schedule, or name the machine with --topo"
            )
        return chrome(program, target.timeline(program, target.network, target.request.size))


def chrome(program: Program, events: Sequence[OpEvent]) -> str:
    """Return the Chrome trace (JSON) of the `events` of a run of `program`; the same events give the same text."""
    lines = ",\n".join(json.dumps(event, separators=(",", ":")) for event in _trace_events(program, events))
    return (
        f'{{"displayTimeUnit":"ns","otherData":{json.dumps({"program": program.name})},"traceEvents":[\n{lines}\n]}}\n'
    )


def _trace_events(program: Program, events: Sequence[OpEvent]) -> Iterator[dict]:
    # Rows are named first: a process a rank, with its thread blocks, and one for all links.
    used_links = {event.link for event in events if event.link is not None}
    links = {link: i for i, link in enumerate(sorted(used_links))}
    for gpu in program.gpus:
        yield from _named("process", gpu.rank, 0, f"rank {gpu.rank}")
        for b, block in enumerate(gpu.blocks):
            ends = [f"{word} {peer}" for word, peer in (("to", block.send), ("from", block.recv)) if peer is not None]
            role = f": {', '.join(ends)}, channel {block.channel}" if ends else ""
            yield from _named("thread", gpu.rank, b, f"block {b}{role}")
    if links:
        yield from _named("process", program.ranks, 0, "links")
    for (src, dst, via), i in links.items():
        switches = ["via", *via] if via else []
        yield from _named("thread", program.ranks, i, " ".join([f"{src} to {dst}", *switches]))
    # Then the ops with their waits, and the transfers on the rows of their links.
    drawn = set()
    for event in events:
        args = {name: getattr(event, name) for name in ("rank", "block", "op", "slice", "part")}
        row = (event.rank, event.block)
        if event[:5] not in drawn:  # an op of several transfers has an event for each
            drawn.add(event[:5])
            if event.start > event.ready:
                yield _slice(row, (event.ready, event.start), "waits", "wait", args)
            op = program.gpus[event.rank].blocks[event.block].ops[event.op]
            yield _slice(row, (event.start, event.end), event.code, "op", args | {"text": op_text(op)})
        if event.link is not None:
            row, times = (program.ranks, links[event.link]), (event.sent, event.arrival)
            yield _slice(row, times, event.code, "link", args | {"bytes": event.bytes})


def _slice(row: tuple[int, int], times: tuple[int, int], name: str, kind: str, args: dict) -> dict:
    """Return an event on `row` (process, thread) between two `times` in ps."""
    (process, thread), (start, end) = row, times
    span = {"ts": start / PICOSECONDS, "dur": (end - start) / PICOSECONDS}
    return {"ph": "X", "pid": process, "tid": thread, **span, "name": name, "cat": kind, "args": args}


def _named(row: str, process: int, thread: int, name: str) -> Iterator[dict]:
    """Yield the events that name and sort a process or thread; `row` is "process" or "thread"."""
    index = thread if row == "thread" else process
    for field, value in (("name", name), ("sort_index", index)):
        yield {"ph": "M", "pid": process, "tid": thread, "name": f"{row}_{field}", "args": {field: value}}
