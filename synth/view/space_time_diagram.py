"""Space-time diagrams of programs: a row for each thread block, ranks below each other, time to the right.

Messages are arrows. Time is logical: an op stands one column after the latest op that it waits for (the op before it,
its dependencies, the sender of the message that it receives). So columns are steps of the longest chain, not seconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable
from html import escape
from typing import NamedTuple

from synth.errors import SynthError
from synth.program.program import RECEIVING, SENDING, Block, Op, Program
from synth.program.text import op_text

MOST = 60_000  # maximum ops of a picture, beyond which no viewer opens it
ROW, COLUMN, LEFT, TOP, BOX = 18, 44, 150, 44, 14
COLOURS = {
    "s": "#1764ab",
    "put": "#1764ab",
    "r": "#4b8f00",
    "get": "#4b8f00",
    "rcs": "#00857c",
    "rrs": "#c46a00",
    "rrcs": "#c46a00",
    "rrc": "#d99000",
    "re": "#d99000",
    "reduce": "#d99000",
    "glres": "#d99000",
    "gstore": "#1764ab",
    "cpy": "#777777",
}
OTHER = "#aaaaaa"
TIP = (
    '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="6" markerHeight="6" '
    'markerUnits="userSpaceOnUse"'
    ' orient="auto"><path d="M0 0L6 3L0 6z" fill="#444"/></marker></defs>'
)

Place = tuple[int, int, int]  # rank, block, op


class Timeline(NamedTuple):
    """The logical times of a program. `columns`: by op. `arrows`: (sender, receiver). `stuck`: ops that never start."""

    columns: dict[Place, int]
    arrows: list[tuple[Place, Place]]
    stuck: list[Place]


def timeline(program: Program) -> Timeline:
    """Return the logical time of every op, with FIFOs that never fill.

    Messages are FIFO data, or signals of one-sided programs.
    """
    run = _LogicalRun()
    blocks = [(gpu.rank, b, block) for gpu in program.gpus for b, block in enumerate(gpu.blocks)]
    at = dict.fromkeys(((rank, b) for rank, b, _ in blocks), 0)
    moved = True
    while moved:
        moved = False
        for rank, b, block in blocks:
            while at[rank, b] < len(block.ops) and run.start(rank, b, block, at[rank, b]):
                at[rank, b] += 1
                moved = True
    stuck = [(rank, b, i) for rank, b, block in blocks for i in range(at[rank, b], len(block.ops))]
    return Timeline(run.columns, run.arrows, stuck)


class _LogicalRun:
    """A run of a program in logical time. `posted`: the senders of messages that are not received yet."""

    def __init__(self) -> None:
        self.columns: dict[Place, int] = {}
        self.arrows: list[tuple[Place, Place]] = []
        self.posted: dict[Hashable, deque[Place]] = defaultdict(deque)
        self.now: dict[tuple[int, int], int] = {}
        self.met: dict[Hashable, list[int]] = defaultdict(list)

    def start(self, rank: int, b: int, block: Block, i: int) -> bool:
        """Run op `i` of a block, all of whose earlier ops have run. Return False where it still waits."""
        op, place = block.ops[i], (rank, b, i)
        if op.code == "barrier":
            visit = 1 + sum(before.code == "barrier" and before.group == op.group for before in block.ops[:i])
            arrivals = self.met[rank, op.group, b]
            if len(arrivals) < visit:
                arrivals.append(self.now.get((rank, b), -1))
            times = [self.met[rank, op.group, other] for other in op.group]
            if any(len(t) < visit for t in times):
                latest = None
            else:
                latest = max(t[visit - 1] for t in times)
            if latest is None:
                return False
            self.now[rank, b] = latest
        if any((rank, dep.block, dep.op) not in self.columns for dep in op.deps):
            return False
        inbox = [_inbox(rank, block, port) for port in _incoming(op)]
        if any(not self.posted[key] for key in inbox):
            return False
        sources = [self.posted[key].popleft() for key in inbox]
        self.arrows += [(source, place) for source in sources]
        waited = [*((rank, dep.block, dep.op) for dep in op.deps), *sources]
        latest = max([self.now.get((rank, b), -1), *(self.columns[source] for source in waited)])
        self.columns[place] = self.now[rank, b] = 1 + latest
        for key in _outboxes(rank, block, op):
            self.posted[key].append(place)
        return True


def _incoming(op: Op) -> Iterable[int]:
    if op.code in RECEIVING:
        return (-1,)
    return op.ports if op.code == "wait" else ()


def _inbox(rank: int, block: Block, port: int) -> Hashable:
    if port < 0:
        return block.recv, rank, block.channel
    own = block.ports[port]
    return own.peer, rank, own.kind, own.index


def _outboxes(rank: int, block: Block, op: Op) -> list[Hashable]:
    if op.code in SENDING:
        return [(rank, block.send, block.channel)]
    if op.code == "signal":
        return [(rank, block.ports[p].peer, block.ports[p].kind, block.ports[p].index) for p in op.ports]
    return []


def program_svg(program: Program) -> str:
    """Return the drawing; each op has its full text as a tooltip. Raises SynthError above `MOST` ops."""
    if program.ops > MOST:
        raise SynthError(
            f"{program.name} has {program.ops} instructions, a picture holds {MOST}; `synth show` without --svg "
            f"prints them"
        )
    drawn = timeline(program)
    rows: dict[tuple[int, int], int] = {}
    lines = []
    y = TOP
    for gpu in program.gpus:
        lines.append(f'<text x="8" y="{y + 12}" font-weight="bold">rank {gpu.rank}</text>')
        for b, block in enumerate(gpu.blocks):
            rows[gpu.rank, b] = y
            receives = "-" if block.recv is None else block.recv
            sends = "-" if block.send is None else block.send
            peers = f"{receives} → {sends}"
            lines.append(f'<text x="62" y="{y + 12}" fill="#555">{b}: {peers} ch {block.channel}</text>')
            y += ROW
        y += 8
    last = max(drawn.columns.values(), default=0)
    late = dict(zip(drawn.stuck, range(last + 2, last + 2 + len(drawn.stuck)), strict=True))
    columns = drawn.columns | late
    boxes = [
        _box(op, LEFT + COLUMN * columns[gpu.rank, b, i], rows[gpu.rank, b], (gpu.rank, b, i) in late)
        for gpu in program.gpus
        for b, block in enumerate(gpu.blocks)
        for i, op in enumerate(block.ops)
    ]
    arrows = []
    for a, z in drawn.arrows:
        x1, y1, x2, y2 = (
            LEFT + COLUMN * drawn.columns[a] + 36, rows[a[:2]] + BOX // 2,
            LEFT + COLUMN * drawn.columns[z], rows[z[:2]] + BOX // 2,
        )  # fmt: skip
        arrows.append(
            f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"'
            ' stroke="#444" stroke-width="0.7" stroke-opacity="0.6" marker-end="url(#tip)"/>'
        )
    width, height = LEFT + COLUMN * (last + 2 + len(late)) + 10, y + 10
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">',
        f"<title>{escape(program.name)}</title>", TIP, '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(program.name)}</text>',
        f'<text x="{LEFT}" y="36" fill="#555">logical time: {last + 1} columns, {len(arrows)} messages</text>',
        *lines, *arrows, *boxes, "</svg>", "",
    ))  # fmt: skip


def _box(op: Op, x: int, y: int, stuck: bool) -> str:
    colour = COLOURS.get(op.code, OTHER)
    style = f'fill="white" stroke="{colour}" stroke-dasharray="3"' if stuck else f'fill="{colour}"'
    ink = colour if stuck else "white"
    count = f" {op.count}" if op.count > 1 else ""
    words = escape(op.code) + count
    title = escape(op_text(op)) + (" (never starts)" if stuck else "")
    return (
        f'<g><title>{title}</title><rect x="{x}" y="{y}" width="36" height="{BOX}" rx="2" {style}/>'
        f'<text x="{x + 18}" y="{y + 11}" text-anchor="middle" font-size="9" fill="{ink}">{words}</text></g>'
    )
