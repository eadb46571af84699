"""Decompositions of the sums of a scan, or of any collective whose ranks want different sums: rules for
`synth.encodings.prefix_planning.prioritized_planner`.

The inputs are ordered as wanted sums of growing size take them in (for scan: by rank). A *prefix* is the sum of the
first few inputs in this order. The rules are those of parallel-prefix (scan) networks: each decomposes a prefix into a
shorter prefix, which some rank is to hold, and inputs.

    rule        the shorter prefix
    chain       of whole blocks of inputs, held where the sum of the last one is wanted; blocks of one input form a
                chain through all ranks
    sklansky    of the length that remains when the lowest nonzero digit is cleared (Sklansky, "Conditional-sum addition
                logic", 1960)
    nearest     the longest one that is wanted at a neighbour of the rank that needs this one
    blocked     of whole blocks, held by one rank of each block; sums of blocks are made of `radix` smaller ones

Where the wanted sums do not contain one another, a sum is decomposed into the greatest wanted sum that it contains and
inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random

from synth.encodings.prefix_planning.plan_cells import Decomposition
from synth.encodings.prefix_planning.settings import SETTINGS
from synth.model.collective import Collective
from synth.model.topology import Network


@dataclass(frozen=True)
class Rule:
    """A rule of the module's table.

    Attributes:
        name: the rule's name in the table.
        size: number of inputs in a block.
        radix: base of the digits (sklansky), or number of block sums that are added at a time (blocked); 1 makes a
            chain of blocks.
        offset: index, within a block, of the rank that holds the block's sums.
    """

    name: str
    size: int = 1
    radix: int = 2
    offset: int = 0


def rules(ranks: int, diameter: int) -> Iterator[Rule]:
    """Yield the rules worth trying for `ranks` ranks on a network of `diameter` steps, the most promising of every
    kind first."""
    sizes = sorted({round(ranks**0.5), *(2**k for k in range(2, ranks.bit_length()) if 2**k < ranks)})
    blocked_sizes = sizes if diameter <= SETTINGS.near else []
    yield from (Rule("sklansky"), Rule("nearest"), Rule("chain"))
    yield from (Rule("chain", size) for size in sizes)
    yield from (Rule("blocked", size, ranks) for size in blocked_sizes)
    yield Rule("sklansky", radix=4)
    yield Rule("chain", ranks)
    yield from (Rule("blocked", size, radix) for size in blocked_sizes for radix in (1, 2, 3))


@dataclass(frozen=True)
class Prefixes:
    """Decompositions that a rule allows for the sums of one unit of a collective: the `decompositions` of
    `synth.encodings.prefix_planning.prioritized_planner.Planner`."""

    network: Network
    collective: Collective
    unit: int
    rule: Rule
    rng: Random

    @property
    def wanted(self) -> list[tuple[int, int]]:
        """``(sum, rank)`` for each rank that wants a sum."""
        unit = self.collective
        return [(_mask(unit.wanted(self.unit, rank)), rank) for rank in sorted(unit.post[self.unit])]

    @cached_property
    def _sums(self) -> list[int]:
        """Wanted sums, the smallest first."""
        return sorted({total for total, _ in self.wanted}, key=lambda total: (total.bit_count(), total))

    @cached_property
    def _order(self) -> list[int]:
        """Inputs in the order in which wanted sums take them in."""
        first: dict[int, int] = {}
        for i in self.collective.pre[self.unit]:
            first[i] = next((k for k, total in enumerate(self._sums) if total >> i & 1), len(self._sums))
        return sorted(first, key=lambda i: (first[i], i))

    @cached_property
    def _prefix(self) -> list[int]:
        """Prefixes by length."""
        prefixes = [0]
        for i in self._order:
            prefixes.append(prefixes[-1] | 1 << i)
        return prefixes

    @cached_property
    def _homes(self) -> dict[int, int]:
        """Rank that holds each wanted sum for others: the one whose input the sum takes in last, if it wants the
        sum."""
        homes: dict[int, int] = {}
        position = {i: k for k, i in enumerate(self._order)}
        for total, rank in self.wanted:
            if total not in homes or (position.get(rank, -1) > position.get(homes[total], -1) and total >> rank & 1):
                homes[total] = rank
        return homes

    @cached_property
    def _neighbours(self) -> list[list[int]]:
        neighbours: list[set[int]] = [set() for _ in range(self.network.ranks)]
        for route in self.network.routes:
            neighbours[route.dst].add(route.src)
        return [sorted(sources) for sources in neighbours]

    def __call__(self, total: int, rank: int) -> list[Decomposition]:
        """Return the decompositions of a sum that `rank` needs, the best first."""
        if total == 1 << rank:
            return [Decomposition((), (rank,))]
        length = total.bit_count()
        is_prefix = self._prefix[length] == total if length < len(self._prefix) else False
        if self.rule.name == "blocked":
            blocked = self._blocked(total, rank, is_prefix)
            if blocked is not None:
                return [blocked]
        home = self._homes.get(total)
        choices = [Decomposition(((total, home),), ())] if home is not None and home != rank else []
        if is_prefix:
            choices.append(self._decomposition(total, self._prefix[self._shorter(length, rank)]))
            contained = self._sums_beside(rank, total)
        else:
            contained = [t for t in reversed(self._sums) if t != total and t & ~total == 0][:1]
        self.rng.shuffle(contained)
        del contained[SETTINGS.alternatives :]
        if not choices and not contained:
            contained = [0]
        choices += [self._decomposition(total, t) for t in contained]
        return list(dict.fromkeys(choices))

    def _sums_beside(self, rank: int, total: int) -> list[int]:
        """Return the sums that neighbours of `rank` hold for others and that `total` contains."""
        sums = [self._held_by.get(n, 0) for n in self._neighbours[rank]]
        return [t for t in sums if t and t != total and t & ~total == 0]

    def _decomposition(self, total: int, part: int) -> Decomposition:
        """Return the decomposition of a sum into `part`, where that is held, and inputs; `part` of fewer than two
        inputs counts as inputs."""
        if part.bit_count() <= 1:
            return Decomposition((), tuple(_ranks(total)))
        return Decomposition(((part, self._home(part)),), tuple(_ranks(total & ~part)))

    def _home(self, total: int) -> int:
        if total in self._homes:
            return self._homes[total]
        return max(_ranks(total), key=self._order.index)

    @cached_property
    def _held_by(self) -> dict[int, int]:
        """The sum that a rank wants and holds for others, by rank."""
        return {rank: total for total, rank in self.wanted if self._homes[total] == rank}

    def _shorter(self, length: int, rank: int) -> int:
        """Return the length of the prefix that the rule takes for a prefix of `length` inputs at `rank`."""
        size, radix = self.rule.size, self.rule.radix
        if self.rule.name == "sklansky":
            digit = 1
            while length % (digit * radix) == 0:
                digit *= radix
            return length // (digit * radix) * (digit * radix)
        if self.rule.name == "nearest":
            sums = [self._held_by.get(n, 0) for n in self._neighbours[rank]]
            lengths = [t.bit_count() for t in sums if t and t == self._prefix[t.bit_count()]]
            return max((n for n in lengths if n < length), default=0)
        return (length - 1) // size * size

    # ------------------------------------------------------------ blocks

    def _block_owner(self, block: int) -> int:
        """Return the rank that holds the sums of a block."""
        return self._order[min(block * self.rule.size + self.rule.offset % self.rule.size, len(self._order) - 1)]

    def _block_sum(self, first: int, end: int) -> int:
        """Return the sum of all inputs of the blocks from `first` to before `end`."""
        size, last = self.rule.size, len(self._order)
        return self._prefix[min(last, end * size)] & ~self._prefix[min(last, first * size)]

    def _blocked(self, total: int, rank: int, is_prefix: bool) -> Decomposition | None:
        """Return the decomposition of the blocked rule: a prefix into a prefix of whole blocks, at a rank of its own
        block, and inputs; a sum of blocks into sums of fewer blocks. None for any other sum."""
        size, length = self.rule.size, total.bit_count()
        if is_prefix:
            block = (length - 1) // size
            if length % size or rank != self._block_owner(block + 1):
                if block == 0:
                    return Decomposition((), tuple(_ranks(total)))
                whole_blocks = self._prefix[block * size]
                return Decomposition(
                    ((whole_blocks, self._block_owner(block)),),
                    tuple(_ranks(total & ~whole_blocks)),
                )
            first, end = 0, block + 1
        else:
            blocks = range(-(-len(self._order) // size))
            first = next((k for k in blocks if total & self._block_sum(k, k + 1)), 0)
            end = first + -(-length // size)
            if self._block_sum(first, end) != total:
                return None
        if end - first == 1:
            return Decomposition((), tuple(_ranks(total)))
        if self.rule.radix == 1:
            earlier_blocks = (self._block_sum(first, end - 1), self._block_owner(end - 1))
            return Decomposition((earlier_blocks,), tuple(_ranks(self._block_sum(end - 1, end))))
        width = 1
        while width * self.rule.radix < end - first:
            width *= self.rule.radix
        cuts = [*range(first, end, width), end]
        return Decomposition(tuple((self._block_sum(a, b), self._block_owner(b - 1)) for a, b in pairwise(cuts)), ())


def _mask(ranks: frozenset[int]) -> int:
    return sum(1 << r for r in ranks)


def _ranks(total: int) -> Iterator[int]:
    while total:
        low = total & -total
        yield low.bit_length() - 1
        total ^= low
