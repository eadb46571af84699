"""The process group `synth`: each collective to a program of a lane, or to the inner library, gloo.

Calls are carried out in the order in which they are issued. A call that nobody waits for, and before which none is
under way, is carried out on the caller's thread; others on the lane's. Barriers, and alltoalls with sizes, which gloo
carries out, take their turn there, too. Gather, scatter, send, receive, lists of varying sizes, empty tensors, and
types and operators that the kernel does not know go to a gloo group of their own at once, beside that order. Which way
a call goes depends on what is equal on all ranks alone, so all ranks decide alike.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from typing import Any

import torch
from torch._C._distributed_c10d import (
    AllreduceOptions,
    Backend,
    BroadcastOptions,
    PrefixStore,
    ProcessGroupGloo,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    Work,
)

from synth.errors import SynthError
from synth.export.plans.lane import IN_PLACE
from synth.runtime.dtypes import dtype
from synth.runtime.kernel import build_host
from synth.runtime.shared.lane import Lane, LaneProgram
from synth.runtime.shared.segment import exchange, same_host
from synth.torch.choice import LARGEST, Chooser, Chosen, Key, plan_of_all
from synth.torch.record import LoggedCalls, Record
from synth.torch.works import Done, Pending, Received

_TYPES = {
    torch.float64: dtype("float64"), torch.float32: dtype("float32"), torch.float16: dtype("float16"),
    torch.bfloat16: dtype("bfloat16"), torch.int8: dtype("int8"), torch.uint8: dtype("uint8"),
    torch.int32: dtype("int32"), torch.int64: dtype("int64"),
}  # fmt: skip
_OPERATORS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.AVG,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
    "prod": ReduceOp.PRODUCT,
}

MOST_KINDS = 4096  # of calls by exact size, whose choice is found at once


@dataclass
class CallKind:
    """Calls that differ in their data alone. `said`: what the other ranks read. `chosen`, `row`: None until the first;
    `row` counts them in the log."""

    said: bytes
    chosen: Chosen | None = None
    row: LoggedCalls | None = None


class Synth(Backend):
    """One process group. `inner`: gloo, for what no program serves; `lane`: None where no program runs at all."""

    def __init__(self, group: Any, options: Any, record: Record, closed: Callable[[Synth], None]) -> None:
        store, rank, size, timeout = group.store, group.group_rank, group.group_size, group.timeout
        super().__init__(rank, size)
        self._closed = partial(closed, self)
        self._options = options or Backend.Options("synth", timeout=timeout)
        self._store, self._timeout = store, timeout
        self.inner: Any = ProcessGroupGloo(PrefixStore("inner", store), rank, size, timeout)
        self.record = record
        self._sequence = 0
        self._batch: list[Work] | None = None
        self._queue: queue.SimpleQueue[tuple[Callable[[], None], Pending] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._background: list[Work] = []  # of collectives that gloo carries out at once, without those that have ended
        self._waiting = 0  # calls in the queue, or under way on its thread
        self._counting = threading.Lock()
        self._received: Work | None = None
        self._kinds: dict[tuple, CallKind] = {}
        self._turn = threading.Lock()  # of the one call that is carried out
        self._disabled = False  # by SYNTH_DISABLE, when the call that is carried out was made
        self._ordered: ProcessGroupGloo | None = None
        plan = plan_of_all(PrefixStore("alike", store), rank, size)
        self.lane, why = self._make_lane(rank, size)
        self._off = why or "a group of one rank"
        self.chooser = None
        if self.lane is not None:
            self.chooser = Chooser(self.lane, PrefixStore("choice", store), self._greatest, plan)
        if why and rank == 0:
            print(f"synth: all collectives go to gloo: {why}", file=sys.stderr, flush=True)

    def _make_lane(self, rank: int, size: int) -> tuple[Lane | None, str]:
        """Return the lane, or why there is none; the same on all ranks."""
        if size == 1:
            return None, ""
        # what one rank lacks, all do without
        why = "" if build_host.compiler() else f"the kernel {build_host.MISSING}"
        if os.environ.get("SYNTH_DISABLE") == "1":
            why = "SYNTH_DISABLE=1"
        store = PrefixStore("lane", self._store)
        for other, reason in enumerate(exchange(store, "why", rank, size, why)):
            if reason:
                return None, reason if reason == why else f"rank {other}: {reason}"
        if not same_host(store, rank, size):
            return None, "the ranks are on several hosts, or in several containers"
        try:
            return Lane(store, rank, size, self._timeout.total_seconds()), ""
        except SynthError as error:
            return None, str(error)

    # ------------------------------------------------------------ what torch asks a backend

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return False

    @property
    def supports_coalescing(self) -> bool:
        return True

    def supports_tensor_alloc(self, device: Any) -> bool:
        return False

    def getBackendName(self) -> str:
        return "synth"

    def _set_sequence_number_for_group(self) -> None:
        self._sequence = 0

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = self._options._timeout = timeout
        for group in (self.inner, self._ordered):
            if group is not None:
                group.set_timeout(timeout)
        if self.lane is not None:
            self.lane.set_timeout(timeout.total_seconds())

    _set_default_timeout = set_timeout

    def shutdown(self) -> None:
        if self.inner is None:  # after an abort
            return
        ended = True
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(5)
            if self._thread.is_alive() and self.lane is not None:
                self.lane.abort(SynthError("the group was destroyed while a call was under way"))
                self._thread.join(5)
            ended = not self._thread.is_alive()
            self._thread = None
        if self.lane is not None and ended:
            self.lane.close()
        # gloo's threads must have ended before the interpreter does
        for group in (self.inner, self._ordered):
            if group is not None:
                group.shutdown()
        self._ordered = self.inner = None
        self.record.write()
        self._closed()

    def abort(self) -> None:
        if self.lane is not None:
            self.lane.abort()
        self.shutdown()

    # ------------------------------------------------------------ the order of calls

    def _issue(self, function: Callable[[], None], tensors: list, opts: Any) -> Work:
        """Carry `function` out after all calls before it; at once where the caller would wait anyhow.

        Raises SynthError where a call before it has failed: DDP waits for futures, which tell no errors.
        """
        if self.lane is not None:
            self.lane.refuse()
        self._sequence += 1
        waits = not getattr(opts, "asyncOp", True)
        disabled = "SYNTH_DISABLE" in os.environ and os.environ["SYNTH_DISABLE"] == "1"
        work: Work
        if waits and not self._waiting:
            self._perform(function, disabled)
            work = Done(tensors)
        else:
            work = pending = Pending(tensors)
            if self._thread is None:
                self._thread = threading.Thread(target=self._carry_out, daemon=True)
                self._thread.start()
            with self._counting:
                self._waiting += 1
            self._queue.put((partial(self._perform, function, disabled), pending))
            if waits:
                pending.wait()
        if self._batch is not None:
            self._batch.append(work)
        return work

    def _perform(self, function: Callable[[], None], disabled: bool) -> None:
        """Carry one call out, the only one of this group at the time."""
        with self._turn:
            self._disabled = disabled
            try:
                function()
            except BaseException as error:  # the other ranks must not wait for the rest of this call
                if self.lane is not None and self.lane.under_way():
                    failed = SynthError(f"a call was given up: {error or type(error).__name__}")
                    self.lane.abort(error if isinstance(error, SynthError) else failed)
                raise

    def _carry_out(self) -> None:
        while (item := self._queue.get()) is not None:
            function, work = item
            error: Exception | None = None
            try:
                function()
            except Exception as problem:
                error = problem
            work.finish(error)
            del item, function, work, error  # the tensors must not live until the next call
            with self._counting:
                self._waiting -= 1

    def _inner(self, name: str, *arguments: Any, why: str = "") -> Work:
        """Let gloo carry a call out. In a coalescing window its work is kept: nobody else waits for it."""
        self._sequence += 1
        first = next((one for one in _flat(arguments) if isinstance(one, torch.Tensor)), None)
        nbytes, kind = (0, "") if first is None else (first.numel() * first.element_size(), str(first.dtype))
        collective = name.strip("_").removesuffix("_base").replace("_", "-")
        why = why or f"no program does {collective}"
        self.record.row(collective, nbytes, kind.removeprefix("torch."), "gloo", why).count(nbytes)
        work = getattr(self.inner, name)(*[argument for argument in arguments if argument is not None])
        if name not in ("send", "recv"):
            self._background = [one for one in self._background if not one.is_completed()] + [work]
        if self._batch is not None:
            self._batch.append(work)
        return work

    def start_coalescing(self) -> None:
        self._batch = []

    def end_coalescing(self) -> Work:
        works, self._batch = self._batch or [], None
        for work in works:
            work.wait()
        return Done([])

    def _start_coalescing(self, device: Any) -> None:
        self.start_coalescing()

    def _end_coalescing(self, device: Any) -> Work:
        return self.end_coalescing()

    # ------------------------------------------------------------ programs

    def _against(self, op: str | None, *tensors: torch.Tensor) -> str:
        """Return why no program carries a call out, "" where one may: it depends on what is equal on all ranks."""
        if self.chooser is None:
            return self._off
        if op is None:
            return "no program has this operator"
        for tensor in tensors:
            if tensor.dtype not in _TYPES or tensor.layout is not torch.strided:
                return f"no program takes {tensor.dtype}, {tensor.layout}"
            if not tensor.numel():
                return "an empty tensor"
        return ""

    def _run(
        self, collective: str, out: torch.Tensor, source: torch.Tensor, units: tuple[int, int], op: str, root: int = 0
    ) -> None:
        """Carry a call out: data of units[0] units from `source`, of units[1] to `out`."""
        assert self.lane is not None
        fits = source.numel() % units[0] == 0 and source.numel() * units[1] == out.numel() * units[0]
        if out.dtype != source.dtype or not fits:
            given = f"{source.numel()} elements of {source.dtype} do not fit {out.numel()} of {out.dtype}"
            raise ValueError(f"{collective} of {self.size()} ranks: {given}")
        given = out
        if out is source:
            out = source = source.contiguous()
        else:
            source = source.contiguous()
            out = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
        larger = source if units[0] >= units[1] else out
        key = collective, larger.numel(), larger.dtype, op, root, self._disabled
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= MOST_KINDS:
                self._kinds.clear()
            text = f"{collective} {op} {larger.dtype} {larger.numel()} {root or ''}".strip().replace("torch.", "")
            kind = self._kinds[key] = CallKind((text + " with SYNTH_DISABLE" * self._disabled).encode())
        begun = self.lane.begin(kind.said)
        nbytes, chosen, row = larger.numel() * larger.element_size(), kind.chosen, kind.row
        if chosen is None or row is None:
            if self._disabled:
                chosen = Chosen(None, "SYNTH_DISABLE=1")
            else:
                chosen = self._choose(collective, larger, units, op, root)
            name = str(larger.dtype).removeprefix("torch.")
            row = self.record.row(collective, nbytes, name, chosen.name, chosen.why, chosen.times)
            kind.chosen, kind.row = chosen, row
            begun = time.perf_counter()
        if chosen.program is None:
            self._by_gloo(collective, out, source, op, root)
        else:
            self._by_program(chosen.program, out, source, units, op)
        row.count(nbytes, begun, time.perf_counter(), self.lane.begun(), self.lane.rank)
        self.lane.finish()
        if out is not given:
            given.copy_(out)

    def _choose(self, collective: str, larger: torch.Tensor, units: tuple[int, int], op: str, root: int) -> Chosen:
        """Return the choice of calls like this one, raced on data of its own where there is none yet."""
        assert self.chooser is not None
        nbytes = larger.numel() * larger.element_size()
        row = self.chooser.row(collective, nbytes, root)
        key = Key(collective, nbytes.bit_length(), str(larger.dtype), op, collective in IN_PLACE, root, row)
        count = max(1, min(larger.numel(), LARGEST // larger.element_size()) // max(units))

        @cache  # made for a race alone
        def data() -> tuple[torch.Tensor, torch.Tensor]:
            source = larger.new_zeros(count * units[0])
            return source, source if key.in_place else larger.new_zeros(count * units[1])

        def prepare(program: LaneProgram | None) -> Callable[[], None]:
            source, out = data()
            if program is None:
                return lambda: self._by_gloo(collective, out, source, op, root)
            return lambda: self._by_program(program, out, source, units, op)

        return self.chooser.choose(key, prepare)

    def _by_program(
        self, loaded: LaneProgram, out: torch.Tensor, source: torch.Tensor, units: tuple[int, int], op: str
    ) -> None:
        """Run a program. Where its chunks do not divide a unit, the data go through copies with padding."""
        assert self.lane is not None
        kind, chunks = _TYPES[source.dtype], loaded.program.chunks
        unit = source.numel() // units[0]
        elements = -(-unit // chunks)
        padded = elements * chunks
        if padded == unit:
            self.lane.call(loaded, elements, kind, op, source.data_ptr(), out.data_ptr())
        else:
            inside = source.new_zeros(units[0], padded)
            inside[:, :unit].copy_(source.view(units[0], unit))
            # not where only their addresses are equal: rank 0's part of an allgather's output may be the input
            outside = inside if out is source else out.new_empty(units[1], padded)
            self.lane.call(loaded, elements, kind, op, inside.data_ptr(), outside.data_ptr())
            out.view(units[1], unit).copy_(outside[:, :unit])
        if op == "avg":
            _divide(out, self.size())

    def _by_gloo(self, collective: str, out: torch.Tensor, source: torch.Tensor, op: str, root: int) -> None:
        """Let gloo carry out a call whose turn it is on the lane."""
        self._meet_and(lambda: self._on_ordered_gloo(collective, out, source, op, root))

    def _meet_and(self, call: Callable[[], None]) -> None:
        """Make a call of gloo whose turn it is on the lane, by connections that only such calls use."""
        assert self.lane is not None
        self.lane.meet()
        try:
            call()
        except RuntimeError:
            self.lane.check()  # says more than a connection that was closed
            raise

    def _on_ordered_gloo(self, collective: str, out: torch.Tensor, source: torch.Tensor, op: str, root: int) -> None:
        library = self._ordered_gloo()
        operator = _OPERATORS["sum" if op == "avg" else op]
        if collective == "allreduce":
            given = AllreduceOptions()
            given.reduceOp = operator
            library.allreduce([out], given).wait()
        elif collective == "allgather":
            library._allgather_base(out, source).wait()
        elif collective == "broadcast":
            spread = BroadcastOptions()
            spread.rootRank = root
            library.broadcast([out], spread).wait()
        elif collective == "reduce":
            gather = ReduceOptions()
            gather.rootRank, gather.reduceOp = root, operator
            library.reduce([out], gather).wait()
        elif collective == "alltoall":
            library.alltoall_base(out, source, [], []).wait()
        else:
            scatter = ReduceScatterOptions()
            scatter.reduceOp = operator
            library._reduce_scatter_base(out, source, scatter).wait()
        if op == "avg":
            _divide(out, self.size())

    def _ordered_gloo(self) -> ProcessGroupGloo:
        """Return the second gloo group, for calls whose turn it is on the lane."""
        if self._ordered is None:
            store = PrefixStore("agreement", self._store)
            self._ordered = ProcessGroupGloo(store, self.rank(), self.size(), self._timeout)
        return self._ordered

    def _greatest(self, values: Sequence[float]) -> list[float]:
        """Return the greatest of all ranks for each of `values`."""
        tensor = torch.tensor(values, dtype=torch.float64)
        given = AllreduceOptions()
        given.reduceOp = ReduceOp.MAX
        self._ordered_gloo().allreduce([tensor], given).wait()
        return tensor.tolist()

    # ------------------------------------------------------------ collectives that programs serve

    def allreduce(self, tensors: list, opts: Any = None, name: str = "allreduce") -> Work:
        op = _operator(opts)
        if why := self._against(op, *tensors):
            return self._inner(name, tensors, opts, why=why)

        return self._issue(lambda: self._in_place("allreduce", tensors, str(op)), tensors, opts)

    def _in_place(self, collective: str, tensors: list, op: str, root: int = 0) -> None:
        for tensor in tensors:
            self._run(collective, tensor, tensor, (1, 1), op, root)

    def allreduce_coalesced(self, tensors: list, opts: Any = None) -> Work:
        return self.allreduce(tensors, opts, "allreduce_coalesced")

    def broadcast(self, tensors: list, opts: Any = None) -> Work:
        root = getattr(opts, "rootRank", 0)
        if why := self._against("sum", *tensors):
            return self._inner("broadcast", tensors, opts, why=why)
        return self._issue(lambda: self._in_place("broadcast", tensors, "sum", root), tensors, opts)

    def reduce(self, tensors: list, opts: Any = None) -> Work:
        op, root = _operator(opts), getattr(opts, "rootRank", 0)
        if why := self._against(op, *tensors):
            return self._inner("reduce", tensors, opts, why=why)

        def carry_out() -> None:
            self._in_place("reduce", tensors, "sum" if op == "avg" else str(op), root)
            if op == "avg" and self.rank() == root:  # others' tensors stay as they are
                for tensor in tensors:
                    _divide(tensor, self.size())

        return self._issue(carry_out, tensors, opts)

    def all_gather_single(self, out: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        return self.all_gather_single_coalesced([out], [source], opts)

    _allgather_base = all_gather_single

    def all_gather_single_coalesced(self, outs: list, sources: list, opts: Any = None) -> Work:
        if why := self._against("sum", *outs, *sources):
            pairs = zip(outs, sources, strict=True)
            return self._all(
                [self._inner("_allgather_base", out, source, opts, why=why) for out, source in pairs], outs
            )

        def carry_out() -> None:
            for out, source in zip(outs, sources, strict=True):
                self._run("allgather", out, source, (1, self.size()), "sum")

        return self._issue(carry_out, outs, opts)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def allgather(self, outs: list, sources: list, opts: Any = None) -> Work:
        even = all(
            part.numel() == source.numel() for parts, source in zip(outs, sources, strict=True) for part in parts
        )
        if why := "varying sizes" if not even else self._against("sum", *sources):
            return self._inner("allgather", outs, sources, opts, why=why)

        def carry_out() -> None:
            for parts, source in zip(outs, sources, strict=True):
                flat = source.new_empty(self.size() * source.numel())
                self._run("allgather", flat, source, (1, self.size()), "sum")
                for part, found in zip(parts, flat.chunk(self.size()), strict=True):
                    part.copy_(found.view(part.shape))

        return self._issue(carry_out, outs, opts)

    def allgather_coalesced(self, outs: list, sources: list, opts: Any = None) -> Work:
        works = []
        for k, source in enumerate(sources):
            parts = [of_rank[k] for of_rank in outs]
            works.append(self.allgather([parts], [source], opts))
        return self._all(works, list(_flat(outs)))

    def reduce_scatter_single(self, out: torch.Tensor, source: torch.Tensor, opts: Any = None) -> Work:
        op = _operator(opts)
        if why := self._against(op, out, source):
            return self._inner("_reduce_scatter_base", out, source, opts, why=why)

        def carry_out() -> None:
            # in place the output is a part of the input, which a program may still read
            given = source.clone() if _overlap(out, source) else source
            self._run("reduce-scatter", out, given, (self.size(), 1), str(op))

        return self._issue(carry_out, [out], opts)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outs: list, sources: list, opts: Any = None) -> Work:
        works = [self.reduce_scatter_single(out, source, opts) for out, source in zip(outs, sources, strict=True)]
        return self._all(works, outs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def reduce_scatter(self, outs: list, sources: list, opts: Any = None) -> Work:
        works = []
        for out, parts in zip(outs, sources, strict=True):
            if any(part.numel() != out.numel() for part in parts):
                works.append(self._inner("reduce_scatter", [out], [parts], opts, why="varying sizes"))
            else:
                works.append(self.reduce_scatter_single(out, _joined(parts), opts))
        return self._all(works, outs)

    def all_to_all_single(
        self, out: torch.Tensor, source: torch.Tensor, out_sizes: list, in_sizes: list, opts: Any = None
    ) -> Work:
        # empty tensors, as sizes, may be one rank's alone
        sized = bool(out_sizes or in_sizes) or not out.numel() or not source.numel()
        if why := self._against("sum", out.new_empty(1), source.new_empty(1)):
            return self._inner("alltoall_base", out, source, out_sizes, in_sizes, opts, why=why)
        if sized:
            return self._issue(lambda: self._sized_alltoall(out, source, out_sizes, in_sizes), [out], opts)

        def carry_out() -> None:
            given = source.clone() if _overlap(out, source) else source
            self._run("alltoall", out, given, (self.size(), self.size()), "sum")

        return self._issue(carry_out, [out], opts)

    alltoall_base = all_to_all_single

    def _sized_alltoall(self, out: torch.Tensor, source: torch.Tensor, out_sizes: list, in_sizes: list) -> None:
        """Let gloo carry out an alltoall whose sizes other ranks do not know. A rank that gives none is named."""
        assert self.lane is not None
        kind = str(out.dtype).removeprefix("torch.")
        given, source = out, source.clone() if _overlap(out, source) else source.contiguous()
        out = out if out.is_contiguous() else torch.empty_like(out, memory_format=torch.contiguous_format)
        begun = self.lane.begin(f"alltoall {kind} with sizes".encode())
        self._meet_and(lambda: self._ordered_gloo().alltoall_base(out, source, out_sizes, in_sizes).wait())
        nbytes = max(out.numel(), source.numel()) * out.element_size()
        row = self.record.row("alltoall", nbytes, kind, "gloo", "varying sizes")
        row.count(nbytes, begun, time.perf_counter(), self.lane.begun(), self.lane.rank)
        self.lane.finish()
        if out is not given:
            given.copy_(out)

    def alltoall(self, outs: list, sources: list, opts: Any = None) -> Work:
        source = _joined(sources)
        out_sizes = [part.numel() for part in outs]
        in_sizes = [part.numel() for part in sources]
        out = source.new_empty(sum(out_sizes))
        self.all_to_all_single(out, source, out_sizes, in_sizes, opts).wait()
        for part, found in zip(outs, out.split(out_sizes), strict=True):
            part.copy_(found.view(part.shape))
        return Done(outs)

    def _all(self, works: list[Work], tensors: list) -> Work:
        """Return one work for several, which are waited for here."""
        if len(works) == 1:
            return works[0]
        for work in works:
            work.wait()
        return Done(tensors)

    def barrier(self, opts: Any = None) -> Work:
        if self.lane is None:
            return self._inner("barrier", opts, why=self._off)
        before, self._background = self._background, []

        def carry_out() -> None:
            assert self.lane is not None
            for work in before:
                work.wait()
            begun = self.lane.begin(b"barrier")
            self.lane.meet()
            row = self.record.row("barrier", 0, "", "shared memory", "")
            row.count(0, begun, time.perf_counter(), self.lane.begun(), self.lane.rank)
            self.lane.finish()

        return self._issue(carry_out, [], opts)

    # ------------------------------------------------------------ what gloo carries out

    def gather(self, outs: list, sources: list, opts: Any = None) -> Work:
        return self._inner("gather", outs, sources, opts)

    def scatter(self, outs: list, sources: list, opts: Any = None) -> Work:
        return self._inner("scatter", outs, sources, opts)

    def send(self, tensors: list, rank: int, tag: int = 0) -> Work:
        return self._inner("send", tensors, rank, tag)

    def recv(self, tensors: list, rank: int, tag: int = 0) -> Work:
        return self._inner("recv", tensors, rank, tag)

    def recv_anysource(self, tensors: list, tag: int = 0) -> Work:
        self._sequence += 1
        work = self._received = Received(self.inner.recv_anysource(tensors, tag), tensors)
        if self._batch is not None:
            self._batch.append(work)
        return work


def _flat(values: Sequence) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from _flat(value)
        else:
            yield value


def _joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _operator(opts: Any) -> str | None:
    """Return the kernel's name of the reduction; None where it has none."""
    wanted = getattr(opts, "reduceOp", ReduceOp.SUM)
    return next((name for name, value in _OPERATORS.items() if wanted == value), None)


def _divide(tensor: torch.Tensor, ranks: int) -> None:
    if tensor.is_floating_point():
        tensor.div_(ranks)
    else:
        tensor.div_(ranks, rounding_mode="trunc")


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return True if the memory of two contiguous tensors overlaps."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.numel() * other.element_size() and second < first + one.numel() * one.element_size()
