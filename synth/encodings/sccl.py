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
"""

from __future__ import annotations

import time

from synth.encodings.decoding import assemble
from synth.errors import UsageError
from synth.model.outcome import Cost, Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem, Schedule
from synth.solvers.deadline import Budget
from synth.solvers.z3_integers import IntegerModel


def solve(problem: Problem, budget: Budget) -> Verdict:
    """Decide the problem: "unsat" is a proof.

    Combining collectives are answered on their reversal. Raises UsageError for those without one,
    MissingDependencyError without z3. Ctrl-C ends as ``Unknown("interrupted")``.
    """
    coll = problem.collective
    if coll.combining:
        if not coll.reversible:
            raise UsageError(f"SCCL's encoding copies; {coll.name} combines and is no reversal of a copying collective")
        verdict = solve(problem.reversed(), budget)
        if isinstance(verdict, Sat):
            schedule = verdict.schedule.reversed()
            return Sat(Schedule(problem.network, coll, problem.chunks, schedule.steps), verdict.cost)
        return verdict
    began, wall = time.process_time(), time.monotonic()
    model = IntegerModel("SCCL's encoding", budget.cpu_deadline(), budget.seed)
    formula = _Formula(model, problem)
    formula.require_transfers()
    formula.limit_loads()
    encoded = time.process_time()
    status, detail = model.check()
    cpu = time.process_time() - began
    cost = Cost(
        "sccl/z3", cpu, cpu, time.monotonic() - wall, {"encode": encoded - began, "solve": cpu - (encoded - began)}
    )
    if status == "unsat":
        return Unsat("refuted by z3 on SCCL's encoding", cost)
    if status != "sat":
        return Unknown(status, detail, cost)
    return Sat(assemble(problem, formula.sends_of_steps()), cost)


class _Formula:
    """The constraints C1 to C6.

    Attributes:
        start: the step after which a chunk is at a rank, by (chunk, rank).
        send: True where a chunk takes a route, by (chunk, route).
        chunks: (chunk, unit of data) of every chunk.
    """

    def __init__(self, model: IntegerModel, problem: Problem) -> None:
        self.model, self.problem = model, problem
        net, units = problem.network, problem.collective.units
        self.chunks = [(u * problem.chunks + i, u) for u in range(units) for i in range(problem.chunks)]
        self.start = {(c, n): model.integer(f"start_{c}_{n}") for c, _ in self.chunks for n in range(net.ranks)}
        self.send = {(c, r): model.boolean(f"send_{c}_{r}") for c, _ in self.chunks for r in range(len(net.routes))}

    def require_transfers(self) -> None:
        """Add C1 to C4."""
        model, start, send = self.model, self.start, self.send
        net, coll, steps = self.problem.network, self.problem.collective, self.problem.steps
        for c, u in self.chunks:
            for n in range(net.ranks):
                if n in coll.pre[u]:
                    model.add(start[c, n] == 0)
                    continue
                model.add(start[c, n] >= 1, start[c, n] <= (steps if n in coll.post[u] else steps + 1))
                received = model.exactly_one([send[c, r] for r in net.into[n]])
                model.add(received if n in coll.post[u] else model.implies(start[c, n] <= steps, received))
            for r, route in enumerate(net.routes):
                model.add(model.implies(send[c, r], start[c, route.src] < start[c, route.dst]))

    def limit_loads(self) -> None:
        """Add C5 and C6: for each step and bandwidth constraint a pseudo-Boolean sum for each possible number of
        rounds."""
        model, problem, start, send = self.model, self.problem, self.start, self.send
        net, steps = problem.network, problem.steps
        rounds = [model.integer(f"rounds_{s}") for s in range(1, steps + 1)]
        if problem.rounds != steps:
            model.add(*(r >= 1 for r in rounds), model.total(rounds) == problem.rounds)
        resources = [((r,), route.units) for r, route in enumerate(net.routes)]
        resources += [(cap.routes, cap.units) for cap in net.caps]
        for routes, units in resources:
            for s in range(1, steps + 1):
                sends = []
                for c, _ in self.chunks:
                    sends += [model.both(send[c, r], start[c, net.routes[r].dst] == s) for r in routes]
                if problem.rounds == steps:
                    model.add(model.at_most(sends, units))
                else:
                    for n in range(1, problem.rounds - steps + 2):  # every other step has a round at least
                        model.add(model.implies(rounds[s - 1] == n, model.at_most(sends, units * n)))

    def sends_of_steps(self) -> list[list[tuple[int, int]]]:
        """Return the (chunk, route) of the sends of each step, after a solution was found."""
        steps: list[list[tuple[int, int]]] = [[] for _ in range(self.problem.steps)]
        for (c, r), sent in self.send.items():
            step = self.model.value(self.start[c, self.problem.network.routes[r].dst])
            if self.model.is_true(sent) and step <= self.problem.steps:
                steps[step - 1].append((c, r))
        return steps
