"""Orbits of points and stabilisers under generators (`synth.model.symmetry`); groups are never enumerated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from synth.model.symmetry import Generator, compose, inverse, orbits

__all__ = ["Generator", "orbit", "orbits", "stabiliser"]

T = TypeVar("T", bound=Hashable)
MAX_STABILISER_GENERATORS = 24


def _product(first: Generator, then: Generator) -> Generator:
    return Generator(*(compose(a, b) for a, b in zip(first, then, strict=True)))


def _back(g: Generator) -> Generator:
    return Generator(*map(inverse, g))


def orbit(
    start: T, generators: Sequence[Generator], act: Callable[[Generator, T], T], most: int | None = None
) -> list[T] | None:
    """The orbit of `start`, or None when it has more than `most` members."""
    found, queue = {start}, [start]
    for x in queue:
        for g in generators:
            y = act(g, x)
            if y not in found:
                found.add(y)
                queue.append(y)
                if most is not None and len(queue) > most:
                    return None
    return queue


def stabiliser(point: T, generators: Sequence[Generator], act: Callable[[Generator, T], T]) -> tuple[Generator, ...]:
    """Generators of a group that fixes `point` (Schreier's lemma; at most a fixed number are kept, so a subgroup)."""
    if not generators:
        return ()

    # A way from the point to each of its images; two ways to one image make a loop, which fixes the point.
    reach: dict[T, Generator | None] = {point: None}
    queue, kept = [point], {}
    for x in queue:
        via = reach[x]
        for g in generators:
            y = act(g, x)
            way = g if via is None else _product(via, g)
            if y not in reach:
                reach[y] = way
                queue.append(y)
            elif len(kept) < MAX_STABILISER_GENERATORS:
                back = reach[y]
                loop = way if back is None else _product(way, _back(back))
                if loop.ranks != tuple(range(len(loop.ranks))) or loop.routes != tuple(range(len(loop.routes))):
                    kept.setdefault((loop.ranks, loop.routes), loop)
    return tuple(kept.values())
