"""Lowering: every collective's program does what the collective says, however its blocks interleave."""

import pytest
from symbolic import play

from synth import api
from synth.program.lower import lower

DGX1 = ["broadcast", "reduce", "scatter", "gather", "allgather", "reduce-scatter", "allreduce", "alltoall", "scan"]


def plays(program):
    placed = {"out": [False], "in": [True], "both": [False, True]}[program.in_place]
    most = max((op.count for gpu in program.gpus for block in gpu.blocks for op in block.ops), default=1)
    for in_place in placed:
        for seed, whole in enumerate(sorted({1, 2, most})):
            play(program, in_place=in_place, whole=whole, depth=8 if program.protocol != "Simple" else 2, seed=seed)


@pytest.mark.parametrize("name", DGX1)
def test_dgx1(name):
    frontier = api.pareto("dgx1", name, max_steps=3)
    for point in frontier.points:
        for runtime in ("synth", "rccl"):
            for instances in (1, 2):
                plays(lower(point.schedule, runtime=runtime, instances=instances))
