"""One call of a program by an executor: inputs, the run, the comparison with the definition, the certified bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from synth.errors import InfeasibleError, SynthError, UsageError
from synth.model.collective import Collective
from synth.model.registry import find
from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import EXECUTORS, reference_data
from synth.runtime.dtypes import DTYPES, Dtype, dtype, operator
from synth.runtime.reference.buffers import afford, most_bytes
from synth.runtime.run_result import Ran, rows_of
from synth.runtime.slicing import padding
from synth.runtime.time_bound import certified

DEFAULT_BYTES = 1 << 20


class Call(NamedTuple):
    """What `synth run` is asked. `size` None: `DEFAULT_BYTES`, or the next that divides. `values`: with data, else only
    the time."""

    program: Program
    network: Network | None
    size: int | None = None
    dtype: str = "float32"
    op: str = "sum"
    in_place: bool = False
    seed: int = 0
    values: bool = True
    bound: bool = True


def run(call: Call, arrays: Sequence | None, executor: str, options: Mapping[str, Any]) -> Ran:
    """Run `call` by the executor of that name, on `arrays` or on random data. `options` are the executor's.

    Raises VerificationError where an output is wrong, DeadlockError, SynthError for a size that no call has,
    UsageError for a call that makes no sense.
    """
    program, op, task = call.program, operator(call.op), _task(call)
    layout = Layout(task, program.chunks)
    if arrays is None:
        kind = dtype(call.dtype)
        parts = padding(program, call.size if call.size is not None else _default(program, kind), kind)
        if call.values:
            afford(sum(map(len, (*layout.inputs, *layout.outputs))), parts.elements, kind, most_bytes(executor))
        given = (
            reference_data.inputs(
                parts.layout(task), parts.unit if parts.padded else parts.elements, kind, op, call.seed
            )
            if call.values
            else []
        )
        given = [parts.rows(rows, len(held)) for rows, held in zip(given, layout.inputs, strict=bool(given))]
    else:
        given, parts = rows_of(arrays, layout)
        kind = _common(given)
        given = [rows.astype(kind.numpy, copy=False) for rows in given]
    runner = made(executor, {"network": call.network, **options})
    if call.values:
        execution = runner.run(program, given, dtype=kind.name, op=op, in_place=call.in_place)
        execution = replace(execution, outputs=tuple(map(parts.units, execution.outputs)))
        checked = reference_data.check(parts.layout(task), kind, op, list(map(parts.units, given)), execution.outputs)
    else:
        execution, checked = runner.time(program, parts.elements, dtype=kind.name, in_place=call.in_place), None
    size = parts.unit * kind.size * program.loop_chunks // program.chunks
    bound = _bound(call, task, size) if execution.picoseconds is not None else None
    return Ran(program, call.network, executor.lower(), size, kind.name, op, call.in_place, execution, checked, bound)


def layout(call: Call) -> Layout:
    """Where the chunks of a call lie. Raises UsageError where the call makes no sense."""
    return Layout(_task(call), call.program.chunks)


def _task(call: Call) -> Collective:
    program = call.program
    if program.collective is None:
        raise UsageError(f"{program.name} does not say which collective it computes; name it (--coll)")
    if program.collective.ranks != program.ranks:
        raise SynthError(f"{program.name} has {program.ranks} ranks, its collective {program.collective.ranks}")
    if call.in_place and program.in_place == "out":
        raise UsageError(f"{program.name} is for calls out of place only")
    if not call.in_place and program.in_place == "in":
        raise UsageError(f"{program.name} is for calls in place only; add --in-place")
    return program.collective


def _default(program: Program, kind: Dtype) -> int:
    each = program.loop_chunks * kind.size
    return -(-DEFAULT_BYTES // each) * each


def _common(given: Sequence) -> Dtype:
    names = {rows.dtype.name for rows in given if len(rows)} or {rows.dtype.name for rows in given}
    if len(names) > 1 or not names <= {kind.name for kind in DTYPES}:
        raise UsageError(
            f"the inputs are of {' and '.join(sorted(names))}; they must be of one of "
            f"{', '.join(k.name for k in DTYPES)}"
        )
    return dtype(names.pop())


def made(executor: str, options: Mapping[str, Any]) -> Any:
    """The executor of that name with `options` (None: its default). Raises UsageError, SynthError where it cannot run
    here."""
    kind: Any = find("executors", executor, EXECUTORS)
    given = {name: value for name, value in options.items() if value is not None}
    has = getattr(kind, "__dataclass_fields__", given)
    unknown = [name for name in given if name not in has]
    if unknown:
        raise UsageError(
            f"the {executor} executor has no such option: {' and '.join(unknown)}; it has {', '.join(has)}"
        )
    runner = kind(**given)
    missing = runner.available()
    if missing is not None:
        raise SynthError(f"the {executor} executor cannot run here: {missing}")
    return runner


def _bound(call: Call, task: Collective, size: int) -> Any:
    if call.network is None or not call.bound:
        return None
    try:
        return certified(call.network, task, size)
    except InfeasibleError as error:
        raise SynthError(f"{call.network.name} cannot do {task.name}: {error}") from None
