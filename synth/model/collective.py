"""Collective: which rank holds which unit of data before and after, and the table of the ones with names.

A *unit* of data is what gets split into C chunks: allgather, gather, scatter: one rank's contribution; reduce-scatter:
one rank's result; alltoall: what one rank sends one other; broadcast, reduce, allreduce, scan: the whole buffer;
multi-root: one root's share; patterns: one message. Chunk ids are unit-major: ``unit * C + i``.

For a combining collective `pre[u]` lists the ranks that contribute to unit u; the ranks in `post[u]` must end with
every contribution, or with ``wants[u][rank]`` where that is given (scan).
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from synth.errors import UsageError, unknown
from synth.model.rational import printable

MAX_UNITS = 1 << 20
# nccl-tests counts the bus bandwidth of these by all data but one rank's own, or by all data.
_BUS_PART = {"allgather", "reduce-scatter", "alltoall", "gather", "scatter"}
_BUS_WHOLE = {"broadcast", "reduce", "sendrecv"}


def bus_factor(name: str, ranks: int) -> Fraction | None:
    """Return nccl-tests' bus bandwidth divided by size/time; None for collectives that it does not measure."""
    if name == "allreduce":
        return Fraction(2 * (ranks - 1), ranks)
    if name in _BUS_PART:
        return Fraction(ranks - 1, ranks)
    return Fraction(1) if name in _BUS_WHOLE else None


Ranks: TypeAlias = int | Iterable[int]
# The contributions that each rank wants of a unit: a mapping, or (rank, contributions) by rank.
Wants: TypeAlias = Mapping[int, Ranks] | Iterable[tuple[int, Ranks]]


def rank_set(ranks: Ranks) -> frozenset[int]:
    """Return a rank, or several, as a set of Python's integers. Raises TypeError for anything else."""
    if type(ranks) is frozenset:
        return ranks
    return frozenset(map(operator.index, ranks)) if isinstance(ranks, Iterable) else frozenset([operator.index(ranks)])


def _sums(wants: Wants) -> tuple[tuple[int, frozenset[int]], ...]:
    rows: Iterable[tuple[int, Ranks]] = sorted(wants.items()) if isinstance(wants, Mapping) else wants  # type: ignore
    return tuple((operator.index(rank), rank_set(contributions)) for rank, contributions in rows)


@dataclass(frozen=True)
class Collective:
    """A collective: where each unit of data is before and after. `synth.collective` makes those with names.

    Parameters
    ----------
    name : of an own collective: none of a built-in one.
    ranks : the number of ranks.
    pre : ``pre[u]`` are the ranks that hold unit u before; a rank, or a set or list of ranks. Where sums are made, the
        ranks that contribute to it.
    post : ``post[u]`` are the ranks that must end with unit u, or with its sum.
    combining : True where the contributions of a unit are summed.
    roots : the roots; () where there are none.
    wants : for partial sums: ``wants[u]`` maps each rank of ``post[u]`` to the contributions that it must end with.

    Examples
    --------
    Each rank's data to the next one:

    >>> import synth
    >>> shift = synth.Collective("shift", 4, [0, 1, 2, 3], [1, 2, 3, 0])
    >>> synth.frontier("ring:4", shift, max_steps=1)
    <Frontier of shift on ring:4: 1: 1; complete to 1 steps>
    """

    name: str
    ranks: int
    pre: tuple[frozenset[int], ...]
    post: tuple[frozenset[int], ...]
    combining: bool = False
    roots: tuple[int, ...] = ()
    wants: tuple[tuple[tuple[int, frozenset[int]], ...], ...] | None = field(default=None)

    def __init__(
        self, name: str, ranks: int, pre: Iterable[Ranks], post: Iterable[Ranks], combining: bool = False,
        roots: Iterable[int] = (), wants: Iterable[Wants] | None = None,
    ) -> None:  # fmt: skip
        put = object.__setattr__
        put(self, "name", name)
        put(self, "ranks", operator.index(ranks))
        put(self, "pre", tuple(map(rank_set, pre)))
        put(self, "post", tuple(map(rank_set, post)))
        put(self, "combining", combining)
        put(self, "roots", tuple(map(operator.index, roots)))
        put(self, "wants", None if wants is None else tuple(map(_sums, wants)))

    def __repr__(self) -> str:
        roots = f" from {','.join(map(str, self.roots))}" if self.roots else ""
        return f"<Collective {self.name}{roots}: {self.ranks} ranks, {self.units} unit{'s' * (self.units != 1)}>"

    @property
    def units(self) -> int:
        """Number of units of data."""
        return len(self.pre)

    def wanted(self, unit: int, rank: int) -> frozenset[int]:
        """Return the contributions to `unit` whose sum `rank` must end with, in a combining collective."""
        if self.wants is not None:
            return dict(self.wants[unit])[rank]
        return self.pre[unit]

    @property
    def buffer_units(self) -> int:
        """Units in the larger of one rank's send and receive buffers: what nccl-tests calls the size."""
        held, got = [0] * self.ranks, [0] * self.ranks
        for pre, post in zip(self.pre, self.post, strict=True):
            for r in pre:
                held[r] += 1
            for r in post:
                got[r] += 1
        return max(*held, *got, 1)

    @property
    def unit_share(self) -> Fraction:
        """Bytes of one unit divided by the size (nccl-tests' definition)."""
        return Fraction(1, self.buffer_units)

    @property
    def reversible(self) -> bool:
        """True for a combining collective whose units end on one rank each: the time reversal of a non-combining
        one."""
        return self.combining and self.wants is None and all(len(post) == 1 for post in self.post)

    def reversed(self) -> Collective:
        """Return the collective with `pre` and `post` exchanged: reduce ↔ broadcast, reduce-scatter ↔ allgather."""
        name = REVERSALS.get(self.name, f"reversed-{self.name}")
        return Collective(name, self.ranks, self.post, self.pre, not self.combining, self.roots)

    def unit_permutation(self, pi: Sequence[int], onto: Collective | None = None) -> tuple[int, ...] | None:
        """Return the image of each unit when each rank r becomes rank ``pi[r]``; None where that is no symmetry.

        The image of a unit is one that has its sources and destinations after the renaming: a unit of this collective,
        or with `onto` of another one. Units that are alike keep their order.
        """
        goal = onto or self
        if (goal.units, goal.combining) != (self.units, self.combining):
            return None
        moved: dict[frozenset[int], frozenset[int]] = {}

        def move(ranks: frozenset[int]) -> frozenset[int]:
            if ranks not in moved:
                moved[ranks] = frozenset([pi[r] for r in ranks])
            return moved[ranks]

        places: dict[tuple, list[int]] = {}
        for u in range(goal.units):
            places.setdefault(goal._signature(u, lambda ranks: ranks), []).append(u)
        taken: dict[tuple, int] = {}
        image = []
        for u in range(self.units):
            key = self._signature(u, move)
            at = taken.get(key, 0)
            if at >= len(places.get(key, ())):
                return None
            taken[key] = at + 1
            image.append(places[key][at])
        return tuple(image)

    def _signature(self, unit: int, move: Callable[[frozenset[int]], frozenset[int]]) -> tuple:
        wants = set()
        if self.wants is not None:
            for rank, contributions in self.wants[unit]:
                (image,) = move(frozenset([rank]))
                wants.add((image, move(contributions)))
        return move(self.pre[unit]), move(self.post[unit]), frozenset(wants)

    @cached_property
    def document(self) -> dict:
        """`to_json(1)` without a copy, for readers that change nothing in it."""
        return self._document(1)

    def to_json(self, chunks: int) -> dict:
        """Return the `collective` object of a schedule document, with `chunks` chunks of every unit."""
        return json.loads(json.dumps(self.document_of(chunks)))

    def document_of(self, chunks: int) -> dict:
        """Return `to_json(chunks)` for readers that change nothing in it: chunks share the lists of contributors."""
        return self.document if chunks == 1 else self._document(chunks)

    def _document(self, chunks: int) -> dict:
        pre: list[list] = []
        post: list[list] = []
        for u in range(self.units):
            mine, before, after = range(u * chunks, (u + 1) * chunks), sorted(self.pre[u]), sorted(self.post[u])
            pre += [[chunk, r] for chunk in mine for r in before]
            if self.wants is None:
                post += [[chunk, r] for chunk in mine for r in after]
            else:
                wanted = [(r, sorted(self.wanted(u, r))) for r in after]
                post += [[chunk, r, want] for chunk in mine for r, want in wanted]
        root = self.roots[0] if len(self.roots) == 1 else (list(self.roots) or None)
        return {
            "name": self.name, "ranks": self.ranks, "root": root, "combining": self.combining,
            "chunks": self.units * chunks, "pre": pre, "post": post,
        }  # fmt: skip

    @staticmethod
    def from_json(doc: dict, chunks: int) -> Collective:
        """The inverse of `to_json`: reads chunk 0 of each unit. Raises KeyError, ValueError, TypeError."""
        total = doc["chunks"]
        if chunks < 1 or total % chunks:
            raise ValueError(f"{total} chunks are not a multiple of {chunks} per unit")
        units = total // chunks
        pre: list[set[int]] = [set() for _ in range(units)]
        post: list[set[int]] = [set() for _ in range(units)]
        wants: list[dict[int, frozenset[int]]] = [{} for _ in range(units)]
        for chunk, rank in doc["pre"]:
            if chunk % chunks == 0:
                pre[chunk // chunks].add(rank)
        for chunk, rank, *want in doc["post"]:
            if chunk % chunks == 0:
                post[chunk // chunks].add(rank)
                if want:
                    wants[chunk // chunks][rank] = frozenset(want[0])
        for rank in set().union(*pre, *post):
            if type(rank) is not int or not 0 <= rank < doc["ranks"]:
                raise ValueError(f"{rank!r} is no rank of {doc['ranks']}"[:80])
        root = doc.get("root")
        if root is None:
            roots: tuple[int, ...] = ()
        else:
            roots = (root,) if isinstance(root, int) else tuple(root)
        partial = None
        if any(wants):
            partial = tuple(tuple(sorted(row.items())) for row in wants)
        return Collective(
            printable(doc["name"]),
            doc["ranks"],
            tuple(map(frozenset, pre)),
            tuple(map(frozenset, post)),
            doc["combining"],
            roots,
            partial,
        )


REVERSALS = {
    "reduce": "broadcast", "broadcast": "reduce", "reduce-scatter": "allgather", "allgather": "reduce-scatter",
    "reduce-scatterv": "allgatherv", "allgatherv": "reduce-scatterv",
}  # fmt: skip


def _sets(rows: Sequence[Sequence[int] | range]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset(row) for row in rows)


def _alone(ranks: Iterable[int]) -> tuple[frozenset[int], ...]:
    return tuple(frozenset([rank]) for rank in ranks)


def _rooted(name: str, ranks: int, roots: tuple[int, ...], *, spread: bool, combining: bool = False) -> Collective:
    alone, everyone = _alone(roots), _sets([range(ranks)] * len(roots))
    pre, post = (alone, everyone) if spread else (everyone, alone)
    return Collective(name, ranks, pre, post, combining, roots)


def _broadcast(ranks: int, roots: tuple[int, ...]) -> Collective:
    return _rooted("broadcast" if len(roots) == 1 else "multi-broadcast", ranks, roots, spread=True)


def _reduce(ranks: int, roots: tuple[int, ...]) -> Collective:
    return _rooted("reduce" if len(roots) == 1 else "multi-reduce", ranks, roots, spread=False, combining=True)


def _scatter(ranks: int, roots: tuple[int, ...]) -> Collective:
    pairs = [(root, n) for root in roots for n in range(ranks)]
    name = "scatter" if len(roots) == 1 else "multi-scatter"
    return replace(pattern(ranks, pairs, name), roots=roots)


def _gather(ranks: int, roots: tuple[int, ...]) -> Collective:
    pairs = [(n, root) for root in roots for n in range(ranks)]
    name = "gather" if len(roots) == 1 else "multi-gather"
    return replace(pattern(ranks, pairs, name), roots=roots)


def _allgather(ranks: int, sizes: tuple[int, ...]) -> Collective:
    owners = [r for r in range(ranks) for _ in range(sizes[r])]
    name = "allgather" if set(sizes) == {1} else "allgatherv"
    return Collective(name, ranks, _sets([[r] for r in owners]), _sets([range(ranks)] * len(owners)))


def _reduce_scatter(ranks: int, sizes: tuple[int, ...]) -> Collective:
    return _allgather(ranks, sizes).reversed()


def _alltoall(ranks: int, sizes: tuple[tuple[int, ...], ...]) -> Collective:
    pairs = [(s, d) for s in range(ranks) for d in range(ranks) for _ in range(sizes[s][d])]
    uniform = all(count == 1 for row in sizes for count in row)
    return pattern(ranks, pairs, "alltoall" if uniform else "alltoallv")


def _allreduce(ranks: int) -> Collective:
    return Collective("allreduce", ranks, _sets([range(ranks)]), _sets([range(ranks)]), True)


def _scan(ranks: int) -> Collective:
    wants = (tuple((r, frozenset(range(r + 1))) for r in range(ranks)),)
    return Collective("scan", ranks, _sets([range(ranks)]), _sets([range(ranks)]), True, (), wants)


def pattern(ranks: int, messages: Sequence[tuple[int, int]], name: str = "pattern") -> Collective:
    """Return a collective of independent messages ``(source, destination)``, one unit each."""
    sources, destinations = zip(*messages, strict=True) if messages else ((), ())
    return Collective(name, ranks, _alone(sources), _alone(destinations))


# name -> (summary, options it takes); `collective` below builds it
COLLECTIVES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "broadcast": ("the root's buffer to every rank", ("root",)),
    "reduce": ("the sum of all buffers to the root", ("root",)),
    "scatter": ("the root's i-th part to rank i", ("root",)),
    "gather": ("every rank's part to the root", ("root",)),
    "allgather": ("every rank's part to every rank", ("sizes",)),
    "reduce-scatter": ("the sum of the i-th parts to rank i", ("sizes",)),
    "allreduce": ("the sum of all buffers to every rank", ()),
    "alltoall": ("rank i's j-th part to rank j's i-th", ("sizes",)),
    "scan": ("to rank i the sum of the buffers of ranks 0..i", ()),
    "multi-broadcast": ("several roots' buffers to every rank", ("root",)),
    "multi-reduce": ("a sum to each of several roots", ("root",)),
    "multi-scatter": ("several roots' parts to every rank", ("root",)),
    "multi-gather": ("every rank's parts to several roots", ("root",)),
    "alltonext": ("rank i's buffer to rank i + 1", ()),
    "sendrecv": ("rank i's buffer to rank i + 1, cyclically", ()),
    "allgatherv": ("allgather with a number of chunks per rank", ("sizes",)),
    "reduce-scatterv": ("reduce-scatter with a number of chunks per rank", ("sizes",)),
    "alltoallv": ("alltoall with a number of chunks per pair", ("sizes",)),
}

# Short names; `canonical_name` reads them, and every name with or without separators.
ALIASES = {"ag": "allgather", "ar": "allreduce", "rs": "reduce-scatter", "a2a": "alltoall", "bcast": "broadcast"}
_SEPARATORS = str.maketrans("", "", "-_ ")
_SPELLINGS = {name.translate(_SEPARATORS): name for name in COLLECTIVES} | ALIASES


def canonical_name(name: str) -> str:
    """Return the name in `COLLECTIVES` that `name` stands for, in any case and with any separators, or by an alias:
    allreduce for all_reduce, All-Reduce or ar. Other names are returned in lower case.
    """
    key = name.strip().lower()
    return _SPELLINGS.get(key.translate(_SEPARATORS), key)


def collective(
    name: str, ranks: int, roots: Sequence[int] = (), sizes: Sequence[int] | Sequence[Sequence[int]] | None = None
) -> Collective:
    """Return the collective called `name` over `ranks` ranks.

    `roots`: one root (default 0), or several for the multi-root ones. `sizes`: chunk counts per rank
    (allgatherv, reduce-scatterv) or per pair (alltoallv). Raises UsageError for an unknown name or a bad option.
    """
    key = canonical_name(name)
    if key not in COLLECTIVES:
        raise UsageError(unknown("collective", name, [*COLLECTIVES, *ALIASES], "collectives"))
    least = ranks * ranks if key in ("alltoall", "alltoallv") else ranks
    if least > MAX_UNITS:
        raise UsageError(
            f"{key} over {ranks} ranks: at most {MAX_UNITS} {'parts' if least > ranks else 'ranks'} are supported"
        )
    takes = COLLECTIVES[key][1]
    roots = tuple(roots)
    if roots and "root" not in takes:
        raise UsageError(f"{key} has no root; remove --root")
    if sizes is not None and "sizes" not in takes:
        raise UsageError(f"{key} takes no sizes; allgatherv, reduce-scatterv and alltoallv do")
    for root in roots:
        if not 0 <= root < ranks:
            raise UsageError(f"root {root} is not a rank of 0..{ranks - 1}")
        if roots.count(root) > 1:
            raise UsageError(f"root {root} is given twice")
    if "root" in takes:
        many = key.startswith("multi-")
        roots = roots or tuple(range(min(1 + many, ranks)))
        if not many and len(roots) > 1:
            raise UsageError(f"{key} has one root, {len(roots)} were given; multi-{key} takes several")
        build = {"broadcast": _broadcast, "reduce": _reduce, "scatter": _scatter, "gather": _gather}[
            key.removeprefix("multi-")
        ]
        return build(ranks, roots)
    if key in ("alltoall", "alltoallv"):
        return _alltoall(ranks, _pair_sizes(key, ranks, sizes))
    if key in ("allgather", "allgatherv", "reduce-scatter", "reduce-scatterv"):
        build = _allgather if key.startswith("allgather") else _reduce_scatter
        return build(ranks, _rank_sizes(key, ranks, sizes))
    if key == "allreduce":
        return _allreduce(ranks)
    if key == "scan":
        return _scan(ranks)
    wrap = ranks if key == "sendrecv" else ranks - 1
    return pattern(ranks, [(i, (i + 1) % ranks) for i in range(wrap)], key)


def _listed(counts: Sequence) -> str:
    return str(list(counts)) if len(counts) <= 16 else f"{len(counts)} of them"


def _rank_sizes(name: str, ranks: int, sizes: Sequence | None) -> tuple[int, ...]:
    if sizes is None:
        if name.endswith("v"):
            example = ",".join("1" * min(ranks, 8)) + (",..." if ranks > 8 else "")
            raise UsageError(f"{name} needs a chunk count per rank: --counts {example}, in Python and files `sizes`")
        return (1,) * ranks
    if len(sizes) != ranks or any(not isinstance(n, int) or n < 0 for n in sizes) or not any(sizes):
        raise UsageError(f"{name} over {ranks} ranks needs {ranks} chunk counts >= 0, not all 0; got {_listed(sizes)}")
    return tuple(sizes)


def _pair_sizes(name: str, ranks: int, sizes: Sequence | None) -> tuple[tuple[int, ...], ...]:
    if sizes is None:
        if name.endswith("v"):
            raise UsageError(
                f"{name} needs a chunk count per pair of ranks: --counts with a file or rows split by ';'; in Python "
                "and files `sizes`"
            )
        return ((1,) * ranks,) * ranks
    if ranks == 1 and all(isinstance(n, int) for n in sizes):
        sizes = [sizes]  # of one rank a row is a matrix
    rows: list[tuple] = []
    for row in sizes:
        rows.append(tuple(row) if isinstance(row, Sequence) else ())
    counts = [n for row in rows for n in row]
    square = {len(rows), *map(len, rows)} == {ranks}
    if not square or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise UsageError(f"{name} over {ranks} ranks needs a {ranks} x {ranks} matrix of chunk counts >= 0")
    if sum(counts) > MAX_UNITS:
        raise UsageError(f"{name}: {sum(counts)} parts of the data, at most {MAX_UNITS} are supported")
    return tuple(rows)
