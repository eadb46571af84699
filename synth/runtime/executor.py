"""What an executor is, and what it gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from synth.program.events import Event
from synth.program.program import Program
from synth.runtime.link_schedule import Key


class Usage(NamedTuple):
    """One link of a run: its route, for how many ps it carried, and how many bytes."""

    link: Key
    busy: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Execution:
    """One run. `outputs[rank]`: rows are chunks, or units of data in a call whose chunks were padded; None in a run for
    its time alone. `picoseconds`: None without a network.

    `links`: by falling use. `events`: None unless asked for. `nanoseconds`: real time, where a clock was kept in a
    kernel, and held to `stretch` times that clock unless it is 0.
    """

    outputs: tuple[np.ndarray, ...] | None
    picoseconds: int | None
    links: tuple[Usage, ...] = ()
    events: tuple[Event, ...] | None = None
    nanoseconds: int | None = None
    stretch: int = 0

    @property
    def behind(self) -> float | None:
        """Real time over `stretch` times the clock's, of a run that was held to it: well above 1, the executor could
        not keep up."""
        if not self.stretch or self.nanoseconds is None or not self.picoseconds:
            return None
        return self.nanoseconds * 1000 / (self.stretch * self.picoseconds)


class Executor(Protocol):
    """Runs a Program on inputs by rank (rows are chunks of the input buffer, in the order of `Layout.inputs`)."""

    def available(self) -> str | None:
        """None where it can run here, else why not and what to install."""
        ...

    def run(self, program: Program, arrays: Sequence[np.ndarray], *, dtype: str, op: str, in_place: bool) -> Execution:
        """Run `program` once. Raises DeadlockError, VerificationError where it reads what nobody wrote, SynthError."""
        ...
