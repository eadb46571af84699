"""Local ops of a rank, and one-sided ops on another rank's memory: put, get, reduce, glres, gstore, signal ..

A put over a memory port keeps its block busy until the last byte has left; its data arrive ⌈α⌉ later. Over a port
channel a proxy does the work: the block goes on at once, the source is read when the bytes leave, and flush waits for
that. A signal arrives ⌈α⌉ after it was sent, and not before the earlier puts to the same peer (memory: of this block;
port: of this port). An op with several transfers begins them one after another, in order, each when its link is free. A
packet span is ready for its readers once it has been written in this run. Ops through a switch that multicasts use its
ports once for all ranks of the group. Where the links have no such switch they are emulated by a message from each rank
of the group, and to each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from synth.program.program import SWITCHED
from synth.runtime.link_schedule import Transfer
from synth.runtime.reference.op_tables import CompiledOp, Place, PortKey

if TYPE_CHECKING:
    from synth.runtime.reference.event_loop import Engine

Job = Generator[None, None, int]  # yields after it has arranged to be resumed; returns when its op ends


class OneSidedOps:
    """The part of an `Engine` for local ops, ports, packets and barriers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.jobs: dict[int, Job] = {}
        self.signals: dict[PortKey, deque[int]] = {}
        self.waiters: dict[PortKey, list[int]] = {}
        self.landed: dict[Any, int] = {}  # (block, peer) or port: when its last put has arrived
        self.left: dict[PortKey, int] = {}  # when its last put has left
        self.leaving: dict[PortKey, int] = {}  # how many of its puts have not left yet
        self.met: dict[tuple[int, ...], set[int]] = {}
        self.passed: set[int] = set()
        self.flags: list[bytearray] = [bytearray(rows) for rows in engine.arena.rows]
        self.readers: list[list[int]] = [[] for _ in engine.arena.rows]

    def begin(self, b: int, step: CompiledOp) -> int | None:
        """Start or resume `step` of block b. Returns the time at which it ends, or None where it waits."""
        if step.code == "nop":
            self.engine.record(b, step, self.engine.now, self.engine.now)
            return self.engine.now
        job = self.jobs.pop(b, None) or self._job(b, step)
        try:
            next(job)
        except StopIteration as stop:
            return stop.value
        self.jobs[b] = job
        return None

    def _job(self, b: int, step: CompiledOp) -> Job:
        if step.ports and step.code in ("signal", "wait", "flush"):
            return {"signal": self._signal, "wait": self._wait, "flush": self._flush}[step.code](b, step)
        return self._barrier(b, step) if step.code == "barrier" else self._transfer(b, step)

    # ------------------------------------------------------------ data

    def _transfer(self, b: int, step: CompiledOp) -> Job:
        """Carry out cpy, re, put, get, reduce, glres or gstore: fetch remote sources, combine, write."""
        engine, rank = self.engine, self.engine.code.place[b][0]
        size = step.count * engine.cut.elements * engine.size
        for place in step.src:
            while place.packet and self.flags[place.rank].find(0, place.row, place.row + step.count) >= 0:
                self.readers[place.rank].append(b)
                yield engine.wait(b, "packet", place)
        here = start = engine.now
        through = engine.links is not None and step.code in SWITCHED
        fetched = (yield from self._through(b, step, step.src, size, fetches=True)) if through else None
        if fetched is not None:
            here = fetched[2]
        for place in step.src if fetched is None else ():
            if place.rank != rank:
                times = yield from self._over(b, step, place.rank, rank, size, 0)
                here = max(here, times[2])
        if here > engine.now:  # fetched data are read when they have arrived
            yield engine.resume_at(b, here)
        far = step.code == "put" or any(place.rank != rank for place in (*step.src, *step.dst))
        end = engine.now
        value = None if step.code == "put" else self._value(b, step)
        stored = (yield from self._through(b, step, step.dst, size, fetches=False)) if through else None
        if stored is not None:
            end = max(end, stored[1])
        for k, place in enumerate(step.dst):
            source = step.src[k] if len(step.src) == len(step.dst) else step.src[0]
            if place.rank == rank:
                self._land(
                    place,
                    step.count,
                    self._copy(b, source, step.count) if step.code == "put" else value,
                    engine.slice[b],
                )
            elif stored is not None:
                self._arrive(b, place, step.count, value, stored[2])
            else:
                left = yield from self._send(b, step, k, source, value, size)
                end = max(end, left)
        if not far:
            engine.record(b, step, start, end)
        return end

    def _send(
        self, b: int, step: CompiledOp, k: int, source: Place, value: Any, size: int
    ) -> Generator[None, None, int]:
        """Begin the transfer to the k-th destination. Returns the time until which the block is busy with it."""
        engine, rank, place = self.engine, self.engine.code.place[b][0], step.dst[k]
        which, op = engine.slice[b], engine.pc[b]
        port = next((p for p in (*step.ports[k : k + 1], *step.ports) if p[2] == place.rank), None)
        if step.code == "put" and port is not None and port[1] == "port":
            left, arrival = self._reserve(b, step, rank, place.rank, size, port[3])[1:]
            late = engine.pause(b)  # the engine of the channel may be slow too
            left = self.left[port] = max(left + late, self.left.get(port, 0))
            arrival = self.landed[port] = max(arrival + late, self.landed.get(port, 0))
            self.leaving[port] = self.leaving.get(port, 0) + 1

            def depart() -> None:
                self.leaving[port] -= 1
                moved = self._copy(b, source, step.count, (op, which))
                engine.call_at(arrival, lambda: self._land(place, step.count, moved, which))

            engine.call_at(left, depart)
            return engine.now
        _, left, arrival = yield from self._over(b, step, rank, place.rank, size, port[3] if port else 0)
        self._arrive(b, place, step.count, self._copy(b, source, step.count) if step.code == "put" else value, arrival)
        return left

    def _arrive(self, b: int, place: Place, count: int, value: Any, arrival: int) -> None:
        """Write `value` on another rank at `arrival`, before which no later signal of block b arrives there."""
        which = self.engine.slice[b]
        self.landed[b, place.rank] = max(arrival, self.landed.get((b, place.rank), 0))
        self.engine.call_at(arrival, lambda: self._land(place, count, value, which))

    def _through(
        self, b: int, step: CompiledOp, places: tuple[Place, ...], size: int, fetches: bool
    ) -> Generator[None, None, tuple[int, int, int] | None]:
        """Send over a switch that joins the ranks of `places`, as `_over`; None where the links have none, or for data
        of the rank alone."""
        engine, rank = self.engine, self.engine.code.place[b][0]
        group = tuple(sorted({place.rank for place in places}))
        if engine.links is None or group == (rank,):
            return None
        path = engine.links.switch_path(rank, group, fetches)
        if path is None:
            return None
        while (free := engine.links.switch_free(path, engine.now)) > engine.now:
            yield engine.retry_at(b, engine.now, free)
        times = engine.links.send_through(path, size, engine.now)
        for other in group:
            if other != rank:
                ends = (other, rank) if fetches else (rank, other)
                key = engine.links.keys[engine.links.route(*ends)]
                engine.record(b, step, engine.now, times[1], Transfer(key, times[0], times[2], size))
        return times

    def _over(
        self, b: int, step: CompiledOp, src: int, dst: int, size: int, index: int
    ) -> Generator[None, None, tuple[int, int, int]]:
        """Send over the link from src to dst as soon as it is free. Returns the times of begin, departure, arrival."""
        engine = self.engine
        if engine.links:
            route = engine.links.route(src, dst, index)
            while (free := engine.links.free(route, engine.now)) > engine.now:
                yield engine.retry_at(b, engine.now, free)
        return self._reserve(b, step, src, dst, size, index)

    def _reserve(self, b: int, step: CompiledOp, src: int, dst: int, size: int, index: int) -> tuple[int, int, int]:
        engine, now = self.engine, self.engine.now
        if engine.links is None:
            engine.record(b, step, now, now, Transfer((src, dst, ()), now, now, size))
            return now, now, now
        route = engine.links.route(src, dst, index)
        times = engine.links.send(route, size, engine.links.free(route, now))
        engine.record(b, step, now, times[1], Transfer(engine.links.keys[route], times[0], times[2], size))
        return times

    def _value(self, b: int, step: CompiledOp) -> Any:
        """Return the value that a local op, get or reduce writes: dst ⊕ src for re, all sources in order for reduce."""
        engine = self.engine
        total = self._copy(b, step.src[0], step.count)
        if step.code == "re":
            return engine.combine_values(engine.load(b, step.dst[0], 0, step.count), total)
        for place in step.src[1:] if step.code in ("reduce", "glres") else ():
            total = engine.combine_values(total, engine.load(b, place, 0, step.count))
        return total

    def _copy(self, b: int, place: Place, count: int, late: tuple[int, int] | None = None) -> Any:
        rows = self.engine.load(b, place, 0, count, late)
        return None if rows is None else rows.copy()

    def _land(self, place: Place, count: int, value: Any, which: int) -> None:
        self.engine.put(place, 0, count, value, which)
        if place.packet:
            self.flags[place.rank][place.row : place.row + count] = b"\x01" * count
            self.wake_readers(place.rank)

    def wake_readers(self, rank: int) -> None:
        """Resume the blocks that wait for packets of `rank`, since some have been written."""
        woken, self.readers[rank] = self.readers[rank], []
        for reader in woken:
            self.engine.wake(reader, self.engine.now)

    # ------------------------------------------------------------ order

    def _signal(self, b: int, step: CompiledOp) -> Job:
        engine = self.engine
        for port in step.ports:
            rank, kind, peer, index = port
            alpha = engine.links.alpha[engine.links.route(rank, peer, index)] if engine.links else 0
            before = self.landed.get(port if kind == "port" else (b, peer), 0)
            self.receive_signal((peer, kind, rank, index), max(engine.now + alpha, before))
        engine.record(b, step, engine.now, engine.now)
        return engine.now
        yield

    def receive_signal(self, port: PortKey, time: int) -> None:
        """Let a signal arrive on `port` at `time`, but not before an earlier one."""
        arrivals = self.signals.setdefault(port, deque())
        arrivals.append(max(time, arrivals[-1] if arrivals else 0))
        for waiter in self.waiters.pop(port, []):
            self.engine.wake(waiter, arrivals[-1])

    def _wait(self, b: int, step: CompiledOp) -> Job:
        """Take one signal from every port, port by port."""
        engine = self.engine
        for port in step.ports:
            while not (arrivals := self.signals.get(port)) or arrivals[0] > engine.now:
                if arrivals:
                    yield engine.resume_at(b, arrivals[0])
                else:
                    self.waiters.setdefault(port, []).append(b)
                    yield engine.wait(b, "signal", port)
            arrivals.popleft()
        engine.record(b, step, engine.now, engine.now)
        return engine.now

    def _flush(self, b: int, step: CompiledOp) -> Job:
        engine = self.engine
        while any(self.leaving.get(port) for port in step.ports):  # also what leaves at this very moment
            yield engine.resume_at(b, max(self.left[port] for port in step.ports if self.leaving.get(port)))
        engine.record(b, step, engine.now, engine.now)
        return engine.now

    def _barrier(self, b: int, step: CompiledOp) -> Job:
        engine = self.engine
        here = self.met.setdefault(step.group, set())
        here.add(b)
        if len(here) < len(step.group):
            while b not in self.passed:
                yield engine.wait(b, "barrier", step.group)
            self.passed.discard(b)
        else:
            del self.met[step.group]
            for other in here - {b}:
                self.passed.add(other)
                engine.wake(other, engine.now)
        engine.record(b, step, engine.now, engine.now)
        return engine.now
