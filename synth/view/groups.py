"""What `synth groups` prints: a row per kind of group. Takes any object with the fields of
`synth.scale.groups.joint.Together`."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from synth.model.number_text import number
from synth.model.rational import counted, show
from synth.view.frontier_text import Report

COLUMNS = (
    ("groups", "right"),
    ("ranks of the first", "left"),
    ("collective", "left"),
    ("size", "right"),
    ("alone GB/s", "right"),
    ("together GB/s", "right"),
    ("slower", "right"),
    ("found GB/s", "right"),
)


def report(found: Any) -> Report:
    """Groups alike in collective, size, name and bound share a row: the first one's ranks, bounds alone and together,
    what was found."""
    kinds: dict[tuple, list[int]] = {}
    for g, group in enumerate(found.groups):
        kinds.setdefault((group.name, group.collective, group.size, len(group.ranks), found.alone[g]), []).append(g)
    joint, seconds = found.bound.seconds, found.seconds
    rows = []
    for (name, collective, size, _, alone), members in kinds.items():
        first = found.groups[members[0]]
        root = (
            f" from {first.root}"
            if collective == "broadcast"
            else f" to {first.root}"
            if collective == "reduce"
            else ""
        )
        reached = "-" if seconds is None else number(size / seconds)
        before = ("-", "-") if alone is None else ("<= " + number(size / alone), f"{float(joint / alone):.2f}x")
        row = [str(len(members)), _ranks(first.ranks), (f"{name}: " if name else "") + collective + root, show(size)]
        rows.append((*row, before[0], "<= " + number(size / joint), before[1], reached))
    title = (
        f"{counted(len(found.groups), 'group')} at once on {found.network.name}: {counted(found.network.ranks, 'rank')}"
    )
    return Report(title, COLUMNS, tuple(rows), _lines(found))


def document(found: Any) -> dict:
    """The same as JSON: seconds per GB of relative size 1, the certificate of the joint bound, and the schedule."""
    groups = [
        {
            "ranks": list(group.ranks), "collective": group.collective, "bytes": show(group.size),
            **({} if group.root is None else {"root": group.root}), **({"name": group.name} if group.name else {}),
            "alone_seconds": None if alone is None else show(alone),
            "slowdown": None if alone is None else show(found.bound.seconds / alone),
            **_proof(g, proof),
        }
        for g, (group, alone, proof) in enumerate(zip(found.groups, found.alone, found.proofs, strict=True))
    ]  # fmt: skip
    return {
        "schema": "synth.groups/1",
        "topology": found.network.to_json(),
        "groups": groups,
        "bound": {"seconds": show(found.bound.seconds), "certificate": found.bound.certificate},
        "unit_bytes": show(found.task.unit),
        "seconds": None if found.seconds is None else show(found.seconds),
        "gap": None if found.gap is None else show(found.gap),
        "schedule": None if found.schedule is None else found.schedule.to_json(),
        **({"open": list(found.open)} if found.open else {}),
    }


def _proof(group: int, proof: Any) -> dict:
    """What proves the bound of a group on its own: a certificate, or the group and the automorphism that it is the
    image by."""
    if proof is None:
        return {}
    return (
        {"alone_certificate": proof.certificate} if proof.of == group else {"alone_as": [proof.of, list(proof.moved)]}
    )


def _lines(found: Any) -> tuple[str, ...]:
    lines = [
        f"together: at least {number(found.bound.seconds)} s where size 1 is 1 GB, proved by prices of links and limits"
    ]
    if found.schedule is not None:
        made = found.schedule
        gap = f"{number(100 * found.gap)}% above the bound" if found.gap else "optimal"
        size = f"{counted(len(made.steps), 'step')} and {counted(made.rounds, 'round')}"
        lines.append(
            f"found: {number(found.seconds)} s, {gap}; one schedule of {size}, replayed;"
            f" a chunk is {show(found.task.unit / made.chunks)} of size 1"
        )
    if found.open:
        lines.append(f"left open: {', '.join(found.open)}")
    lines.append(
        "GB/s: size / time of all groups (algorithmic bandwidth) for large messages, without latency; slower: "
        "together / alone"
    )
    return tuple(lines)


def _ranks(ranks: tuple[int, ...]) -> str:
    """``0-7``, ``0,8,..,56`` or all of a few."""
    step = ranks[1] - ranks[0]
    if len(ranks) > 3 and all(b - a == step for a, b in pairwise(ranks)):
        return f"{ranks[0]}-{ranks[-1]}" if step == 1 else f"{ranks[0]},{ranks[1]},..,{ranks[-1]}"
    return ",".join(map(str, ranks[:8])) + (",.." if len(ranks) > 8 else "")
