"""Documents of `synth groups`: the joint bound is checked, the schedule replayed, and every figure computed again."""

from __future__ import annotations

from fractions import Fraction

from synth.checker.certificates import process_groups
from synth.checker.fields import need
from synth.checker.schedule import replay as verify
from synth.checker.schedule.machine import ReplayMachine
from synth.errors import FormatError, UsageError, VerificationError
from synth.model.documents import json_diff, json_reader
from synth.model.documents.json_reader import Unchecked
from synth.model.process_groups import COLLECTIVES, Group, checked, units
from synth.model.rational import counted, show
from synth.model.topology import Network

SCHEMA = "synth.groups/1"
GROUP = frozenset({"ranks", "collective", "bytes", "alone_seconds", "slowdown"})
KEYS = {"schema", "topology", "groups", "bound", "unit_bytes", "seconds", "gap", "schedule"}


def document(doc: dict) -> list[str]:
    """Return what is established about the groups, a line each.

    Raises VerificationError with the place, FormatError for another document.

    Bounds of groups on their own that carry no certificate have a line that is
    `synth.model.documents.json_reader.Unchecked`.
    """
    json_reader.fields(doc, "$", KEYS, {"open"})
    if doc["schema"] != SCHEMA:
        raise FormatError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
    for i, line in enumerate(json_reader.items(doc.get("open", []), "$.open")):
        json_reader.text(line, f"$.open[{i}]")
    network = _network(doc["topology"])
    groups = _groups(doc["groups"], network.ranks)
    bound = json_reader.fields(doc["bound"], "$.bound", {"seconds", "certificate"})
    need(isinstance(bound["certificate"], dict), "there is no certificate: nothing proves this", "$.bound.certificate")
    stated = json_reader.fraction(bound["seconds"], "$.bound.seconds")
    need(stated > 0, f"{show(stated)} is no bound", "$.bound.seconds")
    try:
        proved = process_groups.check(bound["certificate"], network, groups)
    except VerificationError as error:
        raise VerificationError(str(error), "$.bound.certificate") from None
    need(proved >= stated, f"the certificate proves {show(proved)} s, {show(stated)} is claimed", "$.bound")
    least = f"at least {show(stated)} s where size 1 is 1 GB"
    lines = [f"{counted(len(groups), 'group')} at once on {network.name}: {least}, prices of links and limits checked"]
    alone = _alone(doc["groups"], network, groups, stated, "open" in doc)
    return [
        *lines,
        *_schedule(doc, network, groups, stated),
        *alone,
        f"{json_reader.assumed(bool(network.caps))}; names of groups, and what is left open",
    ]


def _alone(
    rows: list[dict], network: Network, groups: tuple[Group, ...], joint: Fraction, cut_short: bool
) -> list[str]:
    """Check the bound of each group with the machine to itself, and return lines on them.

    It is proved by a certificate of its own, or as that of the image of an earlier group, which has one.
    """
    proved: dict[int, Fraction] = {}
    unproved = 0
    for i, row in enumerate(rows):
        place, group = f"$.groups[{i}]", groups[i]
        if row["alone_seconds"] is None and row["slowdown"] is None and cut_short:  # a time limit came before
            continue
        own = json_reader.fraction(row["alone_seconds"], f"{place}.alone_seconds")
        slower = json_reader.fraction(row["slowdown"], f"{place}.slowdown")
        need(own > 0 and slower == joint / own, "is not the joint bound by that alone", f"{place}.slowdown")
        if "alone_certificate" in row:
            try:
                proved[i] = process_groups.check(row["alone_certificate"], network, (group,))
            except VerificationError as error:
                raise VerificationError(str(error), f"{place}.alone_certificate") from None
        elif "alone_as" in row:
            here = f"{place}.alone_as"
            pair = json_reader.items(row["alone_as"], here)
            need(
                len(pair) == 2 and type(pair[0]) is int and pair[0] in proved,
                "names no group before with a proof of its own",
                here,
            )
            like, moved = groups[pair[0]], json_reader.items(pair[1], here)
            need(
                process_groups.is_automorphism(network, moved),
                "is no automorphism of the machine, or has links that it does not tell apart",
                here,
            )
            root = None if like.root is None else moved[like.root]
            image = {moved[r] for r in like.ranks}, root
            same = (like.collective, like.size, *image) == (group.collective, group.size, set(group.ranks), group.root)
            need(same, f"does not take group {pair[0]} to this one", here)
            proved[i] = proved[pair[0]]
        else:
            unproved += 1
            continue
        need(
            proved[i] >= own,
            f"is proved to be {show(proved[i])} at least, {show(own)} is claimed",
            f"{place}.alone_seconds",
        )
    lines = [f"bounds of {counted(len(proved), 'group')} with the machine to itself: checked"] if proved else []
    return (
        [*lines, Unchecked(f"the bounds of {counted(unproved, 'group')} alone, which carry no certificate")]
        if unproved
        else lines
    )


def _network(doc: object) -> Network:
    """Read the machine strictly, also where no schedule runs on it."""
    place = "$.topology"
    if not isinstance(doc, dict):
        raise FormatError("names its topology without its links; write it anew with `synth groups`", place=place)
    machine = ReplayMachine.read(doc, place)
    machine.check_wires(place)
    need(machine.rules is None, "are no part of a document of groups", f"{place}.rules")
    return Network.from_json(doc)


def _groups(rows: list, ranks: int) -> tuple[Group, ...]:
    groups = []
    for i, row in enumerate(json_reader.items(rows, "$.groups")):
        place = f"$.groups[{i}]"
        json_reader.fields(row, place, GROUP, {"root", "name", "alone_certificate", "alone_as"})
        members = tuple(
            json_reader.number(r, f"{place}.ranks[{j}]", 0, ranks)
            for j, r in enumerate(json_reader.items(row["ranks"], f"{place}.ranks"))
        )
        root = json_reader.number(row["root"], f"{place}.root", 0, ranks) if "root" in row else None
        collective = json_reader.one_of(row["collective"], COLLECTIVES, f"{place}.collective")
        size, name = (
            json_reader.fraction(row["bytes"], f"{place}.bytes"),
            json_reader.text(row.get("name", ""), f"{place}.name"),
        )
        groups.append(Group(members, collective, size, root, name))
    try:
        return checked(groups, ranks)
    except UsageError as error:
        raise VerificationError(str(error), "$.groups") from None


def _schedule(doc: dict, network: Network, groups: tuple[Group, ...], bound: Fraction) -> list[str]:
    try:
        task = units(groups, network.ranks)
    except UsageError as error:
        raise VerificationError(str(error), "$.groups") from None
    need(
        json_reader.fraction(doc["unit_bytes"], "$.unit_bytes") == task.unit,
        f"is {show(task.unit)} for these groups",
        "$.unit_bytes",
    )
    if doc["schedule"] is None:
        need(doc["seconds"] is None and doc["gap"] is None, "are those of a schedule, and there is none", "$.seconds")
        return []
    inner = doc["schedule"]
    replay = verify.schedule(inner, "$.schedule")
    if inner["topology"] != doc["topology"]:
        differs = json_diff.describe(inner["topology"], doc["topology"], "in $.topology")
        raise VerificationError(
            f"runs on another topology than the bound speaks about: {differs}", "$.schedule.topology"
        )
    # chunk by chunk: every one of every unit
    moved, wanted = inner["collective"], task.collective.to_json(replay.chunks)
    same = all(moved[key] == wanted[key] for key in ("ranks", "chunks", "combining"))
    same = same and all(sorted(moved[key]) == sorted(wanted[key]) for key in ("pre", "post"))
    need(same, "moves other data than the groups ask for", "$.schedule.collective")
    seconds = replay.rounds_per_chunk * task.unit / network.unit
    need(
        json_reader.fraction(doc["seconds"], "$.seconds") == seconds,
        f"the schedule takes {show(seconds)} s",
        "$.seconds",
    )
    gap = seconds / bound - 1
    need(gap >= 0, f"takes {show(seconds)} s, less than the bound", "$.schedule")
    need(json_reader.fraction(doc["gap"], "$.gap") == gap, f"the gap is {show(gap)}", "$.gap")
    how = "optimal" if seconds == bound else f"{float(gap):.2%} above the bound"
    sends = counted(replay.sends, "send")
    return [
        f"schedule: C={replay.chunks} S={replay.steps} R={replay.rounds}, {sends} replayed, {show(seconds)} s, {how}"
    ]
