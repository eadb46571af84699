"""SVG drawings of topologies: groups of ranks, switches, and links whose width shows their bandwidth."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from html import escape
from math import hypot

from synth.model.rational import show
from synth.model.topology import Link, Topology
from synth.view.drawings.machine_layout import MachineLayout, Spot, control, layout
from synth.view.drawings.port_switches import Pairs, wiring

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
    names, links = _drawn(topology)
    picture = layout(topology.ranks, [(x.src, x.dst, x.bandwidth) for x in links], len(names))
    bends = {(x.src, x.dst): bend for x, bend in zip(links, picture.bends, strict=True)}
    # Lines are as wide as their links are fast; ranks and switches are drawn over them.
    widest = max((float(link.bandwidth) for link in links), default=1.0)
    lines = [_line(link, both, names, (picture, bends[link.src, link.dst], widest)) for link, both in _paired(links)]
    dots = [_node(name, end >= topology.ranks, *picture.spots[end]) for end, name in enumerate(names)]
    frames = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="12" fill="none" stroke="#bbb"/>'
        for x, y, w, h in picture.frames
    ]
    # A line of the legend for each kind of links, with up to four of their speeds.
    legend: list[str] = []
    for kind, colour in COLOURS.items():
        speeds = sorted({link.bandwidth for link in links if link.kind == kind})
        if speeds:
            said = ", ".join(map(show, speeds[:4])) + (", ..." if len(speeds) > 4 else "")
            y = 40 + 18 * len(legend)
            legend.append(f'<text x="12" y="{y}" fill="{colour}">{kind}: {said} GB/s a link</text>')
    head = 30 + 18 * len(legend)
    width, height = max(380, picture.width), picture.height + head
    place = f'<g transform="translate({(width - picture.width) / 2:.1f} {head})">'
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="13">',
        f"<title>{escape(topology.name)}</title>",
        TIP,
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="12" y="22" font-weight="bold">{escape(topology.name)}</text>', *legend,
        place, *frames, *lines, *dots, "</g>", "</svg>", "",
    ))  # fmt: skip


def _drawn(topology: Topology) -> tuple[list[str], list[Link]]:
    ranks = [str(rank) for rank in range(topology.ranks)]
    if topology.switches:
        return [*ranks, *topology.switches], list(topology.links)
    pairs = [(link.src, link.dst, link.bandwidth) for link in topology.links]
    found = wiring(Pairs(topology.ranks, pairs, [(limit.links, limit.bandwidth) for limit in topology.limits]))
    kinds = {k: link.kind for link, path in zip(topology.links, found.paths, strict=True) for k in path}
    links = [Link(a, b, Fraction(rate), kind=kinds[k]) for k, (a, b, rate) in enumerate(found.lines)]
    return [*ranks, *found.names], links


def _paired(links: list[Link]) -> list[tuple[Link, bool]]:
    """Return (link, both) for each line to draw; `both`: the line also stands for an equal link back."""
    # Each line takes its link, and one back of the same bandwidth and kind, out of those that remain.
    remaining = Counter((link.src, link.dst, link.bandwidth, link.kind) for link in links)
    pairs = []
    for link in links:
        key, back = (link.src, link.dst, link.bandwidth, link.kind), (link.dst, link.src, link.bandwidth, link.kind)
        if not remaining[key]:
            continue
        remaining[key] -= 1
        both = remaining[back] > 0
        remaining[back] -= both
        pairs.append((link, both))
    return pairs


def _line(link: Link, both: bool, names: list[str], picture: tuple[MachineLayout, float, float]) -> str:
    """Return the line of a link. `picture`: the layout, the bend of the link and the greatest bandwidth."""
    places, bend, widest = picture
    (x1, y1), (x2, y2) = start, end = places.spots[link.src], places.spots[link.dst]
    middle = control(places, (link.src, link.dst), bend)
    # A curve from edge to edge of the two ends.
    shift = 0 if both else 4  # two unequal directions lie beside each other
    (x1, y1), (x2, y2) = _outside(start, middle, shift), _outside(end, middle, -shift)
    width = 0.8 + 4 * float(link.bandwidth) / widest
    arrow = "" if both else ' marker-end="url(#tip)"'
    what = f"{names[link.src]} {'and' if both else 'to'} {names[link.dst]}: {show(link.bandwidth)} GB/s {link.kind}"
    return (
        f'<path d="M{x1:.1f} {y1:.1f}Q{middle[0]:.1f} {middle[1]:.1f} {x2:.1f} {y2:.1f}" fill="none"'
        f' stroke="{COLOURS.get(link.kind, COLOURS["unknown"])}"'
        f' stroke-width="{width:.1f}" stroke-opacity="0.75"{arrow}><title>{escape(what)}</title></path>'
    )


def _outside(end: Spot, towards: Spot, shift: float) -> Spot:
    dx, dy = towards[0] - end[0], towards[1] - end[1]
    length = hypot(dx, dy) or 1.0
    return end[0] + (15 * dx - shift * dy) / length, end[1] + (15 * dy + shift * dx) / length


def _node(name: str, switch: bool, x: float, y: float) -> str:
    if switch:
        box = f'<rect x="{x - 25:.1f}" y="{y - 11:.1f}" width="50" height="22" rx="4" fill="{SWITCH}" stroke="#333"/>'
        return box + _text(x, y, name[:8])
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="14" fill="white" stroke="#333"/>' + _text(x, y, name)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y + 4.5:.1f}" text-anchor="middle">{escape(text)}</text>'
