"""The collective of a schedule's document, read strictly: which rank has which chunk before, and which after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from synth.errors import VerificationError
from synth.model.documents import json_reader

# Ranks of a collective, at most: as many as a certificate may be about.
MOST_RANKS = 1 << 16

ROOTED = (
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "multi-broadcast",
    "multi-reduce",
    "multi-scatter",
    "multi-gather",
)
UNROOTED = (
    "allgather",
    "reduce-scatter",
    "allreduce",
    "alltoall",
    "scan",
    "alltonext",
    "sendrecv",
    "allgatherv",
    "reduce-scatterv",
    "alltoallv",
)
COMBINING = ("reduce", "multi-reduce", "reduce-scatter", "reduce-scatterv", "allreduce", "scan")
# Collectives that are read with before and after exchanged.
REVERSED = ("reduce", "multi-reduce", "gather", "multi-gather", "reduce-scatter", "reduce-scatterv")

# A unit's ranks before, and after.
Row = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class ReplayCollective:
    """A collective: `pre` and `post` by address, ``chunk * ranks + rank``.

    A post address has the contributions that are wanted there, None for all of them.
    """

    name: str
    ranks: int
    chunks: int
    combining: bool
    pre: frozenset[int]
    post: dict[int, frozenset[int] | None]

    @staticmethod
    def read(doc: object, per_unit: int, ranks: int, place: str) -> ReplayCollective:
        """Read the `collective` object of a schedule with `per_unit` chunks of each unit. Raises VerificationError.

        All chunks of a unit are alike, so that the first of each says what the whole collective is; and a collective
        with a name of synth's own is, chunk by chunk, what its name and its sizes say.
        """
        fields = json_reader.fields(doc, place, {"name", "ranks", "root", "combining", "chunks", "pre", "post"})
        if json_reader.number(fields["ranks"], f"{place}.ranks", 1, MOST_RANKS) != ranks:
            raise VerificationError(f"has {fields['ranks']} ranks, the topology has {ranks}", f"{place}.ranks")
        chunks = json_reader.number(fields["chunks"], f"{place}.chunks", 0)
        if chunks % per_unit:
            raise VerificationError(f"{chunks} chunks are not a multiple of C = {per_unit}", f"{place}.chunks")
        if not isinstance(fields["combining"], bool):
            raise VerificationError("'combining' is true or false", f"{place}.combining")
        rows = len(json_reader.items(fields["pre"], f"{place}.pre")) + len(
            json_reader.items(fields["post"], f"{place}.post")
        )
        if chunks > rows:
            raise VerificationError(f"{chunks} chunks, and rows of pre and post for {rows} at most", f"{place}.chunks")
        pre = _pairs(fields["pre"], chunks, ranks, f"{place}.pre", 2)
        post = _pairs(fields["post"], chunks, ranks, f"{place}.post", 3 if fields["combining"] else 2)
        name = json_reader.text(fields["name"], f"{place}.name")
        task = ReplayCollective(name, ranks, chunks, fields["combining"], frozenset(pre), post)
        if task.combining:
            _check_sums(task, f"{place}.post")
        if not _as_defined(task, _roots(task, fields["root"], f"{place}.root"), per_unit, place):
            raise VerificationError(
                f"pre and post are not those of {name} over {ranks} ranks with C = {per_unit}", place
            )
        return task

    def unit(self, per_unit: int) -> ReplayCollective:
        """Return the collective in which each unit is one chunk, where it has `per_unit` here."""
        size = per_unit * self.ranks

        def kept(at: int) -> bool:
            return at % size < self.ranks

        def moved(at: int) -> int:
            return at // size * self.ranks + at % size

        pre = frozenset(map(moved, filter(kept, self.pre)))
        post = {moved(at): want for at, want in self.post.items() if kept(at)}
        return replace(self, chunks=self.chunks // per_unit, pre=pre, post=post)

    def split(self, per_unit: int) -> ReplayCollective:
        """Return the collective with `per_unit` chunks in the place of each one."""
        size = per_unit * self.ranks
        pre: set[int] = set()
        for at in self.pre:
            first = at // self.ranks * size + at % self.ranks
            pre.update(range(first, first + size, self.ranks))
        post: dict[int, frozenset[int] | None] = {}
        for at, want in self.post.items():
            first = at // self.ranks * size + at % self.ranks
            post.update(dict.fromkeys(range(first, first + size, self.ranks), want))
        return replace(self, chunks=self.chunks * per_unit, pre=frozenset(pre), post=post)


def _check_sums(task: ReplayCollective, place: str) -> None:
    """Check that every sum that a rank wants has contributions, and that all of them exist."""
    contributors: dict[int, set[int]] = {}
    for at in task.pre:
        contributors.setdefault(at // task.ranks, set()).add(at % task.ranks)
    for at, want in task.post.items():
        chunk, rank = divmod(at, task.ranks)
        if want is None and chunk not in contributors:
            raise VerificationError(f"rank {rank} wants the sum of chunk {chunk}, to which no rank contributes", place)
        if want is not None and not (want and want <= contributors.get(chunk, set())):
            raise VerificationError(
                f"rank {rank} wants {sorted(want)} of chunk {chunk}, which are not its contributors", place
            )


def _pairs(doc: object, chunks: int, ranks: int, place: str, most: int) -> dict[int, frozenset[int] | None]:
    rows = json_reader.items(doc, place)
    try:
        pairs: set[int] = set()
        for chunk, rank in rows:
            if type(chunk) is not int or type(rank) is not int or not 0 <= chunk < chunks or not 0 <= rank < ranks:
                break
            pairs.add(chunk * ranks + rank)
        else:
            if len(pairs) == len(rows):
                return dict.fromkeys(pairs)
    except (TypeError, ValueError):  # no row of two
        pass
    found: dict[int, frozenset[int] | None] = {}
    read: dict[int, frozenset[int]] = {}  # by the id of a list of contributors, which many rows may share
    for i, row in enumerate(rows):  # one by one, to say what is wrong where
        here = f"{place}[{i}]"
        if not 2 <= len(json_reader.items(row, here)) <= most:
            raise VerificationError("expected [chunk, rank]", here)
        chunk, rank = (
            json_reader.number(row[0], f"{here}[0]", 0, chunks),
            json_reader.number(row[1], f"{here}[1]", 0, ranks),
        )
        if chunk * ranks + rank in found:
            raise VerificationError(f"chunk {chunk} at rank {rank} is listed twice", here)
        want = None
        if len(row) == 3:
            want = read.get(id(row[2]))
            if want is None:
                want = read[id(row[2])] = _contributors(row[2], ranks, f"{here}[2]")
        found[chunk * ranks + rank] = want
    return found


def _contributors(doc: object, ranks: int, place: str) -> frozenset[int]:
    some = [json_reader.number(r, place, 0, ranks) for r in json_reader.items(doc, place)]
    if len(set(some)) < len(some):
        raise VerificationError("lists a rank twice", place)
    return frozenset(some)


def _roots(task: ReplayCollective, root: object, place: str) -> list[int]:
    """Return the roots: one rank, several for a collective whose name begins with multi-, none for the others.

    No claim rests on the roots of a collective with a name of its own, which may give any. Raises VerificationError.
    """
    if task.name in UNROOTED:
        if root is not None:
            raise VerificationError(f"is null for {task.name}, which has no root", place)
        return []
    several = isinstance(root, list)
    rows = root if isinstance(root, list) else [root] * (root is not None)
    roots = [json_reader.number(r, place, 0, task.ranks) for r in rows]
    if len(set(roots)) < len(roots) or several != (len(roots) > 1):
        raise VerificationError(f"expected one rank, or a list of different ones, found {root!r}"[:120], place)
    if task.name in ROOTED and not roots:
        raise VerificationError(f"is missing: {task.name} has one", place)
    if task.name in ROOTED and several != task.name.startswith("multi-"):
        raise VerificationError(
            f"{task.name} has {'one root' if several else 'several roots'}, found {root!r}"[:120], place
        )
    return roots if task.name in ROOTED else []


def _as_defined(task: ReplayCollective, roots: list[int], c: int, place: str) -> bool:
    """Return True where pre and post are as the collective's name says.

    A name that is not synth's own says nothing: then all chunks of a unit must be alike, else VerificationError.
    """
    n, everyone = task.ranks, range(task.ranks)
    before, after = (task.post, task.pre) if task.name in REVERSED else (task.pre, task.post)
    name = task.name
    if name not in ROOTED + UNROOTED:
        unit = task.unit(c)
        sizes = len(unit.pre) * c, len(unit.post) * c
        if sizes != (len(task.pre), len(task.post)) or task != unit.split(c):
            raise VerificationError(f"pre and post are not the same for all {c} chunks of a unit", place)
        return True
    units = {
        "broadcast": len(roots),
        "reduce": len(roots),
        "scatter": len(roots) * n,
        "gather": len(roots) * n,
        "allgather": n,
        "reduce-scatter": n,
        "alltoall": n * n,
        "allreduce": 1,
        "scan": 1,
        "alltonext": n - 1,
        "sendrecv": n,
    }.get(name.removeprefix("multi-"))
    if task.combining != (name in COMBINING):
        raise VerificationError(f"'combining' is wrong for {name}", f"{place}.combining")
    if units is not None and task.chunks != units * c:
        raise VerificationError(
            f"{name} over {n} ranks has {units * c} chunks at C = {c}, found {task.chunks}", f"{place}.chunks"
        )
    rows: list[Row]
    if name in ("broadcast", "multi-broadcast", "reduce", "multi-reduce"):
        rows = [([r], everyone) for r in roots]
    elif name in ("scatter", "multi-scatter", "gather", "multi-gather"):
        rows = [([r], [i]) for r in roots for i in everyone]
    elif name in ("allgather", "reduce-scatter"):
        rows = [([i], everyone) for i in everyone]
    elif name == "alltoall":
        rows = [([i], [j]) for i in everyone for j in everyone]
    elif name in ("allreduce", "scan"):
        rows = [(everyone, everyone)]
    elif name in ("alltonext", "sendrecv"):
        rows = [([i], [(i + 1) % n]) for i in range(task.chunks // c)]
    elif name == "alltoallv":
        source = {at // n // c: at % n for at in before}
        firsts = [at for at in after if at // n % c == 0]
        pairs = sorted((source.get(at // n // c, n), at % n) for at in firsts)
        rows = [([s], [d]) for s, d in pairs]
    else:
        rows = [([at % n], everyone) for at in sorted(before, key=lambda at: at % n) if at // n % c == 0]
    if (
        task.chunks != c * len(rows)
        or len(before) != c * sum(len(row[0]) for row in rows)
        or len(after) != c * sum(len(row[1]) for row in rows)
    ):
        return False  # before as many are written down
    left: set[int] = set()
    right: set[int] = set()
    for u, row in enumerate(rows):
        first, end = u * c * n, (u + 1) * c * n
        for r in row[0]:
            left.update(range(first + r, end, n))
        for r in row[1]:
            right.update(range(first + r, end, n))
    if name == "scan":
        prefixes = [frozenset(range(rank + 1)) for rank in everyone]
        sums = all(want == prefixes[at % n] for at, want in task.post.items())
    else:
        sums = all(want is None for want in task.post.values())
    return sums and left == set(before) and right == set(after)
