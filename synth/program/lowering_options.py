"""The options of a lowering: one value from the command line and the public functions down to the passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.errors import UsageError
from synth.program.program import MAX_INSTANCES, PROTOCOLS, InPlace
from synth.program.send_hints import SendHints


@dataclass(frozen=True)
class LoweringOptions:
    """Options of the lowering of a schedule to a Program.

    `runtime`: the runtime whose instructions and limits the program keeps; one-sided programs are MSCCL++'s.
    `protocol`: the protocol that the program is for, one of `PROTOCOLS`; MSCCL++ has Simple and LL (packets).
    `instances`: copies of the schedule side by side, each for its share of the data.
    `in_place`: the calls that the program is for; "both" is right for either. None: all calls that a two-sided program
    can serve, calls out of place for a one-sided one.
    `name`: the name of the program. None: a name made of the collective, the machine and the schedule's size.

    Of two-sided programs alone:
    `fuse`: receives may forward (rcs, rrs, rrcs) where the runtime has these instructions.
    `aggregate`: neighbouring chunks travel as one message.
    `lanes`: the most connections of one route. None: as the link has, fewer where the runtime's limits demand it.
    `hints`: thread blocks, channels, connections and pieces of single sends. None: the lowering chooses.

    Of one-sided programs alone:
    `nodes`: the box of each rank; ranks of one box are connected by memory channels, others by port channels. None:
    one box.
    `blocks`: thread blocks of each rank to start from, as far as there are chunks. None: 16 for each instance, fewer
    where a rank would have too many port channels.
    `reads`: sums read contributions of other ranks where they lie, as far as that needs no signal more (Simple). None:
    where no rank takes several sums at once, which would wait for each other's links.

    Raises UsageError for a value that no schedule can be lowered with.
    """

    runtime: str = "synth"
    protocol: str = "Simple"
    instances: int = 1
    in_place: InPlace | None = None
    name: str | None = None
    fuse: bool = True
    aggregate: bool = True
    lanes: int | None = None
    hints: SendHints | None = None
    nodes: Sequence[int] | None = None
    blocks: int | None = None
    reads: bool | None = None

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise UsageError(f"unknown protocol {self.protocol!r}; {', '.join(PROTOCOLS)} exist")
        if self.instances > MAX_INSTANCES:
            raise UsageError(f"instances are at most {MAX_INSTANCES}; got {self.instances}")
        for name in ("instances", "lanes", "blocks"):
            count = getattr(self, name)
            if count is not None and count < 1:
                raise UsageError(f"{name} are at least 1; got {count}")
        if self.in_place not in (None, "out", "in", "both"):
            raise UsageError(f"in_place is out, in or both; got {self.in_place!r}")


DEFAULT_LOWERING = LoweringOptions()
