"""Parts that several families share: copies and sums along a tree of each rank, numbers of ranks, gathered data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from synth.language import Data, RankGroup
from synth.language.place import error_at

# Data of ranks: `held[rank]`.
Held = dict[int, Data]


def joined(pieces: Sequence[Data]) -> Data:
    """Return one value that joins the pieces, which are of one rank, in their order."""
    return pieces[0].join(*pieces[1:])


def gathered(group: RankGroup, copies: Mapping[int, Held]) -> Held:
    """Return for each rank the join of what it has of every rank's data: `copies[owner][rank]`."""
    held = {}
    for rank in group.ranks:
        held[rank] = joined([copies[owner][rank] for owner in group.ranks])
    return held


def parts(group: RankGroup, held: Held) -> dict[int, Held]:
    """Return for each rank its part of the data of all ranks: `parts[owner][rank]`."""
    found = {}
    for i, owner in enumerate(group.ranks):
        found[owner] = {rank: held[rank].part(i, group.size) for rank in group.ranks}
    return found


def dimensions(group: RankGroup, algorithm: str) -> int:
    """Return k for a group of 2^k ranks. Raises UsageError for another number."""
    if group.size & (group.size - 1):
        raise error_at(group.trace.place(), f"{algorithm} needs a power of two of ranks, not {group.size}")
    return group.size.bit_length() - 1


def copy_pairs(copies: Held, pairs: Iterable[tuple[int, int]]) -> None:
    """Copy data from the first to the second rank of each pair."""
    for src, dst in pairs:
        copies[dst] = copies[src].to(dst)


def add_pairs(values: Held, pairs: Iterable[tuple[int, int]]) -> None:
    """Add data of the first rank of each pair to those of the second one."""
    for src, dst in pairs:
        values[dst] = values[dst].add(values[src])
