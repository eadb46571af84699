"""Programs of a plan's algorithms for one runtime: lowered, checked against its limits and analysed, or the reason
against them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm

from synth.errors import SynthError, VerificationError
from synth.export import EXPORTERS, exported_files
from synth.export.plans.size_ranges import Offer, SizeShares, covers_range, judged_sizes, shares
from synth.export.request import Target
from synth.model.registry import find
from synth.model.topology import Network
from synth.model.tuning_plan import OURS, Algorithm, Plan, Range, Table
from synth.program import plan_limits
from synth.program.program import Program

NCCL = "nccl"
# the target of the schedules of one network, with the machine's ranks, links and kinds of links
TargetOfNetwork = Callable[[Network], Target]


@dataclass(frozen=True)
class TablePrograms:
    """One table of the plan for one runtime.

    `shares`: the algorithm of each range of sizes. `programs[i]`: (suffix of the file, program) of each program of
    algorithm i. `targets[i]`: the target with which they are exported.
    """

    shares: SizeShares
    programs: Mapping[int, Sequence[tuple[str, Program]]]
    targets: Mapping[int, Target]


def table(plan: Plan, one: Table, placed: TargetOfNetwork, few: bool = False) -> TablePrograms:
    """Return the table `one` of `plan` for one runtime: the programs that the runtime takes, and their sizes.

    NCCL's own algorithms are offered for every size without a program, because they run at sizes that no file serves.
    An algorithm that the runtime does not take is refused with the reason. Those that would serve no size are left out,
    unless files are `few`, so that any may have to stand in for another. `placed(network)`: the target of schedules on
    that network. Raises UsageError for a wrong request, VerificationError for a wrong schedule.
    """
    offers = {}
    refused = {}
    programs = {}
    targets = {}

    def consider(i: int) -> None:
        algorithm = plan.algorithms[i]
        if algorithm.backend == NCCL:
            offers[i] = Offer(0, None, algorithm.divisor * one.element)
        elif algorithm.backend != OURS:
            refused[i] = f"it is {algorithm.backend}'s, which no file for this runtime can name"
        elif algorithm.schedule is None:
            refused[i] = "the plan knows it by name only, without a schedule"
        else:
            target = placed(algorithm.schedule.network)
            targets[i] = replace(target, network=algorithm.schedule.network)
            try:
                programs[i] = _programs(algorithm, target)
                # what all of its programs may serve; MSCCL++ needs chunks of whole 16 bytes
                made = [program for _, program in programs[i]]
                chunk = plan_limits.ALIGNMENT if made[0].one_sided else one.element
                tops = [program.max_bytes for program in made if program.max_bytes is not None]
                tops += map(plan_limits.largest_size, made if made[0].one_sided else ())
                step = lcm(algorithm.divisor * one.element, *(program.loop_chunks * chunk for program in made))
                offers[i] = Offer(max(program.min_bytes for program in made), min(tops, default=None), step)
            except VerificationError:
                raise
            except SynthError as error:
                refused[i] = str(error)

    for row in one.ranges:
        sizes = judged_sizes(one, row)
        for place, i in enumerate(row.order):
            # Lowering is dear: what divides no judged size of the range is not tried.
            step = plan.algorithms[i].divisor * one.element
            divides = not sizes or any(size % step == 0 for size in sizes)
            if i not in offers and i not in refused and (few or divides):
                consider(i)
            before = {k: offers[k] for k in row.order[: place + 1] if k in offers}
            if not few and _served(plan, row, sizes, before):
                break
    return TablePrograms(shares(one, offers, refused), programs, targets)


def _served(plan: Plan, row: Range, sizes: Sequence[int], before: Mapping[int, Offer]) -> bool:
    """Return True if no algorithm of `row` serves a size after those of `before`, which are the first in its order.

    One of them, a schedule where `sizes` were judged, covers the range, and each judged size there has one that admits
    it. The time of a schedule is printed beside the library's.
    """
    useful = []
    for i, offer in before.items():
        if not sizes or (plan.algorithms[i].backend == OURS and any(map(offer.admits, sizes))):
            useful.append(offer)
    admitted = {size for offer in useful for size in filter(offer.admits, sizes)}
    return len(admitted) == len(sizes) and any(covers_range(row, offer) for offer in useful)


def _programs(algorithm: Algorithm, target: Target) -> Sequence[tuple[str, Program]]:
    """Return (suffix, program) of each file of a schedule; an MSCCL++ plan is for calls in place or for others."""
    assert algorithm.schedule is not None
    request = replace(target.request, protocol=algorithm.protocol, instances=algorithm.instances)
    plans = request.runtime == "mscclpp"
    # A plan of MSCCL++ is for one kind of call, so both are made; one of them is enough.
    found, errors = [], []
    both = plans and request.in_place in (None, "both")
    for place in ("out", "in") if both else (request.in_place,):
        wanted = replace(target, request=replace(request, in_place=place))
        try:
            program = exported_files.program_for_runtime(algorithm.schedule, wanted)
            made = []
            for suffix, one in exported_files.program_variants(program, wanted):
                find("exporters", request.to, EXPORTERS)().emit(one, target)
                end = "-in-place" if plans and place == "in" else ""
                made.append((suffix or end, one))
            exported_files.check_program(program, wanted)
            found += made
        except VerificationError:
            raise
        except SynthError as error:
            errors.append(error)
    if not found:
        raise errors[0]
    return found
