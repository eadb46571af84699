"""Permutations as tuples of images, and the groups that a few of them generate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Permutation = tuple[int, ...]


def compose(first: Sequence[int], then: Sequence[int]) -> Permutation:
    """`first`, followed by `then`."""
    return tuple([then[i] for i in first])


def symmetric_group(members: Sequence[int], ranks: int) -> list[Permutation]:
    """Return generators of the group of all permutations of `members`, which leaves the other ranks in place.

    They are the cycle through the members, and the exchange of the first two where there are more than two.
    """
    if len(members) < 2:
        return []
    cycle, swap = list(range(ranks)), list(range(ranks))
    for a, b in zip(members, [*members[1:], members[0]], strict=True):
        cycle[a] = b
    swap[members[0]], swap[members[1]] = members[1], members[0]
    return [tuple(cycle)] if len(members) == 2 else [tuple(cycle), tuple(swap)]


def inverse(pi: Sequence[int]) -> Permutation:
    """The permutation that undoes `pi`."""
    back = [0] * len(pi)
    for i, image in enumerate(pi):
        back[image] = i
    return tuple(back)


def orbits(size: int, permutations: Iterable[Sequence[int]]) -> list[int]:
    """For each of 0..size-1 the least member of its orbit under the group that `permutations` generate."""
    moves = list(permutations)
    if not moves:
        return list(range(size))
    # From the least member on, everything that moves reach is of its orbit.
    least = [-1] * size
    for start in range(size):
        if least[start] >= 0:
            continue
        least[start] = start
        stack = [start]
        while stack:
            i = stack.pop()
            for pi in moves:
                image = pi[i]
                if least[image] < 0:
                    least[image] = start
                    stack.append(image)
    return least


def closure(permutations: Sequence[Sequence[int]], limit: int) -> tuple[Permutation, ...] | None:
    """All elements of the group, the identity first; None when there are more than `limit`. () for no permutations."""
    generators = [tuple(pi) for pi in permutations]
    if not generators:
        return ()
    # Products with the generators reach every element, as the group is finite.
    identity = tuple(range(len(generators[0])))
    found, queue = {identity}, [identity]
    for element in queue:
        for g in generators:
            product = compose(element, g)
            if product not in found:
                if len(found) >= limit:
                    return None
                found.add(product)
                queue.append(product)
    return tuple(queue)


def order(pi: Sequence[int]) -> int:
    """The least k >= 1 such that `pi` applied k times is the identity."""
    from math import lcm

    return lcm(*cycle_lengths(pi))


def cycle_lengths(pi: Sequence[int]) -> list[int]:
    """The lengths of the cycles of `pi`, fixed points included."""
    seen, lengths = [False] * len(pi), []
    for start in range(len(pi)):
        length, i = 0, start
        while not seen[i]:
            seen[i], i, length = True, pi[i], length + 1
        if length:
            lengths.append(length)
    return lengths


def power(pi: Sequence[int], exponent: int) -> Permutation:
    """`pi` applied `exponent` >= 0 times."""
    result, square = tuple(range(len(pi))), tuple(pi)
    while exponent:
        if exponent & 1:
            result = compose(result, square)
        square, exponent = compose(square, square), exponent >> 1
    return result
