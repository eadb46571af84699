"""The `sccl` encoding: SCCL's own, in z3. The oracle of the tests, and the yardstick of the benchmark.

As in Cai et al., "Synthesizing Optimal Collective Algorithms", PPoPP 2021, section 3.4: an integer ``start[c, n]``, the
step after which chunk c is at rank n; a Boolean ``send[c, route]``; an integer ``rounds[s]`` a step:

    C1  start = 0 for what the precondition says
    C2  start <= S for what the postcondition demands
    C3  what arrives (start <= S) and was not there is received exactly once
    C4  a send goes from earlier to later: send[c, u -> v] implies start[c, u] < start[c, v]
    C5  for each step s and each bandwidth constraint (routes L, b): the number of sends on L whose start at the
        receiver is s is at most b * rounds[s]
    C6  the rounds sum to R, each at least 1

C5 has the fastest form known for what is asked. With R > S it is SCCL's own, as published in microsoft/msccl-tools,
`msccl/path_encoding.py`: for each number of rounds i that a step can have, ``rounds[s] = i`` implies a pseudo-Boolean
sum of at most b * i; a linear sum against ``b * rounds[s]`` takes z3 up to 10 times as long. With R = S every step has
one round, so that the pseudo-Boolean sum stands alone, no slower than theirs. C1 to C3 say a little more than there,
which is faster on most instances: a start lies in 0..S + 1, and what the postcondition demands is received, whatever
its start.

Two restrictions, after those that msccl-tools offers and narrower: `pipeline` = p starts a new run of the schedule
every p steps, so that steps s, s + p, s + 2p, ... share the bandwidth of one (here with R = S alone); `extra_memory` =
m lets at most m chunks pass through a rank that neither starts with nor needs them (there m places, which one chunk
after another may use).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from synth.encodings.decoding import assemble
from synth.errors import UsageError
from synth.model.outcome import Budget, Cost, Sat, Unknown, Unsat, Verdict
from synth.model.registry import need
from synth.model.schedule import Problem, Schedule
from synth.solvers.z3_sat import reason


@dataclass(frozen=True)
class _Restrictions:
    pipeline: int | None
    extra_memory: int | None


def solve(problem: Problem, budget: Budget, *, pipeline: int | None = None, extra_memory: int | None = None) -> Verdict:
    """Decide the problem: "unsat" is a proof, under the restrictions if there are any.

    `pipeline`: a new run starts every so many steps. `extra_memory`: chunks a rank may relay. None: no restriction.
    Combining collectives are answered on their reversal. Raises UsageError for those without one, and for pipelining
    with more rounds than steps; MissingDependencyError without z3. Ctrl-C ends as ``Unknown("interrupted")``.
    """
    coll = problem.collective
    if coll.combining:
        if not coll.reversible:
            raise UsageError(f"SCCL's encoding copies; {coll.name} combines and is no reversal of a copying collective")
        verdict = solve(problem.reversed(), budget, pipeline=pipeline, extra_memory=extra_memory)
        if isinstance(verdict, Sat):
            schedule = verdict.schedule.reversed()
            return Sat(Schedule(problem.network, coll, problem.chunks, schedule.steps), verdict.cost)
        return verdict
    if pipeline is not None and (problem.rounds != problem.steps or pipeline < 1):
        raise UsageError(
            f"pipelining needs one round a step and a stride of at least 1; got S={problem.steps}, R={problem.rounds}"
        )
    z3 = need("z3", "SCCL's encoding", "pip install z3-solver")
    began, wall = time.process_time(), time.monotonic()
    context = z3.Context()  # a fresh one: z3's limits and names are per context
    solver = z3.Solver(ctx=context)  # about twice as fast here as SolverFor("QF_LIA")
    if budget.seconds is not None:
        solver.set("timeout", max(1, int(budget.seconds * 1000)))
    solver.set("random_seed", budget.seed)
    start, send = _encode(z3, context, solver, problem, _Restrictions(pipeline, extra_memory))
    encoded = time.process_time()
    found = str(solver.check())
    cpu = time.process_time() - began
    cost = Cost(
        "sccl/z3", cpu, cpu, time.monotonic() - wall, {"encode": encoded - began, "solve": cpu - (encoded - began)}
    )
    if found == "unsat":
        return Unsat("refuted by z3 on SCCL's encoding" + _under(pipeline, extra_memory), cost)
    if found != "sat":
        return Unknown(*reason(solver.reason_unknown()), cost)
    values = solver.model()
    steps: list[list[tuple[int, int]]] = [[] for _ in range(problem.steps)]
    for (c, r), sent in send.items():
        arrives = values.eval(start[c, problem.network.routes[r].dst], model_completion=True).as_long()
        if z3.is_true(values.eval(sent, model_completion=True)) and arrives <= problem.steps:
            steps[arrives - 1].append((c, r))
    return Sat(assemble(problem, steps), cost)


def _under(pipeline: int | None, extra_memory: int | None) -> str:
    limits = [f"{extra_memory} relayed chunks a rank at most"] if extra_memory is not None else []
    limits += [f"a new run every {pipeline} steps"] if pipeline is not None else []
    return f", with {' and '.join(limits)}" if limits else ""


def _encode(z3: Any, context: Any, solver: Any, problem: Problem, restrictions: _Restrictions) -> tuple[dict, dict]:
    """Add C1 to C6 and the restrictions; return ``start`` by (chunk, rank) and ``send`` by (chunk, route)."""
    net, coll, steps = problem.network, problem.collective, problem.steps
    chunks = [(u * problem.chunks + i, u) for u in range(coll.units) for i in range(problem.chunks)]
    start = {(c, n): z3.Int(f"start_{c}_{n}", context) for c, _ in chunks for n in range(net.ranks)}
    send = {(c, r): z3.Bool(f"send_{c}_{r}", context) for c, _ in chunks for r in range(len(net.routes))}
    for c, u in chunks:
        for n in range(net.ranks):
            if n in coll.pre[u]:
                solver.add(start[c, n] == 0)
                continue
            solver.add(start[c, n] >= 1, start[c, n] <= (steps if n in coll.post[u] else steps + 1))
            into = [(send[c, r], 1) for r in net.into[n]]
            received = z3.PbEq(into, 1) if into else z3.BoolVal(False, context)
            solver.add(received if n in coll.post[u] else z3.Implies(start[c, n] <= steps, received))
        for r, route in enumerate(net.routes):
            solver.add(z3.Implies(send[c, r], start[c, route.src] < start[c, route.dst]))
    _loads(z3, context, solver, problem, restrictions, start, send)
    if restrictions.extra_memory is not None:
        for n in range(net.ranks):
            passing = [(start[c, n] <= steps, 1) for c, u in chunks if n not in coll.pre[u] and n not in coll.post[u]]
            if len(passing) > restrictions.extra_memory:
                solver.add(z3.PbLe(passing, restrictions.extra_memory))
    return start, send


def _loads(
    z3: Any, context: Any, solver: Any, problem: Problem, restrictions: _Restrictions, start: dict, send: dict
) -> None:
    """Add C5 and C6: for each step and bandwidth constraint a pseudo-Boolean sum for each possible number of rounds."""
    net, steps = problem.network, problem.steps
    rounds = [z3.Int(f"rounds_{s}", context) for s in range(1, steps + 1)]
    if problem.rounds != steps:
        solver.add(*(r >= 1 for r in rounds), z3.Sum(rounds) == problem.rounds)
    total = problem.collective.units * problem.chunks
    stride = restrictions.pipeline or steps
    resources = [((r,), route.units) for r, route in enumerate(net.routes)]
    resources += [(cap.routes, cap.units) for cap in net.caps]
    for routes, units in resources:
        for first in range(1, min(stride, steps) + 1):
            sends = []
            for s in range(first, steps + 1, stride):
                for c in range(total):
                    sends += [(z3.And(send[c, r], start[c, net.routes[r].dst] == s), 1) for r in routes]
            if problem.rounds == steps:
                solver.add(z3.PbLe(sends, units))
            else:
                for n in range(1, problem.rounds - steps + 2):  # every other step has a round at least
                    solver.add(z3.Implies(rounds[first - 1] == n, z3.PbLe(sends, units * n)))
