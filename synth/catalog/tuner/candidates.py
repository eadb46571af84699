"""The candidates of a tuner: schedules × protocols × instances, with their measurements where there are any.

A measurement belongs to a schedule if the measured program has the fingerprint of the program that the schedule lowers
to. What another version of the lowering made is known by its name alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from synth.catalog.tuner.clock import Clock, Time, Variant
from synth.catalog.tuner.measurements import Measurement, Sample, interpolated
from synth.errors import SynthError, VerificationError
from synth.export.request import Machine
from synth.model.documents.canonical_json import canonical
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.tuning_plan import OURS, Algorithm
from synth.program.checked_lowering import lower
from synth.program.connections import on_connections
from synth.program.lowering_options import LoweringOptions


class NamedSchedule(NamedTuple):
    """A schedule and its name, such as ``S3-R7-C6`` or ``ring``. `protocols`: those that it is for. (): all."""

    name: str
    schedule: Schedule
    protocols: tuple[str, ...] = ()


@dataclass(frozen=True)
class TunerCandidate:
    """An algorithm with its measured `samples`, or with the `variant` that `clock` runs."""

    algorithm: Algorithm
    samples: tuple[Sample, ...] = ()
    clock: Clock | None = None
    variant: Variant | None = None

    def time(self, size: int, element: int) -> Time | None:
        """Return the time of the candidate for `size` bytes of elements of `element` bytes; None where it is not known.

        One of ours takes the time of the next size that its chunks divide, to which the data are padded.
        """
        padded = self._padded(size, element)
        if self.clock is None or self.variant is None:
            return interpolated(self.samples, padded)
        return self.clock.time(self.variant, padded)

    def least(self, size: int, element: int) -> float:
        """Return a lower bound on its time at a size."""
        if self.clock is None or self.variant is None:
            return 0.0
        return self.clock.least(self.variant, self._padded(size, element))

    def _padded(self, size: int, element: int) -> int:
        return self.algorithm.padded(size, element) if self.algorithm.backend == OURS else size


class CandidateSet(NamedTuple):
    """The candidates, and notes on how measurements were matched with schedules."""

    candidates: tuple[TunerCandidate, ...]
    notes: tuple[str, ...]


def timed_candidates(
    schedules: Sequence[NamedSchedule],
    library: Sequence[NamedSchedule],
    clock: Clock,
    pairs: Sequence[tuple[str, int]] | None = None,
    machine: Machine | None = None,
) -> CandidateSet:
    """Return every schedule with every pair (protocol, instances), and NCCL's algorithms of the names in `library`.

    `pairs` None: Simple, LL and LL128 in one instance, LL128 only for schedules all of whose links are NVLink
    according to `machine`. NCCL's are for any number of elements, and take the time of the equal schedule.
    """
    # each schedule in each protocol that it is for
    notes = []
    result: list[TunerCandidate] = []
    no_ll128: list[str] = []
    for named in _distinct(_cut(schedules)):
        protocols = _protocols(named.schedule, machine)
        if "LL128" not in protocols and not pairs and not named.protocols:
            no_ll128.append(named.name)
        for protocol, instances in pairs or [(protocol, 1) for protocol in protocols]:
            if not named.protocols or protocol in named.protocols:
                variant = Variant(named.schedule, protocol, instances, clock.nodes is not None)
                result.append(TunerCandidate(_algorithm(named, protocol, instances), (), clock, variant))

    # LL128 is left out where a link may be no NVLink, and said so
    unknown = machine is None or all(kinds == {"unknown"} for kinds in machine.kinds.values())
    if no_ll128 and unknown:
        notes.append(
            "LL128 is not offered, for the kinds of links are not known; name the machine (--topo), or ask for "
            "it (--protocol LL128)"
        )
    elif no_ll128:
        more = f" and {len(no_ll128) - 4} more" if len(no_ll128) > 4 else ""
        notes.append(
            f"LL128 is not offered for {', '.join(no_ll128[:4])}{more}: it corrupts data on links other than NVLink"
        )

    # NCCL's own algorithms, which take the time of the equal schedule
    for named in _cut(library):
        for protocol in _protocols(named.schedule, machine):
            label = f"nccl-{named.name}" + ("" if protocol == "Simple" else f"-{protocol}")
            options = (("algorithm", named.name), ("protocol", protocol.lower()))
            variant = Variant(named.schedule, protocol, 1, clock.nodes is not None, library=True)
            result.append(TunerCandidate(Algorithm(label, "nccl", None, protocol, 1, 1, options), (), clock, variant))
    return CandidateSet(tuple(_with_distinct_labels(result)), tuple(notes))


def measured_candidates(
    schedules: Sequence[NamedSchedule],
    measured: Sequence[Measurement],
    pairs: Sequence[tuple[str, int]] | None = None,
) -> CandidateSet:
    """Return every measured algorithm, with its schedule where it is one of `schedules` in one of `pairs`."""
    # each measurement with its schedule, where there is one and it has no times yet
    notes: list[str] = []
    schedules = _cut(schedules)
    result: list[TunerCandidate] = []
    used: set[tuple[int, str, int]] = set()
    unused = 0
    for one in measured:
        place = _place(one, schedules) if one.backend == OURS else None
        if place is None or place in used:
            label, divisor = one.label, 1
            if one.backend == OURS:
                label, divisor = one.label.replace(" ", "-"), one.divisor
            algorithm = Algorithm(label, one.backend, None, one.protocol, 1, divisor, one.options)
            result.append(TunerCandidate(algorithm, one.samples))
        elif pairs and place[1:] not in pairs:
            unused += 1
        else:
            used.add(place)
            result.append(TunerCandidate(_algorithm(schedules[place[0]], *place[1:]), one.samples))

    # schedules that nothing was measured of are no candidates
    timed = {place[0] for place in used}
    untimed = [named.name for k, named in enumerate(schedules) if k not in timed]
    if untimed:
        notes.append(f"not measured, so never chosen: {', '.join(untimed)}")
    if unused:
        notes.append(f"measured, but not asked for: {unused} more ways to run these schedules")
    return CandidateSet(tuple(_with_distinct_labels(result)), tuple(notes))


def _protocols(schedule: Schedule, machine: Machine | None) -> tuple[str, ...]:
    return ("Simple", "LL", "LL128") if nvlink(schedule, machine) else ("Simple", "LL")


def nvlink(schedule: Schedule, machine: Machine | None) -> bool:
    """Return True if every link that `schedule` uses is known to be NVLink: LL128 corrupts data on other links."""
    pairs = ((send.src, send.dst) for step in schedule.steps for send in step.unicast_sends if not send.local)
    return machine is not None and all(machine.kinds.get(pair) == {"nvlink"} for pair in pairs)


def _cut(schedules: Sequence[NamedSchedule]) -> list[NamedSchedule]:
    """Return the schedules as the lowering cuts them, so that chunks, sends and times are those of their programs."""
    return [named._replace(schedule=on_connections(named.schedule)) for named in schedules]


def _distinct(schedules: Sequence[NamedSchedule]) -> list[NamedSchedule]:
    result: list[NamedSchedule] = []
    for named in schedules:
        sends = (named.schedule.chunks, named.schedule.steps)
        if not any((one.schedule.chunks, one.schedule.steps) == sends for one in result):
            result.append(named)
    return result


def _place(one: Measurement, schedules: Sequence[NamedSchedule]) -> tuple[int, str, int] | None:
    """Return (index of the schedule, protocol, instances) of a measurement; None where it belongs to no schedule."""
    for k, (_, schedule, _) in enumerate(schedules):
        numbers = (len(schedule.steps), show(schedule.rounds_per_chunk))
        if not one.chunks or one.chunks % schedule.chunks or (one.steps, one.rounds_per_chunk) != numbers:
            continue
        # sizes agree: the program that the schedule lowers to decides
        instances = one.chunks // schedule.chunks
        try:
            program = lower(schedule, LoweringOptions(protocol=one.protocol, instances=instances))
        except VerificationError:
            raise
        except SynthError:
            continue
        if hashlib.sha256(canonical(program.to_json())).hexdigest() == one.fingerprint:
            return k, one.protocol, instances
    return None


def _algorithm(named: NamedSchedule, protocol: str, instances: int) -> Algorithm:
    divisor = named.schedule.chunks * instances * named.schedule.collective.buffer_units
    return Algorithm(named.name, OURS, named.schedule, protocol, instances, divisor)


def _with_distinct_labels(candidates: Sequence[TunerCandidate]) -> list[TunerCandidate]:
    """Return the candidates with protocol and instances in their labels, as in ``S3-R7-C6-LL-x2``; equal labels are
    numbered."""
    labels: set[str] = set()
    result = []
    for candidate in candidates:
        algorithm = candidate.algorithm
        label = algorithm.label
        if algorithm.backend == OURS:
            label += f"-{algorithm.protocol}" if algorithm.protocol != "Simple" else ""
            label += f"-x{algorithm.instances}" if algorithm.instances != 1 else ""
        base, n = label, 2
        while label in labels:
            label, n = f"{base}-{n}", n + 1
        labels.add(label)
        result.append(replace(candidate, algorithm=replace(algorithm, label=label)))
    return result
