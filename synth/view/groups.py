"""The table and the document of `synth groups`, from any object with the fields of
`synth.scale.groups.joint.JointSynthesis`."""

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
    ("schedule GB/s", "right"),
)


def report(found: Any) -> Report:
    """Return the table of `synth groups`, with one row for groups of equal name, collective, size and bound.

    A row shows the ranks of the first of its groups, the bounds alone and together, and the rate of the schedule.
    """
    kinds: dict[tuple, list[int]] = {}
    for g, group in enumerate(found.groups):
        kinds.setdefault((group.name, group.collective, group.size, len(group.ranks), found.alone[g]), []).append(g)
    joint, seconds = found.bound.seconds, found.seconds
    rows = []
    for (name, collective, size, _, alone), members in kinds.items():
        first = found.groups[members[0]]
        root = ""
        if collective in ("broadcast", "reduce"):
            root = f" {'from' if collective == 'broadcast' else 'to'} {first.root}"
        reached = "-" if seconds is None else number(size / seconds)
        before = ("-", "-") if alone is None else ("<= " + number(size / alone), f"{float(joint / alone):.2f}x")
        row = [str(len(members)), _ranks(first.ranks), (f"{name}: " if name else "") + collective + root, show(size)]
        rows.append((*row, before[0], "<= " + number(size / joint), before[1], reached))
    title = (
        f"{counted(len(found.groups), 'group')} at once on {found.network.name}: {counted(found.network.ranks, 'rank')}"
    )
    return Report(title, COLUMNS, tuple(rows), _lines(found))


def document(found: Any) -> dict:
    """Return the document ``synth.groups/1``: bounds with their certificates, and the schedule.

    Times are seconds if the relative size 1 is 1 GB.
    """
    groups = []
    for g, (group, alone, proof) in enumerate(zip(found.groups, found.alone, found.proofs, strict=True)):
        row = {"ranks": list(group.ranks), "collective": group.collective, "bytes": show(group.size)}
        if group.root is not None:
            row["root"] = group.root
        if group.name:
            row["name"] = group.name
        row["alone_seconds"] = None if alone is None else show(alone)
        row["slowdown"] = None if alone is None else show(found.bound.seconds / alone)
        groups.append(row | _proof(g, proof))
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
    """Return the proof of a group's bound alone: a certificate, or a group and the automorphism that maps it here."""
    if proof is None:
        return {}
    if proof.of == group:
        return {"alone_certificate": proof.certificate}
    return {"alone_as": [proof.of, list(proof.moved)]}


def _lines(found: Any) -> tuple[str, ...]:
    lines = [
        f"together: at least {number(found.bound.seconds)} s where size 1 is 1 GB, proved by prices of links and limits"
    ]
    if found.schedule is not None:
        schedule = found.schedule
        gap = f"{number(100 * found.gap)}% above the bound" if found.gap else "optimal"
        size = f"{counted(len(schedule.steps), 'step')} and {counted(schedule.rounds, 'round')}"
        lines.append(
            f"found: {number(found.seconds)} s, {gap}; one schedule of {size}, replayed;"
            f" a chunk is {show(found.task.unit / schedule.chunks)} of size 1"
        )
    if found.open:
        lines.append(f"left open: {', '.join(found.open)}")
    lines.append(
        "GB/s: size / time of all groups (algorithmic bandwidth) for large messages, without latency; slower: "
        "together / alone"
    )
    return tuple(lines)


def _ranks(ranks: tuple[int, ...]) -> str:
    """Return ranks in short form: ``0-7``, ``0,8,..,56``, or the first eight."""
    step = ranks[1] - ranks[0]
    if len(ranks) > 3 and all(b - a == step for a, b in pairwise(ranks)):
        return f"{ranks[0]}-{ranks[-1]}" if step == 1 else f"{ranks[0]},{ranks[1]},..,{ranks[-1]}"
    return ",".join(map(str, ranks[:8])) + (",.." if len(ranks) > 8 else "")
