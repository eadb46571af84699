"""Links as resources in integer picoseconds: who may send from when on, and when it arrives.

Transfers on a route follow one another (*serialised*, each at the route's full bandwidth β) in the order in which they
were asked for: first by time, then by the number of the block. Routes that share a limit go side by side as far as it
lets them: the limit serves what began first at its own bandwidth B, so a transfer of b bytes that begins at t has left
at max(t + ⌈b/β⌉, w), w = max(w', t) + ⌈b/B⌉ for each of its limits, w' of the transfer that began before it there. It
arrives ⌈α⌉ later. By any time t no route has carried more than β·t, nor the routes of a limit more than B·t.
"""

from __future__ import annotations

from fractions import Fraction

from synth.errors import SynthError
from synth.model.topology import Network

Key = tuple[int, int, tuple[str, ...]]


class Links:
    """The routes of `network`, for one run. `busy` and `carried`: ps and bytes by route, for the report."""

    def __init__(self, network: Network) -> None:
        self.network = network
        caps = network.caps_of
        rates = [route.units * network.unit for route in network.routes]
        limits = [cap.units * network.unit for cap in network.caps]
        self.alpha = [_up(route.latency * 10**6) for route in network.routes]
        self._rates = rates
        self._caps = [[(k, limits[k]) for k in caps[i]] for i in range(len(rates))]
        self._free = [0] * len(rates)
        self._served = [0] * len(limits)
        self._taken: dict[tuple[int, int], tuple[int, list[tuple[int, int]]]] = {}
        self.keys: list[Key] = [(route.src, route.dst, route.via) for route in network.routes]
        self.busy = [0] * len(rates)
        self.carried = [0] * len(rates)
        self._between: dict[tuple[int, int], list[int]] = {}
        for i, route in enumerate(network.routes):
            self._between.setdefault((route.src, route.dst), []).append(i)

    def route(self, src: int, dst: int, channel: int = 0, via: tuple[str, ...] = ()) -> int:
        """The route that `channel` from src to dst uses: the one through `via`, else the link, else the ways in turn by
        channel.

        Raises SynthError where the network has none.
        """
        ways = self._between.get((src, dst), [])
        if via or any(not self.keys[i][2] for i in ways):
            ways = [i for i in ways if self.keys[i][2] == via]
        if not ways:
            through = f" through {' '.join(via)}" if via else ""
            raise SynthError(
                f"the program sends from rank {src} to rank {dst}, but {self.network.name} has no such link{through}"
            )
        return ways[channel % len(ways)]

    def free(self, route: int, now: int) -> int:
        """From when on a transfer on `route` can begin, where it shares a limit; else `now`, and `send` does the
        waiting.

        A transfer that shares a limit must not be reserved ahead: it would hold up others that could go before it.
        """
        return max(now, self._free[route]) if self._caps[route] else now

    def send(self, route: int, size: int, now: int) -> tuple[int, int, int]:
        """Reserve `route` for `size` bytes from `now` on: when it begins, when the last byte has left, when it
        arrives."""
        taken = self._taken.get((route, size))
        if taken is None:
            taken = (_ps(size, self._rates[route]), [(k, _ps(size, rate)) for k, rate in self._caps[route]])
            self._taken[route, size] = taken
        duration, shares = taken
        begin = max(now, self._free[route])
        end = begin + duration
        for k, share in shares:
            served = self._served[k] = max(self._served[k], begin) + share
            end = max(end, served)
        self._free[route] = end
        self.busy[route] += end - begin
        self.carried[route] += size
        return begin, end, end + self.alpha[route]


def _ps(size: int, gbps: Fraction) -> int:
    return _up(size * 1000 / Fraction(gbps))


def _up(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
