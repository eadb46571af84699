"""A ring allreduce one way round, as msccl-tools has it: `synth compile bench/ring_program.py --topo ring:64`."""

from synth.language import RankGroup, algorithm


@algorithm("allreduce")
def one_way_ring(group: RankGroup) -> None:
    """Sum each rank's part once round the ring, then pass the sum round once."""
    for i in group.ranks:
        data = group.input((i + 1) % group.size).part(i, group.size)
        for k in range(2, group.size + 1):
            data = group.input((i + k) % group.size).part(i, group.size).add(data)
        for k in range(1, group.size):
            data = data.to((i + k) % group.size)
