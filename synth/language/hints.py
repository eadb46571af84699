"""Hints of a program for its lowering: the check of their values, and of the connections that they ask for.

A thread block of MSCCL-IR sends to one rank at most and receives from one at most, on one channel; a channel from a
rank to another one is in one block of each. Hints that ask for more are refused with both lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from synth.language.chunk_operations import Operations
from synth.language.place import SourceLine, error_at
from synth.program.send_hints import NO_HINT, SendHint

# Greatest numbers of a hint; no runtime has so many channels, and no unit so many chunks.
MOST = {"channel": 255, "lanes": 4096, "pieces": 4096}


def hint_at(place: SourceLine, given: SendHint) -> SendHint:
    """Return a hint that a program gives at `place`. Raises UsageError for a value that makes no sense."""
    if given == NO_HINT:
        raise error_at(place, "a.hints() says nothing: give block=, channel=, lanes= or pieces=")
    if given.block is not None and not (isinstance(given.block, str) and given.block.isprintable() and given.block):
        raise error_at(place, f"a.hints: block={given.block!r} is no name of a thread block, such as 'up'")
    for name, most in MOST.items():
        number, least = getattr(given, name), int(name != "channel")
        if number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
            raise error_at(place, f"a.hints: {name}={number!r}: a number from {least} to {most}")
    if given.lanes is not None and given.connects:
        raise error_at(place, "a.hints: a block or a channel is one connection; leave lanes out")
    return given


def check_hints(ops: Operations) -> None:
    """Raise UsageError where hints contradict each other.

    A named thread block of a rank sends to one rank, receives from one, and has one channel; a named channel from one
    rank to another is in one block of each.
    """
    known: dict[tuple, tuple[int | str | None, SourceLine | None]] = {}
    for i in ops.needed:
        row = ops.rows[i]
        if row.hint is None or row.source < 0 or ops.rows[row.source].rank == row.rank:
            continue
        for claim in _claims(ops.rows[row.source].rank, row.rank, row.hint):
            value, place = known.setdefault(claim.key, (claim.value, row.place))
            if value != claim.value:
                one, other = claim.text(value), claim.text(claim.value)
                raise error_at(place, f"{claim.what} {one} ({place}) and {other} ({row.place}); {claim.rule}")


class _Claim(NamedTuple):
    """A send's word on a block or a channel: the same `key` must always have the same `value`.

    `what`, `relation`, `rule`: the words of the error.
    """

    key: tuple
    value: int | str | None
    what: str
    relation: str
    rule: str

    def text(self, value: int | str | None) -> str:
        """Return the words for a value; None is that of sends which name nothing."""
        if value is None:
            word, _, noun = self.relation.partition(" ")
            return f"{word} no named {noun}"
        return f"{self.relation} {value}"


def _claims(src: int, dst: int, hint: SendHint) -> Iterator[_Claim]:
    """Yield what a send from rank `src` to rank `dst` says of its block and its channel."""
    block, channel = None if hint.block is None else f'"{hint.block}"', hint.channel
    if block is not None:
        sender, receiver = f"block {block} of rank {src}", f"block {block} of rank {dst}"
        peer = "a block of MSCCL-IR has one {} peer: name another block"
        yield _Claim(("send", src, block), dst, f"{sender} sends", "to", peer.format("send"))
        yield _Claim(("receive", dst, block), src, f"{receiver} receives", "from", peer.format("receive"))
        for rank, name in ((src, sender), (dst, receiver)):
            yield _Claim(("channel", rank, block), channel, f"{name} is", "on channel", "a block has one channel")
    if channel is not None:
        what = f"channel {channel} from rank {src} to rank {dst} is"
        yield _Claim(("block", src, dst, channel), block, what, "in block", "a channel is in one block of a rank")
