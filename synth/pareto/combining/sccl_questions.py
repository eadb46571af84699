"""Questions (C, S, R) in SCCL's encoding, which copies: about a problem, or about the parts of an allreduce.

As in the paper (Cai et al., PPoPP 2021), an allreduce is a reduce-scatter and then an allgather.
"""

from __future__ import annotations

from synth.encodings.sccl import ScclQuestions
from synth.model.collective import Collective, collective
from synth.model.outcome import Sat, Unknown, Verdict
from synth.model.schedule import Problem
from synth.model.topology import Network
from synth.pareto.combining.rs_ag_composition import compose
from synth.solvers.deadline import Deadline


class QuestionsOfParts:
    """Questions (C, S, R) in SCCL's encoding: about a problem, or about the parts of an allreduce.

    Attributes:
        parts: what z3 is asked about: of an allreduce the allgather, and that on reversed links where these differ.
        scale: (C, S, R) of the problem as multiples of those of a part.
    """

    def __init__(
        self, network: Network, task: Collective, seed: int = 0, memory: int | None = None, several: bool = True
    ) -> None:
        self.task, self.composed = task, task.name == "allreduce"
        self.scale, self.parts = (1, 1, 1), [(network, task)]
        if self.composed:
            gather = collective("allgather", network.ranks)
            self.scale, self.parts = (network.ranks, 2, 2), [(part, gather) for part in directions(network)]
        self.solvers = [ScclQuestions(*part, seed, memory, several) for part in self.parts]

    def decide(self, problem: Problem, deadline: Deadline, work: int | None = None) -> Verdict:
        """Decide a problem whose C, S and R are multiples of `scale`; "unsat" of an allreduce: none is composed so.

        Each part has until the deadline, and `work` of z3's steps. Raises KeyboardInterrupt on Ctrl-C.
        """
        chunks, steps, rounds = self.scale
        question = problem.chunks // chunks, problem.steps // steps, problem.rounds // rounds
        found: list[Sat] = []
        for part, solver in zip(self.parts, self.solvers, strict=True):
            verdict = solver.decide(Problem(*part, *question), deadline, work)
            if isinstance(verdict, Unknown) and verdict.reason == "interrupted":
                raise KeyboardInterrupt
            if not isinstance(verdict, Sat):
                return verdict
            found.append(verdict)
        if not self.composed:
            return found[0]
        return Sat(compose(found[-1].schedule, found[0].schedule, self.task), found[0].cost)


def directions(network: Network) -> list[Network]:
    """Return the network, and the reversed one where that differs from it."""
    backwards = network.reversed()
    if _links(backwards) == _links(network):
        return [network]
    return [network, backwards]


def _links(network: Network) -> tuple[list, list]:
    """Return routes and limits of a network in an order that does not depend on their numbers."""
    routes = [(r.src, r.dst, r.units, sorted(r.via)) for r in network.routes]
    limits = []
    for cap in network.caps:
        limits.append((sorted(routes[r] for r in cap.routes), cap.units))
    return sorted(routes), sorted(limits)
