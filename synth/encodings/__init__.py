"""Ways to turn a problem into a schedule, by name. Nothing is imported before it is asked for.

An *encoding* is a class with ``apply(problem) -> (Model, inverse)`` and ``invert(inverse, values) -> Schedule``, and
goes with a solver; an *engine* is a function ``(problem, budget) -> Verdict`` that needs none of the solvers below.
"""

from __future__ import annotations

from collections.abc import Mapping

# encodings: class; `quotient` is built with generators, the others with nothing
ENCODINGS: Mapping[str, str] = {
    "step": "synth.encodings.step:StepEncoding",
    "quotient": "synth.encodings.step:StepEncoding",
    "sccl": "synth.encodings.sccl:solve",
    "tree": "synth.encodings.trees.search:solve",
}

SUMMARIES: Mapping[str, str] = {
    "step": "Boolean, time-expanded, rounds variable; the default",
    "quotient": "step on the orbits of a symmetry group (quotient@0 the largest, quotient@1 the next, ...)",
    "sccl": "SCCL's own encoding (PPoPP 2021), in z3",
    "tree": "column generation over time-expanded trees, then CP-SAT",
    "cadical": "CaDiCaL 1.9.5, a SAT solver",
    "minicard": "MiniCard, a SAT solver with native cardinality constraints, the first on small problems",
    "z3": "z3's SAT core",
}

# encodings that solve by themselves
SOLVE_ALONE = ("sccl", "tree")
# other names of encodings
ALIASES: Mapping[str, str] = {"path": "sccl"}

# solver -> class
SOLVERS: Mapping[str, str] = {
    "cadical": "synth.solvers.python_sat:Cadical",
    "minicard": "synth.solvers.python_sat:MiniCard",
    "z3": "synth.solvers.z3_solvers:Z3Sat",
}

# what must be installed: name -> (module, command that installs it)
REQUIRES: Mapping[str, tuple[str, str]] = {
    "cadical": ("pysat.solvers", "pip install 'python-sat==1.9.dev17'"),
    "minicard": ("pysat.solvers", "pip install 'python-sat==1.9.dev17'"),
    "z3": ("z3", "pip install z3-solver"),
    "sccl": ("z3", "pip install z3-solver"),
    "tree": ("ortools.sat.python.cp_model", "pip install ortools"),
}
