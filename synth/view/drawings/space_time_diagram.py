"""Space-time diagrams of programs: a row for each thread block, ranks below each other, time to the right.

Messages are arrows. Time is logical: an op stands one column after the latest op that it waits for (the op before it,
its dependencies, the sender of the message that it receives). So columns are steps of the longest chain, not seconds.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable
from html import escape
from typing import NamedTuple

from synth.errors import SynthError
from synth.program.program import RECEIVING, SENDING, Block, Op, Program
from synth.program.text import op_text

MOST = 60_000  # maximum ops of a picture, beyond which no viewer opens it
ROW, COLUMN, LEFT, TOP, BOX = 18, 44, 150, 44, 14
PAINTED = {
    "#1764ab": "s put gstore",
    "#4b8f00": "r get",
    "#00857c": "rcs",
    "#c46a00": "rrs rrcs",
    "#d99000": "rrc re reduce glres",
    "#777777": "cpy",
}
COLOURS = {code: colour for colour, codes in PAINTED.items() for code in codes.split()}
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
    blocks = {(gpu.rank, b): block for gpu in program.gpus for b, block in enumerate(gpu.blocks)}
    at = dict.fromkeys(blocks, 0)  # the next op of each block
    now = dict.fromkeys(blocks, -1)
    met: dict[Hashable, list[int]] = defaultdict(list)  # by block and barrier: the times at which the block came there
    posted: dict[Hashable, deque[Place]] = defaultdict(deque)  # the senders of messages that are not received yet
    columns: dict[Place, int] = {}
    arrows: list[tuple[Place, Place]] = []

    def start(rank: int, b: int, block: Block, i: int) -> bool:
        """Run op `i` of a block, all of whose earlier ops have run. Return False where it still waits."""
        op, times = block.ops[i], [now[rank, b]]
        # A barrier is passed when every block of its group has come to it as often.
        if op.code == "barrier":
            visit = sum(before.code == "barrier" and before.group == op.group for before in block.ops[:i])
            if len(met[rank, b, op.group]) == visit:
                met[rank, b, op.group].append(now[rank, b])
            arrivals = [met[rank, other, op.group] for other in op.group]
            if any(len(came) <= visit for came in arrivals):
                return False
            times += [came[visit] for came in arrivals]
        # Ops of other blocks of this rank that it depends on.
        for dep in op.deps:
            if (rank, dep.block, dep.op) not in columns:
                return False
            times.append(columns[rank, dep.block, dep.op])
        # Messages that it receives and posts: of FIFOs by their connection, signals by their port.
        inbox: list[Hashable] = [(block.recv, rank, block.channel)] if op.code in RECEIVING else []
        outbox: list[Hashable] = [(rank, block.send, block.channel)] if op.code in SENDING else []
        for port in [block.ports[p] for p in op.ports]:
            if op.code == "wait":
                inbox.append((port.peer, rank, port.kind, port.index))
            elif op.code == "signal":
                outbox.append((rank, port.peer, port.kind, port.index))
        if any(not posted[key] for key in inbox):
            return False
        for key in inbox:
            source = posted[key].popleft()
            arrows.append((source, (rank, b, i)))
            times.append(columns[source])
        # It runs one column after the latest op that it waited for.
        columns[rank, b, i] = now[rank, b] = 1 + max(times)
        for key in outbox:
            posted[key].append((rank, b, i))
        return True

    # Each block runs as far as it can, until none moves any more.
    moved = True
    while moved:
        moved = False
        for place, block in blocks.items():
            while at[place] < len(block.ops) and start(*place, block, at[place]):
                at[place] += 1
                moved = True
    stuck = [(*place, i) for place, block in blocks.items() for i in range(at[place], len(block.ops))]
    return Timeline(columns, arrows, stuck)


def program_svg(program: Program) -> str:
    """Return the drawing; each op has its full text as a tooltip. Raises SynthError above `MOST` ops."""
    if program.ops > MOST:
        raise SynthError(
            f"{program.name} has {program.ops} instructions, a picture holds {MOST}; `synth show` without --svg "
            f"prints them"
        )
    drawn = timeline(program)
    # A row for each thread block, with its peers and its channel.
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
    # Ops that never start stand to the right of all others.
    last = max(drawn.columns.values(), default=0)
    late = dict(zip(drawn.stuck, range(last + 2, last + 2 + len(drawn.stuck)), strict=True))
    columns = drawn.columns | late
    boxes = []
    for gpu in program.gpus:
        for b, block in enumerate(gpu.blocks):
            for i, op in enumerate(block.ops):
                place = gpu.rank, b, i
                boxes.append(_box(op, LEFT + COLUMN * columns[place], rows[gpu.rank, b], place in late))
    # An arrow for each message, from the end of the sender to the receiver.
    arrows = []
    for a, z in drawn.arrows:
        x1, x2 = LEFT + COLUMN * columns[a] + 36, LEFT + COLUMN * columns[z]
        y1, y2 = rows[a[:2]] + BOX // 2, rows[z[:2]] + BOX // 2
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
    # Ops that never start are drawn in outline.
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
