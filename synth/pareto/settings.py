"""The numbers that tune one frontier from several engines: shares of its time, and sizes up to which methods run."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class FrontierSettings:
    """Shares of time and sizes that decide between the engines of one frontier.

    Attributes:
        exact_ranks: "auto" means flow methods above this many ranks: exact synthesis would spend its budget
            without an end.
        exact_paired_ranks: The same for an alltoall, whose units are pairs of ranks. Above it flow methods have
            bounds and points that are no worse, in seconds.
        incumbent_share: Share of a time limit for incumbents. They reach to both ends of the frontier; the
            sweep after them improves on the end of few steps.
        quick_ranks: Up to this many ranks exact synthesis often closes the frontier within the seconds that the
            slower scale methods take. Above, all scale methods come first; with a time limit, also on several boxes
            of more than `few_ranks` ranks.
        last_share: Least share of a time limit for the work after the sweep, even where that used up the time.
        last_seconds: Least wall seconds for that work.
        entry_share: Greatest share of a time limit for entering incumbents that the sweep has not come to.
        search_share: Share of the remaining time for one quick stage of the scale search, for all its stages before
            exact synthesis, and for all after it; the rest is for writing out their points.
        few_ranks: Up to this many ranks in one box solvers answer sooner than the greedy methods are loaded.
        max_sends: Most sends of a first row, which is written out and replayed within a second.
        message_worth: Messages are composed over boxes until R/C is above the bound by no more than this fraction.
        max_written_sends: Most sends of a schedule that is written out after exact synthesis.
        least_written_rounds: Where such schedules have fewer rounds than this, "auto" means flow methods on fewer
            ranks, too: the first and last steps alone would cost more than a tenth of them.
        seconds_per_send: Seconds, about, to write out and replay one send on an idle machine, and to read one route.
        announced_ranks: Most ranks of machines whose rows are announced before the end. Larger ones would take
            long to replay.
        most_received: Most chunks times ranks of such a row, of which each rank receives a chunk at least once.
        most_replayed: Most sends of such a row of more chunks: about a quarter of a second, where all are listed.
        worth: A further first row has at least this fraction fewer rounds per chunk than those with no more steps.
    """

    exact_ranks: int = 64
    exact_paired_ranks: int = 40
    incumbent_share: float = 0.4
    quick_ranks: int = 16
    last_share: float = 0.1
    last_seconds: float = 1.0
    entry_share: float = 0.25
    search_share: float = 0.5
    few_ranks: int = 8
    max_sends: int = 60_000
    message_worth: Fraction = Fraction(1, 100)
    max_written_sends: int = 200_000
    least_written_rounds: int = 64
    seconds_per_send: float = 1.5e-5
    announced_ranks: int = 512
    most_received: int = 100_000
    most_replayed: int = 1_000_000
    worth: Fraction = Fraction(1, 20)


SETTINGS = FrontierSettings()
