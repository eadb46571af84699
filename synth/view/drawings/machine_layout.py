"""Positions of ranks and switches in a drawing, from the links alone: groups, grids, and circles for the rest.

A machine is split into groups as long as its links show some: boxes, islands, quads. Groups stand beside each other,
what joins them in the middle, and each is laid out in the same way. Positions are complex numbers: x + y·i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, pi

import numpy as np

from synth.model.graphs import components

Spot = tuple[float, float]
Line = tuple[int, int, Fraction | int]  # end, end, rate
SPACING = 80  # between neighbours of a grid
MARGIN = 34  # around the ranks of a group
GAP = 30  # between groups
FRAME = 9  # from the frame of a group to those of the groups in it
EDGE = 14  # around the drawing
BENDS = (1, -1, 0.5, -0.5, 1.5, -1.5, 2, -2)  # the bends of a line that are tried after a straight one, outwards first
CLEAR = 21  # least distance of a line from an end that it does not join
ALONG = np.linspace(0, 1, 65)[1:-1, None]  # where on a line that distance is taken


@dataclass
class PlacedGroup:
    """Positions of some ends about their middle; half of the width and of the height; frames about groups.

    A frame has the position of its middle, and half of its width and height.
    """

    spots: dict[int, complex]
    width: float
    height: float
    frames: list[tuple[complex, float, float]]


@dataclass(frozen=True)
class MachineLayout:
    """A drawing's `width` and `height`, the place of each end, frames (x, y, width, height) about groups, and the bend
    of each line: how far its control point lies to the left of its middle."""

    width: int
    height: int
    spots: tuple[Spot, ...]
    frames: tuple[tuple[float, float, float, float], ...]
    bends: tuple[float, ...]


def layout(ranks: int, lines: Sequence[Line], ends: int) -> MachineLayout:
    """Return the layout of `ends`, of which the first are `ranks` and the others switches, joined by `lines`."""
    block = _block(list(range(ends)), ranks, lines)
    spots = np.array([block.spots[end] for end in range(ends)], complex)

    # A line that would pass an end bends, by the first curve that passes none; both directions of a pair bend alike.
    found: dict[tuple[int, int], float] = {}
    for a, b, _ in lines:
        if (b, a) in found:
            found[a, b] = -found[b, a]
            continue
        start, end = spots[a], spots[b]
        left = _control(start, end, 1) - (start + end) / 2
        outwards = ((start + end) / 2 - spots.mean()) * left.conjugate()
        away = 2 * max(30.0, 0.16 * abs(end - start)) * (-1 if outwards.real < 0 else 1)
        others = np.delete(spots, [a, b])
        found[a, b] = away
        for part in (0, *BENDS):
            if _is_clear(start, end, away * part, others):
                found[a, b] = away * part
                break
    bends = tuple(found[a, b] for a, b, _ in lines)

    # The picture holds the group and the tops of all curves.
    corner = complex(block.width, block.height)
    tops = [_control(spots[a], spots[b], found[a, b] / 2) for a, b, _ in lines]
    inside = [corner, -corner, *tops]
    left = min(at.real for at in inside) - EDGE
    top = min(at.imag for at in inside) - EDGE
    width = max(at.real for at in inside) + EDGE - left
    height = max(at.imag for at in inside) + EDGE - top
    frames = tuple((at.real - w - left, at.imag - h - top, 2 * w, 2 * h) for at, w, h in block.frames)
    places = tuple((float(at.real - left), float(at.imag - top)) for at in spots)
    return MachineLayout(round(width), round(height), places, frames, bends)


def control(layout: MachineLayout, line: tuple[int, int], bend: float) -> Spot:
    """Return the control point of a line that bends."""
    start, end = (complex(*layout.spots[k]) for k in line)
    found = _control(start, end, bend)
    return found.real, found.imag


def _control(start: complex, end: complex, bend: float) -> complex:
    return (start + end) / 2 - 1j * bend * (end - start) / (abs(end - start) or 1.0)


def _is_clear(start: complex, end: complex, bend: float, others: np.ndarray) -> bool:
    """Return True where the curve comes no nearer than `CLEAR` to `others`."""
    curve = (1 - ALONG) ** 2 * start + 2 * (1 - ALONG) * ALONG * _control(start, end, bend) + ALONG**2 * end
    return bool((abs(curve - others) >= CLEAR).all())


def _block(ends: list[int], ranks: int, lines: Sequence[Line]) -> PlacedGroup:
    members = [end for end in ends if end < ranks]
    hubs = [end for end in ends if end >= ranks]
    inside = set(ends)
    inner = [line for line in lines if line[0] in inside and line[1] in inside]
    sides = () if hubs else _grid_sides(members, inner)
    if sides:
        return _grid(members, sides)
    groups = _groups(ends, ranks, inner)
    if len(groups) < 2:
        return _circle(members, hubs, inner)

    # A switch whose ranks are all in one group belongs to it.
    for hub in hubs:
        joined = {min(a, b) for a, b, _ in inner if hub in (a, b) and min(a, b) < ranks}
        for group in groups:
            if joined and joined <= group:
                group.add(hub)
    blocks = []
    for group in groups:
        block = _block(sorted(group), ranks, inner)
        border = FRAME if block.frames else 0
        width, height = block.width + border, block.height + border
        blocks.append(PlacedGroup(block.spots, width, height, [(0, width, height), *block.frames]))
    grouped = set().union(*groups)
    return _rows(blocks, [hub for hub in hubs if hub not in grouped])


def _grid(members: list[int], sides: tuple[int, ...]) -> PlacedGroup:
    """Place the ranks in rows, and further sides as grids beside each other, or below where these are wide."""
    shifts, size = [complex(SPACING)], complex((sides[-1] - 1) * SPACING)
    for k, side in enumerate(reversed(sides[:-1])):
        if k == 0:
            shift = 1j * SPACING
        elif size.real <= 2 * size.imag:
            shift = complex(size.real + 0.9 * SPACING)
        else:
            shift = 1j * (size.imag + 0.9 * SPACING)
        shifts.append(shift)
        size += complex(shift.real, abs(shift.imag)) * (side - 1)
    at = np.array(np.unravel_index(range(len(members)), sides))
    places = np.array(shifts[::-1]) @ at
    places -= complex(np.ptp(places.real), np.ptp(places.imag)) / 2 + complex(min(places.real), min(places.imag))
    return PlacedGroup(dict(zip(members, places, strict=True)), size.real / 2 + MARGIN, size.imag / 2 + MARGIN, [])


def _circle(members: list[int], hubs: list[int], lines: Sequence[Line]) -> PlacedGroup:
    """Place the ranks on a circle, two beside each other and four as a square, with each switch among its ranks."""
    count = len(members)
    radius = max(75.0 if hubs or count > 2 else 36.0, min(16.0 * count, 110 + 4.5 * count))
    start = {2: -pi, 4: -0.75 * pi}.get(count, -pi / 2)
    spots = _around(members, 0.0 if count == 1 else radius, start)
    middle = []
    for hub in hubs:
        joined = [spots[end] for a, b, _ in lines for end in (a, b) if hub in (a, b) and end in spots and end != hub]
        place = 0.7 * sum(joined) / max(1, len(joined))
        if abs(place) < 25:
            middle.append(hub)
        else:
            spots[hub] = place
    spots |= _around(middle, 0.0 if len(middle) == 1 else max(40.0, 0.45 * radius), -pi / 2)
    width = max((abs(spot.real) for spot in spots.values()), default=0.0)
    height = max((abs(spot.imag) for spot in spots.values()), default=0.0)
    return PlacedGroup(spots, width + MARGIN, height + MARGIN, [])


def _around(ends: list[int], radius: float, start: float) -> dict[int, complex]:
    turn = 2j * pi / max(1, len(ends))
    return {end: radius * np.exp(1j * start + turn * i) for i, end in enumerate(ends)}


def _rows(blocks: list[PlacedGroup], hubs: list[int]) -> PlacedGroup:
    """Place blocks in rows, and the switches that join them in the middle: between two, or in a row."""
    columns = isqrt(len(blocks) - 1) + 1
    columns = next((k for k in range(columns, 2 * columns) if len(blocks) % k == 0), columns)
    rows = ceil(len(blocks) / columns)
    width = max(block.width for block in blocks)
    height = max(block.height for block in blocks)
    stacked = columns == 2 and rows == 1
    across = 2 * GAP + 50 if stacked and hubs else GAP
    aisle = 0 if stacked or not hubs else 60  # a row of switches after half of the rows
    upper = ceil(rows / 2)
    found = PlacedGroup({}, columns * width + (columns - 1) * across / 2, rows * height + (rows - 1) * GAP / 2, [])
    found.height += aisle / 2

    for k, block in enumerate(blocks):
        row, column = divmod(k, columns)
        x = -found.width + width + column * (2 * width + across)
        y = -found.height + height + row * (2 * height + GAP) + (aisle if row >= upper else 0)
        for end, spot in block.spots.items():
            # every second block is mirrored, so that links to the block before are short
            found.spots[end] = complex(x, y) + (-spot.conjugate() if column % 2 and not hubs else spot)
        found.frames += [(complex(x, y) + spot, w, h) for spot, w, h in block.frames]

    middle = -found.height + upper * (2 * height + GAP) - GAP / 2 + aisle / 2
    for k, hub in enumerate(hubs):
        place = k - (len(hubs) - 1) / 2
        spot = found.spots[hub] = complex(0, 36 * place) if stacked else complex(64 * place, middle)
        found.width = max(found.width, abs(spot.real) + MARGIN)
        found.height = max(found.height, abs(spot.imag) + MARGIN)
    return found


def _groups(ends: list[int], ranks: int, lines: Sequence[Line]) -> list[set[int]]:
    """Return the groups of two ranks or more into which the ends fall, each with its switches; [] where there are none.

    Groups are joined by the slowest links, by links between switches, or by links that no third rank closes to a
    triangle, where this leaves complete graphs.
    """
    for rate in sorted({rate for *_, rate in lines})[:-1]:
        groups = _components(ends, ranks, [(a, b) for a, b, faster in lines if faster > rate])
        if len(groups) > 1:
            return groups
    groups = _components(ends, ranks, [(a, b) for a, b, _ in lines if min(a, b) < ranks])
    if len(groups) > 1:
        return groups
    neighbours: dict[int, set[int]] = {end: set() for end in ends}
    for a, b, _ in lines:
        neighbours[a].add(b)
        neighbours[b].add(a)
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
        if sum(end < ranks for end in group) == 1:
            return []
    return with_ranks


def _grid_sides(members: list[int], lines: Sequence[Line]) -> tuple[int, ...]:
    """Return the sides of the grid that the ranks form in their order, () where some link leaves the grid.

    A link joins neighbours along one side; the ends of a side are neighbours too, unless that is the only side.
    """
    place = {end: i for i, end in enumerate(members)}
    froms = [place[a] for a, _, _ in lines]
    tos = [place[b] for _, b, _ in lines]
    for sides in sorted(_factorizations(len(members)), key=lambda sides: (len(sides), max(sides))):
        at = np.array(np.unravel_index(range(len(members)), sides))
        gaps = abs(at[:, froms] - at[:, tos])
        if len(sides) > 1:
            gaps = np.minimum(gaps, np.array(sides)[:, None] - gaps)
        if lines and (gaps.sum(axis=0) == 1).all():
            return sides
    return ()


def _factorizations(count: int) -> Iterator[tuple[int, ...]]:
    if count > 1:
        yield (count,)
    for factor in range(2, count // 2 + 1):
        if not count % factor:
            for rest in _factorizations(count // factor):
                yield factor, *rest
