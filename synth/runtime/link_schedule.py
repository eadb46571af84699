"""Links as resources in integer picoseconds: begin, end and arrival of each transfer.

Transfers on a route follow one another (*serialised*, each at the route's full bandwidth β) in the order of their
requests: first by time, then by the number of the block. Routes that share a limit carry transfers side by side. The
limit serves them at its own bandwidth B in the order in which they began. A transfer of b bytes that begins at t has
left at max(t + ⌈b/β⌉, w), with w = max(w', t) + ⌈b/B⌉ for each of its limits, where w' is the w of the transfer that
began before it on that limit. It arrives ⌈α⌉ later. By any time t no route has carried more than β·t bytes, nor the
routes of a limit more than B·t.

A multicast through a switch counts once against the limits of its rank's port upwards, and of the port downwards of
each member of its group. A fetched sum counts against the opposite directions. The multicasts of one rank follow one
another, and so do its fetched sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from synth.errors import SynthError
from synth.model.topology import Network

Key = tuple[int, int, tuple[str, ...]]


class Transfer(NamedTuple):
    """A transfer: its route (None: no network), the times in ps at which it begins and arrives, and its bytes."""

    link: Key | None
    begin: int
    arrival: int
    size: int


class TransferTimes(NamedTuple):
    """The times in ps at which a transfer begins, its last byte has left, and it has arrived."""

    begin: int
    departure: int
    arrival: int


class SwitchPath(NamedTuple):
    """The limits that an op of `rank` through a switch counts against, each as often as it counts, and its α in ps.

    `fetches`: it is a fetched sum, else a multicast.
    """

    rank: int
    fetches: bool
    limits: tuple[int, ...]
    alpha: int


class LinkSchedule:
    """The routes of `network`, and its switches that multicast, during one run.

    `busy` and `carried`: ps and bytes by route.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.alpha = [ceil(route.latency * 10**6) for route in network.routes]
        self._rates = [route.units * network.unit for route in network.routes]  # GB/s
        self._limits = [cap.units * network.unit for cap in network.caps]
        self._free = [0] * len(network.routes)
        self._served = [0] * len(network.caps)
        # by route and bytes: ps on the route, and on each of its limits
        self._durations: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
        self.keys: list[Key] = [(route.src, route.dst, route.via) for route in network.routes]
        self.busy = [0] * len(network.routes)
        self.carried = [0] * len(network.routes)
        self._between: dict[tuple[int, int], list[int]] = {}
        for i, route in enumerate(network.routes):
            self._between.setdefault((route.src, route.dst), []).append(i)
        self._paths: dict[tuple[int, tuple[int, ...], bool], SwitchPath | None] = {}
        self._port_free: dict[tuple[int, bool], int] = {}

    def route(self, src: int, dst: int, channel: int = 0, via: tuple[str, ...] = ()) -> int:
        """Return the index of the route that `channel` from rank src to rank dst uses.

        It is the route through the switches `via`. Without `via` it is the direct link; where there is none, channels
        use the routes in turn. Raises SynthError where the network has no such route.
        """
        routes = self._between.get((src, dst), [])
        if via or any(not self.keys[i][2] for i in routes):
            routes = [i for i in routes if self.keys[i][2] == via]
        if not routes:
            through = f" through {' '.join(via)}" if via else ""
            raise SynthError(
                f"the program sends from rank {src} to rank {dst}, but {self.network.name} has no such link{through}"
            )
        return routes[channel % len(routes)]

    def free(self, route: int, now: int) -> int:
        """Return the time in ps, at least `now`, at which a block may reserve `route`.

        A route without limits can be reserved ahead, so the result is `now`, and `send` delays the transfer. A transfer
        that shares a limit must not be reserved ahead: it would delay others that could begin before it.
        """
        return max(now, self._free[route]) if self.network.caps_of[route] else now

    def send(self, route: int, size: int, now: int) -> TransferTimes:
        """Reserve `route` for `size` bytes from `now` on."""
        durations = self._durations.get((route, size))
        if durations is None:
            shares = [(k, _picoseconds(size, self._limits[k])) for k in self.network.caps_of[route]]
            durations = self._durations[route, size] = _picoseconds(size, self._rates[route]), shares
        duration, shares = durations
        begin = max(now, self._free[route])
        end = begin + duration
        for k, share in shares:
            served = self._served[k] = max(self._served[k], begin) + share
            end = max(end, served)
        self._free[route] = end
        self.busy[route] += end - begin
        self.carried[route] += size
        return TransferTimes(begin, end, end + self.alpha[route])

    def switch_path(self, rank: int, group: Iterable[int], fetches: bool) -> SwitchPath | None:
        """Return the path of a multicast of `rank` to `group`, or of a sum that it fetches from there.

        None where no switch that multicasts joins them.
        """
        members = tuple(group)
        key = rank, members, fetches
        if key not in self._paths:
            self._paths[key] = None
            for switch in self.network.multicast:
                if {port.rank for port in switch.ports}.issuperset((rank, *members)):
                    # α is that of the farthest member
                    alphas = [0]
                    for member in members:
                        ends = (member, rank) if fetches else (rank, member)
                        alphas += [self.alpha[i] for i in self._between.get(ends, [])[:1]]
                    limits = tuple(switch.caps(rank, members, fetches=fetches))
                    self._paths[key] = SwitchPath(rank, fetches, limits, max(alphas))
                    break
        return self._paths[key]

    def switch_free(self, path: SwitchPath, now: int) -> int:
        """Return the time in ps, at least `now`, at which the rank of `path` may begin an op through its switch."""
        return max(now, self._port_free.get((path.rank, path.fetches), 0))

    def send_through(self, path: SwitchPath, size: int, now: int) -> TransferTimes:
        """Reserve the ports of `path` for `size` bytes from `now` on."""
        begin = end = self.switch_free(path, now)
        for k in path.limits:
            served = self._served[k] = max(self._served[k], begin) + _picoseconds(size, self._limits[k])
            end = max(end, served)
        self._port_free[path.rank, path.fetches] = end
        return TransferTimes(begin, end, end + path.alpha)


def _picoseconds(size: int, gbps: Fraction) -> int:
    return ceil(size * 1000 / Fraction(gbps))
