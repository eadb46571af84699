"""Options of a sweep, its progress events, and the exceptions that end it early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.rational import show
from synth.model.topology import Network

if TYPE_CHECKING:
    from synth.model.scale_frontier import ScaleFrontier


@dataclass(frozen=True)
class Event:
    """One line of progress. `kind`: "bound", "query", "answer", "point", "open", "resumed" or "done"."""

    kind: str
    text: str
    steps: int | None = None
    bound: Fraction | None = None
    point: Point | None = None


Listener = Callable[[Event], None]


@dataclass(frozen=True)
class Options:
    """Options of a sweep, of `synth pareto` and `synth.frontier`. Seconds are wall time.

    `max_steps`: the greatest number of steps to look at. None: no limit.
    `max_chunks`: the most chunks into which a unit of data is split. None: no limit.
    `max_extra_rounds`: the maximum of R - S, SCCL's k. None: no limit.
    `encoding`: the name of an encoding, or "auto".
    `solver`: the name of a solver, or "auto" for a portfolio.
    `sweep`: "guided" by lower bounds, or "blind": SCCL's loop over steps, rounds and chunks.
    `time_limit`: seconds for all of it. None: no limit; each number of steps then gets `point_seconds`.
    `point_seconds`: seconds for one number of steps where there is no time limit.
    `jobs`: processes at a time.
    `seed`: of every random choice.
    `deterministic`: one solver and one seed, so that the same call gives the same schedules.
    `same_bits`: only schedules that leave the same floating-point sums on all ranks.
    `memory`: the maximum bytes of each process that the sweep starts. None: no limit.
    """

    max_steps: int | None = None
    max_chunks: int | None = None
    max_extra_rounds: int | None = None
    encoding: str = "auto"
    solver: str = "auto"
    sweep: str = "guided"
    time_limit: float | None = None
    point_seconds: float = 40.0
    jobs: int = 2
    seed: int = 0
    deterministic: bool = False
    same_bits: bool = False
    memory: int | None = 4 << 30

    @property
    def alone(self) -> bool:
        """True where an encoding or SCCL's sweep is named, whose frontier no rows of other engines join."""
        return self.encoding != "auto" or self.sweep == "blind"

    def max_rounds(self, steps: int) -> float:
        """Return the maximum number of rounds of schedules with `steps` steps."""
        return inf if self.max_extra_rounds is None else steps + self.max_extra_rounds

    def allows(self, steps: int, rounds: int, chunks: int) -> bool:
        """Return True where schedules may have these steps, rounds and chunks per unit."""
        if self.max_steps is not None and steps > self.max_steps:
            return False
        if self.max_chunks is not None and chunks > self.max_chunks:
            return False
        return rounds <= self.max_rounds(steps)


def too_few_allowed(network: Network, collective: Collective, least: LowerBound, most: int) -> InfeasibleError:
    """Return the error that `most` steps were allowed but the bound `least` needs more, with the proof."""
    allowed = f"at most {most} {'was' if most == 1 else 'were'} allowed"
    return InfeasibleError(
        f"{collective.name} on {network.name} needs at least {show(least.value)} steps, {allowed}", least.certificate
    )


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep: `frontier` holds the points so far, `log` the file that the next run continues from."""

    def __init__(self, frontier: Frontier | ScaleFrontier, log: Path | None) -> None:
        super().__init__("interrupted")
        self.frontier, self.log = frontier, log
