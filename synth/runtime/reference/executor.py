"""The reference executor: data in NumPy arrays, time by the cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError
from synth.model.topology import Network
from synth.program.buffer_layout import Layout
from synth.program.message_cost import NO_COST, MessageCost
from synth.program.program import Program
from synth.runtime.dtypes import Dtype, combiner, operator
from synth.runtime.dtypes import dtype as element_type
from synth.runtime.executor import Execution, Usage, chunk_elements
from synth.runtime.link_schedule import LinkSchedule
from synth.runtime.reference.buffers import Arena
from synth.runtime.reference.deadlock_diagnosis import diagnose
from synth.runtime.reference.event_loop import Engine, Simulation
from synth.runtime.reference.op_tables import compile_program
from synth.runtime.reference.outputs import check_complete, check_input_unchanged, output
from synth.runtime.slicing import FifoOptions, Slicing, cut


class _Call(NamedTuple):
    """The data of a call: type, operator, kind of call, and inputs by rank (None: no data)."""

    kind: Dtype
    op: str
    in_place: bool
    arrays: Sequence[np.ndarray] | None


@dataclass(frozen=True)
class Reference(FifoOptions):
    """A discrete-event simulation of thread blocks; `synth.runtime.reference.event_loop` gives its rules.

    `network` gives the times; without one every event happens at time 0 and only the result counts. `delays`: a seed
    with which blocks, and the engines of port channels, pause at random. `trace`: record all events. `per_send`: the
    cost of a message at either end (`MessageCosts`), for programs with FIFOs, also as text such as ``0.3us``.
    """

    network: Network | None = None
    delays: int | None = None
    trace: bool = False
    per_send: MessageCost | str = NO_COST

    def available(self) -> str | None:
        """Return None: the executor needs only NumPy."""
        return None

    def run(
        self, program: Program, arrays: Sequence[np.ndarray], *, dtype: str, op: str = "sum", in_place: bool = False
    ) -> Execution:
        """Run `program` on `arrays` (rows are chunks), which are not changed; see `Executor.run`."""
        kind = element_type(dtype)
        return self._run(program, chunk_elements(arrays), _Call(kind, operator(op), in_place, arrays))

    def time(self, program: Program, elements: int, *, dtype: str = "float32", in_place: bool = False) -> Execution:
        """Return the time of a run without data; it also checks that no memory is read before it is written."""
        return self._run(program, elements, _Call(element_type(dtype), "sum", in_place, None))

    def _run(self, program: Program, elements: int, call: _Call) -> Execution:
        task = program.collective
        if task is None:
            raise SynthError(f"{program.name}: the file does not say which collective this is; name it")
        if self.network is not None and self.network.ranks != program.ranks:
            raise SynthError(
                f"{program.name} is for {program.ranks} ranks, {self.network.name} has {self.network.ranks}"
            )
        per_send = MessageCost.of(self.per_send)
        if per_send and self.network is None:
            raise UsageError("a cost per message needs the times of the links: name the machine (--topo)")
        if per_send and program.one_sided:
            raise UsageError(f"{program.name} writes into other ranks' memory: messages with a cost go through FIFOs")
        layout = Layout(task, program.chunks)
        parts = cut(program, elements, call.kind, self)
        done = self._launch(program, layout, parts, call)
        halves = program.one_sided and program.has_packets and not program.one_scratch
        if halves and len({gpu.scratch for gpu in program.gpus}) > 1:
            # with equal scratch on all ranks the second launch would repeat the first
            again = replace(program, name=f"{program.name}, second launch")
            self._launch(again, layout, parts, call, second=True)
        return done

    def _launch(self, program: Program, layout: Layout, parts: Slicing, call: _Call, second: bool = False) -> Execution:
        """Run one launch; `second`: MSCCL++'s packets use the upper half of the scratch."""
        elements, (kind, op, in_place, arrays) = parts.elements, call
        arena = Arena(program, layout, in_place=in_place, slices=len(parts.bounds), second=second)
        if arrays is not None:
            arena.allocate(kind, elements)
        arena.fill(arrays or (), layout, len(parts.bounds))
        links = LinkSchedule(self.network) if self.network else None
        engine = Engine(
            compile_program(program, arena, in_place=in_place),
            arena,
            parts,
            kind.size,
            combiner(kind, op),
            Simulation(
                links,
                self.delays,
                self.trace,
                MessageCost.of(self.per_send).picoseconds,
            ),
        )
        with np.errstate(all="ignore"):
            makespan = engine.run()
        if not all(engine.done):
            raise diagnose(engine)
        ranks = range(program.ranks)
        for rank in ranks:
            check_complete(program, arena, layout, rank)
        outputs = None
        if arrays is not None:
            outputs = tuple(output(arena, layout, kind, op, rank) for rank in ranks)
        if arrays is not None and not in_place:
            for rank in ranks:
                check_input_unchanged(arena, layout, rank, arrays[rank])
        events = None
        if engine.events is not None:
            events = tuple(sorted(engine.events, key=lambda event: (event.start, event.rank, event.block, event.op)))
        return Execution(outputs, makespan if links else None, _usage(links), events)


def _usage(links: LinkSchedule | None) -> tuple[Usage, ...]:
    if links is None:
        return ()
    rows = [
        Usage(key, busy, size) for key, busy, size in zip(links.keys, links.busy, links.carried, strict=True) if size
    ]
    return tuple(sorted(rows, key=lambda row: (-row.busy, row.link)))
