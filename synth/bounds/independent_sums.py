"""Linearly independent sums: a lower bound on the number of sends that enter a cut.

Let the ranks D inside a cut want different sums. Each send that enters the cut carries a sum too. Restricted to the
contributions from outside, every sum wanted in D is a linear combination of the sums that entered. So at least as many
sends enter as the rank of the wanted sums, restricted in this way. Prefix sums are independent: of eight ranks of a
scan, with every other one inside, four sends enter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from synth.model.collective import Collective


@dataclass(frozen=True)
class IndependentSumSettings:
    """Limits of the families of sets of ranks.

    Attributes:
        most_families: Maximum number of families. The linear program has a maximum flow for each of them.
        tries: Maximum number of random growths when families are sampled.
        seed: Seed of the sample, so that a bound is the same each time.
    """

    most_families: int = 160
    tries: int = 4_000
    seed: int = 0


SETTINGS = IndependentSumSettings()


class Family(NamedTuple):
    """A pair of sets: ranks `inside` that want `sums` independent sums of contributions from the ranks `outside`."""

    outside: frozenset[int]
    inside: frozenset[int]
    sums: int


def independent_sums(collective: Collective, unit: int, outside: Iterable[int], inside: Iterable[int]) -> int:
    """Return the matrix rank over GF(2) of the sums that the ranks `inside` want, restricted to contributions
    `outside`.

    The rank over the rationals, which bounds the number of sends, is no less.
    """
    out = frozenset(outside) & collective.pre[unit]
    wants: set[int] = set()
    for d in inside:
        if d in collective.post[unit]:
            wants.add(sum(1 << i for i in collective.wanted(unit, d) & out))
    return gf2_rank(wants)


def gf2_rank(masks: Iterable[int]) -> int:
    """Return the rank over GF(2) of the matrix whose rows are the bit sets `masks`."""
    pivots: list[int] = []
    for row in masks:
        for pivot in pivots:
            row = min(row, row ^ pivot)
        if row:
            pivots.append(row)
    return len(pivots)


def families(collective: Collective, unit: int) -> list[Family]:
    """Return families with at least two independent sums; none if no sums are wanted, or all ranks want the same one.

    Families are grown by a contribution and a rank that wants it at a time, where no rank of the family wants it. So
    the matrix of wants is triangular, and its rank is evident. If there are more than `SETTINGS.most_families` they are
    a sample.
    """
    if not collective.combining or collective.wants is None:
        return []
    result: list[Family] = []
    for family in _triangular(collective, unit):
        if len(result) == SETTINGS.most_families:
            return _sample(collective, unit)
        result.append(family)
    return result


def _extensions(collective: Collective, unit: int, family: Family) -> list[tuple[int, int]]:
    """Return the pairs (contribution, rank that wants it) that extend the family: no rank in it wants the
    contribution."""
    known = frozenset[int]().union(*(collective.wanted(unit, d) for d in family.inside))
    return [
        (i, d) for d in sorted(collective.post[unit]) if d not in family.outside and d not in family.inside
        for i in sorted(collective.wanted(unit, d) - known) if i != d and i not in family.inside
    ]  # fmt: skip


def _extended(family: Family, pair: tuple[int, int]) -> Family:
    return Family(family.outside | {pair[0]}, family.inside | {pair[1]}, family.sums + 1)


def _triangular(collective: Collective, unit: int) -> Iterator[Family]:
    queue = [Family(frozenset(), frozenset(), 0)]
    seen = set(queue)
    for family in queue:
        if family.sums > 1:
            yield family
        for pair in _extensions(collective, unit, family):
            larger = _extended(family, pair)
            if larger not in seen:
                seen.add(larger)
                queue.append(larger)


def _sample(collective: Collective, unit: int) -> list[Family]:
    rng = random.Random(SETTINGS.seed)
    result: dict[Family, None] = {}
    for _ in range(SETTINGS.tries):
        if len(result) >= SETTINGS.most_families:
            break
        family = Family(frozenset(), frozenset(), 0)
        while pairs := _extensions(collective, unit, family):
            # Ranks that want little leave more contributions for further extensions.
            pair = min(rng.choices(pairs, k=3), key=lambda pair: len(collective.wanted(unit, pair[1])))
            family = _extended(family, pair)
            if family.sums > 1:
                result[family] = None
    return list(result)
