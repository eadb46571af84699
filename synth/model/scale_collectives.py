"""The collectives that methods for large machines know, and the schema of their frontiers."""

SCHEMA = "synth.large/1"
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
ROOTED = ("broadcast", "reduce")


def sends_per_chunk(collective: str, ranks: int) -> int:
    """Return the least number of sends for each chunk of a unit: every rank receives it, and a sum has every input."""
    pairs = {"allgather": ranks, "reduce-scatter": ranks, "alltoall": ranks, "allreduce": 2}
    return pairs.get(collective, 1) * (ranks - 1)
