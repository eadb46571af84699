"""What the sums of a scan, or of any collective whose ranks want different sums, are made of: rules for
`synth.encodings.prefix_planning.prioritized_planner`.

The inputs are put in the order in which ever greater wanted sums take them in (for scan: that of the ranks); a *prefix*
is the sum of the first few. A rule makes a prefix of a shorter one, which some rank is to hold, and of inputs:

    rule     the shorter prefix
    home     of whole blocks of inputs, held where the sum of the last one is wanted: for blocks of one input a chain
    low      what is left of its length when the lowest digit is cleared (Sklansky, "Conditional-sum addition logic",
             1960)
    near     the longest one that is wanted next to where this one is needed
    block    of whole blocks, held by one rank of each block, made of the blocks' sums `radix` at a time

Where the wanted sums do not contain one another, a sum is made of the greatest wanted one that it contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random

from synth.encodings.prefix_planning.plan_cells import Parts
from synth.model.collective import Collective
from synth.model.topology import Network

OTHERS = 6  # other choices, at most
NEAR = 2  # steps between the farthest ranks up to which blocks are worth it: elsewhere they hardly ever find room


@dataclass(frozen=True)
class Rule:
    """See the module. `size`: inputs in a block; `radix`: 1 makes a chain of blocks; `turn`: which rank of a block
    holds sums."""

    name: str
    size: int = 1
    radix: int = 2
    turn: int = 0


def rules(ranks: int, far: int) -> Iterator[Rule]:
    """Rules worth trying for so many ranks with so many steps between the farthest of them, the most promising of every
    kind first."""
    sizes = sorted({round(ranks**0.5), *(2**k for k in range(2, ranks.bit_length()) if 2**k < ranks)})
    near = sizes if far <= NEAR else []
    yield from (Rule("low"), Rule("near"), Rule("home"))
    yield from (Rule("home", size) for size in sizes)
    yield from (Rule("block", size, ranks) for size in near)
    yield Rule("low", radix=4)
    yield Rule("home", ranks)
    yield from (Rule("block", size, radix) for size in near for radix in (1, 2, 3))


@dataclass(frozen=True)
class Prefixes:
    """The choices that a rule leaves for each sum of one unit: `parts` of
    `synth.encodings.prefix_planning.prioritized_planner.Loom`."""

    network: Network
    collective: Collective
    unit: int
    rule: Rule
    rng: Random

    @property
    def wanted(self) -> list[tuple[int, int]]:
        """The sums wanted, and where."""
        unit = self.collective
        return [(_mask(unit.wanted(self.unit, rank)), rank) for rank in sorted(unit.post[self.unit])]

    @cached_property
    def _sums(self) -> list[int]:
        """The wanted sums, the smallest first."""
        return sorted({total for total, _ in self.wanted}, key=lambda total: (total.bit_count(), total))

    @cached_property
    def _order(self) -> list[int]:
        """Inputs in the order in which wanted sums take them in."""
        last = len(self._sums)
        first = {
            i: next((k for k, total in enumerate(self._sums) if total >> i & 1), last)
            for i in self.collective.pre[self.unit]
        }
        return sorted(first, key=lambda i: (first[i], i))

    @cached_property
    def _prefix(self) -> list[int]:
        """The sum of the first so many inputs."""
        found = [0]
        for i in self._order:
            found.append(found[-1] | 1 << i)
        return found

    @cached_property
    def _homes(self) -> dict[int, int]:
        """Where a wanted sum is held: at the rank whose input it takes in last, if that wants it."""
        found: dict[int, int] = {}
        place = {i: k for k, i in enumerate(self._order)}
        for total, rank in self.wanted:
            if total not in found or (place.get(rank, -1) > place.get(found[total], -1) and total >> rank & 1):
                found[total] = rank
        return found

    @cached_property
    def _near(self) -> list[list[int]]:
        into, routes = self.network.into, self.network.routes
        return [sorted({routes[r].src for r in into[n]}) for n in range(self.network.ranks)]

    def __call__(self, total: int, rank: int) -> list[Parts]:
        """What a sum that `rank` needs may be made of, the best first."""
        if total == 1 << rank:
            return [Parts((), (rank,))]
        length = total.bit_count()
        begun = self._prefix[length] == total if length < len(self._prefix) else False
        if self.rule.name == "block":
            made = self._block(total, rank, begun)
            if made is not None:
                return [made]
        home = self._homes.get(total)
        found = [Parts(((total, home),), ())] if home is not None and home != rank else []
        if begun:
            found.append(self._made(total, self._prefix[self._shorter(length, rank)]))
            beside = [t for n in self._near[rank] if (t := self._of.get(n, 0)) and t != total and t & ~total == 0]
        else:
            beside = [t for t in reversed(self._sums) if t != total and t & ~total == 0][:1]
        self.rng.shuffle(beside)
        del beside[OTHERS:]
        return list(
            dict.fromkeys(
                [*found, *(self._made(total, t) for t in beside), *([] if found or beside else [self._made(total, 0)])]
            )
        )

    def _made(self, total: int, part: int) -> Parts:
        """A sum as a part of it, where that is held, and inputs."""
        held = part.bit_count() > 1
        rest = total & ~part if held else total
        return Parts(((part, self._home(part)),) if held else (), tuple(_ranks(rest)))

    def _home(self, total: int) -> int:
        if total in self._homes:
            return self._homes[total]
        return max(_ranks(total), key=self._order.index)

    @cached_property
    def _of(self) -> dict[int, int]:
        """The sums that ranks want and hold for others."""
        return {rank: total for total, rank in self.wanted if self._homes[total] == rank}

    def _shorter(self, length: int, rank: int) -> int:
        size, radix = self.rule.size, self.rule.radix
        if self.rule.name == "low":
            digit = 1
            while length % (digit * radix) == 0:
                digit *= radix
            return length // (digit * radix) * (digit * radix)
        if self.rule.name == "near":
            able = [
                t.bit_count()
                for n in self._near[rank]
                if (t := self._of.get(n, 0)) and t == self._prefix[t.bit_count()]
            ]
            return max((n for n in able if n < length), default=0)
        return (length - 1) // size * size

    # ------------------------------------------------------------ blocks

    def _holder(self, block: int) -> int:
        return self._order[min(block * self.rule.size + self.rule.turn % self.rule.size, len(self._order) - 1)]

    def _blocks(self, first: int, end: int) -> int:
        size, last = self.rule.size, len(self._order)
        return self._prefix[min(last, end * size)] & ~self._prefix[min(last, first * size)]

    def _block(self, total: int, rank: int, begun: bool) -> Parts | None:
        """By blocks: a prefix is one of whole blocks, at a rank of its own block, and inputs; sums of blocks are made
        of fewer ones."""
        size, length = self.rule.size, total.bit_count()
        if begun:
            block = (length - 1) // size
            if length % size or rank != self._holder(block + 1):
                if block == 0:
                    return Parts((), tuple(_ranks(total)))
                return Parts(
                    ((self._prefix[block * size], self._holder(block)),),
                    tuple(_ranks(total & ~self._prefix[block * size])),
                )
            first, end = 0, block + 1
        else:
            first = next((k for k in range(-(-len(self._order) // size)) if total & self._blocks(k, k + 1)), 0)
            end = first + -(-length // size)
            if self._blocks(first, end) != total:
                return None
        if end - first == 1:
            return Parts((), tuple(_ranks(total)))
        if self.rule.radix == 1:
            return Parts(
                ((self._blocks(first, end - 1), self._holder(end - 1)),), tuple(_ranks(self._blocks(end - 1, end)))
            )
        wide = 1
        while wide * self.rule.radix < end - first:
            wide *= self.rule.radix
        cuts = [*range(first, end, wide), end]
        return Parts(tuple((self._blocks(a, b), self._holder(b - 1)) for a, b in pairwise(cuts)), ())


def _mask(ranks: frozenset[int]) -> int:
    return sum(1 << r for r in ranks)


def _ranks(total: int) -> Iterator[int]:
    while total:
        low = total & -total
        yield low.bit_length() - 1
        total ^= low
