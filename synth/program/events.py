"""What happened when a program ran: one `Event` for each part of each op, in integer picoseconds.

Executors make them, the Chrome-trace exporter draws them. They say nothing of buffers: the op they name does.
"""

from __future__ import annotations

from typing import NamedTuple


class Event(NamedTuple):
    """One part of an op of a thread block.

    `slice`: the loop over the chunk, 0 unless chunks exceed a FIFO operation. `part`: the piece of `count`. The block
    was free for the op at `ready` and worked on it from `start` to `end`; between the two it waited. `link`: the route
    (src, dst, via) that carried `bytes` from `sent` on, and where the last byte arrived at `arrival`; None for what
    stays on the rank. An op of several transfers (put to many) has an event for each.
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
