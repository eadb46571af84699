"""Which symmetries a combining schedule is asked to have: groups that move representatives, and groups within one.

    Shape   inner moves orbits          chunks are the images of representatives under `moves`; each representative is
                                        itself invariant under `inner` (generators); `orbits` of routes are left

What counts is that loads are averaged over few orbits of routes, and that there are few moves, so few chunks.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from synth.model.collective import Collective
from synth.model.symmetry import Generator, generators, subgroups
from synth.model.symmetry.permutations import Permutation, compose
from synth.model.topology import Network
from synth.solvers.processes.deadline import check

LARGEST = 64  # moves: every one of them makes a chunk
SAMPLES = 60  # pairs of elements that are tried as generators of a subgroup
WALK = 96  # elements that are drawn from
OUTER = 5  # groups to move representatives by
INNER = 5  # groups that a representative may be invariant under


@dataclass(frozen=True)
class Shape:
    """See the module. `order` is that of the inner group."""

    inner: tuple[Generator, ...]
    moves: tuple[Generator, ...]
    orbits: int
    order: int = 1


def shapes(network: Network, collective: Collective, seed: int = 0) -> tuple[Shape, ...]:
    """Shapes to try, those with the fewest route orbits and the smallest representatives first; the trivial one last.

    Under a time limit (`synth.solvers.processes.deadline`) it may end in TimeUp.
    """
    one = Generator(tuple(range(network.ranks)), tuple(range(len(network.routes))), tuple(range(collective.units)))
    groups = _groups(network, collective, one, seed)
    outer = _outer(groups)
    made = [Shape((), group, count) for count, group in outer]
    if collective.units == 1:
        for count, group in outer:
            check()
            made += _with_inner(one, group, count, groups)
    return tuple(made)


def _groups(network: Network, collective: Collective, one: Generator, seed: int) -> list[tuple[Generator, ...]]:
    """Subgroups with at most `LARGEST` elements, listed in full, the trivial one among them."""
    whole = generators(network, collective)
    offers: list[Sequence[Generator]] = [whole, *subgroups(network, collective)]
    if whole:
        pool = _walk(one, whole)
        rng = random.Random(seed)
        offers += [(g,) for g in pool] + [tuple(rng.sample(pool, 2)) for _ in range(SAMPLES) if len(pool) > 1]
        offers += [tuple(rng.sample(pool, 3)) for _ in range(SAMPLES) if len(pool) > 2]
    found: dict[frozenset[Permutation], tuple[Generator, ...]] = {}
    for offer in offers:
        check()
        group = elements(one, offer, LARGEST)
        if group is not None:
            found.setdefault(frozenset(g.ranks for g in group), group)
    return list(found.values())


def _walk(one: Generator, gens: Sequence[Generator]) -> list[Generator]:
    """The first elements met from the identity outwards (all of a small group)."""
    found = {one.ranks: one}
    queue = [one]
    for at in queue:
        for g in gens:
            ranks = compose(at.ranks, g.ranks)
            if ranks not in found and len(found) <= WALK:
                found[ranks] = product(at, g)
                queue.append(found[ranks])
    return queue[1:]


def product(first: Generator, then: Generator) -> Generator:
    """`first`, followed by `then`."""
    return Generator(
        compose(first.ranks, then.ranks), compose(first.routes, then.routes), compose(first.units, then.units)
    )


def elements(one: Generator, gens: Iterable[Generator], limit: int) -> tuple[Generator, ...] | None:
    """The group that `gens` make, `one` (the identity) first; None when it has more than `limit` elements."""
    found = {one.ranks: one}
    queue, gens = [one], list(gens)
    for at in queue:
        for g in gens:
            ranks = compose(at.ranks, g.ranks)
            if ranks not in found:
                if len(found) == limit:
                    return None
                found[ranks] = product(at, g)
                queue.append(found[ranks])
    return tuple(queue)


def _count(group: Sequence[Generator]) -> int:
    """Orbits of routes of a group that is listed in full: those of a route are its images."""
    seen: set[int] = set()
    found = 0
    for route in range(len(group[0].routes)):
        if route not in seen:
            seen.update(g.routes[route] for g in group)
            found += 1
    return found


def _outer(groups: Iterable[tuple[Generator, ...]]) -> list[tuple[int, tuple[Generator, ...]]]:
    """The smallest group for each number of route orbits, the fewest orbits first; the trivial group always."""
    best: dict[int, tuple[Generator, ...]] = {}
    for group in groups:
        count = _count(group)
        if count not in best or len(group) < len(best[count]):
            best[count] = group
    ranked = sorted(best.items())
    return [*ranked[: OUTER - 1], ranked[-1]] if len(ranked) > OUTER else ranked


def _with_inner(
    one: Generator, group: tuple[Generator, ...], count: int, groups: Iterable[tuple[Generator, ...]]
) -> list[Shape]:  # fmt: skip
    """The same moves, with representatives that are invariant under a subgroup that fixes no rank."""
    inside = {g.ranks for g in group}
    free = [
        k
        for k in groups
        if len(k) > 1
        and all(g.ranks in inside for g in k)
        and all(g.ranks[n] != n for g in k[1:] for n in range(len(g.ranks)))
    ]
    by_order: dict[int, list[tuple[Generator, ...]]] = {}
    for k in sorted(free, key=_count):
        by_order.setdefault(len(k), []).append(k)
    chosen = [
        k for depth in range(2) for size in sorted(by_order, reverse=True) for k in by_order[size][depth : depth + 1]
    ]
    return [Shape(k[1:], _cosets(group, k), count, len(k)) for k in chosen[:INNER]]


def _cosets(group: tuple[Generator, ...], inner: tuple[Generator, ...]) -> tuple[Generator, ...]:
    """One move for each distinct image of a representative that is invariant under `inner`."""
    seen: set[Permutation] = set()
    kept = []
    for g in group:
        if g.ranks not in seen:
            kept.append(g)
            seen |= {compose(k.ranks, g.ranks) for k in inner}
    return tuple(kept)
