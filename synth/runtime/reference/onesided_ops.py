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

from collections import defaultdict, deque
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from synth.program.program import SWITCHED
from synth.runtime.link_schedule import Transfer, TransferTimes
from synth.runtime.reference.op_tables import CompiledOp, Place, PortKey

if TYPE_CHECKING:
    from synth.runtime.reference.event_loop import Engine

# Yields after it has arranged to be resumed. Returns the time at which its op ends, or None for an op that moves no
# data and ends now.
Job = Generator[None, None, int | None]


class OneSidedOps:
    """The part of an `Engine` for local ops, ports, packets and barriers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.jobs: dict[int, Job] = {}  # by block: its op that has begun and waits
        self.starts = {"wait": self._wait, "flush": self._flush, "barrier": self._barrier}

        # by port: the times at which signals arrive, until they are taken, and the blocks that wait for one
        self.signals: defaultdict[PortKey, deque[int]] = defaultdict(deque)
        self.waiters: defaultdict[PortKey, list[int]] = defaultdict(list)

        # by port: when its last put leaves, and how many of its puts have not left; arrivals also by (block, peer)
        self.departure: defaultdict[PortKey, int] = defaultdict(int)
        self.leaving: defaultdict[PortKey, int] = defaultdict(int)
        self.arrival: defaultdict[Any, int] = defaultdict(int)

        # blocks that wait at a barrier, by its group, and those that a barrier has let go
        self.waiting: defaultdict[tuple[int, ...], set[int]] = defaultdict(set)
        self.passed: set[int] = set()

        # by rank: 1 for each row whose packet has been written, and the blocks that wait for packets
        self.flags = [bytearray(rows) for rows in engine.arena.rows]
        self.readers: list[list[int]] = [[] for _ in engine.arena.rows]

    def begin(self, b: int, step: CompiledOp) -> int | None:
        """Start or resume `step` of block b. Returns the time at which it ends, or None where it waits."""
        engine, job = self.engine, self.jobs.pop(b, None)
        if step.code == "signal":
            self._signal(b, step)
        elif step.code != "nop":
            if job is None:
                job = self.starts.get(step.code, self._transfer)(b, step)
            try:
                next(job)
            except StopIteration as stop:
                if stop.value is not None:
                    return stop.value
            else:
                self.jobs[b] = job
                return None
        engine.record(b, step, engine.now, engine.now)
        return engine.now

    # ------------------------------------------------------------ data

    def _transfer(self, b: int, step: CompiledOp) -> Job:
        """Carry out cpy, re, put, get, reduce, glres or gstore: fetch remote sources, combine, write."""
        engine, rank = self.engine, self.engine.code.place[b][0]
        size = step.count * engine.cut.elements * engine.size

        # packets are read when all of them have been written
        for place in step.src:
            while place.packet and self.flags[place.rank].find(0, place.row, place.row + step.count) >= 0:
                self.readers[place.rank].append(b)
                yield engine.wait(b, "packet", place)
        start = engine.now

        # sources on other ranks come as one sum from a switch, or one after another; all are read when the last is here
        times = yield from self._over_switch(b, step, step.src, size, fetches=True)
        arrival = start if times is None else times.arrival
        for place in step.src if times is None else ():
            if place.rank != rank:
                times = yield from self._over_link(b, step, place.rank, rank, size)
                arrival = max(arrival, times.arrival)
        if arrival > engine.now:
            yield engine.resume_at(b, arrival)
        value, end = None, engine.now
        if step.code != "put":
            value = self._value(b, step)

        # the k-th destination takes the k-th source, if there are as many; a put reads it when its transfer begins
        multicast = yield from self._over_switch(b, step, step.dst, size, fetches=False)
        if multicast is not None:
            end = max(end, multicast.departure)
        for k, place in enumerate(step.dst):
            source = step.src[k if len(step.src) == len(step.dst) else 0]
            arrival = engine.now if multicast is None else multicast.arrival
            if place.rank != rank and multicast is None:
                ports = [port for port in (*step.ports[k : k + 1], *step.ports) if port.peer == place.rank]
                if step.code == "put" and ports and ports[0].kind == "port":
                    self._put_by_proxy(b, step, ports[0], source, place, size)
                    continue
                index = ports[0].index if ports else 0
                times = yield from self._over_link(b, step, rank, place.rank, size, index)
                end, arrival = max(end, times.departure), times.arrival
            if step.code == "put":
                value = self._copy(b, source, step.count)
            if place.rank == rank:
                self._write(place, step.count, value, engine.slice[b])
            else:
                self.arrival[b, place.rank] = max(arrival, self.arrival[b, place.rank])
                engine.call_at(arrival, partial(self._write, place, step.count, value, engine.slice[b]))
        if step.code != "put" and all(place.rank == rank for place in (*step.src, *step.dst)):
            engine.record(b, step, start, end)
        return end

    def _put_by_proxy(self, b: int, step: CompiledOp, port: PortKey, source: Place, target: Place, size: int) -> None:
        """Let the proxy of a port channel put `source` to `target` on another rank, while block b goes on.

        Puts of one port leave, and arrive, in order. The source is read when the bytes leave.
        """
        engine, op, which = self.engine, self.engine.pc[b], self.engine.slice[b]
        times = self._reserve(b, step, port.rank, port.peer, size, port.index)
        pause = engine.pause(b)  # the proxy may be slow, too
        departure = self.departure[port] = max(times.departure + pause, self.departure[port])
        arrival = self.arrival[port] = max(times.arrival + pause, self.arrival[port])
        self.leaving[port] += 1

        def depart() -> None:
            self.leaving[port] -= 1
            value = self._copy(b, source, step.count, (op, which))
            engine.call_at(arrival, partial(self._write, target, step.count, value, which))

        engine.call_at(departure, depart)

    def _over_switch(
        self, b: int, step: CompiledOp, places: tuple[Place, ...], size: int, fetches: bool
    ) -> Generator[None, None, TransferTimes | None]:
        """Send over a switch that joins the ranks of `places`, as soon as the rank's port is free.

        None where the op uses no switch, the links have none, or all data are the rank's own.
        """
        engine, rank = self.engine, self.engine.code.place[b][0]
        links, group = engine.links, tuple(sorted({place.rank for place in places}))
        if links is None or step.code not in SWITCHED or group == (rank,):
            return None
        path = links.switch_path(rank, group, fetches)
        if path is None:
            return None
        while (free := links.switch_free(path, engine.now)) > engine.now:
            yield engine.retry_at(b, engine.now, free)
        times = links.send_through(path, size, engine.now)
        for other in group:
            if other != rank:
                src, dst = (other, rank) if fetches else (rank, other)
                transfer = Transfer(links.keys[links.route(src, dst)], times.begin, times.arrival, size)
                engine.record(b, step, engine.now, times.departure, transfer)
        return times

    def _over_link(
        self, b: int, step: CompiledOp, src: int, dst: int, size: int, index: int = 0
    ) -> Generator[None, None, TransferTimes]:
        """Send over the link from src to dst as soon as it is free."""
        engine = self.engine
        if engine.links:
            route = engine.links.route(src, dst, index)
            while (free := engine.links.free(route, engine.now)) > engine.now:
                yield engine.retry_at(b, engine.now, free)
        return self._reserve(b, step, src, dst, size, index)

    def _reserve(self, b: int, step: CompiledOp, src: int, dst: int, size: int, index: int) -> TransferTimes:
        """Return the times of a transfer that is requested now; without links it takes none."""
        engine, now = self.engine, self.engine.now
        times, key = TransferTimes(now, now, now), (src, dst, ())
        if engine.links is not None:
            route = engine.links.route(src, dst, index)
            times, key = engine.links.send(route, size, engine.links.free(route, now)), engine.links.keys[route]
        engine.record(b, step, now, times.departure, Transfer(key, times.begin, times.arrival, size))
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

    def _write(self, place: Place, count: int, value: Any, which: int) -> None:
        """Write `value` in slice `which`, and resume the blocks that wait for packets of that rank."""
        self.engine.put(place, 0, count, value, which)
        if place.packet:
            self.flags[place.rank][place.row : place.row + count] = b"\x01" * count
            woken, self.readers[place.rank] = self.readers[place.rank], []
            for reader in woken:
                self.engine.wake(reader, self.engine.now)

    # ------------------------------------------------------------ order

    def _signal(self, b: int, step: CompiledOp) -> None:
        """Signal on every port: after its earlier puts (port channel), or those of this block to the peer (memory)."""
        engine = self.engine
        for port in step.ports:
            alpha = engine.links.alpha[engine.links.route(port.rank, port.peer, port.index)] if engine.links else 0
            time = max(engine.now + alpha, self.arrival[port if port.kind == "port" else (b, port.peer)])
            arrivals = self.signals[port.opposite]
            arrivals.append(max(time, arrivals[-1] if arrivals else 0))  # signals do not overtake each other
            for waiter in self.waiters.pop(port.opposite, ()):
                engine.wake(waiter, arrivals[-1])

    def _wait(self, b: int, step: CompiledOp) -> Job:
        """Take one signal from every port, port by port."""
        engine = self.engine
        for port in step.ports:
            arrivals = self.signals[port]
            while not arrivals or arrivals[0] > engine.now:
                if arrivals:
                    yield engine.resume_at(b, arrivals[0])
                else:
                    self.waiters[port].append(b)
                    yield engine.wait(b, "signal", port)
            arrivals.popleft()

    def _flush(self, b: int, step: CompiledOp) -> Job:
        """Wait until all puts of the ports have left, also those that leave at this very moment."""
        while late := [self.departure[port] for port in step.ports if self.leaving[port]]:
            yield self.engine.resume_at(b, max(late))

    def _barrier(self, b: int, step: CompiledOp) -> Job:
        """Wait for all blocks of the group; the last one to come lets the others go."""
        engine, waiting = self.engine, self.waiting[step.group]
        waiting.add(b)
        if len(waiting) < len(step.group):
            while b not in self.passed:
                yield engine.wait(b, "barrier", step.group)
            self.passed.discard(b)
        else:
            del self.waiting[step.group]
            for other in waiting - {b}:
                self.passed.add(other)
                engine.wake(other, engine.now)
