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
from functools import cache, cached_property
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
    listed = ranks if isinstance(ranks, Iterable) else (ranks,)
    return frozenset(map(operator.index, listed))


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
        # What each rank has before, and after.
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

        @cache
        def move(ranks: frozenset[int]) -> frozenset[int]:
            return frozenset([pi[r] for r in ranks])

        # The units of the goal by what they join, the last ones first.
        places: dict[tuple, list[int]] = {}
        for u in reversed(range(goal.units)):
            places.setdefault(goal._signature(u, lambda ranks: ranks), []).append(u)
        image = []
        for u in range(self.units):
            alike = places.get(self._signature(u, move))
            if not alike:
                return None
            image.append(alike.pop())
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
        # Chunks of one unit have equal rows but for their number.
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

        # Chunk 0 of each unit says where all of its chunks are.
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
        root = [] if doc.get("root") is None else doc["root"]
        roots = [root] if isinstance(root, int) else root
        partial = wants if any(wants) else None
        return Collective(printable(doc["name"]), doc["ranks"], pre, post, doc["combining"], roots, partial)


REVERSALS = {
    "reduce": "broadcast", "broadcast": "reduce", "reduce-scatter": "allgather", "allgather": "reduce-scatter",
    "reduce-scatterv": "allgatherv", "allgatherv": "reduce-scatterv",
}  # fmt: skip


def pattern(ranks: int, messages: Sequence[tuple[int, int]], name: str = "pattern") -> Collective:
    """Return a collective of independent messages ``(source, destination)``, one unit each."""
    alone = [frozenset([rank]) for rank in range(ranks)]
    pre = [alone[src] for src, _ in messages]
    post = [alone[dst] for _, dst in messages]
    return Collective(name, ranks, pre, post)


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

    # Roots and sizes that the collective does not take are refused, not ignored.
    takes, everyone = COLLECTIVES[key][1], frozenset(range(ranks))
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
    several = key.startswith("multi-")
    roots = roots or tuple(range(min(1 + several, ranks)))
    if not several and len(roots) > 1:
        raise UsageError(f"{key} has one root, {len(roots)} were given; multi-{key} takes several")

    # One root is no multi-root collective, and equal sizes are none by rank or by pair.
    kind = key.removesuffix("v") if "sizes" in takes else key.removeprefix("multi-")
    name = key if len(roots) > 1 else key.removeprefix("multi-")
    every_root = [everyone] * len(roots)
    match kind:
        case "broadcast":
            return Collective(name, ranks, roots, every_root, False, roots)
        case "reduce":
            return Collective(name, ranks, every_root, roots, True, roots)
        case "scatter" | "gather":
            pairs = [(root, rank) for root in roots for rank in range(ranks)]
            scattered = pattern(ranks, pairs, name)
            if kind == "gather":
                return Collective(name, ranks, scattered.post, scattered.pre, False, roots)
            return replace(scattered, roots=roots)
        case "allreduce":
            return Collective(kind, ranks, [everyone], [everyone], True)
        case "scan":
            return Collective(kind, ranks, [everyone], [everyone], True, (), [{r: range(r + 1) for r in everyone}])
        case "allgather" | "reduce-scatter":
            counts = _sizes(key, ranks, sizes)
            owners = [rank for rank in range(ranks) for _ in range(counts[rank])]
            name = "allgather" if set(counts) == {1} else "allgatherv"
            gathered = Collective(name, ranks, owners, [everyone] * len(owners))
            return gathered if kind == "allgather" else gathered.reversed()
        case "alltoall":
            counts, pairs = _sizes(key, ranks, sizes, by_pair=True), []
            for src in range(ranks):
                for dst in range(ranks):
                    pairs += [(src, dst)] * counts[src * ranks + dst]
            return pattern(ranks, pairs, "alltoall" if set(counts) == {1} else "alltoallv")
        case _:  # alltonext and, cyclically, sendrecv
            return pattern(ranks, [(i, (i + 1) % ranks) for i in range(ranks - (kind == "alltonext"))], kind)


def _sizes(name: str, ranks: int, sizes: Sequence | None, by_pair: bool = False) -> Sequence[int]:
    """Return the chunks of each rank, or of each pair of ranks, row by row. Raises UsageError."""
    count = ranks * ranks if by_pair else ranks
    if sizes is None:
        if name.endswith("v"):
            whose = (
                "pair of ranks, --counts with a file or rows split by ';'" if by_pair else "rank, --counts 1,1,2,..."
            )
            raise UsageError(f"{name} needs a chunk count per {whose}; in Python and files `sizes`")
        return (1,) * count
    counts: list = list(sizes)
    if by_pair and not (ranks == 1 and all(isinstance(n, int) for n in sizes)):  # of one rank a row is a matrix
        counts = []
        for row in sizes:
            counts += row if isinstance(row, Sequence) and len(row) == ranks else [None]
    if len(counts) != count or not all(isinstance(n, int) and n >= 0 for n in counts):
        shape = f"a {ranks} x {ranks} matrix of" if by_pair else str(ranks)
        raise UsageError(f"{name} over {ranks} ranks needs {shape} chunk counts >= 0")
    if not by_pair and not any(counts):
        raise UsageError(f"{name} over {ranks} ranks needs a chunk count above 0; all are 0")
    if sum(counts) > MAX_UNITS:
        raise UsageError(f"{name}: {sum(counts)} parts of the data, at most {MAX_UNITS} are supported")
    return counts
