"""The exact sweep for collectives that combine: allreduce, reduce, reduce-scatter, scan."""
