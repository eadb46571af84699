"""Broadcasts, reductions and their kin: binomial and k-nomial trees, a chain in pieces, scatter with allgather."""

from __future__ import annotations

from synth.language import Data, RankGroup, algorithm
from synth.language.library import direct
from synth.language.library.trees import Held, add_pairs, copy_pairs, joined

PAPER = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005"


def _from_root(group: RankGroup, held: Held) -> tuple[int, ...]:
    """Return the ranks in the order of the group, beginning with the one that has data."""
    root = next(rank for rank in group.ranks if held[rank])
    return (root, *group.others(root))


def _tree(group: RankGroup, root: int, radix: int) -> list[list[tuple[int, int]]]:
    """Return the pairs (from, to) of each step of a tree that grows `radix` times in each.

    Of a power of two of ranks and radix 2 the partners differ in a bit, so that a cube has the links.
    """
    at = group.position(root)
    order = group.ranks[at:] + group.ranks[:at]
    if radix == 2 and not group.size & (group.size - 1):
        order = tuple(group.ranks[at ^ x] for x in range(group.size))
    steps, count = [], 1
    while count < group.size:
        grown = min(count * radix, group.size)
        steps.append([(order[y % count], order[y]) for y in range(count, grown)])
        count = grown
    return steps


@algorithm("broadcast", name="binomial", paper=PAPER, home="dgx-a100",
           formula="S = ceil(log n) to base radix (2), R/C = S; switch of u units, n = 2^k: S/u")  # fmt: skip
def binomial(group: RankGroup, held: Held, radix: int = 2) -> Held:
    """All that have the data send them at once, each to radix - 1 partners."""
    root = _from_root(group, held)[0]
    now = {root: held[root]}
    for pairs in _tree(group, root, radix):
        with group.step():
            copy_pairs(now, pairs)
    return now


@algorithm("reduce", name="binomial", paper=PAPER, home="dgx-a100",
           formula="S = ceil(log n) to base radix (2), R/C = S; switch of u units, n = 2^k: S/u")  # fmt: skip
def reduce(group: RankGroup, held: Held, radix: int = 2) -> Held:
    """The broadcast, reversed in time: sums go up the tree."""
    return {group.root: _reduced(group, held, group.root, radix)}


def _reduced(group: RankGroup, held: Held, root: int, radix: int) -> Data:
    now = dict(held)
    for pairs in reversed(_tree(group, root, radix)):
        with group.step():
            add_pairs(now, [(dst, src) for src, dst in pairs])
    return now[root]


@algorithm("allreduce", name="binomial", paper=PAPER, home="dgx-a100",
           formula="S = 2 ceil(log n) to base radix (2), R/C = S; switch of u units, n = 2^k: S/u")  # fmt: skip
def allreduce(group: RankGroup, held: Held, radix: int = 2) -> Held:
    """Reduce to the first rank, then broadcast from there."""
    root = group.ranks[0]
    now = {root: _reduced(group, held, root, radix)}
    for pairs in _tree(group, root, radix):
        with group.step():
            copy_pairs(now, pairs)
    return now


@algorithm("gather", name="binomial", formula="S = ceil(log n), R/C = n-1", paper=PAPER, home="dgx-a100")
def gather(group: RankGroup, held: Held) -> Held:
    """Each rank passes on what it has of all ranks below it in the tree."""
    at = group.position(group.root)
    now = dict(held)
    for bit in _bits(group):
        with group.step():
            for i, rank in enumerate(group.ranks):
                below = (i - at) % group.size
                if below & bit:
                    now[rank] = now[rank].to(group.ranks[(at + below - below % (2 * bit)) % group.size])
    return {group.root: joined([now[rank] for rank in group.ranks])}


@algorithm("scatter", name="binomial", formula="S = ceil(log n), R/C = n-1", paper=PAPER, home="dgx-a100")
def scatter(group: RankGroup, held: Held) -> Held:
    """The gather, reversed in time: data of all ranks of a branch go down it together."""
    at = group.position(group.root)
    now = {rank: held[group.root].part(i, group.size) for i, rank in enumerate(group.ranks)}
    for bit in reversed(_bits(group)):
        with group.step():
            for i, rank in enumerate(group.ranks):
                below = (i - at) % group.size
                if below & bit:
                    now[rank] = now[rank].to(group.ranks[(at + below - below % bit) % group.size])
    return now


def _bits(group: RankGroup) -> list[int]:
    """Return the powers of two below the number of ranks, ascending."""
    return [1 << k for k in range((group.size - 1).bit_length())]


@algorithm("broadcast", name="chain", formula="C pieces: S = n-2+C, R/C = (n-2+C)/C", paper=PAPER, steps="paced",
           home="line:8")  # fmt: skip
def chain(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Pass piece after piece down the chain of all ranks."""
    root, *rest = _from_root(group, held)
    copies = {rank: [] for rank in group.ranks}
    for piece in held[root].split(pieces):
        copies[root].append(piece)
        for rank in rest:
            piece = piece.to(rank)
            copies[rank].append(piece)
    return {rank: joined(parts) for rank, parts in copies.items()}


@algorithm("broadcast", name="scatter-allgather", paper=PAPER, home="dgx-a100",
           formula="S = 2, R/C: switch of u units 2(n-1)/(nu)")  # fmt: skip
def scatter_allgather(group: RankGroup, held: Held) -> Held:
    """Send each rank its part, then gather the parts."""
    order = _from_root(group, held)
    with group.step():
        pieces = {rank: held[order[0]].part(i, group.size).to(rank) for i, rank in enumerate(group.ranks)}
    with group.step():
        return direct.allgather(group, pieces)
