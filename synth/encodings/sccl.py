"""The `sccl` encoding: SCCL's own, in z3. The oracle of the tests, of `--cross-check` and of SCCL's sweep.

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
from contextlib import nullcontext
from typing import Any

from synth.encodings.decoding import assemble
from synth.errors import UsageError
from synth.model.collective import Collective
from synth.model.outcome import Cost, Sat, Unknown, Unsat, Verdict
from synth.model.schedule import Problem
from synth.model.topology import Network
from synth.solvers.deadline import NEVER, Budget, Deadline
from synth.solvers.z3_solvers import IntegerModel


def solve(problem: Problem, budget: Budget) -> Verdict:
    """Decide the problem: "unsat" is a proof.

    Combining collectives are answered on their reversal. Raises UsageError for those without one,
    MissingDependencyError without z3. Ctrl-C ends as ``Unknown("interrupted")``.
    """
    questions = ScclQuestions(problem.network, problem.collective, budget.seed, several=False)
    return questions.decide(problem, budget.cpu_deadline())


class ScclQuestions:
    """Questions (C, S, R) about one machine and one collective, put to one z3 solver.

    What is said of a chunk whatever C, S and R are (C1, C4, most of C3) stays in the solver with what z3 learned from
    it; the rest is taken back after each question.
    """

    def __init__(
        self,
        network: Network,
        collective: Collective,
        seed: int = 0,
        memory: int | None = None,
        several: bool = True,
    ) -> None:
        """Raise UsageError for a collective that combines and is no reversal, MissingDependencyError without z3.

        `memory`: the most bytes of z3. None: no limit. `several`: False where one question is asked, which z3 takes up
        to twice as long for where it could be taken back.
        """
        if collective.combining and not collective.reversible:
            raise UsageError(
                f"SCCL's encoding copies; {collective.name} combines and is no reversal of a copying collective"
            )
        self.combining = collective.combining
        self.network = network.reversed() if self.combining else network
        self.collective = collective.reversed() if self.combining else collective
        self.several = several
        self.model = IntegerModel("SCCL's encoding", seed, memory)
        # by (unit, number of the chunk in it): its start at each rank, and its send on each route
        self.starts: dict[tuple[int, int], list[Any]] = {}
        self.sends: dict[tuple[int, int], list[Any]] = {}

    def decide(self, problem: Problem, deadline: Deadline = NEVER, work: int | None = None) -> Verdict:
        """Decide a problem of this machine and collective: before the deadline, in `work` of z3's steps at most."""
        began = time.process_time()
        chunks = [(u, i) for u in range(self.collective.units) for i in range(problem.chunks)]
        for chunk in chunks:
            if chunk not in self.starts:
                self._add_chunk(*chunk)
        with self.model.question() if self.several else nullcontext():
            self._limit_starts(chunks, problem.steps)
            self._limit_loads(chunks, problem.steps, problem.rounds)
            status, detail = self.model.check(deadline, work)
            sends = self._sends_of_steps(problem) if status == "sat" else []
        cpu = time.process_time() - began
        cost = Cost("sccl/z3", cpu, cpu)
        if status == "unsat":
            return Unsat("refuted by z3 on SCCL's encoding", cost)
        if status != "sat":
            return Unknown(status, detail, cost)
        found = assemble(problem.reversed() if self.combining else problem, sends)
        return Sat(problem.of_reversal(found), cost)

    def _add_chunk(self, unit: int, i: int) -> None:
        """Add C1, C4, and C3 where the chunk is demanded, of one more chunk."""
        model, net, coll = self.model, self.network, self.collective
        start = [model.integer(f"start_{unit}_{i}_{n}") for n in range(net.ranks)]
        send = [model.boolean(f"send_{unit}_{i}_{r}") for r in range(len(net.routes))]
        self.starts[unit, i], self.sends[unit, i] = start, send
        for n in range(net.ranks):
            model.add(start[n] == 0 if n in coll.pre[unit] else start[n] >= 1)
            if n in coll.post[unit] and n not in coll.pre[unit]:
                model.add(model.exactly_one([send[r] for r in net.into[n]]))
        for r, route in enumerate(net.routes):
            model.add(model.implies(send[r], start[route.src] < start[route.dst]))

    def _limit_starts(self, chunks: list[tuple[int, int]], steps: int) -> None:
        """Add C2, and C3 where the chunk may but need not come."""
        model, net, coll = self.model, self.network, self.collective
        for unit, i in chunks:
            start, send = self.starts[unit, i], self.sends[unit, i]
            for n in range(net.ranks):
                if n in coll.pre[unit]:
                    continue
                if n in coll.post[unit]:
                    model.add(start[n] <= steps)
                else:
                    received = model.exactly_one([send[r] for r in net.into[n]])
                    model.add(start[n] <= steps + 1, model.implies(start[n] <= steps, received))

    def _limit_loads(self, chunks: list[tuple[int, int]], steps: int, total: int) -> None:
        """Add C5 and C6: for each step and bandwidth constraint a pseudo-Boolean sum for each possible number of
        rounds."""
        model, net = self.model, self.network
        rounds = [model.integer(f"rounds_{s}") for s in range(1, steps + 1)]
        if total != steps:
            model.add(*(r >= 1 for r in rounds), model.total(rounds) == total)
        resources = [((r,), route.units) for r, route in enumerate(net.routes)]
        resources += [(cap.routes, cap.units) for cap in net.caps]
        for routes, units in resources:
            for s in range(1, steps + 1):
                sends = []
                for chunk in chunks:
                    start, send = self.starts[chunk], self.sends[chunk]
                    sends += [model.both(send[r], start[net.routes[r].dst] == s) for r in routes]
                if total == steps:
                    model.add(model.at_most(sends, units))
                else:
                    for n in range(1, total - steps + 2):  # every other step has a round at least
                        model.add(model.implies(rounds[s - 1] == n, model.at_most(sends, units * n)))

    def _sends_of_steps(self, problem: Problem) -> list[list[tuple[int, int]]]:
        """Return the (chunk, route) of the sends of each step, after a solution was found."""
        model, routes = self.model, self.network.routes
        steps: list[list[tuple[int, int]]] = [[] for _ in range(problem.steps)]
        for u in range(self.collective.units):
            for i in range(problem.chunks):
                for r, sent in enumerate(self.sends[u, i]):
                    step = model.value(self.starts[u, i][routes[r].dst])
                    if model.is_true(sent) and step <= problem.steps:
                        steps[step - 1].append((u * problem.chunks + i, r))
        return steps
