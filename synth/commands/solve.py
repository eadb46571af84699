"""`synth solve` and `synth.solve`: one question (C, S, R), one answer."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace

from synth.commands.framework.declaration import command, function, option
from synth.commands.framework.output import emit
from synth.commands.framework.progress import progress
from synth.commands.framework.shared import (
    Changes,
    EngineOptions,
    Output,
    TaskOptions,
    chosen_collective,
    chosen_machine,
)
from synth.commands.framework.types import Positive
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import named_topology, workers
from synth.errors import InfeasibleError, UndecidedError, UsageError
from synth.model.outcome import Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem
from synth.pareto.events import Event, Listener
from synth.solvers.deadline import Budget, Deadline

MOST_STEPS, MOST_ASKED = 10_000, 100_000  # of one question; more chunks or rounds than that no engine decides
LEAST_SECONDS = 0.1  # wall seconds of a search after the bounds, at least


@dataclass(frozen=True)
class SolveQuestion(EngineOptions, TaskOptions):
    """The options of one question."""

    chunks: int = option(
        "--chunks", type=Positive(), metavar="C", help="Chunks of each part of the data.",
        doc="C, the chunks of each unit of data.",
    )  # fmt: skip
    steps: int = option("--steps", type=Positive(), metavar="S", help="Synchronous steps.", doc="S, synchronous steps.")
    rounds: int = option(
        "--rounds", type=Positive(), metavar="R", help="Rounds in all the steps together.",
        doc="R, of all steps together.",
    )  # fmt: skip
    _: KW_ONLY
    on_event: Listener | None = option(default=None, doc="called with each event of the search.")


@function(SolveQuestion)
def solve(question: SolveQuestion) -> Verdict:
    """Decide if a schedule with so many chunks, steps and rounds exists.

    With the encoding "auto" lower bounds come first. Allreduce, scan and other combining collectives that are no time
    reversal of one that copies have engines of their own, and take "auto" only.

    Returns
    -------
    `Sat` with a replayed schedule, `Unsat` (proved) with the reason, or `Unknown` with the reason.

    Raises
    ------
    UsageError for an unknown name, numbers below 1, or options that do not go together.

    Examples
    --------
    >>> import synth
    >>> synth.solve("ring:4", "allgather", chunks=2, steps=2, rounds=3).schedule
    <Schedule of allgather on ring:4: C=2, S=2, R=3, 24 sends>
    >>> synth.solve("ring:4", "allgather", chunks=2, steps=2, rounds=2).reason
    'C=2 in 2 steps needs at least 3 rounds, by a cut certificate'
    """
    from synth.checker.schedule import replay
    from synth.pareto import problem_bounds
    from synth.pareto.portfolio import portfolio
    from synth.solvers.pool import stop

    # Questions that make no sense are refused before anything is built.
    chunks, steps, rounds = question.chunks, question.steps, question.rounds
    asked = f"C={chunks} S={steps} R={rounds}"
    if rounds < steps:
        raise UsageError(f"{asked}: each step has at least one round, so R >= S")
    if steps > MOST_STEPS or max(chunks, rounds) > MOST_ASKED:
        most = f"at most {MOST_STEPS} steps and {MOST_ASKED} chunks and rounds can be asked for"
        raise UsageError(f"{asked}: {most}")
    network = named_topology(question.topology).network()
    task = task_of(question.collective, network.ranks, question.roots, question.sizes)
    problem = Problem(network, task, chunks, steps, rounds)
    direct = task.combining and not task.reversible
    encoding, solver = question.encoding, question.solver
    if direct and (encoding != "auto" or solver not in ("auto", "cadical")):
        raise UsageError(f"{task.name} has engines of its own, with cadical; remove --encoding and --solver")

    # The bounds, which decide at once; then the engines.
    deadline, said = Deadline.after(question.time_limit), None
    budget = Budget(deadline, seed=question.seed, jobs=workers(question.jobs), deterministic=question.deterministic)
    try:
        if encoding == "auto":
            said = problem_bounds.query_bounds(problem, budget)
            if said is not None and said.certificate is not None:
                return Unsat(said.reason)
        budget = replace(budget, deadline=deadline.at_least(LEAST_SECONDS))
        if direct:
            from synth.pareto.combining import point_query

            verdict = point_query.solve(problem, budget)
        else:
            listen = question.on_event
            tell = (lambda text: listen(Event("query", text, steps))) if listen else None
            verdict = portfolio.solve(problem, budget=budget, encoding=encoding, solver=solver, on_event=tell)
    finally:
        stop()
    if direct and isinstance(verdict, Unknown) and said is not None:
        verdict = replace(verdict, detail=f"no schedule found; the bounds say at least {said.least} rounds")
    if isinstance(verdict, Sat):
        replay.schedule(verdict.schedule)
    return verdict


@dataclass(frozen=True, kw_only=True)
class Solve(Output, Changes, SolveQuestion):
    """The options of `synth solve`."""


@command(Solve)
def solve_command(options: Solve) -> None:
    """Find a schedule of S steps and R rounds with C chunks, or prove that there is none.

    \b
    Example:
      synth solve --topo dgx1 --coll allgather --chunks 6 --steps 3 --rounds 7 -o s.json
    """
    from synth.view.frontier_text import WHY
    from synth.view.tables import schedule_report

    machine = chosen_machine(options)
    task = chosen_collective(options, machine)
    problem = f"{task.name} on {machine.name} with C={options.chunks}, S={options.steps}, R={options.rounds}"
    with progress(problem, options.time_limit) as listen:
        verdict = solve.of(replace(options, topology=machine, collective=task, on_event=listen))
    match verdict:
        case Sat(schedule=schedule):
            emit(schedule.to_json, lambda: schedule_report(schedule, verdict.cost, machine.labels), options)
        case Unsat():
            raise InfeasibleError(f"{problem}: {verdict.reason}")
        case Unknown():
            detail = f" ({verdict.detail})" if verdict.detail else ""
            reason = WHY.get(verdict.reason, verdict.reason)
            raise UndecidedError(f"{problem}: undecided, {reason}{detail}; raise --time-limit")
