"""Which subgroups of the automorphism group are worth restricting a schedule to.

A group in which only the identity fixes a rank (a *semiregular* one: translations of a torus, XOR on a hypercube,
rotations of a ring) asks the least of a schedule for its order: no send is tied to itself. Large groups with stabilisers often admit no
schedule at all, so both kinds are offered, the largest first.
"""

from __future__ import annotations

from collections.abc import Sequence

from synth.symmetry.permutations import Permutation, closure, compose, cycle_lengths, orbits, order, power
from synth.symmetry.search import Generator

# Groups up to this order are listed; of larger ones this many elements are sampled.
LISTED = 512
SAMPLED = 192
MOST = 8
STARTS = 12


def chain(
    generators: Sequence[Generator], distances: Sequence[Sequence[int | None]], most: int = MOST
) -> tuple[tuple[Generator, ...], ...]:
    """At most `most` subgroups by generators: the group itself first, then fewer and fewer symmetries, () last.

    `distances` between ranks tell translations (which move every rank equally far) from other elements without fixed
    ranks; groups of translations are tried first. No two have the same orbits on routes and units. The order is by the number of those orbits, most symmetric first.
    """
    if not generators:
        return ((),)
    whole = tuple(generators)
    elements = _elements(whole)
    free = [g for g in elements if _free(g.ranks)]
    free.sort(key=lambda g: len({distances[r][image] for r, image in enumerate(g.ranks)}))
    towers = sorted((_tower(start, free) for start in _starts(free or elements)), key=lambda tower: len(set(_partition(tower[0]))))
    offers = [whole, *(tower[0] for tower in towers), *(group for tower in towers for group in tower[1:])]
    offers += [(g,) for g in (free or elements)[:STARTS] if order(g.ranks) == _least_prime(order(g.ranks))]
    kept: dict[tuple[int, ...], tuple[Generator, ...]] = {}
    for group in offers:
        kept.setdefault(_partition(group), group)
    ordered = sorted(kept.items(), key=lambda item: len(set(item[0])))
    chosen = [group for _, group in ordered]
    if len(chosen) > most - 1:
        chosen = _spread(ordered, most - 1)
    return (*chosen, ())


def _spread(ordered: list[tuple[tuple[int, ...], tuple[Generator, ...]]], most: int) -> list[tuple[Generator, ...]]:
    """The first, then one of each number of orbits from the most symmetric on, then others, `most` in all; order kept."""
    seen: set[int] = set()
    first, rest = [], []
    for i, (partition, _) in enumerate(ordered):
        count = len(set(partition))
        (rest if count in seen else first).append(i)
        seen.add(count)
    # The last of the first kind is the smallest subgroup: the one most likely to admit a schedule.
    picked = [*first[: most - 1], first[-1]] if len(first) > most else [*first, *rest[: most - len(first)]]
    return [ordered[i][1] for i in sorted(picked)]


def _partition(group: Sequence[Generator]) -> tuple[int, ...]:
    first = group[0]
    return (*orbits(len(first.routes), [g.routes for g in group]), *orbits(len(first.units), [g.units for g in group]))


def _product(a: Generator, b: Generator) -> Generator:
    return Generator(compose(a.ranks, b.ranks), compose(a.routes, b.routes), compose(a.units, b.units))


def _power(g: Generator, exponent: int) -> Generator:
    return Generator(power(g.ranks, exponent), power(g.routes, exponent), power(g.units, exponent))


def _elements(generators: Sequence[Generator]) -> list[Generator]:
    """The group without its identity if it is small, else its generators, their products and a fixed sample."""
    identity = tuple(range(len(generators[0].ranks)))
    found: dict[Permutation, Generator] = {}
    queue = [g for g in generators if g.ranks != identity]
    for g in queue:
        found.setdefault(g.ranks, g)
    small = closure([g.ranks for g in queue], LISTED) is not None
    index = 0
    queue = list(found.values())
    while index < len(queue) and len(found) < (LISTED if small else SAMPLED):
        for g in generators:
            product = _product(queue[index], g)
            if product.ranks != identity and product.ranks not in found:
                found[product.ranks] = product
                queue.append(product)
        index += 1
    if small:
        return queue
    # A walk of growing products reaches far beyond the ball around the identity; its steps come from a fixed linear generator.
    state, walk = 12345, queue[-1]
    for _ in range(SAMPLED):
        state = (state * 1103515245 + 12345) % (1 << 31)
        walk = _product(walk, queue[(state >> 8) % len(queue)])
        if walk.ranks != identity:
            found.setdefault(walk.ranks, walk)
    return list(found.values())


def _free(pi: Permutation) -> bool:
    """Whether the powers of `pi` other than the identity fix no rank."""
    return len(set(cycle_lengths(pi))) == 1


def _starts(elements: Sequence[Generator]) -> list[Generator]:
    """Elements to grow groups from: some of each order, in turn, the greatest order first."""
    by_order: dict[int, list[Generator]] = {}
    for g in elements:
        by_order.setdefault(order(g.ranks), []).append(g)
    rows = [by_order[k] for k in sorted(by_order, reverse=True)]
    return [row[i] for i in range(STARTS) for row in rows if i < len(row)][:STARTS]


def _tower(start: Generator, free: Sequence[Generator]) -> list[tuple[Generator, ...]]:
    """A maximal semiregular abelian group among `free` that holds `start`, then subgroups, each of prime index in the one before.

    Where `start` itself fixes ranks (the stabiliser of a root), the cyclic groups of its powers.
    """
    basis, ranks = [start], len(start.ranks)
    group = set(closure([start.ranks], ranks) or ()) if _free(start.ranks) else set()
    for h in free if group else ():
        if ranks % (2 * len(group)):
            break
        if h.ranks in group or any(compose(h.ranks, b.ranks) != compose(b.ranks, h.ranks) for b in basis):
            continue
        bigger = closure([*(b.ranks for b in basis), h.ranks], ranks)
        if bigger is not None and all(_free(pi) for pi in bigger[1:]):
            basis.append(h)
            group = set(bigger)
    tower = [tuple(basis)]
    while basis:
        last = basis.pop()
        prime = _least_prime(order(last.ranks))
        if order(last.ranks) != prime:
            basis.append(_power(last, prime))
        if basis:
            tower.append(tuple(basis))
    return tower


def _least_prime(n: int) -> int:
    return next((p for p in range(2, n + 1) if n % p == 0), 1)
