"""Third pass of lowering: which receives forward what arrives at once, and which connections therefore share a block.

A receive fuses with a later send of the same chunks when one thread block owns both connections. The fused op ends when
the last byte has left, so nothing fuses that another op, or another arrival of the step, would have to wait for
meanwhile. Pairing is a greedy matching of each rank's incoming with its outgoing connections by how much they would
fuse; a pair that would leave a block much longer than its longer half is left apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from synth.program.lowering.messages import Lane, Message, Value


class Fusion(NamedTuple):
    """`pairs[rank, incoming]`: the outgoing connection of the same block; `forwards[received]`: the message it is sent
    on as."""

    pairs: dict[tuple[int, Lane], Lane]
    forwards: dict[Message, Message]


NONE = Fusion({}, {})


def lanes_of(messages: Sequence[Message], whole: bool = False) -> dict[Lane, list[Message]]:
    """The messages of every connection, in order; with `whole`, all pieces of a connection as piece 0."""
    found: dict[Lane, list[Message]] = {}
    for message in messages:
        if message.local:
            continue
        found.setdefault((*message.lane[:4], 0) if whole else message.lane, []).append(message)
    return found


def fuse(messages: Sequence[Message], apart: frozenset[tuple[int, Lane]]) -> Fusion:
    """What fuses. `apart`: (rank, incoming connection) that must keep a block of its own."""
    lanes = lanes_of(messages)
    partners: dict[Message, list[Message]] = {}
    weight: Counter[tuple[int, Lane, Lane]] = Counter()
    for message in messages:
        if message.local:
            continue
        for later in dict.fromkeys(message.writes[0].readers):
            same = later.count == message.count and all(
                a is b for a, b in zip(later.reads, message.writes, strict=True)
            )
            if same and all(_alone(value, message, later) for value in message.writes):
                partners.setdefault(message, []).append(later)
                weight[message.dst, message.lane, later.lane] += 1
    pairs: dict[tuple[int, Lane], Lane] = {}
    forwards: dict[Message, Message] = {}
    busy: set[tuple[int, Lane]] = set()
    paths = _Paths()
    for (rank, incoming, outgoing), _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])):
        if (
            {(rank, incoming), (rank, outgoing)} & busy
            or (rank, incoming) in apart
            or not paths.can_join(incoming, outgoing)
        ):
            continue
        found = _in_order(lanes[incoming], lanes[outgoing], partners)
        longer, both = max(len(lanes[incoming]), len(lanes[outgoing])), len(lanes[incoming]) + len(lanes[outgoing])
        if not found or both - len(found) > longer + max(1, longer // 3):
            continue
        busy |= {(rank, incoming), (rank, outgoing)}
        paths.join(incoming, outgoing)
        pairs[rank, incoming] = outgoing
        forwards.update(found)
    return Fusion(pairs, forwards)


def _alone(value: Value, message: Message, later: Message) -> bool:
    """Whether nobody else needs `value` while a fused op would still be busy with sending it on, the step after
    `message`'s."""
    return all(other is later or other.step > message.step + 1 for other in value.readers)


def _in_order(
    received: list[Message], sent: list[Message], partners: Mapping[Message, list[Message]]
) -> dict[Message, Message]:
    """What fuses when both connections keep their order, no due send is held up, and no receive by a send before its
    time."""
    barred: set[Message] = set()
    while True:
        found: dict[Message, Message] = {}
        at = 0
        for message in received:
            while at < len(sent) and sent[at].step <= message.step:
                at += 1
            if (
                at < len(sent)
                and message not in barred
                and any(sent[at] is other for other in partners.get(message, ()))
            ):
                found[message] = sent[at]
                at += 1
        late = {a for a, b in pairwise(received) if a in found and b not in found and a.step == b.step}
        if not late:
            return found
        barred |= late


class _Paths:
    """Connections joined to paths that share one channel: no path may use two connections of the same pair of ranks."""

    def __init__(self) -> None:
        self.root: dict[Lane, Lane] = {}
        self.uses: dict[Lane, set[tuple[int, int]]] = {}

    def find(self, lane: Lane) -> Lane:
        root = lane
        while (up := self.root.get(root, root)) != root:
            root = up
        while lane != root:
            self.root[lane], lane = root, self.root.get(lane, lane)
        self.uses.setdefault(root, {root[:2]})
        return root

    def can_join(self, a: Lane, b: Lane) -> bool:
        a, b = self.find(a), self.find(b)
        small, large = sorted((self.uses[a], self.uses[b]), key=len)
        return a == b or not any(pair in large for pair in small)

    def join(self, a: Lane, b: Lane) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            if len(self.uses[a]) < len(self.uses[b]):
                a, b = b, a
            self.uses[a] |= self.uses.pop(b)
            self.root[b] = a


def channels(lanes: Sequence[Lane], pairs: Mapping[tuple[int, Lane], Lane], most_blocks: int | None) -> dict[Lane, int]:
    """A channel for every connection: one for all connections of a path of blocks, distinct for the connections of two
    ranks.

    `most_blocks`: how many blocks of one rank may send on a channel, and how many receive.
    """
    paths = _Paths()
    for (_, incoming), outgoing in pairs.items():
        paths.join(incoming, outgoing)
    groups: dict[Lane, list[Lane]] = {}
    for lane in sorted(lanes, key=lambda lane: (lane[4], lane[3], lane[:3])):
        groups.setdefault(paths.find(lane), []).append(lane)
    used: set[tuple[int, int, int]] = set()
    load: Counter[tuple[int, int, str]] = Counter()
    found: dict[Lane, int] = {}
    for group in groups.values():
        need = Counter(end for src, dst, *_ in group for end in ((src, "send"), (dst, "recv")))
        channel = 0
        while any((src, dst, channel) in used for src, dst, *_ in group) or (
            most_blocks is not None
            and any(load[rank, channel, way] + n > most_blocks for (rank, way), n in need.items())
        ):
            channel += 1
        for lane in group:
            used.add((lane[0], lane[1], channel))
            found[lane] = channel
        for (rank, way), n in need.items():
            load[rank, channel, way] += n
    return found
