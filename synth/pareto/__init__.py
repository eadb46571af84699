"""Frontiers: the guided sweep, the blind one, the race of engines. Callable: `synth.pareto("dgx1", "allgather")`."""

from synth.callmodule import make_callable

make_callable(__name__)
