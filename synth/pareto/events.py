"""What a sweep tells while it runs, what it is asked, and how it ends when it is interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from synth.errors import InfeasibleError, UndecidedError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.rational import show
from synth.model.topology import Network

if TYPE_CHECKING:
    from synth.model.scale_frontier import Large


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
    """What a sweep may do. Seconds are wall time; None means no limit (each S then gets `point_seconds`).

    `max_extra_rounds`: R is at most so many more than S. `extra_memory`: chunks that a rank may relay, which SCCL's
    encoding knows.
    `memory`: bytes that each process it starts may use, None for no limit.
    """

    max_steps: int | None = None
    max_chunks: int | None = None
    max_extra_rounds: int | None = None
    extra_memory: int | None = None
    encoding: str = "auto"
    solver: str = "auto"
    time_limit: float | None = None
    point_seconds: float = 40.0
    jobs: int = 2
    seed: int = 0
    deterministic: bool = False
    same_bits: bool = False
    proof: Path | None = None
    memory: int | None = 4 << 30

    def most_rounds(self, steps: int) -> float:
        """The most rounds of schedules with so many steps."""
        return inf if self.max_extra_rounds is None else steps + self.max_extra_rounds

    def allows(self, steps: int, rounds: int, chunks: int) -> bool:
        """Whether schedules may have so many steps, rounds and chunks per unit."""
        few = (self.max_steps is None or steps <= self.max_steps) and (
            self.max_chunks is None or chunks <= self.max_chunks
        )
        return few and rounds <= self.most_rounds(steps)

    @property
    def limits(self) -> dict[str, int]:
        """What only SCCL's encoding can keep, as `race.solve` takes it."""
        return {} if self.extra_memory is None else {"extra_memory": self.extra_memory}


def too_few_allowed(network: Network, collective: Collective, least: LowerBound, most: int) -> InfeasibleError:
    """That `most` steps were allowed and more are needed, with the proof."""
    allowed = f"at most {most} {'was' if most == 1 else 'were'} allowed"
    return InfeasibleError(
        f"{collective.name} on {network.name} needs at least {show(least.value)} steps, {allowed}", least.certificate
    )


class NoBoundError(UndecidedError):
    """The time limit came before any bound on rounds per chunk: there is no frontier to speak of."""

    def __init__(self, network: Network, collective: Collective) -> None:
        from synth.model.scale_frontier import COLLECTIVES

        instead = ", or take --engine flow" if collective.name in COLLECTIVES else ""
        super().__init__(
            f"{collective.name} on {network.name}: the time limit came before any bound; allow more time{instead}"
        )


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep: `frontier` holds what was found, `log` the file the same command continues from."""

    def __init__(self, frontier: Frontier | Large, log: Path | None) -> None:
        super().__init__("interrupted")
        self.frontier, self.log = frontier, log
