"""Parts that the families share: joined data, and trees along which each rank's data are copied or summed up.

A tree lists the edges (from, to) of each step, as positions counted from the rank that owns the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from synth.language import Data, RankGroup

# Data of ranks: `held[rank]`.
Held = dict[int, Data]
Edges = list[tuple[int, int]]
# Of a tree: the position in the group that is counted as the second number, from an owner at the first one.
Place = Callable[[int, int], int]


def joined(pieces: Sequence[Data]) -> Data:
    """Return one value that joins the pieces, which are of one rank, in their order."""
    return pieces[0].join(*pieces[1:])


def gathered(group: RankGroup, copies: Mapping[int, Held]) -> Held:
    """Return for each rank the join of what it has of every rank's data: `copies[owner][rank]`."""
    held = {}
    for rank in group.ranks:
        held[rank] = joined([copies[owner][rank] for owner in group.ranks])
    return held


def joined_parts(group: RankGroup, parts: Sequence[Held]) -> Held:
    """Return for each rank the join of its parts: `parts[i][rank]`."""
    held = {}
    for rank in group.ranks:
        held[rank] = joined([part[rank] for part in parts])
    return held


def parts(group: RankGroup, held: Held) -> dict[int, Held]:
    """Return for each rank its part of the data of all ranks: `parts[owner][rank]`."""
    found = {}
    for i, owner in enumerate(group.ranks):
        found[owner] = {rank: held[rank].part(i, group.size) for rank in group.ranks}
    return found


def copy_pairs(copies: Held, pairs: Iterable[tuple[int, int]]) -> None:
    """Copy data from the first to the second rank of each pair."""
    for src, dst in pairs:
        copies[dst] = copies[src].to(dst)


def add_pairs(values: Held, pairs: Iterable[tuple[int, int]]) -> None:
    """Add data of the second rank of each pair to those of the first one: copies, reversed in time."""
    for dst, src in pairs:
        values[dst] = values[dst].add(values[src])


def around(group: RankGroup) -> Place:
    """Return the place of trees that go round the group as a cycle."""
    return lambda at, x: (at + x) % group.size


def powers(ranks: int, radix: int = 2) -> list[int]:
    """Return the powers of `radix` below a number of ranks, ascending."""
    found = []
    power = 1
    while power < ranks:
        found.append(power)
        power *= radix
    return found


def growing_tree(ranks: int, strides: Sequence[int], radix: int = 2) -> list[Edges]:
    """Return the tree in which all that have the data send them `radix` - 1 times in a step, by multiples of a stride.

    `strides`: of each step, the powers of `radix` in any order.
    """
    holders = [0]
    steps = []
    for stride in strides:
        edges = []
        for shift in range(stride, radix * stride, stride):
            edges += [(x, x + shift) for x in holders if x + shift < ranks]
        holders += [y for _, y in edges]
        steps.append(edges)
    return steps


def edges_from(group: RankGroup, owner: int, edges: Edges, place: Place) -> Edges:
    """Return the ranks (from, to) of the edges of a tree of `owner`."""
    at = group.position(owner)
    return [(group.ranks[place(at, x)], group.ranks[place(at, y)]) for x, y in edges]


def gather_along(group: RankGroup, held: Held, trees: Sequence[list[Edges]], place: Place) -> Held:
    """Gather every rank's data: a part of them for each tree goes down it from its owner, a level in each step."""
    copies = {}
    for owner in group.ranks:
        copies[owner] = [{owner: part} for part in held[owner].split(len(trees))]
    for step in range(len(trees[0])):
        with group.step():
            for owner, owners_parts in copies.items():
                for part, tree in zip(owners_parts, trees, strict=True):
                    copy_pairs(part, edges_from(group, owner, tree[step], place))
    return gathered(group, {owner: joined_parts(group, found) for owner, found in copies.items()})


def sum_along(group: RankGroup, held: Held, trees: Sequence[list[Edges]], place: Place) -> Held:
    """Sum every rank's part of the data there: `gather_along` reversed in time, so that sums go up the trees."""
    sums = {}
    for owner, pieces in parts(group, held).items():
        sums[owner] = []
        for i in range(len(trees)):
            sums[owner].append({rank: data.part(i, len(trees)) for rank, data in pieces.items()})
    for step in reversed(range(len(trees[0]))):
        with group.step():
            for owner, owners_parts in sums.items():
                for part, tree in zip(owners_parts, trees, strict=True):
                    add_pairs(part, edges_from(group, owner, tree[step], place))
    held = {}
    for owner, owners_parts in sums.items():
        held[owner] = joined([part[owner] for part in owners_parts])
    return held
