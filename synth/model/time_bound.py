"""Lower bounds in time by message size, each with a certificate.

TimeBound   topology collective root rows       SizeBound      size microseconds reason certificate
ClockBound  rows                                ClockBoundRow  size microseconds launch protocol reason
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from synth.model.collective import Collective
from synth.model.rational import show
from synth.model.topology import Topology

SCHEMA = "synth.time-bounds/1"


@dataclass(frozen=True)
class SizeBound:
    """No program moves `size` bytes (nccl-tests' size) in less than `microseconds`.

    `reason` says in words what takes this long. `certificate` is the proof that
    `synth.checker.certificates.time_bounds` checks, None where nothing has to move and the bound is 0.
    """

    size: int
    microseconds: Fraction
    reason: str
    certificate: dict | None


@dataclass(frozen=True)
class TimeBound:
    """The lower bounds in time of a collective on a topology, in the order of the requested sizes.

    `collective`: its name, or the Collective where it is written out in documents. `root`: that of a named one.
    """

    topology: Topology
    collective: str | Collective
    root: int | None
    rows: tuple[SizeBound, ...]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{row.size} B: {float(row.microseconds):g} µs" for row in self.rows[:4])
        more = ", ..." if len(self.rows) > 4 else ""
        return f"<TimeBound of {self.collective_name} on {self.topology.name}: {sizes}{more}>"

    @property
    def collective_name(self) -> str:
        """The collective's name."""
        return self.collective if isinstance(self.collective, str) else self.collective.name

    def microseconds(self, size: int) -> Fraction:
        """Return the bound at one of the requested sizes. Raises KeyError for another size."""
        return {row.size: row.microseconds for row in self.rows}[size]

    def to_json(self) -> dict:
        """Return the document that `synth verify` checks (schema: docs/formats.md)."""
        from synth.model.documents.link_columns import columns  # loads NumPy

        head = {"name": self.topology.name, "ranks": self.topology.ranks, "unit_gbps": self._unit()}
        rows = []
        for row in self.rows:
            if row.certificate is not None:
                entry = {"size": row.size, "time_us": show(row.microseconds), "certificate": row.certificate}
                rows.append(entry)
        collective = self.collective if isinstance(self.collective, str) else self.collective.to_json(1)
        return {
            "schema": SCHEMA, "topology": head | columns(self.topology), "collective": collective, "root": self.root,
            "bounds": rows,
        }  # fmt: skip

    def _unit(self) -> str:
        return show(self.topology.unit_bandwidth())


class ClockBoundRow(NamedTuple):
    """No program is predicted to move `size` bytes in less than `microseconds`, of which `launch` are the launch.

    `protocol`: the one that allows the least. `reason`: the transfers that take the rest.
    """

    size: int
    microseconds: Fraction
    launch: Fraction
    protocol: str
    reason: str


@dataclass(frozen=True)
class ClockBound:
    """The lower bounds of one collective, in the order of the requested sizes."""

    rows: tuple[ClockBoundRow, ...]

    @property
    def seconds(self) -> dict[int, float]:
        """The bounds in seconds by size."""
        return {row.size: float(row.microseconds) * 1e-6 for row in self.rows}

    def microseconds(self, size: int) -> Fraction:
        """Return the bound at one of the requested sizes. Raises KeyError for another size."""
        return {row.size: row.microseconds for row in self.rows}[size]
