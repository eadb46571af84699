"""Lower bounds in time by message size.

TimeBound   topology collective root switches rounds_per_chunk certificate rows
SizeBound   size microseconds launch protocol reason
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from synth.model.rational import show


def holds_for(switches: bool) -> str:
    """Return the programs for which a bound holds in words, with multicasts and sums in `switches` or without."""
    if switches:
        return "programs of messages between ranks, and of multicasts and sums in switches"
    return "programs of messages between ranks, without multicasts and sums in switches"


class SizeBound(NamedTuple):
    """No program moves `size` bytes (nccl-tests' size) in less than `microseconds`, of which `launch` are the launch.

    `protocol`: the one that allows the least. `reason`: in words what takes the rest.
    """

    size: int
    microseconds: Fraction
    launch: Fraction
    protocol: str
    reason: str


@dataclass(frozen=True)
class TimeBound:
    """The lower bounds in time of a collective on a topology, in the order of the requested sizes.

    Attributes
    ----------
    topology, collective, root : the machine's name, the collective's name, and the root of one that has one.
    switches : they hold for multicasts and sums in the machine's switches, too; else for messages between ranks alone.
    rounds_per_chunk : the least R/C of any schedule, 0 where none is known.
    certificate : the proof of `rounds_per_chunk`, which the checker has checked; None where there is none.
    rows : the bounds.
    """

    topology: str
    collective: str
    root: int | None
    switches: bool
    rounds_per_chunk: Fraction
    certificate: dict | None
    rows: tuple[SizeBound, ...]

    def __repr__(self) -> str:
        sizes = ", ".join(f"{row.size} B: {float(row.microseconds):g} µs" for row in self.rows[:4])
        more = ", ..." if len(self.rows) > 4 else ""
        return f"<TimeBound of {self.collective} on {self.topology}: {sizes}{more}>"

    @property
    def holds_for(self) -> str:
        """The programs that none of the bounds is above, in words."""
        return holds_for(self.switches)

    @property
    def seconds(self) -> dict[int, float]:
        """The bounds in seconds by size."""
        return {row.size: float(row.microseconds) * 1e-6 for row in self.rows}

    def microseconds(self, size: int) -> Fraction:
        """Return the bound at one of the requested sizes. Raises KeyError for another size."""
        return {row.size: row.microseconds for row in self.rows}[size]

    def to_json(self) -> dict:
        """Return the bounds as a JSON object."""
        # A bound without a launch is one of bare links, which no protocol changes.
        bounds = []
        for row in self.rows:
            cost = {"launch_us": show(row.launch), "protocol": row.protocol} if row.launch else {}
            bounds.append({"size": row.size, "time_us": show(row.microseconds), **cost, "because_of": row.reason})
        return {
            "topology": self.topology, "collective": self.collective, "root": self.root, "holds_for": self.holds_for,
            "rounds_per_chunk": show(self.rounds_per_chunk), "certificate": self.certificate, "bounds": bounds,
        }  # fmt: skip
