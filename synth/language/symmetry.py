"""Programs of one rank of each orbit: the symmetries of the machine make those of the other ranks.

The group acts freely on the ranks: only the identity leaves a rank where it is. So each listed send has as many images
as the group has elements, and a link carries the sum of the listed sends over all links of its orbit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING

from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.symmetry.permutations import compose, inverse, orbits
from synth.model.topology import Topology, columns

if TYPE_CHECKING:
    import numpy as np

    from synth.model.compressed_schedule import CompressedSchedule
    from synth.model.schedule import Send

COLLECTIVES = ("allgather", "reduce-scatter", "allreduce", "alltoall")
# Maximum ranks of a machine whose symmetric programs are followed: tables of ranks times ranks are made.
MAXIMUM_RANKS = 1 << 12

Permutation = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ProgramSymmetry:
    """A group of symmetries of a machine. `ProgramSymmetry.of` checks it.

    Attributes
    ----------
    topology : the machine, whose links join ranks.
    generators : permutations of its ranks.
    elements : all permutations of the group, by the image of rank 0's orbit; the identity first.
    representatives : the least rank of each orbit.
    """

    topology: Topology
    generators: tuple[Permutation, ...]
    elements: tuple[Permutation, ...]
    representatives: tuple[int, ...]

    @staticmethod
    def of(topology: Topology, generators: Sequence[Permutation]) -> ProgramSymmetry:
        """Return the group that permutations make. Raises UsageError where they are no free symmetries."""
        if topology.switches:
            raise UsageError(f"{topology.name} has switches of its own: a.symmetric needs links between ranks")
        if topology.ranks > MAXIMUM_RANKS:
            raise UsageError(f"{topology.name} has {topology.ranks} ranks; a.symmetric takes {MAXIMUM_RANKS} at most")
        _check_symmetries(topology, generators)
        elements = _closure(topology.ranks, generators)
        least = orbits(topology.ranks, generators)
        return ProgramSymmetry(topology, tuple(generators), elements, tuple(sorted(set(least))))

    @cached_property
    def canonical(self) -> np.ndarray:
        """For each pair of ranks a, b the number ``a' * ranks + b'`` of its image from the representative a' of a."""
        import numpy as np

        n = self.topology.ranks
        table = np.zeros((n, n), np.int64)
        for pi in self.elements:
            back = np.array(inverse(pi), np.int64)
            for rank in self.representatives:
                table[pi[rank]] = rank * n + back
        return table

    @cached_property
    def linked(self) -> set[tuple[int, int]]:
        """The pairs of ranks with a link."""
        src, dst, _ = columns(self.topology.links)
        return set(zip(src, dst, strict=True))

    def units(self, name: str) -> Collective:
        """Return a collective with the units of the representatives; the other units are nobody's.

        Raises UsageError for a collective whose units no free group permutes.
        """
        if name not in COLLECTIVES:
            raise UsageError(f"a.symmetric is for {', '.join(COLLECTIVES)}, not for {name}")
        n, none = self.topology.ranks, frozenset[int]()
        everyone = frozenset(range(n))
        if name == "allreduce":
            return Collective(name, n, [everyone], [everyone], True)
        count = n * n if name == "alltoall" else n
        pre, post = [none] * count, [none] * count
        for rank in self.representatives:
            if name == "alltoall":
                for other in range(n):
                    pre[rank * n + other], post[rank * n + other] = frozenset([rank]), frozenset([other])
            else:
                alone = frozenset([rank])
                pre[rank], post[rank] = (alone, everyone) if name == "allgather" else (everyone, alone)
        return Collective(name, n, pre, post, name == "reduce-scatter")

    def loads(self, sends: Sequence[Sequence[Send]]) -> list[Fraction]:
        """Return the exact rounds of each step over all images of its sends."""
        import numpy as np
        from scipy.sparse import csr_array

        n, topology = self.topology.ranks, self.topology
        counts = []
        for row in sends:
            counts.append(Counter(int(self.canonical[send.src, send.dst]) for send in row))
        numbers: dict[int, int] = {}
        for row in counts:
            for pair in row:
                numbers.setdefault(pair, len(numbers))
        table = np.zeros((len(numbers), len(sends)), np.int64)
        for t, row in enumerate(counts):
            for pair, count in row.items():
                table[numbers[pair], t] = count
        pairs = np.array(list(numbers), np.int64)
        orbit = np.full(n * n, -1, np.int64)
        orbit[pairs] = np.arange(len(pairs))
        of_link, units = self._link_orbits
        listed = orbit[of_link]
        capacity = np.zeros(len(pairs), np.int64)
        capacity[listed[listed >= 0]] = units[listed >= 0]  # the links of an orbit are alike
        rounds = _greatest(table, capacity.tolist(), [Fraction(0)] * len(sends))
        if not topology.limits:
            return rounds
        limit, link = self._limit_links
        column = listed[link]
        known = column >= 0
        shape = (len(topology.limits), len(pairs))
        inside = csr_array((np.ones(known.sum(), np.int64), (limit[known], column[known])), shape=shape)
        unit = topology.unit_bandwidth()
        return _greatest(inside @ table, [int(limit.bandwidth / unit) for limit in topology.limits], rounds)

    @cached_property
    def _link_orbits(self) -> tuple[np.ndarray, np.ndarray]:
        """Of each link the canonical pair of its ends, and its units."""
        import numpy as np

        src, dst, bandwidths = columns(self.topology.links)
        unit, known = self.topology.unit_bandwidth(), dict[Fraction, int]()
        units = []
        for bandwidth in bandwidths:
            if bandwidth not in known:
                known[bandwidth] = int(bandwidth / unit)
            units.append(known[bandwidth])
        return self.canonical[np.array(src), np.array(dst)], np.array(units, np.int64)

    @cached_property
    def _limit_links(self) -> tuple[np.ndarray, np.ndarray]:
        """The limits and their links, a pair for each membership."""
        import numpy as np

        from synth.model.link_table import members

        rows = members(self.topology.limits)
        return np.repeat(np.arange(len(rows)), [len(row) for row in rows]), np.concatenate(rows)

    def compressed(self, name: str, sends: Sequence[Sequence[Send]], chunks: int, multiple: int) -> CompressedSchedule:
        """Return the schedule of the images of `sends`, by step, each chunk cut into `multiple` chunks.

        Raises UsageError for sends that a compressed schedule cannot list.
        """
        from dataclasses import replace

        import numpy as np

        from synth.model.compressed_schedule import COPY, REDUCE, over_links

        src, dst, _ = columns(self.topology.links)
        link_of = {pair: i for i, pair in enumerate(zip(src, dst, strict=True))}
        rows = []
        for t, row in enumerate(sends):
            for send in row:
                if send.kind not in ("copy", "reduce"):
                    raise UsageError(
                        f"rank {send.src} needs its input again after a sum took its place: a symmetric program cannot "
                        "do this; write all ranks without a.symmetric"
                    )
                kind = REDUCE if send.kind == "reduce" else COPY
                link = link_of[send.src, send.dst]
                rows += [(t, chunk, link, kind) for chunk in range(send.chunk * multiple, (send.chunk + 1) * multiple)]
        rounds = [ceil(load * multiple) for load in self.loads(sends)]
        columns_of = np.array(rows, np.int64).reshape(-1, 4)
        made = over_links(self.topology, name, None, chunks * multiple, np.array(rounds, np.int64), columns_of)
        return replace(made, generators=self.generators)


def _check_symmetries(topology: Topology, generators: Sequence[Permutation]) -> None:
    """Raise UsageError unless the generators commute and map links onto links and limits onto limits."""
    import numpy as np

    n = topology.ranks
    given = columns(topology.links)
    src, dst = np.array(given[0], np.int64), np.array(given[1], np.int64)
    numbers: dict[Fraction, int] = {}
    width = np.array([numbers.setdefault(bandwidth, len(numbers)) for bandwidth in given[2]], np.int64)
    keys = src * n + dst
    order = np.argsort(keys)
    ordered = keys[order]
    if (np.diff(ordered) == 0).any():
        raise UsageError(f"{topology.name} has parallel links: a.symmetric needs one link between two ranks")
    limits = _limit_names(topology, np.arange(len(keys)))
    for i, generator in enumerate(generators):
        pi = np.array(generator, np.int64)
        moved = pi[src] * n + pi[dst]
        at = np.minimum(np.searchsorted(ordered, moved), len(keys) - 1)
        wrong = np.flatnonzero((ordered[at] != moved) | (width[order[at]] != width))
        if len(wrong):
            a, b = int(src[wrong[0]]), int(dst[wrong[0]])
            raise UsageError(
                f"rank {a} -> {pi[a]} is no symmetry of {topology.name}: there is no link {pi[a]} -> {pi[b]} of the "
                f"bandwidth of {a} -> {b}"
            )
        if _limit_names(topology, order[at]) != limits:
            raise UsageError(f"rank 0 -> {pi[0]} is no symmetry of {topology.name}: its limits on links differ")
        for other in map(np.array, generators[:i]):
            if (pi[other] != other[pi]).any():
                raise UsageError("the symmetries do not commute; leave one of them out")


def _limit_names(topology: Topology, image: np.ndarray) -> Counter[tuple[bytes, Fraction]]:
    """Return the limits whose links are moved to their images, each by its set of links and its bandwidth."""
    import numpy as np

    from synth.model.link_table import members

    named: Counter[tuple[bytes, Fraction]] = Counter()
    for limit, links in zip(topology.limits, members(topology.limits), strict=True):
        named[np.sort(image[links]).tobytes(), limit.bandwidth] += 1
    return named


def _greatest(loads: np.ndarray, capacity: Sequence[int], least: Sequence[Fraction]) -> list[Fraction]:
    """Return for each step the greatest load of a row divided by its capacity, or `least` where that is more."""
    rounds = list(least)
    classes: dict[int, list[int]] = {}
    for i, units in enumerate(capacity):
        classes.setdefault(units, []).append(i)
    for units, rows in classes.items():
        for t, load in enumerate(loads[rows].max(axis=0).tolist()):
            rounds[t] = max(rounds[t], Fraction(load, units))
    return rounds


def _closure(ranks: int, generators: Sequence[Permutation]) -> tuple[Permutation, ...]:
    """Return the group of commuting permutations. Raises UsageError where one but the identity fixes a rank."""
    identity = tuple(range(ranks))
    found = {identity}
    queue = [identity]
    for element in queue:
        for pi in generators:
            product = compose(element, pi)
            if product in found:
                continue
            fixed = [rank for rank in range(ranks) if product[rank] == rank]
            if fixed:
                raise UsageError(f"the symmetries together leave rank {fixed[0]} where it is, and move others")
            found.add(product)
            queue.append(product)
    return tuple(queue)
