"""z3 (de Moura and Bjørner, "Z3: an efficient SMT solver", TACAS 2008): its SAT solver on a CNF, and its integers and
sums of Booleans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from synth.errors import MissingDependencyError
from synth.model.outcome import Why
from synth.solvers.boolean_model import Answer, Model
from synth.solvers.deadline import Deadline

try:
    import z3
except ImportError:
    z3 = None


def reason(text: str) -> tuple[Literal["time", "memory", "interrupted", "gave-up"], str]:
    """Return (reason, `text`) for `text`, z3's words for an answer "unknown". z3 swallows Ctrl-C and answers
    "unknown"."""
    known: Mapping[str, Literal["time", "memory", "interrupted"]] = {
        "timeout": "time", "memout": "memory", "max. memory exceeded": "memory", "out of memory": "memory",
        "canceled": "interrupted", "interrupted": "interrupted", "interrupted from keyboard": "interrupted",
    }  # fmt: skip
    return known.get(text.lower(), "gave-up"), text


@dataclass(frozen=True)
class Z3Sat:
    """z3's SAT solver, in a new context for each model. `conflicts`: their maximum in a search (None: no limit)."""

    status: ClassVar[Mapping[str, Literal["sat", "unsat"]]] = {"sat": "sat", "unsat": "unsat"}

    seed: int = 0
    conflicts: int | None = None

    def solve(self, model: Model) -> Answer:
        """Decide the model. Raises MissingDependencyError without z3."""
        if z3 is None:
            raise MissingDependencyError("solver z3 needs z3-solver; run: pip install z3-solver")
        if [] in model.clauses:
            return Answer("unsat")
        variables, clauses = model.cnf()
        context = z3.Context()
        solver = z3.Then("simplify", "sat", ctx=context).solver()
        if self.seed:
            solver.set("random_seed", self.seed)
        if self.conflicts is not None:
            solver.set("max_conflicts", self.conflicts)
        lines = [" ".join(map(str, clause)) + " 0\n" for clause in clauses]
        solver.from_string(f"p cnf {variables} {len(clauses)}\n" + "".join(lines))
        status = str(solver.check())
        if status not in self.status:
            why, text = reason(solver.reason_unknown())
            return Answer(why, detail="conflicts" if "conflicts" in text else text)
        if status == "unsat":
            return Answer("unsat")
        values = [False] * (variables + 1)
        solution = solver.model()
        for symbol in solution.decls():
            values[int(symbol.name()[2:])] = z3.is_true(solution[symbol])
        return Answer("sat", values)


class IntegerModel:
    """A set of constraints in a z3 context of its own, and one solver for all questions about it.

    Variables are z3's expressions: ``==``, ``<=``, ``<``, ``+`` and ``*`` combine them.
    """

    def __init__(self, purpose: str, seed: int, memory: int | None = None) -> None:
        """Raise MissingDependencyError without z3, for `purpose`. `memory`: the most bytes of z3."""
        if z3 is None:
            raise MissingDependencyError(f"{purpose} needs z3, which is not installed: pip install z3-solver")
        self._z3: Any = z3
        self._context = self._z3.Context()  # limits and names are per context
        self._solver = self._z3.Solver(ctx=self._context)  # about twice as fast as SolverFor("QF_LIA") on SCCL's model
        self._solver.set("random_seed", seed)
        if memory is not None:
            self._solver.set("max_memory", max(1, memory >> 20))

    @contextmanager
    def question(self) -> Iterator[None]:
        """Take the constraints that are added in this block back at its end. What z3 learned from others it keeps."""
        self._solver.push()
        try:
            yield
        finally:
            self._solver.pop()

    def integer(self, name: str) -> Any:
        """Return a new integer variable."""
        return self._z3.Int(name, self._context)

    def boolean(self, name: str) -> Any:
        """Return a new Boolean variable."""
        return self._z3.Bool(name, self._context)

    def add(self, *constraints: Any) -> None:
        """Require all `constraints`."""
        self._solver.add(*constraints)

    def implies(self, condition: Any, conclusion: Any) -> Any:
        """Return the constraint that `conclusion` holds where `condition` does."""
        return self._z3.Implies(condition, conclusion)

    def both(self, first: Any, second: Any) -> Any:
        """Return the conjunction of two Booleans."""
        return self._z3.And(first, second)

    def total(self, integers: Sequence[Any]) -> Any:
        """Return the sum of integers."""
        return self._z3.Sum(integers)

    def at_most(self, booleans: Sequence[Any], k: int) -> Any:
        """Return the constraint that at most `k` of `booleans` are true."""
        return self._z3.PbLe([(x, 1) for x in booleans], k)

    def exactly_one(self, booleans: Sequence[Any]) -> Any:
        """Return the constraint that exactly one of `booleans` is true, which is false without any."""
        if not booleans:
            return self._z3.BoolVal(False, self._context)
        return self._z3.PbEq([(x, 1) for x in booleans], 1)

    def check(self, deadline: Deadline, work: int | None = None) -> tuple[Literal["sat", "unsat"] | Why, str]:
        """Return ("sat", ""), ("unsat", ""), or the reason why the constraints are undecided with z3's words for it.

        `work`: the most of z3's own steps ("rlimit"), which end a search on every machine at the same place.
        """
        if deadline.limited:
            self._solver.set("timeout", max(1, int(deadline.remaining() * 1000)))
        if work is not None:
            self._solver.set("rlimit", work)
            self._solver.set("ctrl_c", False)  # Python raises it after the call, which is short
        status = str(self._solver.check())
        if status == "sat":
            self._values = self._solver.model()
            return "sat", ""
        if status == "unsat":
            return "unsat", ""
        why, text = reason(self._solver.reason_unknown())
        # z3 calls the end of its steps "canceled", too
        return ("gave-up" if why == "interrupted" and work is not None else why), text

    def is_true(self, boolean: Any) -> bool:
        """Return the value of a Boolean after `check` said "sat"."""
        return self._z3.is_true(self._values.eval(boolean, model_completion=True))

    def value(self, integer: Any) -> int:
        """Return the value of an integer after `check` said "sat"."""
        return self._values.eval(integer, model_completion=True).as_long()
