"""An interpreter of MSCCL++ plans that steps single threads, for tests of `synth lint`.

It reads the JSON document itself and shares no code with readers, lint or executors. Each thread block has a few
threads, each with a place of its own in the block's operations, as in MSCCL++'s kernel: data operations deal elements
out to threads, in one way for all operations with packets and in another for each other one; thread k serves the k-th
channel of a signal, a wait or a put through port channels; only `nop` and `barrier` join. A proxy carries out what was
handed to a port channel, later. Ranks go from launch to launch each for itself. An element is one 16-byte unit; its
value is the pair of its place and the set of ranks whose contributions it sums. Threads run by random priorities that
change at random moments (Burckhardt et al., "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs",
2010).
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

THREADS = 3  # of a block: more than one tells apart what one thread keeps in order
MAX_STEPS = 2_000_000  # of one run
BURST = 12  # steps that a thread may take before another may overtake it
CHANGES = 12  # random changes of priorities in one run
PREDEFINED = 1 << 26  # bytes of a shared scratch

FROM_PACKETS = ("rppkt", "upkt", "gstorepkt")
TO_PACKETS = ("ppkt", "rppkt", "cpkt", "gstorepkt")
SUMS_OF_PACKETS = ("repkt", "respkt", "recpkt", "recspkt")

Document = dict[str, Any]
Steps = Iterator[tuple | None]
Cell = tuple  # (rank, buffer, unit) or (rank, "packet", half, unit)


class Wrong(Exception):
    """A launch that ends with a wrong output, or never."""


def part_of(units: int, index: int, count: int) -> tuple[int, int]:
    """Return the first unit of share `index` of `count` of `units` units, and its length."""
    first = [k * (units // count) + min(k, units % count) for k in (index, index + 1)]
    return first[0], first[1] - first[0]


class Machine:
    """All ranks of a plan in calls whose chunks have `units` units of 16 bytes.

    ``start(rank, unit)``: the value of a unit of the rank's input. ``wanted(rank, unit)``: that of its output at the
    end. `shift`: where the output begins in the input (in place), None for buffers apart.
    """

    def __init__(
        self,
        plan: Document,
        units: int,
        start: Callable[[int, int], Any],
        wanted: Callable[[int, int], Any],
        shift: Callable[[int], int | None],
        seed: int = 0,
    ) -> None:
        self.plan, self.units, self.start, self.wanted, self.shift = plan, units, start, wanted, shift
        self.random = random.Random(seed)
        self.gpus = plan["gpus"]
        self.memory: dict[Cell, Any] = {}
        self.packets: dict[Cell, tuple[int, Any]] = {}
        self.signals: dict[tuple, int] = defaultdict(int)  # (rank, kind, peer, index) → signals that have arrived
        self.queues: dict[tuple, deque] = defaultdict(deque)  # port channel → what its proxy has to do
        self.semaphores: dict[tuple[int, int], int] = {}
        self.joined: dict[tuple, list[int]] = defaultdict(lambda: [0, 0])  # arrivals, generations
        self.launch = [0] * len(self.gpus)
        self.running = [0] * len(self.gpus)  # threads of a rank that have not ended
        self.position: dict[tuple, int] = {}  # thread or proxy → its place in the order in which they go
        self.ready: list[tuple[int, tuple]] = []  # heap of those that may be able to go
        self.waiters: dict[tuple, list[tuple]] = defaultdict(list)  # event → the others
        self.parked: set[tuple] = set()
        self.channels = [self._channels(gpu) for gpu in self.gpus]
        for rank, gpu in enumerate(self.gpus):
            for number, semaphore in enumerate(gpu.get("semaphores", ())):
                self.semaphores[rank, number] = semaphore["init_value"]

    # ------------------------------------------------------------ places

    @staticmethod
    def _channels(gpu: Document) -> dict[str, list[tuple]]:
        """Return the channels of a rank by kind: (kind, peer, index among those to the peer), or (buffer, ranks)."""
        found: dict[str, list[tuple]] = {"memory": [], "port": [], "switch": []}
        for entry in gpu["channels"]:
            kind = entry["channel_type"]
            for group in entry.get("rank_groups", ()):
                found[kind].append((entry["buffer_type"], tuple(group["ranks"])))
            for peer in entry.get("connected_to", ()):
                found[kind].append((kind, peer, sum(channel[1] == peer for channel in found[kind])))
        return found

    def _stride(self, rank: int) -> int:
        """Return the units between chunks of scratch."""
        chunks = self.gpus[rank]["scratch_chunks"]
        if not self.plan.get("reuse_resources") or not chunks:
            return self.units
        half = PREDEFINED // (2 if self.plan.get("use_double_scratch_buffer") else 1)
        return min(self.units, -(-half // chunks // 16))

    def _cell(self, user: int, owner: int, buffer: str, unit: int, packet: bool) -> Cell:
        if packet:
            half = self.launch[user] % 2 if self.plan.get("use_double_scratch_buffer") else 0
            return owner, "packet", half, unit
        shift = self.shift(owner) if self.plan["inplace"] else None
        if buffer == "o" and shift is not None:
            return owner, "i", unit + shift * self.units
        return owner, buffer, unit

    def _span(self, rank: int, block: Document, op: Document, buff: Document, packet: bool) -> list[list[Cell]]:
        """Return the cells of an operand, for each rank that it lies on (several through a switch)."""
        kind = op.get("channel_type", "memory")
        if "switch_channel_id" in buff:
            ids = next(entry["channel_ids"] for entry in block["channels"] if entry["channel_type"] == "switch")
            buffer, owners = self.channels[rank]["switch"][ids[buff["switch_channel_id"]]]
        elif "buffer_id" in buff:
            refs = next(r for r in block["remote_buffer_refs"] if r["access_channel_type"] == kind)
            remote = self.gpus[rank]["remote_buffers"][refs["remote_buffer_ids"][buff["buffer_id"]]]
            buffer, owners = remote["type"], (remote["rank"],)
        else:
            buffer, owners = buff["type"], (rank,)
        size = buff["size"] * self.units
        first = buff["index"] * (self._stride(rank) if buffer == "s" else self.units)
        if "tbg_info" in op:
            at, size = part_of(size, op["tbg_info"]["tb_id"], op["tbg_info"]["tbg_size"])
            first += at
        if "turn" in op:
            at, unit = op["turn"] * op["unit"], op["unit"]
            size = min(size - at, unit) if at <= size else unit
            stride = self._stride(rank)
            first += at % stride if buffer == "s" and self.plan.get("reuse_resources") else at
        return [[self._cell(rank, owner, buffer, first + k, packet) for k in range(size)] for owner in owners]

    # ------------------------------------------------------------ threads

    def run(self, launches: int = 3) -> None:
        """Run all launches. Raises Wrong."""
        tasks: dict[tuple, Iterator] = {}
        for rank in range(len(self.gpus)):
            self._enter(rank, tasks)
        steps, done = 0, 0
        self._set_priorities(tasks)
        changes = sorted(self.random.randrange(2000) for _ in range(CHANGES))
        while done < len(self.gpus):
            steps += 1
            if steps > MAX_STEPS:
                raise Wrong("too many steps")
            if changes and steps > changes[0]:
                changes.pop(0)
                self._set_priorities(tasks)
            if not self.ready:
                raise Wrong(f"hangs: {sorted(tasks)[:4]}")
            position, key = heapq.heappop(self.ready)
            if not self._advance(key, tasks):
                continue
            for _ in range(self.random.randrange(BURST)):
                if key not in self.position or not self._advance(key, tasks):
                    break
            if key in self.position and key not in self.parked:
                heapq.heappush(self.ready, (position, key))
            rank = key[1]
            if key[0] == "thread" and key not in tasks and not self.running[rank]:
                self._leave(rank)
                if self.launch[rank] + 1 < launches:
                    self.launch[rank] += 1
                    self._enter(rank, tasks)
                    self._set_priorities(tasks)
                else:
                    done += 1

    def _set_priorities(self, tasks: dict) -> None:
        """Give every thread and proxy a new random place in the order in which they go."""
        keys = [*tasks, *self.queues]
        groups = {key[:3]: self.random.random() for key in keys}  # threads of a block mostly go together
        order = sorted(keys, key=lambda key: groups[key[:3]] + 0.2 * self.random.random())
        self.position = {key: at for at, key in enumerate(order)}
        self.waiters.clear()
        self.parked.clear()
        self.ready = list(enumerate(order))
        self.places = len(order)

    def _advance(self, key: tuple, tasks: dict) -> bool:
        """Let a thread or a proxy take one step. False if it waits: `_happen` of what it waits for makes it ready."""
        if key[0] == "proxy":
            if not self.queues[key]:
                return self._park(key, key)
            self.queues[key].popleft()()
            if not self.queues[key]:
                self._happen(("empty", key))
            return True
        try:
            event = next(tasks[key])
        except StopIteration:
            del tasks[key], self.position[key]
            self.running[key[1]] -= 1
            return True
        return True if event is None else self._park(key, event)

    def _park(self, key: tuple, event: tuple) -> bool:
        self.parked.add(key)
        self.waiters[event].append(key)
        return False

    def _happen(self, event: tuple) -> None:
        """Make all that wait for `event` ready; they look again."""
        for key in self.waiters.pop(event, ()):
            self.parked.discard(key)
            heapq.heappush(self.ready, (self.position[key], key))

    def _push(self, proxy: tuple, request: Callable[[], None]) -> None:
        """Hand a request to the proxy of a port channel."""
        if proxy not in self.queues:
            self.position[proxy] = self.places  # after all others
            heapq.heappush(self.ready, (self.places, proxy))
            self.places += 1
        self.queues[proxy].append(request)
        self._happen(proxy)

    def _enter(self, rank: int, tasks: dict) -> None:
        gpu = self.gpus[rank]
        for buffer, chunks in (("o", gpu["output_chunks"]), ("i", gpu["input_chunks"])):
            for unit in range(chunks * self.units):
                cell = self._cell(rank, rank, buffer, unit, False)
                self.memory[cell] = None
                if buffer == "i":
                    place, ranks = self.start(rank, unit)
                    self.memory[cell] = (self.launch[rank], place), ranks  # each launch has data of its own
        for block in gpu["threadblocks"]:
            for thread in range(THREADS):
                tasks["thread", rank, block["id"], thread] = self._thread(rank, block, thread)
                self.running[rank] += 1

    def _leave(self, rank: int) -> None:
        for unit in range(self.gpus[rank]["output_chunks"] * self.units):
            place, ranks = self.wanted(rank, unit)
            want = (self.launch[rank], place), ranks
            got = self.memory.get(self._cell(rank, rank, "o", unit, False))
            if got != want:
                raise Wrong(f"launch {self.launch[rank]}: output unit {unit} of rank {rank} is {got}, wanted {want}")

    def _ops(self, block: Document) -> Iterator[Document]:
        for op in block["ops"]:
            if op["name"] != "pipeline":
                yield op
                continue
            unit = op["iter_context"]["unit_size"] // 16
            for turn in range(-(-op["iter_context"]["num_chunks"] * self.units // unit)):
                for inner in op["ops"]:
                    yield {**inner, "turn": turn, "unit": unit}

    def _thread(self, rank: int, block: Document, thread: int) -> Steps:
        """Run one thread of a block through a launch; yields None after a step, and the event for which it waits."""
        for number, op in enumerate(self._ops(block)):
            name = op["name"]
            if name == "nop":
                yield from self._join(("block", rank, block["id"]), THREADS)
            elif name == "barrier":
                yield from self._join(("barrier", rank, op["barrier_id"]), THREADS * op["num_threadblocks"])
            elif name in ("sem_acquire", "sem_release"):
                yield from self._semaphore(rank, op, thread)
            elif name in ("signal", "rlxsignal", "wait", "rlxwait", "flush"):
                yield from self._sync(rank, block, op, thread)
            else:
                yield from self._data(rank, block, op, thread, number)

    def _join(self, key: tuple, members: int) -> Steps:
        state = self.joined[key]
        generation = state[1]
        state[0] += 1
        if state[0] == members:
            state[0], state[1] = 0, generation + 1
            self._happen(key)
        while state[1] == generation:
            yield key
        yield None

    def _semaphore(self, rank: int, op: Document, thread: int) -> Steps:
        if thread < len(op["semaphore_ids"]):
            key = rank, op["semaphore_ids"][thread]
            while op["name"] == "sem_acquire" and not self.semaphores[key]:
                yield "semaphore", *key
            self.semaphores[key] += 1 if op["name"] == "sem_release" else -1
            self._happen(("semaphore", *key))
            yield None

    def _channel(self, rank: int, block: Document, op: Document, k: int) -> tuple:
        kind = op["channel_type"]
        ids = next(entry["channel_ids"] for entry in block["channels"] if entry["channel_type"] == kind)
        return self.channels[rank][kind][ids[op["channel_ids"][k]]]

    def _sync(self, rank: int, block: Document, op: Document, thread: int) -> Steps:
        count = len(op.get("dst_buff", ())) if op["name"] == "flush" else len(op["channel_ids"])
        for k in range(thread, count, THREADS):
            kind, peer, index = self._channel(rank, block, op, k)
            if op["name"] in ("signal", "rlxsignal"):
                self._signal(rank, kind, peer, index)
            elif op["name"] == "flush":
                proxy = "proxy", rank, kind, peer, index
                while self.queues.get(proxy):
                    yield "empty", proxy
            else:
                while not self.signals[rank, kind, peer, index]:
                    yield "signal", rank, kind, peer, index
                self.signals[rank, kind, peer, index] -= 1
            yield None

    def _signal(self, rank: int, kind: str, peer: int, index: int) -> None:
        def arrive() -> None:
            self.signals[peer, kind, rank, index] += 1
            self._happen(("signal", peer, kind, rank, index))

        if kind == "port":
            self._push(("proxy", rank, kind, peer, index), arrive)
        else:
            arrive()

    # ------------------------------------------------------------ data

    def _data(self, rank: int, block: Document, op: Document, thread: int, number: int) -> Steps:
        name, flag = op["name"], self.launch[rank] + 1
        port = op.get("channel_type") == "port"
        src, dst = [], []
        for k, buff in enumerate(op["src_buff"]):
            packet = name in FROM_PACKETS or (name == "ppkt" and port) or (name in SUMS_OF_PACKETS and k > 0)
            src += self._span(rank, block, op, buff, packet)
        for k, buff in enumerate(op["dst_buff"]):
            packet = name in TO_PACKETS or (name in SUMS_OF_PACKETS and k > 0)
            dst += self._span(rank, block, op, buff, packet)
        if port:
            yield from self._port_put(rank, block, op, thread, (src, dst))
            return
        pairs = name in ("put", "ppkt", "rppkt")
        packets = "pkt" in name
        for element in range(max(map(len, (*src, *dst)), default=0)):
            if (element if packets else element * 5 + number) % THREADS != thread:
                continue
            values = []
            for cells in src:
                if cells[element][1] == "packet":
                    while self.packets.get(cells[element], (0, None))[0] != flag:
                        yield cells[element]
                    values.append(self.packets[cells[element]][1])
                else:
                    values.append(self.memory.get(cells[element]))
            total = values[0] if pairs or len(values) == 1 else self._sum(values)
            yield None
            for k, cells in enumerate(dst):
                value = values[k % len(values)] if pairs else total
                if cells[element][1] == "packet":
                    self.packets[cells[element]] = (flag, value)
                    self._happen(cells[element])
                else:
                    self.memory[cells[element]] = value
            yield None

    @staticmethod
    def _sum(values: list) -> Any:
        """Return the sum of contributions; None where it is no sum of different ranks' to one place."""
        place, ranks = None, 0
        for value in values:
            if value is None or (place is not None and value[0] != place) or ranks & value[1]:
                return None
            place, ranks = value[0], ranks | value[1]
        return place, ranks

    def _port_put(self, rank: int, block: Document, op: Document, thread: int, spans: tuple) -> Steps:
        src, dst = spans
        flag = self.launch[rank] + 1
        if op["name"] == "rppkt":
            for cells in src:
                for element in range(thread, len(cells), THREADS):
                    while self.packets.get(cells[element], (0, None))[0] != flag:
                        yield cells[element]
            yield from self._join(("block", rank, block["id"]), THREADS)
        for k in range(thread, len(dst), THREADS):
            kind, peer, index = self._channel(rank, block, op, k)
            proxy = "proxy", rank, kind, peer, index
            for source, target in zip(src[k % len(src)], dst[k], strict=True):
                self._push(proxy, self._carry(source, target))
            if op["name"] in ("pws", "pwsf"):
                self._signal(rank, kind, peer, index)
            yield None
            while op["name"] == "pwsf" and self.queues[proxy]:
                yield "empty", proxy

    def _carry(self, source: Cell, target: Cell) -> Callable[[], None]:
        def move() -> None:
            if target[1] == "packet":
                self.packets[target] = self.packets.get(source, (0, None))
                self._happen(target)
            else:
                self.memory[target] = self.memory.get(source)

        return move
