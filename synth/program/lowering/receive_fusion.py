"""Third pass of lowering: receives that forward their chunks at once, and connections that therefore share a block.

A receive fuses with a later send of the same chunks if one thread block owns both connections. The fused op ends when
the last byte has left. So a receive is not fused if another op, or another arrival of the step, would have to wait for
it meanwhile. Pairing is a greedy matching of each rank's incoming with its outgoing connections by the number of ops
that would fuse. A pair whose block would be much longer than its longer half is not made. Connections that hints name
share a block where, and only where, a rank has two of its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from operator import is_
from typing import NamedTuple

from synth.errors import SynthError
from synth.program.lowering.messages import Lane, Message, NamedLanes
from synth.program.send_hints import NO_HINT


class Fusion(NamedTuple):
    """The connections that share a block, and the messages that are forwarded on arrival.

    `pairs[rank, incoming]`: the outgoing connection of the same block. `forwards[received]`: the message that forwards
    it. `named`: the connections that hints name.
    """

    pairs: dict[tuple[int, Lane], Lane]
    forwards: dict[Message, Message]
    named: NamedLanes


def lanes_of(messages: Sequence[Message], merge_pieces: bool = False) -> dict[Lane, list[Message]]:
    """Return the messages of every connection, in order; local messages are left out.

    `merge_pieces`: the pieces of a connection count as one connection, whose piece is 0.
    """
    lanes = {}
    for message in messages:
        if message.local:
            continue
        lanes.setdefault((*message.lane[:4], 0) if merge_pieces else message.lane, []).append(message)
    return lanes


def fuse(
    messages: Sequence[Message], unfused: frozenset[tuple[int, Lane]], named: NamedLanes, forward: bool = True
) -> Fusion:
    """Return the pairs of connections that share a block, and the receives that therefore forward their message.

    `unfused`: the (rank, incoming connection) that forward nothing; only a hint pairs them. `forward` False: none does.
    """
    lanes = lanes_of(messages)
    pairs = _named_pairs(lanes, named)
    if not forward:
        return Fusion(pairs, {}, named)

    # Which later messages could forward each message, and how many ops would fuse for each pair of connections.
    partners = {}
    weight = Counter()
    for message in messages:
        if message.local:
            continue
        for later in dict.fromkeys(message.writes[0].readers):
            same_values = len(later.reads) == len(message.writes) and all(map(is_, later.reads, message.writes))
            # while a fused op may still send it on, no other message may need a value
            free = all(
                other is later or other.step > message.step + 1 for value in message.writes for other in value.readers
            )
            if same_values and free:
                partners.setdefault(message, []).append(later)
                weight[message.dst, message.lane, later.lane] += 1

    # Pairs that hints ask for come first, then those with the most ops to fuse.
    forwards = {}
    busy = set()
    paths = _Paths()
    for (rank, incoming), outgoing in pairs.items():
        paths.join(incoming, outgoing)
        if (rank, incoming) not in unfused:
            forwards.update(_forwards_in_order(lanes[incoming], lanes[outgoing], partners))
    for (rank, incoming, outgoing), _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        # blocks that no hint names may be shared by connections that ask for the same channel
        hints = [named.get(lane[:4], NO_HINT) for lane in (incoming, outgoing)]
        asked = any(hint.block is not None for hint in hints) or hints[0].channel != hints[1].channel
        taken = {(rank, incoming), (rank, outgoing)} & busy or (rank, incoming) in unfused
        path, other = paths.find(incoming), paths.find(outgoing)
        ends = {lane[:2] for lane in path}
        crossing = path is not other and any(lane[:2] in ends for lane in other)
        if taken or asked or crossing:
            continue
        fused = _forwards_in_order(lanes[incoming], lanes[outgoing], partners)
        longer, both = max(len(lanes[incoming]), len(lanes[outgoing])), len(lanes[incoming]) + len(lanes[outgoing])
        if not fused or both - len(fused) > longer + max(1, longer // 3):
            continue
        busy |= {(rank, incoming), (rank, outgoing)}
        paths.join(incoming, outgoing)
        pairs[rank, incoming] = outgoing
        forwards.update(fused)
    return Fusion(pairs, forwards, named)


def _named_pairs(lanes: Mapping[Lane, list[Message]], named: NamedLanes) -> dict[tuple[int, Lane], Lane]:
    """Return the pairs of connections of a block's name. Raises SynthError where a rank has several to pair."""
    ends = {}
    for lane in lanes:
        block = named.get(lane[:4], NO_HINT).block
        if block is None:
            continue
        for side, rank in enumerate(lane[:2]):
            other = ends.setdefault((rank, block, side), lane)
            if other != lane:
                raise SynthError(f"block {block!r} of rank {rank} has two connections on one side; it has one peer")
    pairs = {}
    for (rank, block, side), lane in ends.items():
        if side == 1 and (rank, block, 0) in ends:
            pairs[rank, lane] = ends[rank, block, 0]
    return pairs


def _forwards_in_order(
    received: list[Message], sent: list[Message], partners: Mapping[Message, list[Message]]
) -> dict[Message, Message]:
    """Return the messages of two connections that fuse, each with the message that forwards it.

    Both connections keep their order, no send of an earlier step waits for a fused op, and a fused op delays no other
    receive of its step.
    """
    barred = set()
    while True:
        forwards = {}
        n = 0
        for message in received:
            while n < len(sent) and sent[n].step <= message.step:
                n += 1
            if n == len(sent) or message in barred:
                continue
            if any(sent[n] is other for other in partners.get(message, ())):
                forwards[message] = sent[n]
                n += 1
        delaying = {a for a, b in pairwise(received) if a in forwards and b not in forwards and a.step == b.step}
        if not delaying:
            return forwards
        barred |= delaying


class _Paths:
    """Connections joined into paths that share one channel; a path has one connection of each pair of ranks."""

    def __init__(self) -> None:
        self.path_of: dict[Lane, list[Lane]] = {}

    def find(self, lane: Lane) -> list[Lane]:
        return self.path_of.setdefault(lane, [lane])

    def join(self, a: Lane, b: Lane) -> None:
        path, other = self.find(a), self.find(b)
        if path is not other:
            path += other
            self.path_of.update(dict.fromkeys(other, path))


def channels(lanes: Sequence[Lane], fusion: Fusion, maximum_blocks: int | None) -> dict[Lane, int]:
    """Return a channel for every connection.

    All connections of a path of blocks have one channel; the connections from one rank to another have distinct ones.
    Those of hints come first. `maximum_blocks`: the most blocks of one rank that may send on a channel, and the most
    that may receive on it. Raises SynthError for hints of a channel that has more.
    """
    paths = _Paths()
    for (_, incoming), outgoing in fusion.pairs.items():
        paths.join(incoming, outgoing)
    groups = {}
    asked = {lane: fusion.named.get(lane[:4], NO_HINT).channel for lane in lanes}
    for lane in sorted(lanes, key=lambda lane: (asked[lane] is None, lane[4], lane[3], lane[:3])):
        groups.setdefault(id(paths.find(lane)), []).append(lane)
    used = set()
    load = Counter()
    channel_of = {}
    for group in groups.values():
        wanted = asked[group[0]]
        need = Counter(end for src, dst, *_ in group for end in ((src, "send"), (dst, "recv")))
        channel = wanted or 0
        while any((src, dst, channel) in used for src, dst, *_ in group) or (
            maximum_blocks is not None
            and any(load[rank, channel, direction] + n > maximum_blocks for (rank, direction), n in need.items())
        ):
            if wanted is not None:
                src, dst = group[0][:2]
                raise SynthError(f"channel {wanted} of hints has no room for the connection from rank {src} to {dst}")
            channel += 1
        for lane in group:
            used.add((lane[0], lane[1], channel))
            channel_of[lane] = channel
        for (rank, direction), n in need.items():
            load[rank, channel, direction] += n
    return channel_of
