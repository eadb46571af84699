"""The collectives that methods for large machines know, and the schema of their frontiers."""

SCHEMA = "synth.large/1"
COLLECTIVES = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")
ROOTED = ("broadcast", "reduce")
