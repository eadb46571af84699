"""Hints for the lowering of single sends: a table beside a schedule, which says nothing of connections itself.

    SendHint   block channel lanes pieces
    SendHints  {(step from 1, chunk, source, destination): SendHint}

A hint changes thread blocks, channels and messages of a two-sided program, never its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SendHint(NamedTuple):
    """The connection and the messages of sends.

    `block`: they are in the thread block of this name, on the sender and on the receiver. `channel`: they travel on
    this channel. `lanes`: the most connections of a route that share them. None: as the lowering chooses. `pieces`: the
    messages into which each of their messages is cut, as far as it has chunks.
    """

    block: str | None = None
    channel: int | None = None
    lanes: int | None = None
    pieces: int | None = None

    @property
    def connects(self) -> bool:
        """True if the sends have a connection of their own, by the name of a block or a channel."""
        return self.block is not None or self.channel is not None


SendHints = Mapping[tuple[int, int, int, int], SendHint]
NO_HINT = SendHint()
