"""Trees from a root: k-nomial ones, chains in pieces, NCCL's double binary trees, packed spanning trees."""

from __future__ import annotations

from operator import xor

from synth.language import Data, RankGroup, algorithm
from synth.language.library import direct
from synth.language.library.trees import (
    Edges,
    Held,
    add_pairs,
    around,
    copy_pairs,
    edges_from,
    growing_tree,
    joined,
    joined_parts,
    powers,
)
from synth.language.place import error_at

THAKUR = "Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005"
PACKED = "Nash-Williams and Tutte, J. London Math. Soc. 36, 1961"
BINOMIAL_FORMULA = "S = ceil(log n) to base radix (2), R/C = S; switch of u units, n = 2^k: S/u"


def _root(group: RankGroup, held: Held) -> int:
    """Return the one rank that has data."""
    return next(rank for rank in group.ranks if held[rank])


def _binomial(group: RankGroup, root: int, radix: int) -> list[Edges]:
    """Return the ranks (from, to) of each step of a tree that grows `radix` times in each.

    Of a power of two of ranks and radix 2 the partners differ in a bit, so that a cube has the links.
    """
    cube = radix == 2 and not group.size & (group.size - 1)
    place = xor if cube else around(group)
    tree = growing_tree(group.size, powers(group.size, radix), radix)
    return [edges_from(group, root, edges, place) for edges in tree]


@algorithm("broadcast", name="binomial", paper=THAKUR, home="dgx-a100", formula=BINOMIAL_FORMULA)
def binomial(group: RankGroup, held: Held, radix: int = 2) -> Held:
    """All that have the data send them at once, each to radix - 1 partners."""
    root = _root(group, held)
    now = {root: held[root]}
    for pairs in _binomial(group, root, radix):
        with group.step():
            copy_pairs(now, pairs)
    return now


@algorithm("reduce", name="binomial", paper=THAKUR, home="dgx-a100", formula=BINOMIAL_FORMULA)
def reduce(group: RankGroup, held: Held, radix: int = 2) -> Held:
    """The broadcast, reversed in time: sums go up the tree."""
    return _reduced(group, held, group.root, radix)


def _reduced(group: RankGroup, held: Held, root: int, radix: int) -> Held:
    sums = dict(held)
    for pairs in reversed(_binomial(group, root, radix)):
        with group.step():
            add_pairs(sums, pairs)
    return {root: sums[root]}


@algorithm("allreduce", name="binomial", paper=THAKUR, home="dgx-a100",
           formula="S = 2 ceil(log n) to base radix (2), R/C = S; switch of u units, n = 2^k: S/u")  # fmt: skip
def allreduce(group: RankGroup, held: Held, radix: int = 2) -> Held:
    """Reduce to the first rank, then broadcast from there."""
    now = _reduced(group, held, group.ranks[0], radix)
    for pairs in _binomial(group, group.ranks[0], radix):
        with group.step():
            copy_pairs(now, pairs)
    return now


@algorithm("gather", name="binomial", formula="S = ceil(log n), R/C = n-1", paper=THAKUR, home="dgx-a100")
def gather(group: RankGroup, held: Held) -> Held:
    """Each rank passes on what it has of all ranks below it in the tree."""
    at = group.position(group.root)
    now = dict(held)
    for bit in powers(group.size):
        with group.step():
            for i, rank in enumerate(group.ranks):
                below = (i - at) % group.size
                if below & bit:
                    now[rank] = now[rank].to(group.ranks[(at + below - below % (2 * bit)) % group.size])
    return {group.root: joined([now[rank] for rank in group.ranks])}


@algorithm("scatter", name="binomial", formula="S = ceil(log n), R/C = n-1", paper=THAKUR, home="dgx-a100")
def scatter(group: RankGroup, held: Held) -> Held:
    """The gather, reversed in time: data of all ranks of a branch go down it together."""
    at = group.position(group.root)
    now = {rank: held[group.root].part(i, group.size) for i, rank in enumerate(group.ranks)}
    for bit in reversed(powers(group.size)):
        with group.step():
            for i, rank in enumerate(group.ranks):
                below = (i - at) % group.size
                if below & bit:
                    now[rank] = now[rank].to(group.ranks[(at + below - below % bit) % group.size])
    return now


@algorithm("broadcast", name="chain", formula="C pieces: S = n-2+C, R/C = (n-2+C)/C", paper=THAKUR, steps="paced",
           home="line:8")  # fmt: skip
def chain(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Pass piece after piece down the chain of all ranks."""
    root = _root(group, held)
    copies = []
    for piece in held[root].split(pieces):
        copies.append({root: piece})
        for rank in group.others(root):
            piece = piece.to(rank)
            copies[-1][rank] = piece
    return joined_parts(group, copies)


@algorithm("broadcast", name="scatter-allgather", paper=THAKUR, home="dgx-a100",
           formula="S = 2, R/C: switch of u units 2(n-1)/(nu)")  # fmt: skip
def scatter_allgather(group: RankGroup, held: Held) -> Held:
    """Send each rank its part, then gather the parts."""
    root = _root(group, held)
    with group.step():
        pieces = {rank: held[root].part(i, group.size).to(rank) for i, rank in enumerate(group.ranks)}
    with group.step():
        return direct.allgather(group, pieces)


@algorithm("allreduce", name="double-tree", steps="paced", home="dgx-a100",
           paper="Sanders, Speck and Traeff, Parallel Comput. 35, 2009",
           formula="S by the height of the trees and the pieces")  # fmt: skip
def double_tree(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Sum up each of two binary trees and send the sum down again, half of the data in each, piece after piece.

    A rank that is inside one tree is a leaf of the other. The trees are NCCL's: the parent of a rank flips its lowest
    set bit; the second tree is the first one mirrored, or shifted by one rank for an odd number.
    """
    n = group.size
    # Both trees have one shape; they differ in which rank has which place.
    children: list[list[int]] = [[] for _ in range(n)]
    for x in range(1, n):
        bit = x & -x
        parent = x ^ bit | bit << 1
        children[x ^ bit if parent >= n else parent].append(x)
    second = group.ranks[::-1] if n % 2 == 0 else group.ranks[1:] + group.ranks[:1]
    results = []
    for half, place in enumerate((group.ranks, second)):
        for piece in range(pieces):
            now = [held[rank].part(half, 2).part(piece, pieces) for rank in place]
            down = _sent(_summed(now, children, 0), place, children, 0)
            results.append({data.rank: data for data in down})
    return joined_parts(group, results)


def _summed(now: list[Data], children: list[list[int]], x: int) -> Data:
    total = now[x]
    for child in children[x]:
        total = total.add(_summed(now, children, child))
    return total


def _sent(data: Data, place: tuple[int, ...], children: list[list[int]], x: int) -> list[Data]:
    found = [data]
    for child in children[x]:
        found += _sent(data.to(place[child]), place, children, child)
    return found


def _packed_trees(group: RankGroup) -> list[dict[int, list[int]]]:
    """Return the neighbours of each rank in each of the packed trees of a machine.

    Raises UsageError for a part of the ranks, and for machines whose links are not alike in both directions.
    """
    from synth.encodings.spanning_tree_packing import applies, forest

    network = group.trace.network
    if network is None or len(group.ranks) < group.trace.ranks or not applies(network):
        raise error_at(
            group.trace.place(),
            "packed trees need all ranks of a machine whose links are alike in both directions and share no limit",
        )
    found = []
    for tree in forest(network).trees:
        beside: dict[int, list[int]] = {rank: [] for rank in group.ranks}
        for rank, parent in enumerate(tree.parents):
            if rank != tree.root:
                beside[rank].append(parent)
                beside[parent].append(rank)
        found.append(beside)
    return found


def _levels(beside: dict[int, list[int]], root: int) -> list[Edges]:
    """Return the edges (nearer, farther) of a tree from the root on, by the distance of the farther rank from 1."""
    levels = []
    known, last = {root}, [root]
    while last:
        edges = [(near, far) for near in last for far in beside[near] if far not in known]
        last = [far for _, far in edges]
        known.update(last)
        levels.append(edges)
    return levels[:-1]


@algorithm("broadcast", name="packed-trees", paper=PACKED, home="torus:3x3",
           formula="M parts a tree: S = height + M - 1, R/C at most S/M over the rate of the trees")  # fmt: skip
def packed_broadcast(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Copy each part down its tree, `pieces` parts of each tree one after another, a level a step."""
    root = _root(group, held)
    trees = [_levels(beside, root) for beside in _packed_trees(group)]
    now = [{root: part} for part in held[root].split(pieces * len(trees))]
    for step in range(pieces + max(map(len, trees)) - 1):
        with group.step():
            for i, copies in enumerate(now):
                begun, tree = divmod(i, len(trees))
                copy_pairs(copies, _level(trees[tree], step - begun))
    return joined_parts(group, now)


@algorithm("allreduce", name="packed-trees", paper=PACKED, home="torus:3x3",
           formula="M parts a tree: S = 2 height + M - 1, R/C at most S/M over the rate of the trees")  # fmt: skip
def packed_allreduce(group: RankGroup, held: Held, pieces: int = 8) -> Held:
    """Sum each part up its tree, then copy the sum down, `pieces` parts of each tree one after another.

    Parts going up use one direction of the links, parts going down the other at once.
    """
    # Of each tree the root that makes it least high.
    trees = []
    for beside in _packed_trees(group):
        trees.append(min([_levels(beside, root) for root in group.ranks], key=len))
    height, count = max(map(len, trees)), pieces * len(trees)
    now: list[Held] = []
    for i in range(count):
        now.append({rank: held[rank].part(i, count) for rank in group.ranks})
    for step in range(pieces + 2 * height - 1):
        with group.step():
            for i, values in enumerate(now):
                begun, tree = divmod(i, len(trees))
                add_pairs(values, _level(trees[tree], height - 1 - (step - begun)))
                copy_pairs(values, _level(trees[tree], step - begun - height))
    return joined_parts(group, now)


def _level(levels: list[Edges], number: int) -> Edges:
    return levels[number] if 0 <= number < len(levels) else []
