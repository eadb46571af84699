"""The collective of a schedule's document, read strictly: which rank has which chunk before, and which after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from synth.checker.fields import need
from synth.errors import VerificationError
from synth.model.documents import json_reader
from synth.model.documents.json_reader import items, number

# Ranks of a collective, at most: as many as a certificate may be about.
MOST_RANKS = 1 << 16

ROOTED = ("broadcast", "reduce", "scatter", "gather")  # each also with multi- before it
UNROOTED = (
    "allgather", "reduce-scatter", "allreduce", "alltoall", "scan", "alltonext", "sendrecv", "allgatherv",
    "reduce-scatterv", "alltoallv",
)  # fmt: skip
COMBINING = ("reduce", "reduce-scatter", "reduce-scatterv", "allreduce", "scan")
OF_SIZES = ("allgatherv", "reduce-scatterv", "alltoallv")  # a rank, or a pair, has several units or none
# Collectives that are another one with before and after exchanged.
REVERSED = {
    "reduce": "broadcast", "gather": "scatter", "reduce-scatter": "allgather", "reduce-scatterv": "allgatherv",
}  # fmt: skip

# Who holds a chunk before, or wants it after: by address, ``chunk * ranks + rank``, the contributions that are wanted
# there, None for all of them.
Wants = dict[int, frozenset[int] | None]
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
    post: Wants

    @staticmethod
    def read(doc: object, per_unit: int, ranks: int, place: str) -> ReplayCollective:
        """Read the `collective` object of a schedule with `per_unit` chunks of each unit. Raises VerificationError.

        All chunks of a unit are alike, so that the first of each says what the whole collective is; and a collective
        with a name of synth's own is, chunk by chunk, what its name and its sizes say.
        """
        fields = json_reader.fields(doc, place, {"name", "ranks", "root", "combining", "chunks", "pre", "post"})
        name = json_reader.text(fields["name"], f"{place}.name")
        stated = number(fields["ranks"], f"{place}.ranks", 1, MOST_RANKS)
        need(stated == ranks, f"has {stated} ranks, the topology has {ranks}", f"{place}.ranks")
        combining = fields["combining"]
        need(type(combining) is bool, "'combining' is true or false", f"{place}.combining")

        # no more chunks than rows of pre and post
        chunks = number(fields["chunks"], f"{place}.chunks", 0)
        need(chunks % per_unit == 0, f"{chunks} chunks are not a multiple of C = {per_unit}", f"{place}.chunks")
        rows = len(items(fields["pre"], f"{place}.pre"))
        rows += len(items(fields["post"], f"{place}.post"))
        most = f"{chunks} chunks, and rows of pre and post for {rows} at most"
        need(chunks <= rows, most, f"{place}.chunks")
        pre = _addresses(fields["pre"], chunks, ranks, f"{place}.pre", 2)
        post = _addresses(fields["post"], chunks, ranks, f"{place}.post", 3 if combining else 2)
        task = ReplayCollective(name, ranks, chunks, combining, frozenset(pre), post)
        if combining:
            _check_sums(task, f"{place}.post")
        _check_name(task, per_unit, fields["root"], place)
        return task


def _addresses(doc: object, chunks: int, ranks: int, place: str, most: int) -> Wants:
    """Read rows [chunk, rank], of up to `most` items: the third has the contributions that are wanted."""
    found: Wants = {}
    read: dict[int, frozenset[int]] = {}  # by the id of a list of contributors, which many rows may share
    for i, row in enumerate(items(doc, place)):
        here = f"{place}[{i}]"
        if not 2 <= len(items(row, here)) <= most:
            raise VerificationError("expected [chunk, rank]", here)
        chunk, rank = row[:2]
        whole = type(chunk) is int and type(rank) is int
        if not whole or not 0 <= chunk < chunks or not 0 <= rank < ranks:
            number(chunk, f"{here}[0]", 0, chunks)
            number(rank, f"{here}[1]", 0, ranks)
        at = chunk * ranks + rank
        if at in found:
            raise VerificationError(f"chunk {chunk} at rank {rank} is listed twice", here)
        want = None
        if len(row) == 3:
            want = read.get(id(row[2]))
        if len(row) == 3 and want is None:
            some = [number(r, f"{here}[2]", 0, ranks) for r in items(row[2], f"{here}[2]")]
            want = read[id(row[2])] = frozenset(some)
            need(len(want) == len(some), "lists a rank twice", f"{here}[2]")
        found[at] = want
    return found


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
            fault = f"rank {rank} wants {sorted(want)} of chunk {chunk}, which are not its contributors"
            raise VerificationError(fault, place)


def _check_name(task: ReplayCollective, c: int, root: object, place: str) -> None:
    """Check that pre and post are as the collective's name and root say.

    A name that is not synth's own says nothing: then all chunks of a unit must be alike. Raises VerificationError.
    """
    n, name = task.ranks, task.name
    single = name.removeprefix("multi-")
    rooted = single in ROOTED

    # a root is one rank, or several different ones where the name begins with multi-. No claim rests on the roots of a
    # collective with a name of its own
    if name in UNROOTED:
        need(root is None, f"is null for {name}, which has no root", f"{place}.root")
    several = isinstance(root, list)
    listed = root if isinstance(root, list) else [root] * (root is not None)
    roots = [number(r, f"{place}.root", 0, n) for r in listed]
    different = len(set(roots)) == len(roots) and several == (len(roots) > 1)
    need(different, f"expected one rank, or a list of different ones, found {root!r}"[:120], f"{place}.root")
    if rooted:
        need(roots, f"is missing: {name} has one", f"{place}.root")
        how = "several roots" if name != single else "one root"
        need(several == (name != single), f"{name} has {how}, found {root!r}"[:120], f"{place}.root")

    if not rooted and name not in UNROOTED:
        held: list[set[int]] = [set() for _ in range(task.chunks)]
        wanted: list[Wants] = [{} for _ in range(task.chunks)]
        for at in task.pre:
            held[at // n].add(at % n)
        for at, want in task.post.items():
            wanted[at // n][at % n] = want
        for k in range(task.chunks):
            first = k - k % c
            alike = held[k] == held[first] and wanted[k] == wanted[first]
            need(alike, f"pre and post are not the same for all {c} chunks of a unit", place)
        return

    # the units that the name asks for, no more of them than the document has, and who has them before and after
    need(task.combining == (single in COMBINING), f"'combining' is wrong for {name}", f"{place}.combining")
    before, after = (task.post, task.pre) if single in REVERSED else (task.pre, task.post)
    units = task.chunks // c
    if single in OF_SIZES:
        rows = _rows_of_sizes(single, before, after, n, c)
    else:
        rows = list(islice(_rows(REVERSED.get(single, single), n, roots), units + 1))
    sizes = [0, 0]
    for have, want in rows:
        sizes[0] += len(have) * c
        sizes[1] += len(want) * c
    same = len(rows) == units and sizes == [len(before), len(after)]
    left: set[int] = set()
    right: set[int] = set()
    for u, (have, want) in enumerate(rows if same else ()):
        first, end = u * c * n, (u + 1) * c * n
        for r in have:
            left.update(range(first + r, end, n))
        for r in want:
            right.update(range(first + r, end, n))
    same = same and left == set(before) and right == set(after)
    need(same, f"pre and post are not those of {name} over {n} ranks with C = {c}", place)

    # sums are of all contributions; those of a scan of the ranks up to its own
    sums: list[frozenset[int] | None] = [None] * n
    if name == "scan":
        sums = [frozenset(range(rank + 1)) for rank in range(n)]
    same = all(want == sums[at % n] for at, want in task.post.items())
    need(same, f"pre and post are not those of {name} over {n} ranks with C = {c}", place)


def _rows(name: str, n: int, roots: list[int]) -> Iterator[Row]:
    """Yield for each unit of a collective the ranks that have it before, and after."""
    everyone = range(n)
    match name:
        case "broadcast":
            yield from (([r], everyone) for r in roots)
        case "scatter":
            for root in roots:
                yield from (([root], [i]) for i in everyone)
        case "allgather":
            yield from (([i], everyone) for i in everyone)
        case "alltoall":
            for src in everyone:
                yield from (([src], [dst]) for dst in everyone)
        case "allreduce" | "scan":
            yield everyone, everyone
        case "alltonext":
            yield from (([i], [i + 1]) for i in range(n - 1))
        case "sendrecv":
            yield from (([i], [(i + 1) % n]) for i in everyone)


def _rows_of_sizes(name: str, before: Wants | frozenset[int], after: Wants | frozenset[int], n: int, c: int) -> list:
    """Return the rows of a collective whose ranks have several units each, or none: those of its document, in order."""
    firsts = [at for at in before if at // n % c == 0]
    if name != "alltoallv":
        owners = sorted([at % n for at in firsts])
        return [([rank], range(n)) for rank in owners]
    source = {at // n: at % n for at in firsts}
    ends = []
    for at in after:
        chunk, rank = divmod(at, n)
        if chunk % c == 0:
            ends.append((source.get(chunk, n), rank))
    return [([src], [dst]) for src, dst in sorted(ends)]
