"""Orbits and stabilisers under given generators; groups are never enumerated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)
MAX_STABILISER_GENERATORS = 24


class Generator(NamedTuple):
    """`ranks[r]`, `routes[i]`, `units[u]`: where the automorphism sends rank r, route i and unit u."""

    ranks: tuple[int, ...]
    routes: tuple[int, ...]
    units: tuple[int, ...]


def compose(first: Generator, then: Generator) -> Generator:
    """`first`, followed by `then`."""
    return Generator(*(tuple(b[i] for i in a) for a, b in zip(first, then, strict=True)))


def invert(g: Generator) -> Generator:
    """The inverse automorphism."""
    return Generator(*(tuple(sorted(range(len(image)), key=image.__getitem__)) for image in g))


def orbits(size: int, permutations: Sequence[Sequence[int]]) -> list[int]:
    """The least member of the orbit of each of 0..size-1."""
    parent = list(range(size))

    def root(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for permutation in permutations:
        for x, y in enumerate(permutation):
            a, b = root(x), root(y)
            parent[max(a, b)] = min(a, b)
    return [root(x) for x in range(size)]


def orbit(start: T, generators: Sequence[Generator], act: Callable[[Generator, T], T], most: int | None = None) -> list[T] | None:
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
    reach: dict[T, Generator | None] = {point: None}
    queue, kept = [point], {}
    for x in queue:
        via = reach[x]
        for g in generators:
            y = act(g, x)
            way = g if via is None else compose(via, g)
            if y not in reach:
                reach[y] = way
                queue.append(y)
            elif len(kept) < MAX_STABILISER_GENERATORS:
                back = reach[y]
                loop = way if back is None else compose(way, invert(back))
                if loop.ranks != tuple(range(len(loop.ranks))) or loop.routes != tuple(range(len(loop.routes))):
                    kept.setdefault((loop.ranks, loop.routes), loop)
    return tuple(kept.values())
