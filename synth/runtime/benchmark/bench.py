"""Times of candidate programs over sizes, all by one executor and one method.

The reference executor's times are modelled. The host executor is timed here, launch by launch. Another executor that
reads a clock has these methods:

measure(program, arrays, *, dtype, op, in_place, repetitions) -> (outputs, seconds)
    Seconds of each repeat, without compilation or copies from and to the caller; outputs of a run on poisoned memory.
facts() -> (device, versions)
    The document's description of the device and of the software.
copy_seconds(size, repetitions) -> seconds
    The seconds of each repeat of a plain copy of `size` bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import UsageError
from synth.model.topology import Network, Topology
from synth.program import overheads
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import reference_data
from synth.runtime.benchmark.document import BenchmarkProgram, BenchmarkRow, Measured, ReferenceTiming
from synth.runtime.call import make_executor, timed_links
from synth.runtime.cuda.graph_timing import SAYS as COPY
from synth.runtime.dtypes import Dtype, dtype, operator
from synth.runtime.executor import Repetitions
from synth.runtime.reference.buffers import check_memory, maximum_bytes
from synth.runtime.slicing import Padding, padding, rounded_size, written_out

SAYS = {
    "reference": "modelled, not measured: event-driven runs of the reference executor on {network}, {overheads}",
    "cuda": "GPU time of a launch in replays of CUDA graphs; ranks that share a GPU share its memory, which says "
    "nothing about links",
    "host": "wall time of the CUDA kernel's source on CPU threads: says nothing about a GPU or about links",
}


class Settings(NamedTuple):
    """Options of a benchmark.

    `executor`: its name. `dtype`, `op`: of the elements. `seed`: of the random inputs. `warmup`: launches before the
    timed ones. `repeats`: timed launches. `check`: compare every element; None: only if the executor reads a clock.
    `overheads`: modelled times include a launch and the costs of protocols.
    """

    executor: str = "reference"
    dtype: str = "float32"
    op: str = "sum"
    seed: int = 0
    warmup: int = 1
    repeats: int = 5
    check: bool | None = None
    overheads: bool = True


def bench(
    candidates: Sequence[BenchmarkProgram],
    sizes: Sequence[int],
    machine: Topology | Network | None,
    how: Settings,
    copy: bool = False,
    **options: Any,
) -> Measured:
    """Time every candidate at every size in bytes, out of place and in place if its program supports both.

    Sizes are rounded down to whole elements for each part of the data, as nccl-tests does, but to no less than one
    element; chunks that do not divide a part are padded.
    `machine`: the one whose links give modelled times, or its network. `copy`: time a plain copy beside them at every
    size.
    `options`: those of the executor. Raises UsageError for an executor without times, VerificationError if an output is
    wrong.
    """
    kind, name = dtype(how.dtype), how.executor.lower()
    runner = make_executor(name, {"network": timed_links(machine, candidates[0].program), **options})
    modelled = name == "reference"
    if modelled and machine is None:
        raise UsageError("the reference executor needs the times of the links: name the machine (--topo)")
    timer = _Host(runner) if name == "host" else runner
    clock: Callable | None = getattr(timer, "measure", None)
    if copy and clock is None:
        raise UsageError(f"a copy can stand beside programs on an executor with a clock (--executor cuda), not {name}")
    if not modelled and clock is None:
        raise UsageError(f"the {name} executor gives no times; reference and host do")
    rows = []
    costs = overheads.selected(how.overheads)
    for k, candidate in enumerate(candidates):
        launch, protocol = 0, candidate.program.protocol
        network = timed_links(machine, candidate.program)
        if modelled and network is not None:
            launch = costs.launch(protocol)
            runner = make_executor(name, {"network": costs.links(network, protocol), **options})
        for size in sizes:
            parts = padding(candidate.program, rounded_size(candidate.program, size, kind), kind)
            for in_place in {"out": (False,), "in": (True,), "both": (False, True)}[candidate.program.in_place]:
                point = _Point(k, candidate.program, parts, in_place, launch)
                rows.append(_row(runner, point, kind, how, clock))
    others = [_copy(timer, candidates[0].program, size, kind, how) for size in sizes if copy]
    where, used = runner.facts() if hasattr(runner, "facts") else ({}, {})
    says = SAYS.get(name, "measured by the {name} executor").format(
        network=machine.name if machine else "no network", name=name, overheads=overheads.describe(costs)
    )
    return Measured(
        name,
        says,
        modelled,
        machine.name if machine else None,
        kind.name,
        operator(how.op),
        tuple(candidates),
        tuple(rows),
        tuple(others),
        where,
        used,
    )


def _copy(timer: Any, program: Program, size: int, kind: Dtype, how: Settings) -> ReferenceTiming:
    """Time a copy of as many bytes as all outputs of `program` hold, at the size to which it rounds `size`."""
    if program.collective is None:
        raise UsageError(f"{program.name} does not say which collective it computes; name it (--coll)")
    size = rounded_size(program, size, kind)
    parts = padding(program, size, kind)
    written = sum(map(len, parts.layout(program.collective).outputs)) * parts.row_elements * kind.size
    seconds = timer.copy_seconds(written, Repetitions(how.warmup, how.repeats))
    return ReferenceTiming("copy", getattr(timer, "copies", COPY), size, written, tuple(sorted(seconds)))


class _Point(NamedTuple):
    """One measurement: the program of candidate number `candidate` in a call of `parts`.

    `launch`: picoseconds of a launch in modelled times.
    """

    candidate: int
    program: Program
    parts: Padding
    in_place: bool
    launch: int = 0


def _row(runner: Any, point: _Point, kind: Dtype, how: Settings, clock: Callable | None) -> BenchmarkRow:
    k, program, parts, in_place, launch = point
    collective, op = program.collective, operator(how.op)
    if collective is None:
        raise UsageError(f"{program.name} does not say which collective it computes; name it (--coll)")
    program = written_out(program, parts.unit * kind.size)
    parts = parts._replace(chunks=program.chunks)
    layout, elements = Layout(collective, program.chunks), parts.unit * (program.loop_chunks // program.chunks)
    size = elements * kind.size
    if clock is None and not how.check:
        execution = runner.time(program, parts.elements, dtype=kind.name, in_place=in_place)
        return BenchmarkRow(k, size, elements, in_place, (execution.after(launch).picoseconds / 1e12,), None)
    check_memory(sum(map(len, (*layout.inputs, *layout.outputs))), parts.elements, kind, maximum_bytes(how.executor))
    inputs = reference_data.padded_inputs(collective, parts, kind, op, how.seed)
    if clock is None:
        execution = runner.run(program, inputs, dtype=kind.name, op=op, in_place=in_place)
        outputs, seconds = execution.outputs, [execution.after(launch).picoseconds / 1e12]
    else:
        outputs, seconds = clock(
            program, inputs, dtype=kind.name, op=op, in_place=in_place, repetitions=Repetitions(how.warmup, how.repeats)
        )
    checked = how.check is not False
    if checked:
        given, results = list(map(parts.units, inputs)), list(map(parts.units, outputs))
        reference_data.check(parts.layout(collective), kind, op, given, results)
    return BenchmarkRow(k, size, elements, in_place, tuple(sorted(seconds)), True if checked else None)


class _Host(NamedTuple):
    """The host executor with a clock that times the launch alone."""

    runner: Any
    copies: str = "a copy of as many bytes as all outputs hold, by NumPy on one thread"

    def copy_seconds(self, size: int, repetitions: Repetitions) -> list[float]:
        """Time a copy of `size` bytes by NumPy."""
        source, target, seconds = np.ones(size, np.uint8), np.empty(size, np.uint8), []
        for k in range(sum(repetitions)):
            start = time.perf_counter()
            np.copyto(target, source)
            if k >= repetitions.warmup:
                seconds.append(time.perf_counter() - start)
        return seconds

    def measure(
        self,
        program: Program,
        arrays: Sequence[np.ndarray],
        *,
        dtype: str,
        op: str,
        in_place: bool,
        repetitions: Repetitions,
    ) -> tuple[Sequence[np.ndarray], list[float]]:
        from synth.runtime.dtypes import dtype as element_type
        from synth.runtime.host.executor import collect_outputs

        kind = element_type(dtype)
        machine, arena = self.runner.load(
            program, next((a.shape[1] for a in arrays if len(a)), 0), kind, in_place=in_place
        )
        function, scale = machine.function(kind, op)
        threads = self.runner.block_threads(machine.code)
        layout = Layout(program.collective, program.chunks)  # type: ignore[arg-type]
        seconds = []
        for k in range(sum(repetitions)):
            arena.fill(arrays, layout, len(machine.cut.bounds))
            start = time.perf_counter()
            machine.launch(function, threads, scale)
            if k >= repetitions.warmup:
                seconds.append(time.perf_counter() - start)
        return collect_outputs(arena, layout, kind, op), seconds
