"""The options of the tuner: one value from the command line and `synth.tune` down to the choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from synth.errors import UsageError
from synth.model.frontier import ParetoFrontier
from synth.model.topology import Topology
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.program import PROTOCOLS

SIZES = tuple(1 << k for k in range(10, 31))  # 1 KiB to 1 GiB


@dataclass(frozen=True)
class TuningRequest:
    """Options of `synth tune` and `synth.tune`.

    `topology`: the machine. None: that of the frontiers, or of the measurements.
    `collective`: the name of one collective or of several. (): those of the frontiers and the measurements.
    `sizes`: sizes in bytes to judge at, as nccl-tests counts.
    `frontiers`: values or files. (): those that `catalog` keeps for the machine, else synthesized ones.
    `measured`: documents that ``synth bench`` wrote, or files of them.
    `catalog`: a database whose frontiers and measurements of this machine count too.
    `logs`: (backend, file) of nccl-tests' output.
    `baselines`: names of known algorithms to choose from beside ring, tree and direct.
    `root`: the root of rooted collectives. None: rank 0, or that of the frontiers.
    `protocols`: protocols to run a schedule with. (): those that were measured; by the model Simple, LL and, over
    NVLink alone, LL128.
    `instances`: numbers of copies side by side to try. (): those that were measured; by the model one.
    `per_send`: the cost of a message at either end, in predicted times.
    `overheads`: predicted times include a launch and each protocol's costs. False: the α and β of bare links alone.
    `tolerance`: the loss, as a share of the best time, that is accepted to save a switch. None: 1% of measured times;
    of predicted ones 0.1% at `sizes`, 0.5% between them.
    `dtype`: the type of the elements that chunks are made of.
    `in_place`: judge by the times of calls in place.
    `ranks`: the number of ranks of logs that do not say it, where there is no machine.
    `dividing`: synthesize schedules, too, whose chunks divide every size, for runtimes that do not pad. None: where
    there is a `topology`.
    `multicast`: schedules whose sends pass switches that multicast and reduce are candidates, where all ranks of the
    `topology` share one.
    `time_limit`: seconds of wall time for all of it. None: the default effort.
    `jobs`: processes of a synthesis. None: as many as there are cores.
    `plans`: schedules that no MSCCL++ plan can hold are not candidates.

    Raises UsageError for a value that makes no sense.
    """

    topology: str | Path | Topology | None = None
    collective: str | Sequence[str] = ()
    sizes: tuple[int, ...] = SIZES
    frontiers: Sequence[ParetoFrontier | str | Path] = ()
    measured: Sequence[str | Path | dict] = ()
    catalog: str | Path | None = None
    logs: Sequence[tuple[str, str | Path]] = ()
    baselines: Sequence[str] = ()
    root: int | None = None
    protocols: Sequence[str] = ()
    instances: Sequence[int] = ()
    per_send: MessageCost = NO_COST
    overheads: bool = True
    tolerance: float | None = None
    dtype: str = "float32"
    in_place: bool = False
    ranks: int | None = None
    dividing: bool | None = None
    multicast: bool = True
    time_limit: float | None = None
    jobs: int | None = None
    plans: bool = False

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 1:
            raise UsageError("no sizes to tune for; sizes are bytes, at least 1")
        if self.tolerance is not None and not 0 <= self.tolerance < 1:
            raise UsageError(f"tolerance {self.tolerance}: a share of the best time, at least 0 and below 1")
        known = [name.lower() for name in PROTOCOLS]
        unknown = [name for name in self.protocols if name.lower() not in known]
        if unknown:
            raise UsageError(f"unknown protocol {unknown[0]!r}; there are {', '.join(PROTOCOLS)}")
        if self.dividing and self.topology is None:
            raise UsageError("schedules that divide every size are synthesized for a machine: name it (--topo)")
        object.__setattr__(self, "sizes", tuple(sorted(set(self.sizes))))

    @property
    def element(self) -> int:
        """Bytes of an element. Raises UsageError for an unknown type."""
        from synth.runtime.dtypes import dtype

        return dtype(self.dtype).size

    @property
    def variants(self) -> tuple[tuple[str, int], ...] | None:
        """Each (protocol, instances) to run a schedule with; None: those that were measured, or the model's."""
        if not self.protocols and not self.instances:
            return None
        known = {name.lower(): name for name in PROTOCOLS}
        return tuple(product([known[name.lower()] for name in self.protocols] or PROTOCOLS, self.instances or (1,)))
