"""Which subgroups of the automorphism group are worth restricting a schedule to.

A group in which only the identity fixes a rank (a *semiregular* one: translations of a torus, XOR on a hypercube,
rotations of a ring) asks the least of a schedule for its order: no send is tied to itself. Large groups with
stabilisers often admit no schedule at all, so both kinds are offered, the largest first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from synth.model.permutations import (
    Permutation,
    closure,
    compose,
    cycle_lengths,
    inverse,
    orbits,
    order,
    power,
)
from synth.model.symmetry.automorphisms import Generator

# Groups up to this order are listed; about so many elements of larger ones are sampled.
LISTED, SAMPLED = 512, 192
# Most subgroups that are offered, the trivial and the whole group included.
MOST = 8
# Most elements of each order from which subgroups are grown.
STARTS = 12
# Ranks whose images tell groups of one order apart.
PROBES = 8

Basis = tuple[Permutation, ...]
Distances = Sequence[Sequence[int | None]]


def chain(
    generators: Sequence[Generator], distances: Distances, lift: Callable[[Permutation], Generator | None]
) -> list[tuple[Generator, ...]]:
    """Return up to `MOST` subgroups by generators: the group first, then fewer and fewer symmetries, () last.

    `distances` between ranks tell translations (which move every rank equally far) from other elements without fixed
    ranks; groups of translations are tried first. `lift` makes a rank permutation of the group a generator. No two
    subgroups have the same orbits on routes and units.
    """
    if not generators:
        return [()]

    # Elements without fixed ranks, translations first, are what groups are grown from.
    moves = [g.ranks for g in generators]
    elements = _elements(moves, distances)
    free = sorted((pi for pi in elements if _free(pi)), key=lambda pi: _reach(pi, distances))
    starts = _starts(free or elements)
    towers = [_tower(start, free) for start in starts]
    towers.sort(key=lambda tower: -tower[0][0])
    offers = [tower[0] for tower in towers]
    offers += [group for tower in towers for group in tower[1:]]
    offers += [(order(pi), (pi,)) for pi in (free or elements)[:STARTS] if order(pi) == _least_prime(order(pi))]

    # Of groups with the same orbits the first one is kept.
    kept = {_partition(tuple(generators)): tuple(generators)}
    lifted: dict[Permutation, Generator | None] = {}
    for _, basis in _spread(offers):
        for pi in basis:
            if pi not in lifted:
                lifted[pi] = lift(pi)
        images = [lifted[pi] for pi in basis]
        group = tuple(g for g in images if g is not None)
        if len(group) == len(basis):
            kept.setdefault(_partition(group), group)
    return [*kept.values(), ()]


def _spread(offers: Sequence[tuple[int, Basis]]) -> list[tuple[int, Basis]]:
    """At most MOST - 2 offers, largest order first: one of each order, the least among them, then second ones of the
    largest."""
    by_order: dict[int, dict[frozenset[Permutation], Basis]] = {}
    for size, basis in offers:
        by_order.setdefault(size, {}).setdefault(_images(basis), basis)
    most, sizes = MOST - 2, sorted(by_order, reverse=True)
    if len(sizes) > most:
        sizes = [*sizes[: most - 1], sizes[-1]]
    rows = {size: list(by_order[size].values()) for size in sizes}
    turns = [(i, size) for i in range(STARTS) for size in sizes if i < len(rows[size])][:most]
    return [(size, rows[size][i]) for i, size in sorted(turns, key=lambda turn: (-turn[1], turn[0]))]


def _partition(group: tuple[Generator, ...]) -> tuple[int, ...]:
    first = group[0]
    routes = orbits(len(first.routes), [g.routes for g in group])
    units = orbits(len(first.units), [g.units for g in group])
    return (*routes, *units)


def _elements(generators: Sequence[Permutation], distances: Distances) -> list[Permutation]:
    """The group without its identity if it is small, else its generators, their products, conjugate translations and a
    sample."""
    identity = tuple(range(len(generators[0])))
    listed = closure(generators, LISTED)
    if listed is not None:
        return list(listed[1:])
    found = dict.fromkeys(pi for pi in generators if pi != identity)
    queue = list(found)
    for pi in queue:
        if len(queue) >= SAMPLED:
            break
        for g in generators:
            product = compose(pi, g)
            if product != identity and product not in found:
                found[product] = None
                queue.append(product)
    # A walk of growing products reaches far beyond the ball around the identity; its steps come from a fixed linear
    # generator.
    state, walk = 12345, queue[-1]
    for _ in range(SAMPLED):
        state = (state * 1103515245 + 12345) % (1 << 31)
        walk = compose(walk, queue[(state >> 8) % len(queue)])
        if walk != identity:
            found[walk] = None

    # Conjugates of translations are translations, too.
    translations = [pi for pi in found if _reach(pi, distances) == 1 and _free(pi)]
    back = [inverse(g) for g in generators]
    for pi in translations:
        if len(translations) >= SAMPLED:
            break
        for g, h in zip(generators, back, strict=True):
            conjugate = compose(compose(h, pi), g)
            if conjugate not in found:
                found[conjugate] = None
                translations.append(conjugate)
    return list(found)


def _reach(pi: Permutation, distances: Distances) -> int:
    """Number of different distances over which `pi` moves the ranks: 1 for a translation."""
    return len({distances[r][image] for r, image in enumerate(pi)})


def _free(pi: Permutation) -> bool:
    """True if the powers of `pi` other than the identity fix no rank."""
    return len(set(cycle_lengths(pi))) == 1


def _starts(elements: Sequence[Permutation]) -> list[Permutation]:
    """Elements to grow groups from: some of each order, in turn, the greatest order first."""
    by_order: dict[int, list[Permutation]] = {}
    for pi in elements:
        by_order.setdefault(order(pi), []).append(pi)
    rows = [by_order[k] for k in sorted(by_order, reverse=True)]
    return [row[i] for i in range(STARTS) for row in rows if i < len(row)][:STARTS]


def _tower(start: Permutation, free: Sequence[Permutation]) -> list[tuple[int, Basis]]:
    """Orders and bases of a maximal semiregular abelian group among `free` that holds `start`, then of ever smaller
    subgroups.

    Where `start` itself fixes ranks (the stabiliser of a root), the cyclic groups of its powers.
    """
    basis, ranks, size = [start], len(start), order(start)
    for h in free if _free(start) else ():
        if ranks % (2 * size):
            break
        if any(compose(h, b) != compose(b, h) for b in basis):
            continue
        bigger = len(_images([*basis, h]))
        if bigger > size and set(Counter(orbits(ranks, [*basis, h])).values()) == {bigger}:
            basis.append(h)
            size = bigger

    # Smaller and smaller: the last element to a power, or without it.
    tower = [(size, tuple(basis))]
    while basis:
        last = basis.pop()
        prime = _least_prime(order(last))
        if order(last) != prime:
            basis.append(power(last, prime))
        if basis:
            tower.append((len(_images(basis)), tuple(basis)))
    return tower


def _images(basis: Sequence[Permutation]) -> frozenset[Permutation]:
    """For each element of the abelian group of `basis` where it sends one rank of each orbit, and a few more.

    An element that fixes a rank fixes its orbit, as the group is abelian: so these are as many as the group has
    elements.
    """
    ranks = len(basis[0])
    points = tuple(dict.fromkeys([*orbits(ranks, basis), *range(min(PROBES, ranks))]))
    found, queue = {points}, [points]
    for images in queue:
        for pi in basis:
            product = tuple([pi[i] for i in images])
            if product not in found:
                found.add(product)
                queue.append(product)
    return frozenset(found)


def _least_prime(n: int) -> int:
    return next((p for p in range(2, n + 1) if n % p == 0), 1)
