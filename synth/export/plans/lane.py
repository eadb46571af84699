"""A plan as the backend `synth` of torch takes it: the document itself, whose schedules become programs in the job."""

from __future__ import annotations

from synth.errors import SynthError, VerificationError
from synth.export.plans.size_ranges import Offer, SizeShares, shares
from synth.model.schedule import Schedule
from synth.model.sends.bitwise_equality import same_bits
from synth.model.tuning_plan import OURS, Plan, Range, Table
from synth.program import checked_lowering
from synth.program.lowering_options import LoweringOptions
from synth.program.program import Program

IN_PLACE = ("allreduce", "broadcast", "reduce")  # one tensor is input and output
MOST = 3  # algorithms of a range that a job compares
BLOCKS = 32  # thread blocks of a rank, at most


def candidates(plan: Plan, row: Range) -> list[int]:
    """Return the places of the algorithms that a job compares with its library at the sizes of `row`, the best first.

    A library's own takes the range where its times are measured or imported; those of a model say nothing of the
    library inside a job, so the schedules after it are compared as well.
    """
    found = []
    for i in row.order:
        if plan.algorithms[i].backend == OURS:
            found.append(i)
        elif plan.source != "model":
            break
    return found[:MOST]


def program(schedule: Schedule, options: LoweringOptions) -> Program:
    """Return the program of a schedule.

    Raises SynthError for one that no job runs: of too many blocks, or one whose ranks may end with different bits, from
    which copies of a model would drift apart.
    """
    if not same_bits(schedule):
        raise SynthError("its ranks may end with different bits")
    made = checked_lowering.lower(schedule, options)
    blocks = max(len(gpu.blocks) for gpu in made.gpus)
    if blocks > BLOCKS:
        raise SynthError(f"a rank has {blocks} thread blocks, and a job runs at most {BLOCKS}")
    return made


def table(plan: Plan, one: Table) -> tuple[SizeShares, dict[int, Program]]:
    """Return the sizes that each schedule of a table serves in a job, and its program by place.

    Data that its chunks do not divide are padded. Raises VerificationError for a wrong schedule.
    """
    made: dict[int, Program] = {}
    refused: dict[int, str] = {}
    for row in one.ranges:
        for i in candidates(plan, row):
            algorithm = plan.algorithms[i]
            if i in made or i in refused or algorithm.schedule is None:
                continue
            try:
                made[i] = program(algorithm.schedule, LoweringOptions(instances=algorithm.instances))
            except VerificationError:
                raise
            except SynthError as error:
                refused[i] = str(error)
    return shares(one, dict.fromkeys(made, Offer(0, None, one.element)), refused), made
