"""Programs on the caller's arrays: prepared once, then launched repeatedly on the caller's stream or in a CUDA graph.

`prepare` takes a lowered program and knows all sizes: it compiles, allocates, builds every table, and waits. After it,
`launch` neither allocates nor waits. `finish` waits and reports a deadlock.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from synth.errors import UsageError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import call as calls
from synth.runtime.array_info import array_info, by_rank
from synth.runtime.dtypes import Dtype, dtype, operator
from synth.runtime.host import loaded_program
from synth.runtime.host.executor import Host
from synth.runtime.run_result import units_text


class ArrayFacts(NamedTuple):
    """Facts of a call that follow from the caller's arrays.

    `unit`: elements of a unit of data. `on_gpu`: the arrays are in a GPU's memory. `torch`: they are torch's.
    """

    unit: int
    kind: Dtype
    on_gpu: bool
    torch: bool


def array_facts(arrays: Any, layout: Layout) -> ArrayFacts:
    """Return the facts of a call from its first input that is not empty.

    Raises UsageError where the collective has no input, or a size does not divide into the units of data.
    """
    inputs = by_rank(arrays, layout.collective.ranks, "input")
    for rank, held in enumerate(layout.inputs):
        if held:
            first = array_info(inputs[rank], f"the input of rank {rank}")
            units = len(held) // layout.chunks
            if first.size % units:
                raise UsageError(
                    f"the input of rank {rank} has {first.size} elements, which do not divide into {units_text(units)}"
                )
            torch = type(inputs[rank]).__module__.partition(".")[0] == "torch"
            return ArrayFacts(first.size // units, dtype(first.dtype), first.device is not None, torch)
    raise UsageError(f"{layout.collective.name} has no input")


class Prepared:
    """A program prepared for the caller's arrays.

    Launches run one after another, in the order of one stream (or of one stream for each rank).
    """

    def __init__(
        self, program: Program, machine: Any, guard: Callable[[str], AbstractContextManager], torch: bool
    ) -> None:
        self.program, self._machine, self._guard, self._torch = program, machine, guard, torch

    def use(self, arrays: Any, outputs: Any) -> None:
        """Let the next launches work on other arrays of the same sizes and types.

        For arrays that were not used before it allocates and waits, so it must not be called with such arrays while a
        CUDA graph is captured.
        """
        with self._guard(f"preparing {self.program.name}"):
            self._machine.use(arrays, outputs)

    def launch(self, stream: Any = None) -> None:
        """Start one run on `stream`.

        `stream`: CuPy's, torch's, or a cudaStream_t; by default the current one of the arrays' library. On a GPU this
        does not wait and allocates nothing, so it can be captured into a CUDA graph; each replay is a run.
        """
        with self._guard(f"launching {self.program.name}"):
            self._machine.launch(self._stream(stream))

    def finish(self, stream: Any = None) -> None:
        """Wait for all launches on `stream`.

        Raises DeadlockError with the blocks that wait for each other; the next launch then starts from a clear state.
        """
        with self._guard(f"running {self.program.name}"):
            self._machine.finish(self._stream(stream))

    def _stream(self, stream: Any) -> Any:
        if stream is None and self._torch and "torch" in sys.modules:
            return sys.modules["torch"].cuda.current_stream()
        return stream


def prepare(call: calls.Call, arrays: Any, outputs: Any) -> Prepared:
    """Return `call.program`, ready to launch on the inputs `arrays` and the `outputs`, one array for each rank.

    Raises UsageError for an executor other than cuda and host, or for arrays that do not fit.
    """
    layout, request = calls.layout(call), call.request
    facts = array_facts(arrays, layout)
    runner = calls.make_executor(request.executor, {"network": call.network, **request.executor_options})
    op, prepares = operator(request.op), getattr(runner, "prepare", None)
    if isinstance(runner, Host):
        machine, guard = loaded_program.prepare(runner, call.program, facts.unit, facts.kind.name, op, request.in_place)
    elif prepares:
        machine, guard = prepares(call.program, facts.unit, dtype=facts.kind.name, op=op, in_place=request.in_place)
    else:
        raise UsageError(f"the {request.executor} executor cannot be prepared for arrays; cuda and host can")
    prepared = Prepared(call.program, machine, guard, facts.torch and facts.on_gpu)
    prepared.use(arrays, outputs)
    return prepared
