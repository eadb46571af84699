"""The candidates of a tuner: schedules × protocols × instances, with their measurements where there are any.

A measurement belongs to a schedule if the measured program has the fingerprint of the program that the schedule lowers
to. If another version of the lowering made the program, it is matched by label, steps, rounds per chunk and chunks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from synth.catalog.tuner.cost_terms import Shape, shape
from synth.catalog.tuner.measurements import Measurement
from synth.catalog.tuner.predicted_times import PredictedTimes, Variant
from synth.catalog.tuner.tune import TunerCandidate
from synth.errors import SynthError, VerificationError
from synth.export.request import Machine
from synth.model.canonical_json import canonical
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.tuning_plan import OURS, Algorithm
from synth.program.checked_lowering import lower
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program


class NamedSchedule(NamedTuple):
    """A schedule and its name, such as ``S3-R7-C6`` or ``ring``.

    `always`: it is a candidate even when the time is over. `shape`: its terms of the cost model, where known already.
    `protocols`: those that it is for. (): all.
    """

    name: str
    schedule: Schedule
    always: bool = False
    shape: Shape | None = None
    protocols: tuple[str, ...] = ()


class CandidateSet(NamedTuple):
    """The candidates, and notes on how measurements were matched with schedules."""

    candidates: tuple[TunerCandidate, ...]
    notes: tuple[str, ...]


def candidates(
    schedules: Sequence[NamedSchedule],
    measured: Sequence[Measurement],
    variants: Sequence[tuple[str, int]] | None = None,
    prefix: str = "",
    machine: Machine | None = None,
    times: PredictedTimes | None = None,
) -> CandidateSet:
    """Return every schedule with every pair (protocol, instances) of `variants`, and every other measured algorithm.

    `variants` None: the measured pairs; where there are none, Simple, LL and LL128 in one instance, LL128 only for
    schedules all of whose links are NVLink according to `machine`. `prefix` precedes each label; labels differ by
    protocol and instances. `times` predicts the times of those that were not measured. When its time is over, schedules
    that are neither measured nor `always` candidates are omitted.
    """
    late = times.late if times else lambda: False
    schedules = _distinct(schedules)
    notes: list[str] = []
    matched: dict[tuple[int, str, int], Measurement] = {}
    others: list[Measurement] = []
    for measurement in measured:
        place = _place(measurement, schedules, notes) if measurement.backend == OURS else None
        if place is None or place in matched:
            others.append(measurement)
        else:
            matched[place] = measurement
    pairs = variants or sorted({(p, n) for _, p, n in matched}) or [("Simple", 1), ("LL", 1), ("LL128", 1)]
    default_pairs = not variants and not matched
    seen = {k for k, _, _ in matched}
    order = sorted(range(len(schedules)), key=lambda k: k not in seen and not schedules[k].always)
    shapes = {}
    for k in order:
        named = schedules[k]
        if k in seen or named.always or named.shape or not late():
            shapes[k] = (None if matched else named.shape) or _shape(named.schedule, bool(matched))
    if len(shapes) < len(schedules):
        names = ", ".join(named.name for k, named in enumerate(schedules) if k not in shapes)
        notes.append(f"the time limit left no time to predict the times of {names}: not candidates")
    no_ll128: list[NamedSchedule] = []
    if default_pairs:
        no_ll128 = [named for k, named in enumerate(schedules) if k in shapes and not nvlink(named.schedule, machine)]
    if no_ll128:
        notes.append(_without_ll128(no_ll128, machine))
    result = []
    for k, named in enumerate(schedules):
        for protocol, instances in pairs if k in shapes else ():
            able = protocol != "LL128" or named not in no_ll128
            if able and (not named.protocols or protocol in named.protocols):
                match = matched.get((k, protocol, instances))
                samples = match.samples if match else ()
                candidate = TunerCandidate(_algorithm(named, protocol, instances, prefix), shapes[k], samples)
                if times is not None and not matched:
                    variant = Variant(named.schedule, shapes[k], protocol, instances, times.nodes is not None)
                    predicted = times.add(variant)
                    candidate = replace(candidate, predicted=predicted, jumps=predicted.jumps)
                result.append(candidate)
    result += [_foreign(measurement, prefix) for measurement in others]
    unused = [place for place in matched if place[1:] not in pairs]
    if unused:
        notes.append(f"measured, but not asked for: {len(unused)} more ways to run these schedules")
    return CandidateSet(tuple(_with_distinct_labels(result)), tuple(notes))


def nccl_candidates(
    named: NamedSchedule, machine: Machine | None, times: PredictedTimes, prefix: str = ""
) -> list[TunerCandidate]:
    """Return NCCL's algorithm of that name in each protocol, for any number of elements, predicted by the equal
    schedule."""
    name, schedule = named.name, named.schedule
    shape = named.shape or _shape(schedule, False)
    protocols = ("Simple", "LL", "LL128") if nvlink(schedule, machine) else ("Simple", "LL")
    result = []
    for protocol in protocols:
        label = f"{prefix}nccl-{name}" + ("" if protocol == "Simple" else f"-{protocol}")
        options = (("algorithm", name), ("protocol", protocol.lower()))
        predicted = times.add(Variant(schedule, shape, protocol), compared=True)
        algorithm = Algorithm(label, "nccl", None, protocol, 1, 1, options)
        result.append(TunerCandidate(algorithm, shape, (), predicted, predicted.jumps))
    return result


def nvlink(schedule: Schedule, machine: Machine | None) -> bool:
    """Return True if every link that `schedule` uses is known to be NVLink: LL128 corrupts data on other links."""
    pairs = ((send.src, send.dst) for step in schedule.steps for send in step.unicast_sends if not send.local)
    return machine is not None and all(machine.kinds.get(pair) == {"nvlink"} for pair in pairs)


def _without_ll128(schedules: Sequence[NamedSchedule], machine: Machine | None) -> str:
    if machine is None or all(kinds == {"unknown"} for kinds in machine.kinds.values()):
        return (
            "LL128 is not offered, for the kinds of links are not known; name the machine (--topo), or ask for "
            "it (--protocol LL128)"
        )
    names = ", ".join(named.name for named in schedules[:4])
    if len(schedules) > 4:
        names += f" and {len(schedules) - 4} more"
    return f"LL128 is not offered for {names}: it corrupts data on links other than NVLink"


def _distinct(schedules: Sequence[NamedSchedule]) -> list[NamedSchedule]:
    """Return the schedules without repetitions: the first of those with the same sends, always if one of them is."""
    result: list[NamedSchedule] = []
    for named in schedules:
        sends = (named.schedule.chunks, named.schedule.steps)
        alike = [k for k, one in enumerate(result) if (one.schedule.chunks, one.schedule.steps) == sends]
        if not alike:
            result.append(named)
        elif named.always:
            result[alike[0]] = result[alike[0]]._replace(always=True)
    return result


def _place(one: Measurement, schedules: Sequence[NamedSchedule], notes: list[str]) -> tuple[int, str, int] | None:
    """Return (index of the schedule, protocol, instances) of a measurement; None where it belongs to no schedule."""
    alike = [
        (k, one.chunks // named.schedule.chunks)
        for k, named in enumerate(schedules)
        if one.chunks
        and one.chunks % named.schedule.chunks == 0
        and (one.steps, one.rounds_per_chunk) == (len(named.schedule.steps), show(named.schedule.rounds_per_chunk))
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
        program = lower(schedule, LoweringOptions(protocol=protocol, instances=instances))
    except VerificationError:
        raise
    except SynthError:
        return None
    return hashlib.sha256(canonical(program.to_json())).hexdigest()


def _algorithm(named: NamedSchedule, protocol: str, instances: int, prefix: str) -> Algorithm:
    divisor = named.schedule.chunks * instances * named.schedule.collective.buffer_units
    return Algorithm(prefix + named.name, OURS, named.schedule, protocol, instances, divisor)


def _foreign(one: Measurement, prefix: str) -> TunerCandidate:
    """Return the candidate of an algorithm without a schedule; the chunks of a program of synth still give its
    divisor."""
    ours = one.backend == OURS
    divisor = one.divisor if ours else 1
    label = prefix + one.label.replace(" ", "-") if ours else one.label
    return TunerCandidate(Algorithm(label, one.backend, None, one.protocol, 1, divisor, one.options), None, one.samples)


def _with_distinct_labels(candidates: Sequence[TunerCandidate]) -> list[TunerCandidate]:
    """Return the candidates with protocol and instances in their labels, as in ``S3-R7-C6-LL-x2``; equal labels are
    numbered."""
    labels: set[str] = set()
    result = []
    for candidate in candidates:
        algorithm = candidate.algorithm
        label = algorithm.label
        if algorithm.backend == OURS and algorithm.protocol != "Simple":
            label += f"-{algorithm.protocol}"
        if algorithm.backend == OURS and algorithm.instances != 1:
            label += f"-x{algorithm.instances}"
        base, n = label, 2
        while label in labels:
            label, n = f"{base}-{n}", n + 1
        labels.add(label)
        result.append(replace(candidate, algorithm=replace(algorithm, label=label)))
    return result


@cache
def _lowered(schedule: Schedule) -> Program | None:
    try:
        return lower(schedule)
    except VerificationError:
        raise
    except SynthError:
        return None


def _shape(schedule: Schedule, lowered: bool) -> Shape:
    """Return the shape of a schedule. It is lowered only for a fit: the nominal model charges nothing for blocks."""
    return shape(schedule, _lowered(schedule) if lowered else None)
