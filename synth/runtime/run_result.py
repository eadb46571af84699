"""The result of one call of `synth run`: checked outputs, time, bandwidth, and the certified bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from synth.errors import UsageError
from synth.model.collective import bus_factor
from synth.model.rational import show
from synth.model.registry import NOTEBOOK, load
from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.array_info import array_info, view
from synth.runtime.dtypes import dtype
from synth.runtime.executor import Execution
from synth.runtime.kernel.logical_clock import SAYS
from synth.runtime.reference_data import ComparisonExtent
from synth.runtime.slicing import Padding


@dataclass(frozen=True, eq=False)
class RunResult:
    """One run of `program`.

    `size`: bytes as nccl-tests counts them. `checked`: None in a run for its time alone. `bound`: certified minimum in
    ps by the same clock; None without a network or where it was not requested. `model`: the clock's name. `choice`: in
    words which point and protocol of a frontier were chosen; "" where both were asked for.
    """

    program: Program
    network: Network | None
    executor: str
    size: int
    dtype: str
    op: str
    in_place: bool
    execution: Execution
    checked: ComparisonExtent | None
    bound: Fraction | None = None
    model: str = ""
    choice: str = ""

    def __repr__(self) -> str:
        time, checked = self.execution.picoseconds, "no data"
        if self.checked is not None:
            checked = f"{self.checked.elements} elements right"
        took = "" if time is None else f", {time / 10**6:g} µs"
        return f"<RunResult of {self.program.name}, {self.size} B on {self.executor}: {checked}{took}>"

    def plot(self, ax: Any = None) -> Any:
        """Plot the share of the time in which each link is busy, with matplotlib.

        Parameters
        ----------
        ax : the Axes to draw in. None: those of a new Figure.

        Returns
        -------
        `ax`, or the new Figure.

        Raises
        ------
        MissingDependencyError without matplotlib; UsageError where the run knows no times.
        """
        return load(NOTEBOOK["plot of run"])(self.to_json(), ax)

    def _repr_html_(self) -> str:
        return load(NOTEBOOK["run"])(self.to_json())

    @property
    def outputs(self) -> list[np.ndarray]:
        """The output of each rank, one-dimensional. Raises UsageError after a run without data."""
        if self.execution.outputs is None:
            raise UsageError("this run moved no data: outputs exist with data=True")
        return [output.reshape(-1) for output in self.execution.outputs]

    @property
    def gbps(self) -> float | None:
        """Algorithmic bandwidth: size / time."""
        time = self.execution.picoseconds
        return self.size * 1000 / time if time else None

    @property
    def bus_gbps(self) -> float | None:
        """nccl-tests' bus bandwidth; None for collectives that it does not measure."""
        task = self.program.collective
        factor = bus_factor(task.name, task.ranks) if task else None
        return None if factor is None or self.gbps is None else self.gbps * float(factor)

    @property
    def ratio(self) -> float | None:
        """Time over the certified bound: never below 1."""
        if not self.bound or self.execution.picoseconds is None:
            return None
        return float(self.execution.picoseconds / self.bound)

    def to_json(self) -> dict:
        """Return the document of ``synth run --format json`` (schema: docs/run.md)."""
        done, task = self.execution, self.program.collective
        says = {}
        links = []
        for (src, dst, via), busy, size in done.links:
            link = [src, dst, list(via)] if via else [src, dst]
            links.append({"link": link, "busy": busy, "bytes": size})
        if done.nanoseconds is not None and self.network is not None:  # a kernel kept the clock
            says = {"says": SAYS.format(network=self.network.name), "nanoseconds": done.nanoseconds}
        return {
            "schema": "synth.run/1",
            "program": self.program.name,
            "collective": task.name if task else None,
            "topology": self.network.name if self.network else None,
            "ranks": self.program.ranks,
            "executor": self.executor,
            "size": self.size,
            "dtype": self.dtype,
            "op": self.op,
            "in_place": self.in_place,
            "right": None if self.checked is None else True,
            "elements": None if self.checked is None else self.checked.elements,
            "exact": None if self.checked is None else self.checked.exact,
            "picoseconds": done.picoseconds,
            "launch_picoseconds": done.launch,
            "model": self.model if done.picoseconds is not None else None,
            "gbps": self.gbps,
            "bus_gbps": self.bus_gbps,
            "bound_picoseconds": None if self.bound is None else show(self.bound),
            "ratio": self.ratio,
            "links": links,
            **says,
        }


def rows_of(arrays: Sequence, layout: Layout) -> tuple[list[np.ndarray], Padding]:
    """Return a caller's inputs by rank, as rows of chunks, and their padding.

    Raises UsageError unless there is one array a rank, all with units of data of equal size.
    """
    arrays = list(arrays)
    if len(arrays) != layout.collective.ranks:
        raise UsageError(
            f"{layout.collective.name} over {layout.collective.ranks} ranks takes as many arrays; {len(arrays)} "
            f"were given"
        )
    inputs, unit = [], None  # unit: elements of a unit of data, once an input has shown it
    for rank, chunks in enumerate(layout.inputs):
        flat, units = _flat(arrays[rank], rank), len(chunks) // layout.chunks
        size = flat.size // units if chunks else None
        if flat.size != (size or 0) * units or (size is not None and unit is not None and size != unit):
            raise UsageError(
                f"the input of rank {rank} has {flat.size} elements; it holds {units_text(units)}"
                + (f" of {unit} elements each" if unit is not None else " of equal size")
            )
        unit = unit if size is None else size
        inputs.append(flat)
    padding = Padding(unit or 0, layout.chunks)
    return [padding.rows(flat, len(chunks)) for flat, chunks in zip(inputs, layout.inputs, strict=True)], padding


def units_text(units: int) -> str:
    """Return the number of units of data in words, for messages."""
    return f"{units} part{'' if units == 1 else 's'} of the data"


def _flat(array: object, rank: int) -> np.ndarray:
    if array is None:
        return np.zeros(0, np.float32)
    if not hasattr(array, "data_ptr") and not hasattr(array, "__cuda_array_interface__"):
        return np.asarray(array).reshape(-1)
    found = array_info(array, f"the input of rank {rank}")
    if found.device is not None:
        raise UsageError(f"the input of rank {rank} is in a GPU's memory: synth.prepare works on such arrays")
    if not found.contiguous:
        raise UsageError(
            f"the input of rank {rank} is not contiguous: its elements must lie one after the other (.contiguous())"
        )
    return view(found, dtype(found.dtype).numpy)
