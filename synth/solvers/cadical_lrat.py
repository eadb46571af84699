"""Refutations by CaDiCaL as LRAT steps with consecutive numbers, reduced to those that the empty clause depends on."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from synth.errors import SynthError
from synth.solvers.python_sat import python_sat_missing

try:
    import pysolvers
except ImportError:
    pysolvers = None


def refute(clauses: Sequence[Sequence[int]]) -> list[str] | None:
    """Return LRAT lines that refute `clauses` (numbered from 1), or None where they are satisfiable.

    CaDiCaL writes FRAT (Baek, Carneiro and Heule, "A flexible proof format for SAT solver-elaborator communication",
    LMCS 2022): it names each clause as it is read, which LRAT alone does not. Raises MissingDependencyError without
    python-sat.
    """
    if pysolvers is None:
        raise python_sat_missing("a proof")
    with tempfile.TemporaryFile() as file:
        solver = pysolvers.cadical195_new()
        pysolvers.cadical195_set(solver, "frat", 1)
        pysolvers.cadical195_set(solver, "binary", 0)
        trace = pysolvers.cadical195_tracepr(solver, file)
        for clause in clauses:
            pysolvers.cadical195_add_cl(solver, list(clause))
        if pysolvers.cadical195_solve(solver, [], 0):
            pysolvers.cadical195_del(solver, file)
            return None
        pysolvers.flushpr(trace)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        steps = file.read().decode("ascii").splitlines()
        pysolvers.cadical195_del(solver, file)
    return _trimmed(steps, len(clauses))


def _trimmed(steps: Sequence[str], originals: int) -> list[str]:
    """Return the LRAT lines of the lemmas that the empty clause depends on, numbered after `originals` clauses."""
    name: dict[int, int] = {}
    lemmas: dict[int, tuple[list[str], list[int]]] = {}
    last = None
    read = 0
    for step in steps:
        words = step.split()
        if not words:
            continue
        if words[0] == "o":
            read += 1
            name[int(words[1])] = read
        elif words[0] == "a":
            if "l" not in words:
                raise SynthError("CaDiCaL wrote a proof step without hints; try another seed or no proof")
            cut = words.index("l")
            last = int(words[1])
            lemmas[last] = words[2 : cut - 1], [int(x) for x in words[cut + 1 : -1]]
            if cut == 3:
                break
    if last is None or lemmas[last][0]:
        raise SynthError("CaDiCaL's proof does not end with the empty clause")
    needed, stack = set(), [last]
    while stack:
        lemma = stack.pop()
        if lemma in lemmas and lemma not in needed:
            needed.add(lemma)
            stack.extend(lemmas[lemma][1])
    lines = []
    for number, lemma in enumerate((x for x in lemmas if x in needed), originals + 1):
        literals, hints = lemmas[lemma]
        name[lemma] = number
        lines.append(" ".join([str(number), *literals, "0", *(str(name[h]) for h in hints), "0"]))
    return lines
