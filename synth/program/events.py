"""Events of one run of a program: one `OpEvent` for each part of each op, in integer picoseconds.

Executors record them, the Chrome-trace exporter draws them. They name no buffers: the op that they refer to does.
"""

from __future__ import annotations

from typing import NamedTuple


class OpEvent(NamedTuple):
    """One part of an op of a thread block.

    `slice`: the number of the loop over all ops; there are several if a chunk is larger than a FIFO operation.
    `part`: the number of the message, if `count` chunks need several. The block
    was free for the op at `ready`, waited until `start`, and worked on it until `end`. `link`: the route (src, dst,
    via) that carried `bytes` bytes from `sent` on; the last byte arrived at `arrival`. It is None if the data stays on
    the rank. An op of several transfers (put to many) has an event for each.
    """

    rank: int
    block: int
    op: int
    slice: int
    part: int
    code: str
    ready: int
    start: int
    end: int
    link: tuple[int, int, tuple[str, ...]] | None = None
    sent: int = 0
    arrival: int = 0
    bytes: int = 0

    def later(self, delay: int) -> OpEvent:
        """Return the event `delay` picoseconds later."""
        sent, arrival = (self.sent, self.arrival) if self.link is None else (self.sent + delay, self.arrival + delay)
        return self._replace(
            ready=self.ready + delay, start=self.start + delay, end=self.end + delay, sent=sent, arrival=arrival
        )
