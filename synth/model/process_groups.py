"""Process groups that share a machine: which ranks run which collective over how many bytes, all at once.

    Group   ranks collective size root        root: the rank itself, None where the collective has none
    Units   the collective of all groups together: what a joint schedule is for

`size` is nccl-tests' (the larger of one rank's send and receive buffers), relative: only ratios between groups count.
Groups may share ranks. A joint schedule moves *units* of equal bytes: each part that a group's collective consists of
(the shard of one rank, the message of one pair, the whole buffer) is cut into as many units as its bytes ask for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from synth.errors import UsageError
from synth.model.collective import Collective, canonical_name
from synth.model.rational import gcd

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
ROOTED = ("broadcast", "reduce")
SUMS = ("reduce-scatter", "reduce", "allreduce")
MOST_UNITS = 1 << 14


@dataclass(frozen=True)
class Group:
    """A process group and the collective that it runs.

    `ranks`: two or more, in the order of the group. `size`: relative bytes (see the module). `root`: a rank of the
    machine, None where the collective has none. `name`: for messages, "" for none.
    """

    ranks: tuple[int, ...]
    collective: str
    size: Fraction
    root: int | None = None
    name: str = ""

    @property
    def parts(self) -> tuple[tuple[frozenset[int], frozenset[int]], ...]:
        """Return for each part of the data two tuples: the ranks that hold or contribute to it, and those that must end
        with it."""
        everyone = frozenset(self.ranks)
        one = [frozenset([r]) for r in self.ranks]
        if self.collective == "allgather":
            return tuple((r, everyone) for r in one)
        if self.collective == "reduce-scatter":
            return tuple((everyone, r) for r in one)
        if self.collective == "alltoall":
            return tuple((a, b) for a in one for b in one if a != b)
        root = everyone if self.root is None else frozenset([self.root])
        return ((root, everyone),) if self.collective == "broadcast" else ((everyone, root),)

    @property
    def part(self) -> Fraction:
        """Relative bytes of one part."""
        return (
            self.size / len(self.ranks) if self.collective in ("allgather", "reduce-scatter", "alltoall") else self.size
        )


@dataclass(frozen=True)
class Units:
    """`collective` in units of `unit` relative bytes; `parts[u]` is the (group, part) that unit u belongs to."""

    collective: Collective
    unit: Fraction
    parts: tuple[tuple[int, int], ...]


def checked(groups: Sequence[Group], ranks: int) -> tuple[Group, ...]:
    """Return the groups as a tuple. Raises UsageError where one is no group of a machine of `ranks` ranks."""
    if not groups:
        raise UsageError("no groups given")
    groups = [replace(group, collective=canonical_name(group.collective)) for group in groups]
    for i, group in enumerate(groups):
        where = f"group {i}"
        if group.collective not in COLLECTIVES:
            raise UsageError(f"{where}: {group.collective!r} is not run in groups; {', '.join(COLLECTIVES)} are")
        if len(group.ranks) < 2 or len(set(group.ranks)) < len(group.ranks):
            found = "one" if group.ranks else "none"
            if len(group.ranks) > 1:
                found = f"the ranks {', '.join(map(str, group.ranks[:20]))}"
            raise UsageError(f"{where}: two different ranks or more are needed, found {found}")
        if min(group.ranks) < 0 or max(group.ranks) >= ranks:
            raise UsageError(f"{where}: rank {max(group.ranks)} is not in 0..{ranks - 1}")
        if group.size <= 0:
            raise UsageError(f"{where}: the size must be positive, found {group.size}")
        if (group.root in group.ranks) != (group.collective in ROOTED) or (
            group.root is not None and group.collective not in ROOTED
        ):
            raise UsageError(f"{where}: a root is for broadcast and reduce, and one of the ranks")
    return tuple(groups)


def units(groups: Sequence[Group], ranks: int) -> Units:
    """Return one collective that consists of all groups. Raises UsageError where sizes have too little in common to be
    cut into equal units."""
    unit = gcd([group.part for group in groups])
    count = sum(int(group.part / unit) * len(group.parts) for group in groups)
    if count > MOST_UNITS:
        raise UsageError(
            f"the sizes ask for {count} parts of equal bytes, at most {MOST_UNITS} are supported; choose rounder sizes"
        )
    pre, post, parts = [], [], []
    for g, group in enumerate(groups):
        for p, (have, want) in enumerate(group.parts):
            for _ in range(int(group.part / unit)):
                pre.append(have)
                post.append(want)
                parts.append((g, p))
    combining = any(group.collective in SUMS for group in groups)
    return Units(Collective("groups", ranks, tuple(pre), tuple(post), combining), unit, tuple(parts))
