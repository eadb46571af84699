"""Rotation: chunks cut into parts, each sent as an automorphism of the machine takes it, so that loads are averaged.

The image of a schedule under an automorphism of its network and collective is a schedule. Several images side by side,
each on its part of every unit, have the average of their loads on each link in each step. So a step that keeps some
links busy and others idle takes fewer rounds. Recursive doubling on a cube becomes optimal (Johnsson and Ho, IEEE
Trans. Comput. 38, 1989), and a ring one way becomes one in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from synth.language.settings import SETTINGS as LANGUAGE
from synth.language.step_plan import best_multiple, exact_rounds, routed
from synth.language.trace import MAX_CHUNKS
from synth.model import symmetry
from synth.model.schedule import Schedule, Send
from synth.model.symmetry import Generator, compose

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class RotationSettings:
    """Limits of the search for images.

    Attributes:
        elements: Maximum number of automorphisms that are tried, those that few generators make first.
        loads: Maximum number of loads of all of them, one a step and link or limit.
        images: Maximum number of images side by side.
    """

    elements: int = 512
    loads: int = 8_000_000
    images: int = 16


SETTINGS = RotationSettings()


def rotated(schedule: Schedule) -> tuple[Schedule, int] | None:
    """Return a schedule of as many steps and fewer rounds per chunk, and the number of images in it.

    None where no images side by side have fewer rounds, and for schedules whose switches multicast.
    """
    if schedule.uses_multicast or not schedule.sends:
        return None
    chosen = _chosen(schedule)
    images = len(chosen)
    if images < 2 or schedule.chunks * images > MAX_CHUNKS or schedule.sends * images > LANGUAGE.maximum_sends:
        return None
    rows = []
    for step in schedule.steps:
        row: list[Send] = []
        for k, element in enumerate(chosen):
            row += [_image(send, element, schedule.chunks, images, k) for send in step.sends]
        rows.append(row)
    network, chunks = schedule.network, schedule.chunks * images
    loads = [exact_rounds(network, row) for row in rows]
    multiple = best_multiple(loads, chunks, schedule.sends * images)
    made = Schedule(network, schedule.collective, chunks * multiple, routed(network, rows, multiple))
    return (made, images) if made.rounds_per_chunk < schedule.rounds_per_chunk else None


def _image(send: Send, element: Generator, chunks: int, images: int, k: int) -> Send:
    """Return the image of a send, on part `k` of `images` of its chunk."""
    unit, part = divmod(send.chunk, chunks)
    chunk = (element.units[unit] * chunks + part) * images + k
    return Send(chunk, element.ranks[send.src], element.ranks[send.dst], send.kind)


def _chosen(schedule: Schedule) -> list[Generator]:
    """Return the automorphisms whose images side by side have the fewest rounds, added one by one to the identity."""
    import numpy as np

    loads, capacity = _loads(schedule)
    elements = _elements(schedule, SETTINGS.loads // loads.size)
    own = len(schedule.network.routes)
    pool: list[np.ndarray] = []
    distinct: list[Generator] = []
    seen: set[bytes] = set()
    limits = _limits(schedule)
    for element in elements:
        moved = np.empty((loads.shape[0], own))
        moved[:, list(element.routes)] = loads[:, :own]
        whole = np.concatenate([moved, moved @ limits], axis=1) / capacity
        if whole.tobytes() not in seen:
            seen.add(whole.tobytes())
            pool.append(whole)
            distinct.append(element)
    stack = np.stack(pool)
    total, chosen = stack[0], [0]
    best, fewest = chosen, float(total.max(axis=1).sum())
    while len(chosen) < min(SETTINGS.images, len(pool)):
        sums = stack + total
        peaks = sums.max(axis=2).sum(axis=1)
        squares = np.einsum("ijk,ijk->i", sums, sums)
        k = int(np.lexsort((squares, peaks.round(9)))[0])
        total, chosen = sums[k], [*chosen, k]
        rounds = float(peaks[k]) / len(chosen)
        if rounds < fewest * (1 - 1e-9):
            best, fewest = chosen, rounds
    return [distinct[k] for k in best]


def _loads(schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """Return the chunks of each step over each route and limit, and the units of these."""
    import numpy as np

    network = schedule.network
    over = np.zeros((schedule.step_count, len(network.routes)))
    for t, step in enumerate(schedule.steps):
        for send in step.sends:
            if not send.local:
                over[t, network.route_index[send.src, send.dst, send.via]] += 1
    units = np.array([end.units for end in (*network.routes, *network.caps)], dtype=float)
    return np.concatenate([over, over @ _limits(schedule)], axis=1), units


def _limits(schedule: Schedule) -> np.ndarray:
    """Return how often each limit holds each route, as a matrix of routes and limits."""
    import numpy as np

    network = schedule.network
    counts = np.zeros((len(network.routes), len(network.caps)))
    for k, cap in enumerate(network.caps):
        np.add.at(counts[:, k], list(cap.routes), 1)
    return counts


def _elements(schedule: Schedule, most: int) -> list[Generator]:
    """Return automorphisms of the network and the collective, the identity first, up to `most` of them."""
    network, task = schedule.network, schedule.collective
    generators: Sequence[Generator] = symmetry.generators(network, task)
    ranks, routes, units = network.ranks, len(network.routes), task.units
    queue = [Generator(tuple(range(ranks)), tuple(range(routes)), tuple(range(units)))]
    found = {queue[0]}
    for element in queue:
        for generator in generators:
            if len(queue) >= min(most, SETTINGS.elements):
                return queue
            product = Generator(*map(compose, element, generator))
            if product not in found:
                found.add(product)
                queue.append(product)
    return queue
