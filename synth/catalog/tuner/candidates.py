"""What a tuner chooses from: schedules × protocol × instances, each with its measurements where it was measured.

A measurement is a schedule's when the program it was taken of is the one that the schedule lowers to, by fingerprint;
where another version of the lowering made it, by steps, R/C and chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from synth.catalog.tuner.cost_terms import Shape, shape
from synth.catalog.tuner.measurements import Measurement
from synth.catalog.tuner.tune import Candidate
from synth.errors import SynthError, VerificationError
from synth.export.request import Machine
from synth.model.rational import show
from synth.model.schedule import Schedule, canonical
from synth.model.tuning_plan import OURS, Algorithm
from synth.program.checked_lowering import lower
from synth.program.program import Program


class Named(NamedTuple):
    """A schedule and what it is called: ``S3-R7-C6``, ``ring``. `always`: it is a candidate even when the time is over.
    `shape`: where it is known already."""

    name: str
    schedule: Schedule
    always: bool = False
    shape: Shape | None = None


class Found(NamedTuple):
    """The candidates, and what the reader should know of how measurements were told apart."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]


def candidates(
    schedules: Sequence[Named],
    measured: Sequence[Measurement],
    ways: Sequence[tuple[str, int]] | None = None,
    prefix: str = "",
    machine: Machine | None = None,
    late: Callable[[], bool] = lambda: False,
) -> Found:
    """Every schedule in every way (protocol, instances), and whatever else was measured.

    `ways` None: those that were measured, or Simple, LL and LL128 in one instance where none was, LL128 only for
    schedules all of whose links `machine` knows to be NVLink. `prefix` goes before each label. Labels are told apart by
    protocol and instances.
    `late`: whether the time is over; from then on schedules that were not measured and are not `always` candidates are
    left out.
    """
    schedules = _distinct(schedules)
    notes: list[str] = []
    matched: dict[tuple[int, str, int], Measurement] = {}
    others: list[Measurement] = []
    for one in measured:
        place = _place(one, schedules, notes) if one.backend == OURS else None
        if place is None or place in matched:
            others.append(one)
        else:
            matched[place] = one
    tried = ways or sorted({(p, n) for _, p, n in matched}) or [("Simple", 1), ("LL", 1), ("LL128", 1)]
    free = not ways and not matched
    seen = {k for k, _, _ in matched}
    first = sorted(range(len(schedules)), key=lambda k: k not in seen and not schedules[k].always)
    kept = [k for k in first if k in seen or schedules[k].always or schedules[k].shape or not late()]
    shapes = {
        k: (None if matched else schedules[k].shape) or _shape(schedules[k].schedule, bool(matched)) for k in kept
    }
    if len(shapes) < len(schedules):
        names = ", ".join(named.name for k, named in enumerate(schedules) if k not in shapes)
        notes.append(f"the time limit left no time to predict the times of {names}: not candidates")
    slow = [named for k, named in enumerate(schedules) if k in shapes and free and not nvlink(named.schedule, machine)]
    if slow:
        notes.append(_without(slow, machine))
    found = [
        Candidate(
            _algorithm(named, protocol, instances, prefix), shapes[k],
            matched[k, protocol, instances].samples if (k, protocol, instances) in matched else (),
        )
        for k, named in enumerate(schedules)
        for protocol, instances in tried
        if k in shapes
        if protocol != "LL128" or named not in slow
    ]  # fmt: skip
    found += [_foreign(one, prefix) for one in others]
    unseen = [place for place in matched if place[1:] not in tried]
    if unseen:
        notes.append(f"measured, but not asked for: {len(unseen)} more ways to run these schedules")
    return Found(tuple(_relabelled(found)), tuple(notes))


def own_of_library(name: str, schedule: Schedule, machine: Machine | None, prefix: str = "") -> list[Candidate]:
    """NCCL's own algorithm `name` in each protocol, predicted as `schedule`, which does the same, for every count."""
    shape, protocols = _shape(schedule, False), ("Simple", "LL", *(("LL128",) if nvlink(schedule, machine) else ()))
    return [
        Candidate(Algorithm(
            f"{prefix}nccl-{name}" + ("" if protocol == "Simple" else f"-{protocol}"), "nccl", None, protocol, 1, 1,
            (("algorithm", name), ("protocol", protocol.lower())),
        ), shape)
        for protocol in protocols
    ]  # fmt: skip


def nvlink(schedule: Schedule, machine: Machine | None) -> bool:
    """Whether every link that `schedule` uses is known to be NVLink: LL128 corrupts data on others."""
    pairs = ((send.src, send.dst) for step in schedule.steps for send in step.sends if not send.local)
    return machine is not None and all(machine.kinds.get(pair) == {"nvlink"} for pair in pairs)


def _without(slow: Sequence[Named], machine: Machine | None) -> str:
    if machine is None or all(kinds == {"unknown"} for kinds in machine.kinds.values()):
        return (
            "LL128 is not offered, for the kinds of links are not known; name the machine (--topo), or ask for "
            "it (--protocol LL128)"
        )
    names = ", ".join(named.name for named in slow[:4]) + (f" and {len(slow) - 4} more" if len(slow) > 4 else "")
    return f"LL128 is not offered for {names}: it corrupts data on links other than NVLink"


def _distinct(schedules: Sequence[Named]) -> list[Named]:
    """Without repetitions: of schedules with the same sends the first."""
    found: list[Named] = []
    for named in schedules:
        one = named.schedule
        if not any((other.schedule.chunks, other.schedule.steps) == (one.chunks, one.steps) for other in found):
            found.append(named)
    return found


def _place(one: Measurement, schedules: Sequence[Named], notes: list[str]) -> tuple[int, str, int] | None:
    """(schedule, protocol, instances) of what was measured."""
    alike = [
        (k, one.chunks // named.schedule.chunks)
        for k, named in enumerate(schedules)
        if one.chunks
        and one.chunks % named.schedule.chunks == 0
        and (one.steps, one.bandwidth) == (len(named.schedule.steps), show(named.schedule.bandwidth))
    ]
    for k, instances in alike:
        if _fingerprint(schedules[k].schedule, one.protocol, instances) == one.fingerprint:
            return k, one.protocol, instances
    if not alike or (one.label != schedules[alike[0][0]].name and not one.label.startswith(("point ", "schedule"))):
        return None
    notes.append(
        f"the times of {one.label} ({one.file}) are of a program that is not lowered so here; they are taken for"
        f" {schedules[alike[0][0]].name}, which has the same steps, rounds and chunks"
    )
    return alike[0][0], one.protocol, alike[0][1]


def _fingerprint(schedule: Schedule, protocol: str, instances: int) -> str | None:
    try:
        made = lower(schedule, protocol=protocol, instances=instances)
    except VerificationError:
        raise
    except SynthError:
        return None
    return hashlib.sha256(canonical(made.to_json())).hexdigest()


def _algorithm(named: Named, protocol: str, instances: int, prefix: str) -> Algorithm:
    divisor = named.schedule.chunks * instances * named.schedule.collective.buffer_units
    return Algorithm(prefix + named.name, OURS, named.schedule, protocol, instances, divisor)


def _foreign(one: Measurement, prefix: str) -> Candidate:
    """An algorithm known by its times alone; of ours, the chunks of its program still say what it admits."""
    ours = one.backend == OURS
    divisor = one.divisor if ours else 1
    label = prefix + one.label.replace(" ", "-") if ours else one.label
    return Candidate(Algorithm(label, one.backend, None, one.protocol, 1, divisor, one.options), None, one.samples)


def _relabelled(found: Sequence[Candidate]) -> list[Candidate]:
    """Labels with what tells ways apart: ``S3-R7-C6-LL-x2``; the last resort is a number."""
    taken: set[str] = set()
    made = []
    for candidate in found:
        own = candidate.algorithm
        label = own.label
        if own.backend == OURS:
            label += ("" if own.protocol == "Simple" else f"-{own.protocol}") + (
                "" if own.instances == 1 else f"-x{own.instances}"
            )
        base, n = label, 2
        while label in taken:
            label, n = f"{base}-{n}", n + 1
        taken.add(label)
        made.append(replace(candidate, algorithm=replace(own, label=label)))
    return made


@cache
def _lowered(schedule: Schedule) -> Program | None:
    try:
        return lower(schedule)
    except VerificationError:
        raise
    except SynthError:
        return None


def _shape(schedule: Schedule, lowered: bool) -> Shape:
    """Blocks are looked at only where measurements are to be fitted: the nominal model charges nothing for them."""
    return shape(schedule, _lowered(schedule) if lowered else None)
