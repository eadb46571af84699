"""Modulo scheduling of the lanes of pipelined scans.

Groups of chunks follow each other by a period of steps, in which each lane begins one chunk. So what a send loads in
its step is loaded again a period later, by the chunk of the next group. Each send takes the first step after those that
it depends on in which every link and limit still has capacity, counted modulo the period. Then all steps last as long,
and links are nearly as busy as the lanes load them together (B. R. Rau, Iterative modulo scheduling, MICRO 1994).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from synth.frontiers.scan_lanes import Lane
from synth.model.schedule import Send
from synth.model.topology import Network


def interleaved(network: Network, lanes: Sequence[Lane], parts: int, period: int) -> list[Lane] | None:
    """Return the lanes with each send in a step of its own choice, so that one chunk of each may begin every period.

    Each step then lasts one of `parts` parts of a round. None where a send finds no step.
    """
    resources = (*network.routes, *network.caps)
    units = [resource.units // parts for resource in resources]
    first = len(network.routes)
    used = [[0] * len(resources) for _ in range(period)]
    result = []
    for k, lane in enumerate(lanes):
        begin = k * period // len(lanes)
        written = [begin - 1] * network.ranks  # the last step in which the slot of each rank is written, and read
        read = [begin] * network.ranks
        placed: Lane = []
        for step in lane:
            for sends in _together(step):
                at = begin
                need: dict[int, int] = {}
                for send in sends:
                    at = max(at, read[send.dst], written[send.dst] + (send.kind != "reduce-input"))
                    if not send.kind.endswith("-input"):
                        at = max(at, written[send.src] + 1)
                    if not send.local:
                        i = network.route_index[send.src, send.dst, send.via]
                        for resource in (i, *(first + c for c in network.caps_of[i])):
                            need[resource] = need.get(resource, 0) + 1
                for _ in range(period):
                    row = used[at % period]
                    if all(row[resource] + count <= units[resource] for resource, count in need.items()):
                        break
                    at += 1
                else:
                    return None
                for resource, count in need.items():
                    row[resource] += count
                placed += [[] for _ in range(at + 1 - len(placed))]
                placed[at] += sends
                for send in sends:
                    written[send.dst] = max(written[send.dst], at)
                    if not send.kind.endswith("-input"):
                        read[send.src] = max(read[send.src], at)
        result.append(placed)
    return result


def _together(step: Sequence[Send]) -> Iterator[list[Send]]:
    """Yield the sends of a step in an order in which they may be in steps of their own, and those together that change
    values: first those that read a slot, then those that write it, copies before what is added to them."""
    left = list(step)
    while left:
        alone = [send for send in left if not _waits(send, left)]
        for send in alone:
            yield [send]
        together = [] if alone else _changes(left)
        if together:
            yield together
        left = [send for send in left if send not in alone and send not in together]


def _waits(send: Send, sends: Sequence[Send]) -> bool:
    """Return True if one of `sends`, of the same step, is to be in no later step than `send`."""
    for other in sends:
        reads = other.src == send.dst and not other.kind.endswith("-input")
        adds = other.dst == send.dst and other.kind.startswith("copy") and send.kind.startswith("reduce")
        if other is not send and (reads or adds):
            return True
    return False


def _changes(sends: list[Send]) -> list[Send]:
    """Return two sends between the same two ranks, one each way, or all where there are none."""
    for send in sends:
        for other in sends:
            if other is not send and (other.src, other.dst) == (send.dst, send.src):
                return [send, other]
    return sends
