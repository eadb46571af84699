"""A frontier that is asked for: the machine, the collective, and the options of the search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

from synth.model.collective import Collective
from synth.model.scale_collectives import ScaleCollective
from synth.model.topology import Network, Topology


@dataclass(frozen=True)
class Options:
    """Options of a search, of `synth pareto` and `synth.frontier`. Seconds are wall time.

    `max_steps`: the greatest number of steps to look at. None: no limit.
    `max_chunks`: the most chunks into which a unit of data is split. None: no limit.
    `max_extra_rounds`: the maximum of R - S, SCCL's k. None: no limit.
    `encoding`: the name of an encoding, or "auto".
    `solver`: the name of a solver, or "auto" for a portfolio.
    `sweep`: "guided" by lower bounds, or "blind": SCCL's loop over steps, rounds and chunks.
    `time_limit`: seconds for all of it. None: no limit; each number of steps then gets `point_seconds`.
    `point_seconds`: seconds for one number of steps where there is no time limit.
    `jobs`: processes at a time.
    `seed`: of every random choice.
    `deterministic`: one solver and one seed, so that the same call gives the same schedules.
    `same_bits`: only schedules that leave the same floating-point sums on all ranks.
    `memory`: the maximum bytes of each process that a sweep starts. None: no limit.
    `multicast`: whether points through the machine's switches that multicast follow, in a share of the time limit.
    """

    max_steps: int | None = None
    max_chunks: int | None = None
    max_extra_rounds: int | None = None
    encoding: str = "auto"
    solver: str = "auto"
    sweep: str = "guided"
    time_limit: float | None = None
    point_seconds: float = 40.0
    jobs: int = 2
    seed: int = 0
    deterministic: bool = False
    same_bits: bool = False
    memory: int | None = 4 << 30
    multicast: bool = False

    @property
    def alone(self) -> bool:
        """True where an encoding or SCCL's sweep is named, whose frontier no rows of other engines join."""
        return self.encoding != "auto" or self.sweep == "blind"

    def max_rounds(self, steps: int) -> float:
        """Return the maximum number of rounds of schedules with `steps` steps."""
        return inf if self.max_extra_rounds is None else steps + self.max_extra_rounds

    def allows(self, steps: int, rounds: int, chunks: int) -> bool:
        """Return True where schedules may have these steps, rounds and chunks per unit."""
        if self.max_steps is not None and steps > self.max_steps:
            return False
        if self.max_chunks is not None and chunks > self.max_chunks:
            return False
        return rounds <= self.max_rounds(steps)


@dataclass(frozen=True)
class FrontierProblem:
    """A frontier that is asked for: the collective `task` on `machine`, under `options`.

    A `ScaleCollective` is for flow methods alone. `engine`: "exact" leaves out what needs long searches by flow
    methods, "auto" does not.
    """

    machine: Topology
    task: Collective | ScaleCollective
    options: Options = Options()
    engine: str = "auto"

    @property
    def collective(self) -> Collective:
        """The collective, with its units of data."""
        return self.task.listed if isinstance(self.task, ScaleCollective) else self.task

    @cached_property
    def network(self) -> Network:
        """The machine's routes in whole units."""
        return self.machine.network()

    @property
    def several_boxes(self) -> bool:
        """True where the machine has several boxes, of which one has several ranks."""
        return 1 < len(set(self.machine.nodes)) < self.machine.ranks

    @property
    def names_no_engine(self) -> bool:
        """True where the options name no sweep, encoding or solver: all engines may help."""
        options = self.options
        return options.sweep == "guided" and options.encoding == options.solver == "auto"
