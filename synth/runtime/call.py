"""One call of a program by an executor: inputs, run, comparison with the collective's definition, certified bound."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

from synth.errors import ArgumentError, InfeasibleError, SynthError, UsageError
from synth.model.collective import Collective
from synth.model.registry import find
from synth.model.topology import Network, Topology
from synth.program import overheads
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime import EXECUTORS, reference_data
from synth.runtime.dtypes import DTYPES, dtype, operator
from synth.runtime.reference.buffers import check_memory, maximum_bytes
from synth.runtime.run_request import RunRequest
from synth.runtime.run_result import RunResult, rows_of
from synth.runtime.slicing import padding, written_out

DEFAULT_BYTES = 1 << 20  # size of a call without a given size, rounded up to whole elements for every chunk

# Additions to the name of the clock for switch sends: of a program that has none, and of one on their ports.
SWITCH_SENDS = "multicasts and fetched sums run as messages between ranks: no time of the switches"
SWITCH_PORTS = "multicasts and fetched sums count once at each port"


class Call(NamedTuple):
    """A lowered program, the network that gives its times (None: no times), and the options of its run.

    `switch_sends`: its schedule has sends of switches that multicast, which the program makes from rank to rank.
    `choice`: in words which point and protocol of a frontier were chosen, and why; "" where both were asked for.
    `machine`: the one whose switches multicast, if they do: the bound holds with that, whatever the program sends.
    """

    program: Program
    network: Network | None
    request: RunRequest
    switch_sends: bool = False
    choice: str = ""
    machine: Topology | None = None


def timed_links(machine: Topology | Network | None, program: Program) -> Network | None:
    """Return the links of `machine` by which every command times `program`: with the ports of switches that multicast
    where it sends through them."""
    if not isinstance(machine, Topology):
        return machine
    return machine.multicast_network() if program.through_switches else machine.network()


def run(call: Call, arrays: Sequence | None = None) -> RunResult:
    """Run `call` by the executor of its request on `arrays`, or on random data where they are None.

    Raises VerificationError where an output is wrong, DeadlockError, SynthError for a
    size that no call has, UsageError for arguments that contradict each other.
    """
    program, request, collective = call.program, call.request, _collective(call)
    op = operator(request.op)
    inputs: list = []
    if arrays is None:
        kind = dtype(request.dtype)
        size = request.size
        if size is None:
            each = program.loop_chunks * kind.size
            size = -(-DEFAULT_BYTES // each) * each
        parts = padding(program, size, kind)
    else:
        inputs, parts = rows_of(arrays, Layout(collective, program.chunks))
        # The element type of all inputs; empty inputs count only where all are empty.
        names = {rows.dtype.name for rows in inputs if len(rows)}
        if not names:
            names = {rows.dtype.name for rows in inputs}
        if len(names) > 1 or not names <= {kind.name for kind in DTYPES}:
            raise UsageError(
                f"the inputs are of {' and '.join(sorted(names))}; they must be of one of "
                f"{', '.join(k.name for k in DTYPES)}"
            )
        kind = dtype(names.pop())
    program = written_out(program, parts.unit * kind.size)
    parts, layout = parts._replace(chunks=program.chunks), Layout(collective, program.chunks)
    if arrays is None:
        if request.data:
            check_memory(
                sum(map(len, (*layout.inputs, *layout.outputs))), parts.elements, kind, maximum_bytes(request.executor)
            )
            inputs = reference_data.padded_inputs(collective, parts, kind, op, request.seed)
    else:
        inputs = rows_of(arrays, layout)[0]
        inputs = [rows.astype(kind.numpy, copy=False) for rows in inputs]
    costs, protocol = overheads.selected(request.overheads), request.protocol or program.protocol
    links = None if call.network is None else costs.links(call.network, protocol)
    runner = make_executor(request.executor, {"network": links, **request.executor_options})
    if request.data:
        execution = runner.run(program, inputs, dtype=kind.name, op=op, in_place=request.in_place)
        execution = replace(execution, outputs=tuple(map(parts.units, execution.outputs)))
        units = list(map(parts.units, inputs))
        checked = reference_data.check(parts.layout(collective), kind, op, units, execution.outputs)
    else:
        execution, checked = runner.time(program, parts.elements, dtype=kind.name, in_place=request.in_place), None
    execution = execution.after(costs.launch(protocol))
    size = parts.unit * kind.size * program.loop_chunks // program.chunks
    bound = _bound(call, collective, size, protocol) if execution.picoseconds is not None else None
    model = overheads.label(costs, protocol, per_send=request.per_send)
    timed = call.network is not None and bool(call.network.multicast)
    if call.switch_sends or program.through_switches:
        model = f"{model}; {SWITCH_PORTS if timed and program.through_switches else SWITCH_SENDS}"
    return RunResult(
        call.program,
        call.network,
        request.executor.lower(),
        size,
        kind.name,
        op,
        request.in_place,
        execution,
        checked,
        bound,
        model,
    )


def layout(call: Call) -> Layout:
    """Return the buffer layout of a call. Raises UsageError, SynthError as `run` does."""
    return Layout(_collective(call), call.program.chunks)


def _collective(call: Call) -> Collective:
    program = call.program
    if program.collective is None:
        raise UsageError(f"{program.name} does not say which collective it computes; name it (--coll)")
    if program.collective.ranks != program.ranks:
        raise SynthError(f"{program.name} has {program.ranks} ranks, its collective {program.collective.ranks}")
    if call.request.in_place and program.in_place == "out":
        raise UsageError(f"{program.name} is for calls out of place only")
    if not call.request.in_place and program.in_place == "in":
        raise UsageError(f"{program.name} is for calls in place only; add --in-place")
    return program.collective


def make_executor(executor: str, options: Mapping[str, Any]) -> Any:
    """Return the executor of that name with `options`; an option that is None keeps its default.

    Raises UsageError for an unknown name or option, SynthError where the executor cannot run here.
    """
    kind: Any = find("executors", executor, EXECUTORS)
    values = {name: value for name, value in options.items() if value is not None}
    fields = getattr(kind, "__dataclass_fields__", values)
    wrong = [name for name in values if name not in fields]
    if wrong:
        near = difflib.get_close_matches(wrong[0], [*fields, *RunRequest.__dataclass_fields__], 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ArgumentError(
            f"the {executor} executor has no such option: {' and '.join(wrong)}; {hint}it has {', '.join(fields)}"
        )
    runner = kind(**values)
    missing = runner.available()
    if missing is not None:
        raise SynthError(f"the {executor} executor cannot run here: {missing}")
    return runner


def _bound(call: Call, collective: Collective, size: int, protocol: str) -> Fraction | None:
    """Return the lower bound in picoseconds of programs in `protocol`, launch included.

    None where none is wanted.
    """
    if call.network is None or not call.request.bound:
        return None
    if size == 0:
        return Fraction(0)
    from synth.scale.time_bound import time_bound

    costs = overheads.selected(call.request.overheads)
    try:
        links = call.network if call.machine is None else call.machine
        bound = time_bound(links, collective, [size], overheads=costs, protocols=(protocol,))
        return bound.microseconds(size) * 10**6
    except InfeasibleError as error:
        raise SynthError(f"{call.network.name} cannot do {collective.name}: {error}") from None
