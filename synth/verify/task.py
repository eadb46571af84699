"""The task of a schedule's document, read strictly: who has which chunk before, who is to have it after, as its name says."""

from __future__ import annotations

from dataclasses import dataclass

from synth import strict
from synth.errors import VerificationError


@dataclass(frozen=True)
class Task:
    """`pre` and `post` by address, ``chunk * ranks + rank``; what a post address wants is None where it is everything."""

    name: str
    ranks: int
    chunks: int
    combining: bool
    pre: frozenset[int]
    post: dict[int, frozenset[int] | None]

    @staticmethod
    def read(doc: object, per_unit: int, ranks: int, place: str) -> Task:
        """Read the `collective` object of a schedule with `per_unit` chunks of each unit. Raises VerificationError."""
        fields = strict.fields(doc, place, {"name", "ranks", "root", "combining", "chunks", "pre", "post"})
        if fields["ranks"] != ranks:
            raise VerificationError(f"has {fields['ranks']} ranks, the topology has {ranks}", f"{place}.ranks")
        chunks = strict.number(fields["chunks"], f"{place}.chunks", 1)
        if chunks % per_unit:
            raise VerificationError(f"{chunks} chunks are not a multiple of C = {per_unit}", f"{place}.chunks")
        if not isinstance(fields["combining"], bool) or not isinstance(fields["name"], str):
            raise VerificationError("'combining' is true or false, 'name' is text", place)
        pre = _pairs(fields["pre"], chunks, ranks, f"{place}.pre", 2)
        post = _pairs(fields["post"], chunks, ranks, f"{place}.post", 3 if fields["combining"] else 2)
        task = Task(fields["name"], ranks, chunks, fields["combining"], frozenset(pre), post)
        if not _as_defined(task, fields["root"], per_unit, place):
            raise VerificationError(f"pre and post are not those of {task.name} over {ranks} ranks with C = {per_unit}", place)
        return task


def _pairs(doc: object, chunks: int, ranks: int, place: str, most: int) -> dict[int, frozenset[int] | None]:
    rows = strict.items(doc, place)
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
    for i, row in enumerate(rows):  # one by one, to say what is wrong where
        here = f"{place}[{i}]"
        if not 2 <= len(strict.items(row, here)) <= most:
            raise VerificationError("expected [chunk, rank]", here)
        chunk, rank = strict.number(row[0], f"{here}[0]", 0, chunks), strict.number(row[1], f"{here}[1]", 0, ranks)
        if chunk * ranks + rank in found:
            raise VerificationError(f"chunk {chunk} at rank {rank} is listed twice", here)
        wants = frozenset(strict.number(r, f"{here}[2]", 0, ranks) for r in strict.items(row[2], f"{here}[2]")) if len(row) == 3 else None
        found[chunk * ranks + rank] = wants
    return found


def _as_defined(task: Task, root: object, c: int, place: str) -> bool:
    """Whether pre and post are what the collective's name says; true for names that do not fix them."""
    n, everyone = task.ranks, range(task.ranks)
    roots = [root] if type(root) is int else root if isinstance(root, list) else []
    if any(type(r) is not int or not 0 <= r < n for r in roots):
        raise VerificationError(f"root {root!r} is not a rank", f"{place}.root")
    name = task.name.removeprefix("multi-")
    rows: list[tuple[list[int], list[int]]]
    if name in ("broadcast", "reduce"):
        rows = [([r], list(everyone)) for r in roots]
    elif name in ("scatter", "gather"):
        rows = [([r], [i]) for r in roots for i in everyone]
    elif name in ("allgather", "reduce-scatter"):
        rows = [([i], list(everyone)) for i in everyone]
    elif name == "alltoall":
        rows = [([i], [j]) for i in everyone for j in everyone]
    elif name in ("allreduce", "scan"):
        rows = [(list(everyone), list(everyone))]
    elif name in ("alltonext", "sendrecv"):
        rows = [([i], [(i + 1) % n]) for i in range(n if name == "sendrecv" else n - 1)]
    else:
        return True
    if name in ("reduce", "gather", "reduce-scatter"):
        rows = [(post, pre) for pre, post in rows]
    if task.combining != (name in ("reduce", "reduce-scatter", "allreduce", "scan")):
        raise VerificationError(f"'combining' is wrong for {name}", f"{place}.combining")
    if task.chunks != len(rows) * c:
        raise VerificationError(f"{name} over {n} ranks has {len(rows) * c} chunks at C = {c}, found {task.chunks}", f"{place}.chunks")
    if any(len(given) != c * sum(len(row[i]) for row in rows) for i, given in enumerate((task.pre, task.post))):
        return False  # before as many are written down
    pre: set[int] = set()
    post: dict[int, frozenset[int] | None] = {}
    for u, (before, after) in enumerate(rows):
        first, end = u * c * n, (u + 1) * c * n
        for r in before:
            pre.update(range(first + r, end, n))
        for r in after:
            post.update(dict.fromkeys(range(first + r, end, n), frozenset(range(r + 1)) if name == "scan" else None))
    return pre == task.pre and post == task.post
