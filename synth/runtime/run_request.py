"""The options of a run: one value from the command line and `synth.run` down to the executor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from synth.model.collective import Collective
from synth.model.frontier import StepCount
from synth.model.topology import Topology
from synth.program.lowering_options import LoweringOptions
from synth.program.message_cost import NO_COST, MessageCost


@dataclass(frozen=True)
class RunRequest:
    """Options of `synth run`, `synth.run` and `synth.prepare`.

    `executor`: the name of the executor.
    `size`: bytes of the larger of one rank's buffers, as nccl-tests counts. None: 1 MiB, or the next size that divides.
    `dtype`: the type of the elements.
    `op`: the reduction: sum, prod, min, max or avg.
    `in_place`: input and output are one buffer, as in NCCL.
    `topology`: the machine whose links give the times. None: the network that a schedule brings.
    `collective`: the collective that a file computes, where the file does not say.
    `roots`: the roots of that collective, or of a file's broadcast or reduce.
    `point`: the number of a frontier's point, from 1, or its steps. None: the best at `size`.
    `runtime`: the runtime that a schedule is lowered for, and whose FIFO operations a call is cut into. None: this
    project's own executors.
    `protocol`: the protocol of a lowered schedule and of the run. None: the program's own; Simple for a schedule, the
    fastest at `size` for a frontier without arrays.
    `instances`: copies of a schedule side by side, each for its share of the data.
    `seed`: of the random inputs.
    `data`: move and compare the data. False: only the time.
    `bound`: compute the certified lower bound on the time.
    `overheads`: times include a launch and the protocol's costs. False: the α and β of bare links alone.
    `options`: options of the executor alone, by name; None stands for the executor's default.
    """

    executor: str = "reference"
    size: int | None = None
    dtype: str = "float32"
    op: str = "sum"
    in_place: bool = False
    topology: str | Path | Topology | None = None
    collective: str | Path | Collective | Mapping[str, Any] | None = None
    roots: Sequence[int] = ()
    point: int | StepCount | None = None
    runtime: str | None = None
    protocol: str | None = None
    instances: int = LoweringOptions.instances
    seed: int = 0
    data: bool = True
    bound: bool = True
    overheads: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def lowering(self) -> LoweringOptions:
        """The options with which a schedule is lowered. Raises UsageError for values that make no sense."""
        return LoweringOptions(
            self.runtime or LoweringOptions.runtime, self.protocol or LoweringOptions.protocol, self.instances
        )

    @property
    def executor_options(self) -> dict[str, Any]:
        """The executor's options that are given."""
        options = {"runtime": self.runtime, "protocol": self.protocol, **self.options}
        return {name: value for name, value in options.items() if value is not None}

    @property
    def per_send(self) -> MessageCost:
        """The cost of a message at either end; none where it is not given. Raises UsageError."""
        return MessageCost.of(self.executor_options.get("per_send", NO_COST))
