"""One rank of a program as an MPI process, with non-blocking point-to-point messages.

The event loop of the reference executor runs the blocks of this rank (those of other ranks have no ops here) until all
of them wait. Then their messages leave by issend, and the messages that they wait for are matched by improbe, with the
channel as tag. A message is received when the op that needs it has begun, and a synchronous send completes when it is
received. So a connection holds as many parts as its FIFO, and a program that deadlocks there deadlocks here. Messages
of one connection do not overtake each other (MPI 4.1, section 3.5), so parts need no tags of their own.

The processes agree by sums over all of them (Iallreduce, one after the other) whether all have ended, one has failed,
or all have seen no message move for `patience` seconds and many such sums, which means that none can. A process that
waits sleeps, since there may be more processes than cores.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from synth.errors import SynthError, VerificationError
from synth.program.buffer_layout import Layout
from synth.program.program import Program
from synth.runtime.dtypes import combiner, dtype, operator, poison
from synth.runtime.reference.buffers import Arena, check_memory
from synth.runtime.reference.deadlock_diagnosis import Halted, diagnose
from synth.runtime.reference.event_loop import NONE, Engine, WaitReason
from synth.runtime.reference.op_tables import compile_program
from synth.runtime.reference.outputs import check_complete, check_input_unchanged, output
from synth.runtime.slicing import FifoOptions, cut

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
    fifos: FifoOptions
    patience: float


class BlockState(NamedTuple):
    """A block of one rank when all are stuck, and the messages in flight on the connection that it sends on."""

    block: int
    done: bool
    op: int
    wait: WaitReason | None
    held: int


class Process:
    """The message traffic of one rank, between its event loop and the communicator `comm`.

    Raises SynthError as the reference executor does.
    """

    def __init__(self, comm: Any, task: RankTask, given: np.ndarray) -> None:
        self.comm, self.task, self.given = comm, task, given
        program, rank, kind = task.program, comm.rank, dtype(task.dtype)
        if program.collective is None:
            raise SynthError(f"{program.name}: the file does not say which collective this is; name it")
        self.layout = Layout(program.collective, program.chunks)
        parts = cut(program, task.elements, kind, task.fifos)
        self.arena = arena = Arena(program, self.layout, in_place=task.in_place, slices=len(parts.bounds))
        check_memory(sum(arena.rows), task.elements, kind)

        # Only this rank's memory is allocated, and only its blocks have ops.
        inputs: list[np.ndarray | None] = [None] * program.ranks
        inputs[rank] = given
        arena.data = []
        for owner, rows in enumerate(arena.rows):
            shape = (rows if owner == rank else 0, task.elements)
            arena.data.append(np.full(shape, poison(kind), kind.numpy))
        arena.fill(inputs, self.layout, len(parts.bounds))
        self.code = compile_program(program, arena, in_place=task.in_place)
        steps = []
        for (owner, _), row in zip(self.code.place, self.code.steps, strict=True):
            steps.append(row if owner == rank else ())
        own = self.code._replace(steps=tuple(steps))
        self.engine = Engine(own, arena, parts, kind.size, combiner(kind, operator(task.op)))

        self.mine = [b for b, place in enumerate(self.code.place) if place[0] == rank]
        self.sending: list[tuple[Any, int]] = []  # request, connection
        self.taking: dict[int, Any] = {}  # by connection: the request of the message on its way in
        self.moved = 0

    @property
    def unfinished(self) -> int:
        """Number of blocks of this rank that have not ended."""
        return sum(not self.engine.done[b] for b in self.mine)

    def state(self) -> list[BlockState]:
        """Return the state of this rank's blocks."""
        engine, states = self.engine, []
        for b in self.mine:
            held = engine.held[engine.code.out[b]] if engine.code.out[b] >= 0 else 0
            states.append(BlockState(b, engine.done[b], engine.pc[b], engine.waiting[b], held))
        return states

    def advance(self) -> None:
        """Run the blocks until all wait, then send and receive the messages that are due, without waiting for any.

        Raises VerificationError, SynthError.
        """
        engine = self.engine
        with np.errstate(all="ignore"):
            engine.run()
        for b in self.mine:
            queue = engine.queue[engine.code.out[b]] if engine.code.out[b] >= 0 else ()
            while queue:
                _, value, count, _, op, _ = queue.popleft()
                wire = engine.code.wires[engine.code.out[b]]
                request = self.comm.issend((value, count, op), dest=wire.dst, tag=wire.channel)
                self.sending.append((request, engine.code.out[b]))
                self.moved += 1
        self.return_credits()

        # Match the message that each waiting block needs, and hand over those that have come in.
        for b in self.mine:
            wait = engine.waiting[b]
            if wait is not None and wait.kind == "data" and wait.what not in self.taking:
                wire = engine.code.wires[wait.what]
                found = self.comm.improbe(source=wire.src, tag=wire.channel)
                if found is not None:
                    self.taking[wait.what] = found.irecv()
        for w, request in list(self.taking.items()):
            arrived, message = request.test()
            if arrived:
                del self.taking[w]
                self._deliver(w, *message)

    def return_credits(self) -> None:
        """Give back to the blocks the FIFO credits of sends that have been received."""
        pending = []
        for request, w in self.sending:
            if not request.test()[0]:
                pending.append((request, w))
                continue
            self.moved += 1
            self.engine.held[w] -= 1
            sender = self.engine.code.wires[w].sender
            if sender is not None and self.engine.waiting[sender] == ("credit", w):
                self.engine.wake(sender, self.engine.now)
        self.sending = pending

    def _deliver(self, w: int, value: np.ndarray, count: int, op: int) -> None:
        engine, wire = self.engine, self.engine.code.wires[w]
        receiver, sender = wire.receiver, wire.sender
        if receiver is None or sender is None:
            raise SynthError(f"a message came in from {wire}, where nothing is to come")
        low, high = engine.cut.bounds[engine.slice[receiver]]
        if value.shape[1] != high - low:
            here, there = self.code.where(receiver, engine.pc[receiver]), self.code.where(sender, op)
            raise VerificationError(
                f"{here} takes slices of {high - low} elements, but what arrives from {there} is of another slice"
            )
        engine.queue[w].append((engine.now, value, count, sender, op, NONE))
        engine.wake(receiver, engine.now)
        self.moved += 1

    def drain(self) -> None:
        """Receive and discard all messages, after a failure, so that no send stays open."""
        while (found := self.comm.improbe()) is not None:
            found.recv()
        self.taking = {w: request for w, request in self.taking.items() if not request.test()[0]}
        self.return_credits()

    def result(self) -> np.ndarray:
        """Return the output of this rank, whose rows are chunks. Raises VerificationError for gaps in it."""
        task, rank = self.task, self.comm.rank
        check_complete(task.program, self.arena, self.layout, rank)
        done = output(self.arena, self.layout, dtype(task.dtype), task.op, rank)
        if not task.in_place:
            check_input_unchanged(self.arena, self.layout, rank, self.given)
        return done


def run_rank(comm: Any, task: RankTask, given: np.ndarray) -> np.ndarray:
    """Run the rank of this process and return its output, whose rows are chunks; all processes of `comm` call it.

    `given`: the rank's input. Raises the same error in every process: VerificationError, DeadlockError, SynthError.
    """
    process = done = failure = None
    try:
        process = Process(comm, task, given)
    except SynthError as error:
        failure = error
    _raise_first(comm, failure)
    assert process is not None
    failure, stuck = _until_all_end(comm, process)
    if failure is None and not stuck:
        try:
            done = process.result()
        except SynthError as error:
            failure = error
    _raise_first(comm, failure)
    if done is None:
        # the states of all ranks, so that every process can name the cycle
        code, engine, held = process.code, process.engine, {}
        for state in stuck:
            engine.done[state.block], engine.pc[state.block] = state.done, state.op
            engine.waiting[state.block] = state.wait
            held[code.out[state.block]] = state.held
        raise diagnose(Halted(code, engine.cut, engine.done, engine.pc, engine.waiting, held))
    return done


def _raise_first(comm: Any, failure: SynthError | None) -> None:
    """Raise, in all processes, the `failure` of the first rank that has one."""
    for error in gather_values(comm, failure):
        if error is not None:
            raise error


def gather_values(comm: Any, value: Any) -> list:
    """Return the `value` of each process, by rank; every process calls it, and sleeps until the last one has."""
    request, nap = comm.Ibarrier(), NAP
    while not request.Test():
        time.sleep(nap)
        nap = min(2 * nap, LONGEST)
    return comm.allgather(value)


def _until_all_end(comm: Any, process: Process) -> tuple[SynthError | None, list[BlockState]]:
    """Run until all processes have ended, one has failed, or all are stuck.

    Returns the failure of this process, if any, and the states of all ranks' blocks if all are stuck. It returns after
    the same sum in every process.
    """
    failure: SynthError | None = None
    stuck: list[BlockState] = []
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

        # One sum at a time is under way; each process adds what it has seen since the last.
        if request is None:
            bored = rounds >= ROUNDS and time.monotonic() - since > process.task.patience
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
                    stuck = list(chain.from_iterable(gather_values(comm, process.state())))
                leaving = True
        if process.moved != before:
            nap = NAP
        else:
            time.sleep(nap)
            nap = min(2 * nap, LONGEST)
