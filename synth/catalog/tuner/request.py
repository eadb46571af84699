"""The options of the tuner: one value from the command line and `synth.tune` down to the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from synth.errors import UsageError
from synth.model.frontier import Frontier
from synth.model.topology import Topology
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.program import PROTOCOLS

SIZES = tuple(1 << k for k in range(10, 31))  # 1 KiB to 1 GiB


@dataclass(frozen=True)
class TuningRequest:
    """Options of `synth tune` and `synth.tune`, as described there.

    `multicast`: schedules whose sends pass switches that multicast and reduce are candidates, where all ranks of the
    `topology` share one. `plans`: schedules that no MSCCL++ plan can hold are not candidates.

    Raises UsageError for a value that makes no sense.
    """

    topology: str | Path | Topology | None = None
    collective: str | Sequence[str] = ()
    sizes: tuple[int, ...] = SIZES
    frontiers: Sequence[Frontier | str | Path] = ()
    measured: Sequence[str | Path | dict] = ()
    logs: Sequence[tuple[str, str | Path]] = ()
    root: int | None = None
    protocols: Sequence[str] = ()
    instances: Sequence[int] = ()
    per_send: MessageCost = NO_COST
    overheads: bool = True
    dtype: str = "float32"
    in_place: bool = False
    multicast: bool = True
    time_limit: float | None = None
    jobs: int | None = None
    plans: bool = False

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise UsageError("no sizes to tune for; sizes are bytes, at least 1")
        known = [name.lower() for name in PROTOCOLS]
        unknown = [name for name in self.protocols if name.lower() not in known]
        if unknown:
            raise UsageError(f"unknown protocol {unknown[0]!r}; there are {', '.join(PROTOCOLS)}")
        object.__setattr__(self, "sizes", tuple(sorted(set(self.sizes))))

    @property
    def element(self) -> int:
        """Bytes of an element. Raises UsageError for an unknown type."""
        from synth.runtime.dtypes import dtype

        return dtype(self.dtype).size

    @property
    def variants(self) -> tuple[tuple[str, int], ...] | None:
        """The (protocol, instances) pairs that were asked for; None: the tuner takes the measured pairs, or its own."""
        if not self.protocols and not self.instances:
            return None
        known = {name.lower(): name for name in PROTOCOLS}
        return tuple(product([known[name.lower()] for name in self.protocols] or PROTOCOLS, self.instances or (1,)))
