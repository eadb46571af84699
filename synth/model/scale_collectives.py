"""The collectives that methods for large machines know, by their names."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from synth.model.collective import Collective, collective

COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
ROOTED = ("broadcast", "reduce")
# The time reversals of an allgather and a broadcast, in which all sends go towards the root.
REVERSED = ("reduce-scatter", "reduce")


@dataclass(frozen=True)
class ScaleCollective:
    """One of `COLLECTIVES` whose units of data are not listed, as they may be millions."""

    name: str
    ranks: int
    root: int | None = None

    @cached_property
    def listed(self) -> Collective:
        """The collective with all its units."""
        return collective(self.name, self.ranks, self.roots)

    @property
    def roots(self) -> tuple[int, ...]:
        """The root; () where it has none."""
        return () if self.root is None else (self.root,)

    @property
    def units(self) -> int:
        """Number of units of data."""
        n = self.ranks
        return {"allgather": n, "reduce-scatter": n, "alltoall": n * n}.get(self.name, 1)

    @property
    def unit_share(self) -> Fraction:
        """Bytes of one unit divided by the size, in nccl-tests' sense."""
        return Fraction(1, self.ranks) if self.name in ("allgather", "reduce-scatter", "alltoall") else Fraction(1)

    @property
    def sends_per_chunk(self) -> int:
        """The least number of sends for each chunk of a unit: every rank receives it, and a sum has every input."""
        # An allreduce is a reduce and a broadcast of each chunk, an alltoall has a unit for each pair.
        pairs = {"allgather": self.ranks, "reduce-scatter": self.ranks, "alltoall": self.ranks, "allreduce": 2}
        return pairs.get(self.name, 1) * (self.ranks - 1)
