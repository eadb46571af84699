"""Limits of composed schedules, in one value for the whole engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompositionSettings:
    """Limits of the search for schedules composed of phases over boxes.

    Attributes:
        steps: Numbers of steps that are tried: each one up to 12, and then as the gain is at most inversely
            proportional to them.
        most_placed: Maximum number of steps for which trees are placed in the steps.
        most_priced: Maximum of (steps + 1)^2 x ranks^2 for which trees are priced: their table takes 8 bytes an entry.
        slight: Fraction below which savings by further trees are not worth a larger program.
        slow_turns: Number of turns of column generation that together must save as much, or it ends.
        last_turns: Number of turns after which, if all of them find no new tree at the same prices, it ends, too.
        generation_share: Fraction of the remaining time, where it is limited, that column generation may take for one
            number of steps. It goes on from the trees of fewer steps.
        idle_price: Price of each resource in relation to that of one of average use. It keeps trees from useless
            detours over idle links.
        many_columns: Columns of the linear program above which the templates that carry no data are left out of those
            for more steps.
        most_columns: Maximum number of columns of the linear program, which takes a few seconds then.
        ramp: Steps before and after the segment of equal steps of a long schedule, beyond the longest chain of phases.
        most_compared: Maximum number of different resources that are compared with each other.
        most_separate: Maximum number of blocks that have templates of their own; of more blocks the chunks move
            together.
        most_tries: Maximum number of numbers of chunks that are tried for a number of steps, a third each: small ones,
            multiples of that in which the linear program has whole rounds, and some at even ratios.
        few_tries: Maximum number of chunks up to which each number is tried.
        rounds_tried: Fractions of the maximum number of rounds for which shares are computed anew, in whole rounds.
        fewer_chunks: By how many chunks less than such shares amount to it is tried to round them.
    """

    steps: tuple[int, ...] = (*range(1, 13), 14, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
    most_placed: int = 12
    most_priced: int = 1 << 22
    slight: float = 1e-3
    slow_turns: int = 30
    last_turns: int = 12
    generation_share: float = 0.125
    idle_price: float = 1e-3
    many_columns: int = 1_000
    most_columns: int = 2_000
    ramp: int = 4
    most_compared: int = 500
    most_separate: int = 16
    most_tries: int = 240
    few_tries: int = 600
    rounds_tried: tuple[float, ...] = (0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
    fewer_chunks: int = 12


SETTINGS = CompositionSettings()
