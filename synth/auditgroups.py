"""Verification of what `synth groups` writes: the joint bound from its prices, the schedule replayed, every figure computed again."""

from __future__ import annotations

from fractions import Fraction

from synth import difference, groupcheck, strict, verify
from synth.errors import FormatError, UsageError, VerificationError
from synth.groups import Group, checked, units
from synth.rational import counted, rational, show
from synth.schedule import Schedule
from synth.topology import Network

SCHEMA = "synth.groups/1"
GROUP = frozenset({"ranks", "collective", "bytes", "alone_seconds", "slowdown"})
KEYS = {"schema", "topology", "groups", "bound", "unit_bytes", "seconds", "gap", "schedule"}


def document(doc: dict) -> list[str]:
    """What is established about the groups, a line each. Raises VerificationError with the place, FormatError for another document.

    The bounds of groups on their own carry no certificate; only what is computed from them is checked, and a line says so.
    """
    if doc["schema"] != SCHEMA:
        raise FormatError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
    strict.fields(doc, "$", KEYS, {"open"})
    for i, line in enumerate(strict.items(doc.get("open", []), "$.open")):
        strict.text(line, f"$.open[{i}]")
    if not isinstance(doc["topology"], dict):
        raise FormatError("names its topology without its links; write it anew with `synth groups`", place="$.topology")
    network = Network.from_json(doc["topology"])
    groups = _groups(doc["groups"], network.ranks)
    _need(isinstance(doc["bound"]["certificate"], dict), "there is no certificate: nothing proves this", "$.bound.certificate")
    proved = groupcheck.check(doc["bound"]["certificate"], network, groups)
    stated = rational(doc["bound"]["seconds"])
    _need(proved >= stated > 0, f"the certificate proves {show(proved)} s, {show(stated)} is claimed", "$.bound")
    for i, row in enumerate(doc["groups"]):
        if row["alone_seconds"] is None and row["slowdown"] is None and "open" in doc:  # a time limit came before
            continue
        alone = rational(row["alone_seconds"])
        _need(alone > 0 and rational(row["slowdown"]) == stated / alone, "is not the joint bound by that alone", f"$.groups[{i}].slowdown")
    least = f"at least {show(stated)} s where size 1 is 1 GB"
    lines = [
        f"{counted(len(groups), 'group')} at once on {network.name}: {least}, prices of links and limits checked",
        "the bounds of groups on their own are stated without a certificate, and were not checked",
    ]
    return [*lines, *_schedule(doc, network, groups, stated)]


def _need(truth: bool, message: str, place: str) -> None:
    if not truth:
        raise VerificationError(message, place)


def _groups(rows: list, ranks: int) -> tuple[Group, ...]:
    found = []
    for i, row in enumerate(rows):
        strict.fields(row, f"$.groups[{i}]", GROUP, {"root", "name"})
        good = isinstance(row["ranks"], list) and all(type(r) is int for r in row["ranks"]) and type(row.get("root", 0)) is int
        _need(good, "expected a group", f"$.groups[{i}]")
        found.append(Group(tuple(row["ranks"]), row["collective"], rational(row["bytes"]), row.get("root"), row.get("name", "")))
    try:
        return checked(found, ranks)
    except UsageError as error:
        raise VerificationError(str(error), "$.groups") from None


def _schedule(doc: dict, network: Network, groups: tuple[Group, ...], bound: Fraction) -> list[str]:
    task = units(groups, network.ranks)
    _need(rational(doc["unit_bytes"]) == task.unit, f"is {show(task.unit)} for these groups", "$.unit_bytes")
    if doc["schedule"] is None:
        _need(doc["seconds"] is None and doc["gap"] is None, "are those of a schedule, and there is none", "$.seconds")
        return []
    replay = verify.schedule(doc["schedule"], "$.schedule")
    made = Schedule.from_json(doc["schedule"])
    same = (made.network.routes, made.network.caps, made.network.unit) == (network.routes, network.caps, network.unit)
    differs = "" if same else difference.told(doc["schedule"]["topology"], doc["topology"], "in $.topology")
    _need(same, f"runs on another topology than the bound speaks about: {differs}", "$.schedule.topology")
    wanted = task.collective
    same = (made.collective.pre, made.collective.post, made.collective.combining) == (wanted.pre, wanted.post, wanted.combining)
    _need(same, "moves other data than the groups ask for", "$.schedule.collective")
    seconds = made.bandwidth * task.unit / network.unit
    _need(rational(doc["seconds"]) == seconds, f"the schedule takes {show(seconds)} s", "$.seconds")
    _need(rational(doc["gap"]) == seconds / bound - 1, f"the gap is {show(seconds / bound - 1)}", "$.gap")
    how = "optimal" if seconds == bound else f"{float(seconds / bound - 1):.2%} above the bound"
    sends = counted(replay.sends, "send")
    return [f"schedule: C={replay.chunks} S={replay.steps} R={replay.rounds}, {sends} replayed, {show(seconds)} s, {how}"]
