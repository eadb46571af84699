"""Progress events of a search, and the exceptions that end it early."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from synth.errors import InfeasibleError
from synth.model.collective import Collective
from synth.model.frontier import Frontier, LowerBound, Point
from synth.model.rational import show
from synth.model.topology import Network


@dataclass(frozen=True)
class Event:
    """One line of progress. `kind`: "bound", "query", "answer", "point", "open", "resumed" or "done"."""

    kind: str
    text: str
    steps: int | None = None
    bound: Fraction | None = None
    point: Point | None = None


Listener = Callable[[Event], None]


def too_few_allowed(network: Network, collective: Collective, least: LowerBound, most: int) -> InfeasibleError:
    """Return the error that `most` steps were allowed but the bound `least` needs more, with the proof."""
    allowed = f"at most {most} {'was' if most == 1 else 'were'} allowed"
    return InfeasibleError(
        f"{collective.name} on {network.name} needs at least {show(least.value)} steps, {allowed}", least.certificate
    )


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep: `frontier` holds the points so far, `log` the file that the next run continues from."""

    def __init__(self, frontier: Frontier, log: Path | None) -> None:
        super().__init__("interrupted")
        self.frontier, self.log = frontier, log
