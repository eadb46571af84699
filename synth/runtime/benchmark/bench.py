"""Times of candidate programs over sizes, all by one executor and one method.

The reference executor's times are modelled. An executor that reads a clock has these methods:

measure(program, arrays, *, dtype, op, in_place, repetitions) -> (outputs, seconds)
    Seconds of each repeat, without compilation or copies from and to the caller; outputs of a run on poisoned memory.
facts() -> (device, versions), if there is more to say than of this machine
    The document's description of the device and of the software.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from synth.errors import UsageError
from synth.model.topology import Network, Topology
from synth.program import overheads
from synth.program.buffer_layout import Layout
from synth.runtime import reference_data
from synth.runtime.benchmark.document import BenchmarkProgram, BenchmarkRow, Measured
from synth.runtime.call import make_executor, timed_links
from synth.runtime.dtypes import dtype, operator
from synth.runtime.executor import Repetitions
from synth.runtime.reference.buffers import check_memory, maximum_bytes
from synth.runtime.slicing import padding, rounded_size, written_out

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
    **options: Any,
) -> Measured:
    """Time every candidate at every size in bytes, out of place and in place if its program supports both.

    Sizes are rounded down to whole elements for each part of the data, as nccl-tests does, but to no less than one
    element; chunks that do not divide a part are padded.
    `machine`: the one whose links give modelled times, or its network.
    `options`: those of the executor. Raises UsageError for an executor without times, VerificationError if an output is
    wrong.
    """
    kind, name = dtype(how.dtype), how.executor.lower()
    runner = make_executor(name, {"network": timed_links(machine, candidates[0].program), **options})
    modelled = name == "reference"
    if modelled and machine is None:
        raise UsageError("the reference executor needs the times of the links: name the machine (--topo)")
    if not modelled and not hasattr(runner, "measure"):
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
            for in_place in {"out": (False,), "in": (True,), "both": (False, True)}[candidate.program.in_place]:
                rows.append(_row(runner, candidate, size, in_place, how, launch)._replace(candidate=k))
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
        where,
        used,
    )


def _row(
    runner: Any, candidate: BenchmarkProgram, asked: int, in_place: bool, how: Settings, launch: int
) -> BenchmarkRow:
    """Return one measurement, at the size to which `asked` is rounded. `launch`: ps before modelled times."""
    kind = dtype(how.dtype)
    program, op, collective = candidate.program, operator(how.op), candidate.program.collective
    if collective is None:
        raise UsageError(f"{program.name} does not say which collective it computes; name it (--coll)")
    parts = padding(program, rounded_size(program, asked, kind), kind)
    program = written_out(program, parts.unit * kind.size)
    parts = parts._replace(chunks=program.chunks)
    layout, elements = Layout(collective, program.chunks), parts.unit * (program.loop_chunks // program.chunks)
    call = {"dtype": kind.name, "in_place": in_place}
    clock: Callable | None = getattr(runner, "measure", None)
    row = BenchmarkRow(0, elements * kind.size, elements, in_place, (), None)
    if clock is None and not how.check:
        execution = runner.time(program, parts.elements, **call)
        return row._replace(seconds=(execution.after(launch).picoseconds / 1e12,))

    # The data are moved, by the model's or the clock's time, and compared unless nobody asked.
    check_memory(sum(map(len, (*layout.inputs, *layout.outputs))), parts.elements, kind, maximum_bytes(how.executor))
    inputs = reference_data.padded_inputs(collective, parts, kind, op, how.seed)
    if clock is None:
        execution = runner.run(program, inputs, op=op, **call)
        outputs, seconds = execution.outputs, [execution.after(launch).picoseconds / 1e12]
    else:
        outputs, seconds = clock(program, inputs, op=op, repetitions=Repetitions(how.warmup, how.repeats), **call)
    if how.check is not False:
        given, results = list(map(parts.units, inputs)), list(map(parts.units, outputs))
        reference_data.check(parts.layout(collective), kind, op, given, results)
        row = row._replace(right=True)
    return row._replace(seconds=tuple(sorted(seconds)))
