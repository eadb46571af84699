"""Sums that cannot be had from one another: how many sends must enter a cut at least.

Let the ranks D inside a cut want different sums. What enters the cut are sums too, each over some contributions from
outside; restricted to those, every sum wanted in D is a combination of what entered. So as many sends enter as the
wanted sums, restricted so, are linearly independent. Prefix sums are: eight ranks of a scan, every other one inside,
need four.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from synth.model.collective import Collective

MOST_FAMILIES = 160
TRIES = 4_000
SEED = 0


class Family(NamedTuple):
    """Ranks `inside` that want `sums` independent sums of contributions from the ranks `outside`."""

    outside: frozenset[int]
    inside: frozenset[int]
    sums: int


def independent(collective: Collective, unit: int, outside: Iterable[int], inside: Iterable[int]) -> int:
    """How many of the sums that the ranks `inside` want, restricted to `outside`, are independent modulo 2 (no more
    than truly are)."""
    out = frozenset(outside) & collective.pre[unit]
    wants = {sum(1 << i for i in collective.wanted(unit, d) & out) for d in inside if d in collective.post[unit]}
    return rank(wants)


def rank(masks: Iterable[int]) -> int:
    """The rank modulo 2 of rows of bits."""
    pivots: list[int] = []
    for row in masks:
        for pivot in pivots:
            row = min(row, row ^ pivot)
        if row:
            pivots.append(row)
    return len(pivots)


def families(collective: Collective, unit: int) -> list[Family]:
    """Pairs of sets with two independent sums or more: all that come from triangles of wants, or a sample where they
    are many."""
    if not collective.combining or collective.wants is None:
        return []
    found: list[Family] = []
    for family in _all(collective, unit):
        if len(found) == MOST_FAMILIES:
            return _sample(collective, unit)
        found.append(family)
    return found


def _more(collective: Collective, unit: int, family: Family) -> list[tuple[int, int]]:
    """Pairs (contribution, rank that wants it) that make the family larger: nobody in it wants that contribution."""
    known = frozenset[int]().union(*(collective.wanted(unit, d) for d in family.inside))
    return [
        (i, d) for d in sorted(collective.post[unit]) if d not in family.outside and d not in family.inside
        for i in sorted(collective.wanted(unit, d) - known) if i != d and i not in family.inside
    ]  # fmt: skip


def _grown(family: Family, pair: tuple[int, int]) -> Family:
    return Family(family.outside | {pair[0]}, family.inside | {pair[1]}, family.sums + 1)


def _all(collective: Collective, unit: int) -> Iterator[Family]:
    queue = [Family(frozenset(), frozenset(), 0)]
    seen = set(queue)
    for family in queue:
        if family.sums > 1:
            yield family
        for pair in _more(collective, unit, family):
            larger = _grown(family, pair)
            if larger not in seen:
                seen.add(larger)
                queue.append(larger)


def _sample(collective: Collective, unit: int) -> list[Family]:
    rng = random.Random(SEED)
    found: dict[Family, None] = {}
    for _ in range(TRIES):
        if len(found) >= MOST_FAMILIES:
            break
        family = Family(frozenset(), frozenset(), 0)
        while pairs := _more(collective, unit, family):
            few = min(
                rng.choices(pairs, k=3), key=lambda pair: len(collective.wanted(unit, pair[1]))
            )  # leave room for more
            family = _grown(family, few)
            if family.sums > 1:
                found[family] = None
    return list(found)
