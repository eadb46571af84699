"""Positions of ranks and switches in a drawing, from the links alone: groups, grids, and circles for the rest.

A machine is split into groups as long as its links show some: boxes, islands, quads. Groups stand beside each other,
what joins them in the middle, and each is laid out in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, cos, dist, hypot, isqrt, pi, sin

from synth.model.graphs import components

Spot = tuple[float, float]
Line = tuple[int, int, Fraction | int]  # end, end, rate
SPACING = 80  # between neighbours of a grid
MARGIN = 34  # around the ranks of a group
GAP = 30  # between groups
FRAME = 9  # from the frame of a group to those of the groups in it
EDGE = 14  # around the drawing
BENDS = (1, -1, 0.5, -0.5, 1.5, -1.5, 2, -2)  # the bends of a line that are tried, outwards first
CLEAR = 21  # least distance of a line from an end that it does not join


@dataclass
class PlacedGroup:
    """Positions of some ends about their middle; half of the width and height; frames (x, y, half width, half height)
    about groups."""

    spots: dict[int, Spot]
    width: float
    height: float
    frames: list[tuple[float, float, float, float]]

    def moved(self, x: float, y: float, sign: int = 1) -> PlacedGroup:
        """Return the block about another middle; mirrored from left to right with `sign` -1."""
        spots = {end: (x + sign * u, y + v) for end, (u, v) in self.spots.items()}
        frames = [(x + sign * u, y + v, w, h) for u, v, w, h in self.frames]
        return PlacedGroup(spots, self.width, self.height, frames)


@dataclass(frozen=True)
class MachineLayout:
    """A drawing's `width` and `height`, the place of each end, frames (x, y, width, height) about groups, and the bend
    of each line: how far its control point lies to the left of its middle."""

    width: int
    height: int
    spots: tuple[Spot, ...]
    frames: tuple[tuple[float, float, float, float], ...]
    bends: tuple[float, ...]


def layout(ranks: int, lines: Sequence[Line], ends: int, boxes: Sequence[int] = ()) -> MachineLayout:
    """Return the layout of `ends`, of which the first are `ranks` and the others switches, joined by `lines`.

    `boxes`: the box of each rank where it is known.
    """
    block = _block(list(range(ends)), ranks, lines, boxes if len(set(boxes)) > 1 else ())
    spots = [block.spots[end] for end in range(ends)]
    # A line that would pass an end bends; both directions of a pair bend alike.
    pairs = [(a, b) for a, b, _ in lines]
    middle_x = sum(x for x, _ in spots) / max(1, len(spots))
    middle_y = sum(y for _, y in spots) / max(1, len(spots))
    found: dict[tuple[int, int], float] = {}
    for a, b in pairs:
        if (b, a) in found:
            found[a, b] = -found[b, a]
        elif _passes(spots, a, b):
            # Outwards, else inwards, by the first curve that passes no other end.
            (x1, y1), (x2, y2) = spots[a], spots[b]
            outwards = (y2 - y1) * ((x1 + x2) / 2 - middle_x) - (x2 - x1) * ((y1 + y2) / 2 - middle_y)
            away = 2 * max(30.0, 0.16 * hypot(x2 - x1, y2 - y1)) * (-1 if outwards < 0 else 1)
            others = [spot for end, spot in enumerate(spots) if end not in (a, b)]
            bends = [away * part for part in BENDS]
            found[a, b] = next((bend for bend in bends if _is_clear(spots[a], spots[b], bend, others)), away)
    bent = [found.get((a, b), 0.0) for a, b in pairs]
    tops = [_control(spots[a], spots[b], bend / 2) for (a, b, _), bend in zip(lines, bent, strict=True) if bend]
    corners = [(-block.width, -block.height), (block.width, block.height)]
    left, top = (min(side) - EDGE for side in zip(*corners, *tops, strict=True))
    right, bottom = (max(side) + EDGE for side in zip(*corners, *tops, strict=True))
    frames = tuple((x - w - left, y - h - top, 2 * w, 2 * h) for x, y, w, h in block.frames)
    places = tuple((x - left, y - top) for x, y in spots)
    return MachineLayout(round(right - left), round(bottom - top), places, frames, tuple(bent))


def control(layout: MachineLayout, line: tuple[int, int], bend: float) -> Spot:
    """Return the control point of a line that bends."""
    return _control(layout.spots[line[0]], layout.spots[line[1]], bend)


def _control(start: Spot, end: Spot, bend: float) -> Spot:
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = hypot(dx, dy) or 1.0
    return (start[0] + end[0]) / 2 + bend * dy / length, (start[1] + end[1]) / 2 - bend * dx / length


def _is_clear(start: Spot, end: Spot, bend: float, others: Sequence[Spot]) -> bool:
    """Return True where the curve comes no nearer than `CLEAR` to `others`, at sixteen of its points."""
    x, y = _control(start, end, bend)
    for k in range(1, 16):
        u, v, w = (1 - k / 16) ** 2, 2 * (1 - k / 16) * k / 16, (k / 16) ** 2
        point = u * start[0] + v * x + w * end[0], u * start[1] + v * y + w * end[1]
        if any(dist(point, other) < CLEAR for other in others):
            return False
    return True


def _passes(spots: Sequence[Spot], a: int, b: int) -> bool:
    (x1, y1), (x2, y2) = spots[a], spots[b]
    dx, dy = x2 - x1, y2 - y1
    length = hypot(dx, dy) or 1.0
    for end, (x, y) in enumerate(spots):
        along = ((x - x1) * dx + (y - y1) * dy) / length
        if 0 < along < length and end not in (a, b) and abs((x - x1) * dy - (y - y1) * dx) / length < CLEAR:
            return True
    return False


def _block(ends: list[int], ranks: int, lines: Sequence[Line], boxes: Sequence[int] = ()) -> PlacedGroup:
    members = [end for end in ends if end < ranks]
    hubs = [end for end in ends if end >= ranks]
    inside = set(ends)
    inner = [line for line in lines if line[0] in inside and line[1] in inside]
    sides = () if hubs or boxes else _grid_sides(members, inner)
    if sides:
        # The ranks in rows.
        shifts, width, height = [(float(SPACING), 0.0)], (sides[-1] - 1.0) * SPACING, 0.0
        for k, side in enumerate(reversed(sides[:-1])):
            if k == 0:
                shift = (0.0, float(SPACING))
            elif k == 1 and side == 2:
                shift = (0.45 * SPACING, -0.4 * SPACING)
            elif width <= 2 * height:
                shift = (width + 0.9 * SPACING, 0.0)
            else:
                shift = (0.0, height + 0.9 * SPACING)
            shifts.append(shift)
            width, height = width + abs(shift[0]) * (side - 1), height + abs(shift[1]) * (side - 1)
        spots: dict[int, Spot] = {}
        for i, end in enumerate(members):
            x, y, rest = -width / 2, -height / 2 + sum(-min(0.0, shift[1]) for shift in shifts), i
            for side, shift in zip(reversed(sides), shifts, strict=True):
                rest, at = divmod(rest, side)
                x, y = x + at * shift[0], y + at * shift[1]
            spots[end] = (x, y)
        return PlacedGroup(spots, width / 2 + MARGIN, height / 2 + MARGIN, [])
    groups = _boxes(boxes) if boxes else _groups(ends, ranks, inner)
    if len(groups) < 2:
        # The ranks on a circle, two beside each other and four as a square, with each switch among its ranks.
        count = len(members)
        radius = max(75.0 if hubs or count > 2 else 36.0, min(16.0 * count, 110 + 4.5 * count))
        if count == 1:
            radius = 0.0
        start = {2: -pi, 4: -0.75 * pi}.get(count, -pi / 2)
        spots = {end: _on(radius, start + 2 * pi * i / count) for i, end in enumerate(members)}
        middle = []
        for hub in hubs:
            joined = [spots[end] for a, b, _ in inner for end in (a, b) if hub in (a, b) and end in members]
            x, y = (0.7 * sum(side) / max(1, len(joined)) for side in (*zip(*joined, strict=True),) or ((), ()))
            if hypot(x, y) < 25:
                middle.append(hub)
            else:
                spots[hub] = x, y
        depth = 0.0 if len(middle) == 1 else max(40.0, 0.45 * radius)
        spots |= {hub: _on(depth, -pi / 2 + 2 * pi * i / len(middle)) for i, hub in enumerate(middle)}
        width = max((abs(x) for x, _ in spots.values()), default=0.0)
        height = max((abs(y) for _, y in spots.values()), default=0.0)
        return PlacedGroup(spots, width + MARGIN, height + MARGIN, [])
    for hub in hubs:
        joined = {end for line in inner if hub in line[:2] for end in line[:2] if end < ranks}
        for group in groups:
            if joined and joined <= group:
                group.add(hub)
    blocks = []
    for group in groups:
        block = _block(sorted(group), ranks, inner)
        size = (block.width + FRAME, block.height + FRAME) if block.frames else (block.width, block.height)
        blocks.append(PlacedGroup(block.spots, *size, [(0, 0, *size), *block.frames]))
    grouped = set().union(*groups)
    # The blocks in rows, and the switches `hubs` between them.
    hubs = [hub for hub in hubs if hub not in grouped]
    columns = isqrt(len(blocks) - 1) + 1
    columns = next((k for k in range(columns, 2 * columns) if len(blocks) % k == 0), columns)
    rows = ceil(len(blocks) / columns)
    width = max(block.width for block in blocks)
    height = max(block.height for block in blocks)
    stacked = columns == 2 and rows == 1  # the switches, between two groups
    across = 2 * GAP + 50 if stacked and hubs else GAP
    aisle = 0 if stacked or not hubs else 60  # a row of switches after half of the rows
    found = PlacedGroup(
        {}, columns * width + (columns - 1) * across / 2, rows * height + ((rows - 1) * GAP + aisle) / 2, []
    )
    for k, block in enumerate(blocks):
        row, column = divmod(k, columns)
        x = -found.width + width + column * (2 * width + across)
        y = -found.height + height + row * (2 * height + GAP) + (aisle if row >= ceil(rows / 2) else 0)
        placed = block.moved(x, y, 1 if hubs or column % 2 == 0 else -1)  # links to the block before are short
        found.spots |= placed.spots
        found.frames += placed.frames
    middle = -found.height + ceil(rows / 2) * (2 * height + GAP) - GAP / 2 + aisle / 2
    for k, hub in enumerate(hubs):
        place = k - (len(hubs) - 1) / 2
        found.spots[hub] = (0, 36 * place) if stacked else (64 * place, middle)
    for x, y in (found.spots[hub] for hub in hubs):
        found.width, found.height = max(found.width, abs(x) + MARGIN), max(found.height, abs(y) + MARGIN)
    return found


def _boxes(boxes: Sequence[int]) -> list[set[int]]:
    groups: dict[int, set[int]] = {}
    for rank, box in enumerate(boxes):
        groups.setdefault(box, set()).add(rank)
    return list(groups.values())


def _groups(ends: list[int], ranks: int, lines: Sequence[Line]) -> list[set[int]]:
    """Return the groups of two ranks or more into which the ends fall, each with its switches; [] where there are none.

    Groups are joined by the slowest links, by links between switches, or by links that no third rank closes to a
    triangle, where this leaves complete graphs.
    """
    neighbours: dict[int, set[int]] = {end: set() for end in ends}
    for a, b, _ in lines:
        neighbours[a].add(b)
        neighbours[b].add(a)
    for rate in sorted({rate for *_, rate in lines})[:-1]:
        groups = _components(ends, ranks, [(a, b) for a, b, faster in lines if faster > rate])
        if len(groups) > 1:
            return groups
    groups = _components(ends, ranks, [(a, b) for a, b, _ in lines if min(a, b) < ranks])
    if len(groups) > 1:
        return groups
    triangles = []
    for a, b, _ in lines:
        if max(a, b) < ranks and any(end < ranks for end in neighbours[a] & neighbours[b]):
            triangles.append((a, b))
    groups = _components(ends, ranks, triangles)
    complete = all(neighbours[end] >= group - {end} for group in groups for end in group)
    return groups if complete else []


def _components(ends: list[int], ranks: int, lines: list[tuple[int, int]]) -> list[set[int]]:
    """Return the components that have ranks, or [] where one of them has a single rank."""
    groups: dict[int, set[int]] = {}
    for end, least in components(ends, lines).items():
        groups.setdefault(least, set()).add(end)
    with_ranks = [group for least, group in groups.items() if least < ranks]
    for group in with_ranks:
        if len([end for end in group if end < ranks]) == 1:
            return []
    return with_ranks


def _on(radius: float, angle: float) -> Spot:
    return radius * cos(angle), radius * sin(angle)


def _grid_sides(members: list[int], lines: Sequence[Line]) -> tuple[int, ...]:
    """Return the sides of the grid that the ranks form in their order, () where some link leaves the grid.

    A link joins neighbours along one side; the ends of a side are neighbours too, unless that is the only side.
    """
    place = {end: i for i, end in enumerate(members)}
    steps = {(place[a], place[b]) for a, b, _ in lines}
    for sides in sorted(_factorizations(len(members)), key=lambda sides: (len(sides), max(sides))):
        if steps and all(_neighbours(a, b, sides) for a, b in steps):
            return sides
    return ()


def _factorizations(count: int) -> Iterator[tuple[int, ...]]:
    if count > 1:
        yield (count,)
    for factor in range(2, count // 2 + 1):
        if not count % factor:
            for rest in _factorizations(count // factor):
                yield factor, *rest


def _neighbours(a: int, b: int, sides: tuple[int, ...]) -> bool:
    distances = []
    for side in reversed(sides):
        gap = abs(a % side - b % side)
        distances.append(min(gap, side - gap) if len(sides) > 1 else gap)
        a, b = a // side, b // side
    return sorted(distances)[-1] == 1 and sum(distances) == 1
