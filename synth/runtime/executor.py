"""The interface of an executor, and the result of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from synth.program.events import OpEvent
from synth.program.program import Program
from synth.runtime.link_schedule import Key


class Usage(NamedTuple):
    """The use of one link during a run: its route, the ps for which it carried data, and the bytes."""

    link: Key
    busy: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Execution:
    """The result of one run.

    `outputs[rank]`: rows are chunks, or units of data in a call whose chunks were padded; None in a run for its time
    alone. `picoseconds`: the makespan; None without a network. `links`: by falling use. `events`: None unless
    requested. `nanoseconds`: real time, where a kernel kept a logical clock. `launch`: the ps of a launch before all
    events, a part of the makespan.
    """

    outputs: tuple[np.ndarray, ...] | None
    picoseconds: int | None
    links: tuple[Usage, ...] = ()
    events: tuple[OpEvent, ...] | None = None
    nanoseconds: int | None = None
    launch: int = 0

    def after(self, launch: int) -> Execution:
        """Return the run with a launch of so many picoseconds before it; a run without times as it is."""
        if self.picoseconds is None or not launch:
            return self
        done = replace(self, picoseconds=self.picoseconds + launch, launch=launch)
        if self.events is None:
            return done
        return replace(done, events=tuple(event.later(launch) for event in self.events))


def chunk_elements(arrays: Sequence[np.ndarray]) -> int:
    """Return the elements of a chunk, which is a row of each of `arrays`; 0 where all of them are empty."""
    return next((array.shape[1] for array in arrays if len(array)), 0)


class Repetitions(NamedTuple):
    """The launches of a measurement: `timed` ones, after `warmup` ones that are not."""

    warmup: int
    timed: int


class Executor(Protocol):
    """An executor runs a Program on inputs by rank (rows are chunks of the input buffer, as in `Layout.inputs`)."""

    def available(self) -> str | None:
        """Return None where it can run here, else the reason and what to install."""
        ...

    def run(self, program: Program, arrays: Sequence[np.ndarray], *, dtype: str, op: str, in_place: bool) -> Execution:
        """Run `program` once. Raises DeadlockError, VerificationError for a read of unwritten memory, SynthError."""
        ...
