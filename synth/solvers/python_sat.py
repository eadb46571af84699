"""CaDiCaL, its proofs, and MiniCard, through python-sat (Ignatiev, Morgado and Marques-Silva, "PySAT", SAT 2018).

CaDiCaL 1.9.5 (Biere et al., "CaDiCaL 2.0", CAV 2024) is the fastest here on the CNF. MiniCard (Liffiton and Maglalang,
"A cardinality solver: more expressive constraints for free", SAT 2012) takes cardinality constraints as they are, so
that nothing is expanded into clauses, which would be most of the work on small problems.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from synth.errors import MissingDependencyError, SynthError
from synth.solvers.boolean_model import Answer, Count, Model

try:
    import pysolvers
    from pysat.solvers import Cadical195, Minicard
except ImportError:
    pysolvers = Cadical195 = Minicard = None

# Approximate rates of a core of a few GHz, by which counters become seconds.
CLAUSES_PER_SECOND, PROPAGATIONS_PER_SECOND = 1e6, 6e6


@dataclass(frozen=True)
class Cadical:
    """CaDiCaL on the clauses of a model. `conflicts`: maximum number of conflicts of a search (None: until done)."""

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decide the model. Only the end of the process interrupts it. Raises MissingDependencyError without
        python-sat."""
        if Cadical195 is None:
            raise _missing("solver cadical")
        if [] in model.clauses:
            return Answer("unsat")
        variables, clauses = model.cnf()
        with Cadical195() as solver:
            if self.seed:
                solver.configure({"seed": self.seed})
            for clause in clauses:
                solver.add_clause(clause)
            answer = _search(solver, variables, self.conflicts)
            propagations = (solver.accum_stats() or {}).get("propagations", 0)
        work = len(clauses) / CLAUSES_PER_SECOND + propagations / PROPAGATIONS_PER_SECOND
        return replace(answer, work=work)


@dataclass(frozen=True)
class MiniCard:
    """MiniCard on the clauses of a model and its counts as they are. `conflicts`: as in `Cadical`."""

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decide the model. Only the end of the process interrupts it. Raises MissingDependencyError without
        python-sat."""
        if Minicard is None:
            raise _missing("solver minicard")
        if [] in model.clauses:
            return Answer("unsat")

        # sums of distinct literals: one that counts twice gets a copy, a new variable that is true if it is
        clauses, variables = list(model.clauses), model.variables
        sums: list[tuple[list[int], int]] = []
        for count in model.counts:
            literals, copies = _distinct(count, variables)
            variables += len(copies)
            clauses += copies
            sums.append(literals)
        with Minicard() as solver:
            for clause in clauses:
                solver.add_clause(clause)
            for literals, limit in sums:
                if len(literals) > limit:
                    solver.add_atmost(literals, limit)
            answer = _search(solver, variables, self.conflicts)
        return replace(answer, values=answer.values[: model.variables + 1])


def _distinct(count: Count, variables: int) -> tuple[tuple[list[int], int], list[list[int]]]:
    """Return distinct literals of which at most so many are true where ``literals - scale * levels <= scale``.

    And the clauses that make copies of literals, the variables after `variables`. There are no coefficients: level by
    level, `scale` copies of a negated level stand for its coefficient.
    """
    copies: list[list[int]] = []

    def copy(literal: int) -> int:
        copies.append([-literal, variables + len(copies) + 1])
        return variables + len(copies)

    scale, seen = count.scale, set[int]()
    literals: list[int] = []
    for x in count.literals:
        literals.append(copy(x) if x in seen else x)
        seen.add(x)
    levels = []
    if scale:
        levels = [-x for x in count.levels]
    for _ in range(scale - 1):
        levels += [copy(-x) for x in count.levels]
    return (literals + levels, scale + len(levels)), copies


def refute(clauses: Sequence[Sequence[int]]) -> list[str] | None:
    """Return LRAT lines that refute `clauses` (numbered from 1), or None where they are satisfiable.

    Of CaDiCaL's steps only those are left that the empty clause depends on, with consecutive numbers. CaDiCaL writes
    FRAT (Baek, Carneiro and Heule, "A flexible proof format for SAT solver-elaborator communication", LMCS 2022): it
    names each clause as it is read, which LRAT alone does not. Raises MissingDependencyError without python-sat, and
    SynthError for a proof with gaps.
    """
    if pysolvers is None:
        raise _missing("a proof")
    with tempfile.TemporaryFile() as file:
        solver = pysolvers.cadical195_new()
        pysolvers.cadical195_set(solver, "frat", 1)
        pysolvers.cadical195_set(solver, "binary", 0)
        trace = pysolvers.cadical195_tracepr(solver, file)
        for clause in clauses:
            pysolvers.cadical195_add_cl(solver, list(clause))
        satisfiable = pysolvers.cadical195_solve(solver, [], 0)
        pysolvers.flushpr(trace)
        os.lseek(file.fileno(), 0, os.SEEK_SET)
        steps = file.read().decode("ascii").splitlines()
        pysolvers.cadical195_del(solver, file)
    if satisfiable:
        return None

    # the number of each original clause, and literals and hints of each lemma, up to the empty one
    number: dict[int, int] = {}
    lemmas: dict[int, tuple[list[str], list[int]]] = {}
    last = None
    for step in steps:
        words = step.split()
        if words[:1] == ["o"]:
            number[int(words[1])] = len(number) + 1
        elif words[:1] == ["a"]:
            if "l" not in words:
                raise SynthError("CaDiCaL wrote a proof step without hints; try another seed or no proof")
            cut = words.index("l")
            last = int(words[1])
            lemmas[last] = words[2 : cut - 1], [int(x) for x in words[cut + 1 : -1]]
            if cut == 3:
                break
    if last is None or lemmas[last][0]:
        raise SynthError("CaDiCaL's proof does not end with the empty clause")

    # the lemmas that the empty clause depends on
    needed, stack = set(), [last]
    while stack:
        lemma = stack.pop()
        if lemma in lemmas and lemma not in needed:
            needed.add(lemma)
            stack.extend(lemmas[lemma][1])
    lines: list[str] = []
    for lemma, (literals, hints) in lemmas.items():
        if lemma in needed:
            number[lemma] = len(clauses) + len(lines) + 1
            names = [str(number[h]) for h in hints]
            lines.append(" ".join([str(number[lemma]), *literals, "0", *names, "0"]))
    return lines


def _search(solver: Any, variables: int, conflicts: int | None) -> Answer:
    """Decide the formula that `solver` holds over `variables` variables."""
    if conflicts is None:
        found = solver.solve()
    else:
        solver.conf_budget(conflicts)
        found = solver.solve_limited()
    if found is None:
        return Answer("gave-up", detail="conflicts")
    if not found:
        return Answer("unsat")
    values = [False] * (variables + 1)
    for literal in solver.get_model() or ():
        if literal > 0:
            values[literal] = True
    return Answer("sat", values)


def _missing(purpose: str) -> MissingDependencyError:
    """Return the error that python-sat is not installed, with the command that installs it."""
    return MissingDependencyError(f"{purpose} needs python-sat; run: pip install 'python-sat==1.9.dev17'")
