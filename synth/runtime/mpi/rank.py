"""One rank of a program as an MPI process, with non-blocking point-to-point messages.

The event loop of the reference executor runs the blocks of this rank (those of other ranks have no ops here) until all
of them wait. Then their messages leave by Issend, and the messages that they wait for are matched by Improbe, with the
channel as tag. A message is received when the op that needs it has begun, and a synchronous send completes when it is
received. So a connection holds as many parts as its FIFO, and a program that deadlocks there deadlocks here. Messages
of one connection do not overtake each other (MPI 4.1, section 3.5), so parts need no tags of their own; each begins
with its number of chunks and its op.

The processes agree by sums over all of them (Iallreduce, one after the other) whether all have ended, one has failed,
or all have seen no message move for `patience` seconds and many such sums, which means that none can. A process that
waits sleeps, since there may be more processes than cores.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError, UsageError, VerificationError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.dtypes import combiner, dtype, operator, poison
from synth.runtime.reference.buffers import Arena, check_memory
from synth.runtime.reference.deadlock_diagnosis import Halted, diagnose
from synth.runtime.reference.event_loop import NONE, Engine, WaitReason
from synth.runtime.reference.op_tables import CompiledProgram, compile_program
from synth.runtime.reference.outputs import check_complete, check_input_unchanged, output
from synth.runtime.slicing import FifoOptions, cut

HEADER = 16  # bytes before the data of a message: chunks and op, int64 each
# First and longest sleep in seconds when no message moved; it doubles each time, so that other processes get the core.
NAP, LONGEST = 20e-6, 1e-3
ROUNDS = 20  # sums without a change before a run counts as stuck, since on a loaded machine time alone says little


class RankTask(NamedTuple):
    """The call, the same for every process. `patience`: seconds without any message before all of them give up."""

    program: Program
    elements: int
    dtype: str
    op: str
    in_place: bool
    protocol: str | None = None
    depth: int | None = None
    part: int | None = None
    runtime: str = "synth"
    patience: float = 3.0


def engine_of(task: RankTask, rank: int, given: np.ndarray) -> tuple[Engine, CompiledProgram, Layout]:
    """Return the event loop of one rank, whose memory has the input `given` (rows are chunks), all ops, and the layout.

    Raises SynthError as the reference executor does.
    """
    program, kind = task.program, dtype(task.dtype)
    if program.collective is None:
        raise SynthError(f"{program.name}: the file does not say which collective this is; name it")
    layout = Layout(program.collective, program.chunks)
    fifos = FifoOptions(protocol=task.protocol, depth=task.depth, part=task.part, runtime=task.runtime)
    parts = cut(program, task.elements, kind, fifos)
    arena = Arena(program, layout, in_place=task.in_place, slices=len(parts.bounds))
    check_memory(sum(arena.rows), task.elements, kind)
    inputs: list[np.ndarray | None] = [None] * program.ranks
    inputs[rank] = given
    sizes = [0] * program.ranks  # only this rank's memory is allocated
    sizes[rank] = arena.rows[rank]
    arena.data = [np.full((rows, task.elements), poison(kind), kind.numpy) for rows in sizes]
    arena.fill(inputs, layout, len(parts.bounds))
    code = compile_program(program, arena, in_place=task.in_place)
    steps = []
    for (owner, _), row in zip(code.place, code.steps, strict=True):
        steps.append(row if owner == rank else ())
    own = code._replace(steps=tuple(steps))
    return Engine(own, arena, parts, kind.size, combiner(kind, operator(task.op))), code, layout


class RankState(NamedTuple):
    """The state of one rank's blocks, for the diagnosis of a deadlock.

    `blocks`: (block, has ended, op, wait). `held`: (connection, messages sent and not yet received).
    """

    blocks: tuple[tuple[int, bool, int, Any], ...]
    held: tuple[tuple[int, int], ...]


class Process:
    """The message traffic of one rank, between its `engine` and the communicator `comm`."""

    def __init__(self, mpi: Any, comm: Any, engine: Engine, rank: int) -> None:
        self.mpi, self.comm, self.engine = mpi, comm, engine
        self.mine = [b for b, place in enumerate(engine.code.place) if place[0] == rank]
        self.out = [w for w, wire in enumerate(engine.code.wires) if wire.sender is not None and wire.src == rank]
        self.sending: list[tuple[Any, np.ndarray, int]] = []  # request, message, connection
        self.taking: list[tuple[Any, np.ndarray, int]] = []
        self.taken: set[int] = set()  # connections with a message on its way in
        self.moved = 0

    @property
    def unfinished(self) -> int:
        """Number of blocks of this rank that have not ended."""
        return sum(not self.engine.done[b] for b in self.mine)

    def state(self) -> RankState:
        """Return the state of this rank's blocks."""
        engine = self.engine
        return RankState(
            tuple((b, engine.done[b], engine.pc[b], engine.waiting[b]) for b in self.mine),
            tuple((w, engine.held[w]) for w in self.out),
        )

    def advance(self) -> None:
        """Run the blocks until all wait, then send and receive the messages that are due, without waiting for any.

        Raises VerificationError, SynthError.
        """
        with np.errstate(all="ignore"):
            self.engine.run()
        for w in self.out:
            queue = self.engine.queue[w]
            while queue:
                _, value, count, _, op, _ = queue.popleft()
                self._send(w, value, count, op)
        self.return_credits()
        self._take()

    def _send(self, w: int, value: np.ndarray, count: int, op: int) -> None:
        wire = self.engine.code.wires[w]
        message = np.empty(HEADER + value.nbytes, np.uint8)
        message[:HEADER] = np.array([count, op], np.int64).view(np.uint8)
        message[HEADER:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        self.sending.append((self.comm.Issend([message, self.mpi.BYTE], dest=wire.dst, tag=wire.channel), message, w))
        self.moved += 1

    def return_credits(self) -> None:
        """Give back to the blocks the FIFO credits of sends that have been received."""
        pending = []
        for sent in self.sending:
            if not sent[0].Test():
                pending.append(sent)
                continue
            self.moved += 1
            w = sent[2]
            self.engine.held[w] -= 1
            sender = self.engine.code.wires[w].sender
            if sender is not None and self.engine.waiting[sender] == ("credit", w):
                self.engine.wake(sender, self.engine.now)
        self.sending = pending

    def _take(self) -> None:
        for b in self.mine:
            wait = self.engine.waiting[b]
            if wait is None or wait.kind != "data" or wait.what in self.taken:
                continue
            wire, status = self.engine.code.wires[wait.what], self.mpi.Status()
            found = self.comm.Improbe(source=wire.src, tag=wire.channel, status=status)
            if found is not None:
                message = np.empty(status.Get_count(self.mpi.BYTE), np.uint8)
                self.taking.append((found.Irecv([message, self.mpi.BYTE]), message, wait.what))
                self.taken.add(wait.what)
        pending = []
        for taking in self.taking:
            if taking[0].Test():
                self._deliver(taking[1], taking[2])
            else:
                pending.append(taking)
        self.taking = pending

    def _deliver(self, message: np.ndarray, w: int) -> None:
        engine, wire = self.engine, self.engine.code.wires[w]
        count, op = (int(x) for x in message[:HEADER].view(np.int64))
        receiver, sender = wire.receiver, wire.sender
        if receiver is None or sender is None or engine.arena.data is None:
            raise SynthError(f"a message came in from {wire}, where nothing is to come")
        low, high = engine.cut.bounds[engine.slice[receiver]]
        kind = engine.arena.data[wire.dst].dtype
        if (message.size - HEADER) != count * (high - low) * kind.itemsize:
            here, there = engine.code.where(receiver, engine.pc[receiver]), engine.code.where(sender, op)
            raise VerificationError(
                f"{here} takes slices of {high - low} elements, but what arrives from {there} is of another slice"
            )
        value = message[HEADER:].copy().view(kind).reshape(count, high - low)
        engine.queue[w].append((engine.now, value, count, sender, op, NONE))
        engine.wake(receiver, engine.now)
        self.taken.discard(w)
        self.moved += 1

    def drain(self) -> None:
        """Receive and discard all messages, after a failure, so that no send stays open."""
        status = self.mpi.Status()
        found = self.comm.Improbe(source=self.mpi.ANY_SOURCE, tag=self.mpi.ANY_TAG, status=status)
        while found is not None:
            found.Recv([np.empty(status.Get_count(self.mpi.BYTE), np.uint8), self.mpi.BYTE])
            found = self.comm.Improbe(source=self.mpi.ANY_SOURCE, tag=self.mpi.ANY_TAG, status=status)
        self.taking = [taking for taking in self.taking if not taking[0].Test()]
        self.return_credits()


def run_rank(mpi: Any, comm: Any, task: RankTask, given: np.ndarray) -> np.ndarray:
    """Run the rank of this process and return its output, whose rows are chunks; all processes of `comm` call it.

    `given`: the rank's input.     Raises the same error in every process: VerificationError, DeadlockError, SynthError.
    """
    process, failure, done = None, None, None
    try:
        engine, code, layout = engine_of(task, comm.rank, given)
        process = Process(mpi, comm, engine, comm.rank)
    except SynthError as error:
        failure = error
    stuck: list[RankState] | None = None
    if not any(gather_values(comm, failure is not None)) and process is not None:
        failure, stuck = _until_all_end(comm, process, task.patience)
        if failure is None and stuck is None:
            try:
                done = _result(task, engine.arena, layout, comm.rank, given)
            except SynthError as error:
                failure = error
    errors = gather_values(comm, None if failure is None else _packed(failure))
    raised = [error for error in errors if error is not None]
    if raised:
        raise error_of(raised[0])
    if stuck is not None and process is not None:
        raise diagnose(_merged(process.engine, code, stuck))
    if done is None:
        raise SynthError(f"{task.program.name}: rank {comm.rank} has no result")
    return done


def gather_values(comm: Any, value: Any) -> list:
    """Return the `value` of each process, by rank; every process calls it, and sleeps until the last one has."""
    request, nap = comm.Ibarrier(), NAP
    while not request.Test():
        time.sleep(nap)
        nap = min(2 * nap, LONGEST)
    return comm.allgather(value)


def _until_all_end(comm: Any, process: Process, patience: float) -> tuple[SynthError | None, list[RankState] | None]:
    """Run until all processes have ended, one has failed, or all are stuck.

    Returns the failure of this process, if any, and the states of all ranks if all are stuck. It returns after the same
    sum in every process.
    """
    failure: SynthError | None = None
    stuck: list[RankState] | None = None
    last, since, rounds, leaving, nap = -1, time.monotonic(), 0, False, NAP
    mine, total = np.zeros(5, np.int64), np.zeros(5, np.int64)
    request = None
    while True:
        before = process.moved
        if failure is None and not leaving:
            try:
                process.advance()
            except SynthError as error:
                failure = error
        else:
            process.drain()
        if request is None:
            bored = rounds >= ROUNDS and time.monotonic() - since > patience
            open_ = len(process.sending) + len(process.taking)
            mine[:] = process.unfinished, process.moved, failure is not None, bored, open_
            request = comm.Iallreduce(mine, total)
        elif request.Test():
            request = None
            unfinished, moved, failed, bored, open_ = (int(x) for x in total)
            rounds += 1
            if moved != last:
                last, since, rounds = moved, time.monotonic(), 0
            if leaving and open_ == 0:
                return failure, stuck
            if failed or unfinished == 0 or bored == comm.size:
                if not leaving and not failed and unfinished:
                    # states are gathered before any process drains, since draining ends the waits of others
                    stuck = gather_values(comm, process.state())
                leaving = True
        if process.moved != before:
            nap = NAP
        else:
            time.sleep(nap)
            nap = min(2 * nap, LONGEST)


def _result(task: RankTask, arena: Arena, layout: Layout, rank: int, given: np.ndarray) -> np.ndarray:
    check_complete(task.program, arena, layout, rank)
    done = output(arena, layout, dtype(task.dtype), task.op, rank)
    if not task.in_place:
        check_input_unchanged(arena, layout, rank, given)
    return done


def _merged(engine: Engine, code: CompiledProgram, states: Sequence[RankState]) -> Halted:
    """Return the state of all ranks, so that every process can name the cycle. `code`: the ops of all ranks."""
    done, pc, waiting, held = list(engine.done), list(engine.pc), list(engine.waiting), {}
    for state in states:
        for b, ended, op, wait in state.blocks:
            done[b], pc[b], waiting[b] = ended, op, None if wait is None else WaitReason(*wait)
        held.update(state.held)
    return Halted(code, engine.cut, done, pc, waiting, held)


def _packed(error: SynthError) -> tuple[str, str]:
    return type(error).__name__, str(error)


def error_of(packed: Sequence[str]) -> SynthError:
    """Return the error of another process from (name of its class, text)."""
    kinds = {kind.__name__: kind for kind in (VerificationError, UsageError)}
    return kinds.get(packed[0], SynthError)(packed[1])
