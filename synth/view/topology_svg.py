"""SVG drawings of topologies: a circle of ranks for each box, and links whose width shows their bandwidth."""

from __future__ import annotations

from html import escape
from math import cos, hypot, pi, sin

from synth.model.rational import show
from synth.model.topology import Link, Topology

COLOURS = {"nvlink": "#4b8f00", "xgmi": "#c4342b", "pcie": "#8a6d3b", "net": "#1764ab", "unknown": "#555555"}
SWITCH = "#f2f2f2"
TIP = (
    '<defs><marker id="tip" viewBox="0 0 6 6" refX="6" refY="3" markerWidth="7" markerHeight="7" '
    'markerUnits="userSpaceOnUse"'
    ' orient="auto"><path d="M0 0L6 3L0 6z"/></marker></defs>'
)


def topology_svg(topology: Topology) -> str:
    """Return the drawing: one line for both directions where they are equal, else an arrow for each.

    The colour of a line shows the kind of its links.
    """
    ends = topology.ranks + len(topology.switches)
    spots, width, height = positions(topology)
    lines = [_line(link, both, spots, _widest(topology)) for link, both in _paired(topology)]
    dots = [_node(topology, end, *spots[end]) for end in range(ends)]
    present = {link.kind for link in topology.links}
    kinds = [kind for kind in COLOURS if kind in present]
    legend = [
        f'<text x="12" y="{height - 12 - 18 * i}" fill="{COLOURS[kind]}">{kind}: {_speeds(topology, kind)} GB/s a '
        f"link</text>"
        for i, kind in enumerate(reversed(kinds))
    ]
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="13">',
        f"<title>{escape(topology.name)}</title>",
        TIP,
        '<rect width="100%" height="100%" fill="white"/>',
        *lines, *dots, f'<text x="12" y="22" font-weight="bold">{escape(topology.name)}</text>', *legend, "</svg>", "",
    ))  # fmt: skip


def positions(topology: Topology) -> tuple[list[tuple[float, float]], int, int]:
    """Return the position of each rank and switch, and the width and height of the drawing.

    The ranks of a box form a circle, the boxes stand on a circle, and switches in the middle.
    """
    nodes = topology.nodes or (0,) * topology.ranks
    boxes: dict[int, list[int]] = {}
    for rank in range(topology.ranks):
        boxes.setdefault(nodes[rank], []).append(rank)
    radius = max(140 if len(boxes) == 1 else 85, 9 * max(map(len, boxes.values())))
    distance = 0 if len(boxes) == 1 else (radius + 45) / sin(pi / len(boxes))  # of the boxes from the middle
    turn = 0.25 if len(boxes) == 2 else 0.0  # two boxes stand beside each other
    spots = dict.fromkeys(range(topology.ranks), (0.0, 0.0))
    for b, members in enumerate(boxes.values()):
        x, y = _on((0, 0), distance, b / len(boxes) - turn)
        spots |= {rank: _on((x, y), radius, i / len(members)) for i, rank in enumerate(members)}
    count = len(topology.switches)
    inner = (distance or radius) * 0.45 if count > 1 else 0
    ends = [*spots.values(), *(_on((0, 0), inner, i / count) for i in range(count))]
    xs = [x for x, _ in ends]
    ys = [y for _, y in ends]
    left, top = min(xs) - 60, min(ys) - 60
    width, height = max(xs) - left + 60, max(ys) - top + 100
    return [(x - left, y - top) for x, y in ends], max(380, round(width)), round(height)


def _on(centre: tuple[float, float], radius: float, turn: float) -> tuple[float, float]:
    angle = 2 * pi * turn - pi / 2
    return centre[0] + radius * cos(angle), centre[1] + radius * sin(angle)


def _paired(topology: Topology) -> list[tuple[Link, bool]]:
    """Return (link, both) for each line to draw; `both`: the line also stands for an equal link back."""
    remaining: dict[tuple, int] = {}
    for link in topology.links:
        key = (link.src, link.dst, link.bandwidth, link.kind)
        remaining[key] = remaining.get(key, 0) + 1
    pairs = []
    for link in topology.links:
        key, back = (link.src, link.dst, link.bandwidth, link.kind), (link.dst, link.src, link.bandwidth, link.kind)
        if not remaining[key]:
            continue
        remaining[key] -= 1
        both = remaining.get(back, 0) > 0
        remaining[back] = remaining.get(back, 0) - both
        pairs.append((link, both))
    return pairs


def _line(link: Link, both: bool, spots: list[tuple[float, float]], widest: float) -> str:
    (x1, y1), (x2, y2) = spots[link.src], spots[link.dst]
    length = hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    shift = 0 if both else 4  # two unequal directions lie beside each other
    x1, y1, x2, y2 = (
        x1 + 15 * dx - shift * dy,
        y1 + 15 * dy + shift * dx,
        x2 - 15 * dx - shift * dy,
        y2 - 15 * dy + shift * dx,
    )
    width = 0.8 + 4 * float(link.bandwidth) / widest
    arrow = "" if both else ' marker-end="url(#tip)"'
    what = f"{link.src} {'and' if both else 'to'} {link.dst}: {show(link.bandwidth)} GB/s {link.kind}"
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
        f'stroke="{COLOURS.get(link.kind, COLOURS["unknown"])}"'
        f' stroke-width="{width:.1f}" stroke-opacity="0.75"{arrow}><title>{escape(what)}</title></line>'
    )


def _node(topology: Topology, end: int, x: float, y: float) -> str:
    if end >= topology.ranks:
        name = topology.switches[end - topology.ranks]
        box = f'<rect x="{x - 22:.1f}" y="{y - 11:.1f}" width="44" height="22" rx="4" fill="{SWITCH}" stroke="#333"/>'
        return box + _text(x, y, name[:8])
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="14" fill="white" stroke="#333"/>' + _text(x, y, str(end))


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{escape(text)}</text>'


def _widest(topology: Topology) -> float:
    return max((float(link.bandwidth) for link in topology.links), default=1.0)


def _speeds(topology: Topology, kind: str) -> str:
    speeds = sorted({link.bandwidth for link in topology.links if link.kind == kind})
    shown = [show(s) for s in speeds[:4]]
    return ", ".join(shown) + (", ..." if len(speeds) > 4 else "")
