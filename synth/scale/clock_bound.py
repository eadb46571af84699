"""Lower bounds in the clock of predicted times: certified bounds on each protocol's links, after its launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from synth.model.collective import Collective
from synth.model.time_bound import ClockBound, ClockBoundRow
from synth.model.topology import Network
from synth.program.overheads import Overheads
from synth.program.program import PROTOCOLS
from synth.scale.time_bound import time_bound


def clock_bound(
    network: Network,
    collective: Collective,
    sizes: Sequence[int],
    overheads: Overheads,
    protocols: Sequence[str] = PROTOCOLS,
) -> ClockBound:
    """Return lower bounds on the predicted time of any program without multicasts, in any of `protocols`.

    In each protocol it is the launch and the bound of `synth.scale.time_bound` on the protocol's links, which the
    checker has certified. The least of them is the bound. Raises InfeasibleError where data cannot reach a rank.
    """
    return _kept(network, collective, tuple(sizes), overheads, tuple(protocols))


@lru_cache(maxsize=8)  # a build prints the bounds of its tables and draws them
def _kept(
    network: Network, collective: Collective, sizes: tuple[int, ...], overheads: Overheads, protocols: tuple[str, ...]
) -> ClockBound:
    distinct = {overheads.of(protocol): protocol for protocol in reversed(protocols)}
    options: list[list[ClockBoundRow]] = [[] for _ in sizes]
    for cost, protocol in distinct.items():
        # A program has no steps, which a sketch's rules are of, so the bound is that of the links alone.
        links = replace(overheads.links(network, protocol).as_topology(), rules=None)
        for place, row in enumerate(time_bound(links, collective, sizes, rates=None).rows):
            launch = cost.launch if row.microseconds else Fraction(0)
            time = launch + row.microseconds
            options[place].append(ClockBoundRow(row.size, time, launch, protocol, row.reason))
    return ClockBound(tuple(min(rows, key=lambda row: row.microseconds) for rows in options))
