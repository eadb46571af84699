"""The numbers that bound and tune the way from a program to a schedule."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LanguageSettings:
    """Limits of the compiler of the chunk language.

    Attributes:
        maximum_sends: Maximum number of sends of a schedule whose number of chunks is chosen automatically.
        level_multiples: Chunks of a plan by list scheduling, as multiples of the fewest. More let steps share the data
            more evenly.
        maximum_levelled: Maximum number of operations that are list scheduled to find a plan with fewer rounds; 4000
            take about a second.
        sweeps_before_cycle_search: Sweeps over all operations after which a cycle of constraints is looked for, and
            again after each further such number.
    """

    maximum_sends: int = 200_000
    level_multiples: tuple[int, ...] = (1, 2, 3)
    maximum_levelled: int = 4000
    sweeps_before_cycle_search: int = 16


SETTINGS = LanguageSettings()
