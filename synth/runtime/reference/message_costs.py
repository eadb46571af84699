"""The cost of messages at their ends during one run, in integer picoseconds.

A *message* is the parts that one rank sends to another over one route without a pause: a part that is ready while the
route still carries the parts before it belongs to their message. A rank is busy for the cost of each message that it
sends before the message leaves, one message at a time, and for the cost of each message that it receives after it
arrived, one at a time. Sending and receiving do not delay each other.
"""

from __future__ import annotations

NONE = -1


class MessageCosts:
    """The ends of all messages of a run on `ranks` ranks and `routes` routes; `cost`: ps of a message at either end."""

    def __init__(self, ranks: int, routes: int, cost: int) -> None:
        self.cost = cost
        self._sending = [0] * ranks  # by rank: the time at which it can begin to send another message
        self._receiving = [0] * ranks
        self._current = [NONE] * routes  # by route: its last message
        self._leaves = [0] * routes  # by route: the time from which parts of its last message leave
        self._open_until = [NONE] * routes  # by route: the time up to which parts join its last message
        self._received: list[int] = []  # by message: the time from which its receiver reads it; NONE: not yet paid

    def issue(self, rank: int, route: int, now: int) -> int:
        """Return the time from which a part that is ready at `now` on `rank` can leave over `route`."""
        if now <= self._open_until[route]:
            return max(now, self._leaves[route])
        leaves = max(now, self._sending[rank]) + self.cost
        self._sending[rank] = self._leaves[route] = self._open_until[route] = leaves
        self._current[route] = len(self._received)
        self._received.append(NONE)
        return leaves

    def sent(self, route: int, end: int) -> int:
        """Record that the route carries a part until `end`. Returns the number of its message."""
        self._open_until[route] = max(self._open_until[route], end)
        return self._current[route]

    def accept(self, rank: int, message: int, now: int) -> int:
        """Return the time from which `rank` reads a part of `message` that it could read at `now` without a cost."""
        if self._received[message] == NONE:
            self._received[message] = self._receiving[rank] = max(now, self._receiving[rank]) + self.cost
        return max(now, self._received[message])
