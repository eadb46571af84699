"""Replay of schedules with many sends, by columns in NumPy: it accepts a schedule, or says nothing.

It checks what the replay of a document checks, and blames no send: what it does not accept is replayed as a document,
send by send, which says what is wrong where. Sets of contributions are rows of words with 32 bits each. A sum of such
words is their union exactly if no bit is in two of them, and no sum of fewer than 2^31 words wraps in an int64.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from weakref import finalize

import numpy as np

from synth.checker.schedule import replay
from synth.checker.schedule.collective import ReplayCollective
from synth.checker.schedule.machine import KINDS, ReplayMachine
from synth.errors import VerificationError
from synth.model.schedule import Schedule, Send

MANY_SENDS = 10_000  # of which a replay by columns is faster
WORD = 32  # contributions in a word
MOST_WORDS = 1 << 26  # of the sets of all values: half a gigabyte
MOST_NUMBER = 1 << 31  # of chunks, rounds and units, so that their products are int64s
COPY, COPY_INPUT, REDUCE_INPUT = map(KINDS.index, ("copy", "copy-input", "reduce-input"))


@dataclass(frozen=True)
class _Columns:
    """The sends of all steps, step by step.

    Attributes:
        ends: for each step, the number of sends in it and in all steps before.
        chunk, src, dst: of each send.
        kind: the index of each send's kind in `KINDS`.
        pair: the index of each send's source, destination and path in `pairs`.
        pairs: the distinct triples of source, destination and path.
    """

    ends: np.ndarray
    chunk: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    kind: np.ndarray
    pair: np.ndarray
    pairs: list[tuple[int, int, tuple[str, ...]]]


_replays: dict[int, replay.Replay] = {}  # by the id of each schedule of many sends that is there


def schedule(given: Schedule) -> replay.Replay:
    """Replay a schedule: by columns if it has many sends, and as a document where it is not accepted so.

    A schedule, which does not change, is replayed by columns once. Raises VerificationError at the first thing that is
    wrong.
    """
    if id(given) in _replays:
        return _replays[id(given)]
    found = by_columns(given) if given.sends >= MANY_SENDS else None
    if found is None:
        return replay.schedule(given)
    _replays[id(given)] = found
    finalize(given, _replays.pop, id(given), None).atexit = False
    return found


def by_columns(given: Schedule) -> replay.Replay | None:
    """Return the replay of a schedule if it is right; None where its document is to be replayed."""
    try:
        machine = replay.machine_of(given.network, "$.topology")
        machine.check_wires("$.topology")
        task = ReplayCollective.read(given.collective.document, 1, machine.ranks, "$.collective")
    except VerificationError:
        return None
    sends = sends_if_right(given, machine, task)
    return None if sends is None else replay.Replay(given.chunks, len(given.steps), given.rounds, sends)


def sends_if_right(schedule: Schedule, machine: ReplayMachine, task: ReplayCollective) -> int | None:
    """Return the number of sends between ranks of a schedule that is right.

    `machine`: its machine, read strictly. `task`: its collective with one chunk per unit, read
    strictly. None for a wrong schedule, and for one with sends of switches.
    """
    rounds = [step.rounds for step in schedule.steps]
    numbers = [schedule.chunks, *rounds]
    if any(type(number) is not int or not 1 <= number < MOST_NUMBER for number in numbers):
        return None
    if type(schedule.timed) is not bool or any(step.switch_sends for step in schedule.steps):
        return None
    columns = _columns(schedule, machine.ranks, task.chunks * schedule.chunks)
    if columns is None or not _keeps_capacities(columns, np.array(rounds, np.int64), machine):
        return None
    keeps = _sums if task.combining else _copies
    return int((columns.src != columns.dst).sum()) if keeps(columns, task, schedule.chunks) else None


def _columns(schedule: Schedule, ranks: int, chunks: int) -> _Columns | None:
    """Return the columns of the sends; None where a send has not the form of one, or names no rank or chunk."""
    sends = list(chain.from_iterable(step.sends for step in schedule.steps))
    if not set(map(type, sends)) <= {Send} or chunks * ranks >= MOST_NUMBER:
        return None
    arrays = []
    for field, below in ((0, chunks), (1, ranks), (2, ranks)):
        values = list(map(itemgetter(field), sends))
        if not set(map(type, values)) <= {int} or not 0 <= min(values, default=0) <= max(values, default=0) < below:
            return None
        arrays.append(np.array(values, np.int64))
    kinds, paths = list(map(itemgetter(3), sends)), list(map(itemgetter(4), sends))
    if not set(map(type, kinds)) <= {str} or not set(map(type, paths)) <= {tuple}:
        return None
    if not set(kinds) <= set(KINDS):
        return None
    kind_of = {kind: i for i, kind in enumerate(KINDS)}
    different = list(dict.fromkeys(paths))
    if not all(type(name) is str for path in different for name in path):
        return None
    path_of = {path: i for i, path in enumerate(different)}
    chunk, src, dst = arrays
    path = np.array(list(map(path_of.__getitem__, paths)), np.int64)
    numbers, pair = np.unique((src * ranks + dst) * max(1, len(different)) + path, return_inverse=True)
    pairs = []
    for number in numbers.tolist():
        ends, i = divmod(number, max(1, len(different)))
        pairs.append((*divmod(ends, ranks), different[i]))
    ends = np.cumsum([len(step.sends) for step in schedule.steps])
    return _Columns(ends, chunk, src, dst, np.array(list(map(kind_of.__getitem__, kinds)), np.int64), pair, pairs)


def _keeps_capacities(columns: _Columns, rounds: np.ndarray, machine: ReplayMachine) -> bool:
    """Return True if each send has a link, or is of a rank's own input, and none carries too much in a step, nor does a
    limit or a wire."""
    used: list[int] = []  # resources of each pair: its link, limits and wires, as often as a send counts there
    starts = [0]
    units: dict[object, int] = {}
    number: dict[object, int] = {}
    local = np.zeros(len(columns.pairs), bool)
    for i, key in enumerate(columns.pairs):
        if key not in machine.links:
            if key[0] != key[1] or key[2]:
                return False
            local[i] = True
        else:
            link = machine.links[key]
            counted: list[tuple[object, int]] = [(("link", *key), machine.units[link])]
            counted += [(limit, machine.limits[limit][1]) for limit in machine.limits_of[link]]
            if machine.wires:
                counted += [(("wire", *hop), machine.wires[hop]) for hop in machine.hops(key)]
            for name, capacity in counted:
                units[name] = capacity
                used.append(number.setdefault(name, len(number)))
        starts.append(len(used))
    inputs = (columns.kind == COPY_INPUT) | (columns.kind == REDUCE_INPUT)
    if (local[columns.pair] & ~inputs).any():
        return False
    capacities = [units[name] for name in number]
    if max(capacities, default=0) >= MOST_NUMBER or len(columns.chunk) * max(1, len(used)) >= MOST_NUMBER**2 // 2:
        return False
    step = np.repeat(np.arange(len(rounds)), np.diff(columns.ends, prepend=0))
    cells, times = np.unique(step * len(columns.pairs) + columns.pair, return_counts=True)
    step, pair = cells // max(1, len(columns.pairs)), cells % max(1, len(columns.pairs))
    first, counts = np.array(starts[:-1], np.int64)[pair], np.diff(starts)[pair]
    offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    resource = np.array(used, np.int64)[np.repeat(first, counts) + offsets]
    loaded, place = np.unique(np.repeat(step, counts) * len(number) + resource, return_inverse=True)
    load = np.zeros(len(loaded), np.int64)
    np.add.at(load, place, np.repeat(times, counts))
    step, resource = loaded // max(1, len(number)), loaded % max(1, len(number))
    return bool((load <= rounds[step] * np.array(capacities, np.int64)[resource]).all())


def _addresses(held: list[int], ranks: int, chunks: int) -> np.ndarray:
    """Return the addresses of all chunks of the units at `held`, which has addresses of units: a row for each."""
    unit, rank = np.divmod(np.array(held, np.int64), ranks)
    return (unit[:, None] * chunks + np.arange(chunks)) * ranks + rank[:, None]


def _copies(columns: _Columns, task: ReplayCollective, chunks: int) -> bool:
    """Return True if sends only copy what their rank holds, and ranks end with all that they want."""
    if (columns.kind != COPY).any():
        return False
    held = np.zeros(task.chunks * chunks * task.ranks, bool)
    held[_addresses(list(task.pre), task.ranks, chunks)] = True
    source, target = columns.chunk * task.ranks + columns.src, columns.chunk * task.ranks + columns.dst
    first = 0
    for end in columns.ends.tolist():
        if not held[source[first:end]].all():
            return False
        held[target[first:end]] = True
        first = end
    return bool(held[_addresses(list(task.post), task.ranks, chunks)].all())


def _sums(columns: _Columns, task: ReplayCollective, chunks: int) -> bool:
    """Return True if no contribution counts twice, no copy meets another, and ranks end with the sums they want."""
    words = -(-task.ranks // WORD)
    if task.chunks * chunks * task.ranks * words > MOST_WORDS:
        return False
    bits = np.zeros((task.ranks, words), np.int64)  # of each rank's contribution
    bits[np.arange(task.ranks), np.arange(task.ranks) // WORD] = 1 << np.arange(task.ranks) % WORD
    source, target = columns.chunk * task.ranks + columns.src, columns.chunk * task.ranks + columns.dst
    has_input = np.zeros(task.chunks * chunks * task.ranks, bool)
    before = _addresses(list(task.pre), task.ranks, chunks)
    has_input[before] = True
    value = np.zeros((len(has_input), words), np.int64)
    value[before] = bits[np.array(list(task.pre), np.int64) % task.ranks][:, None]
    of_input = (columns.kind == COPY_INPUT) | (columns.kind == REDUCE_INPUT)
    if not has_input[source[of_input]].all():
        return False
    copies = (columns.kind == COPY) | (columns.kind == COPY_INPUT)
    first = 0
    for end in columns.ends.tolist():
        now = slice(first, end)
        sent = np.where(of_input[now, None], bits[columns.src[now]], value[source[now]])
        if not sent.any(axis=1).all():
            return False
        copied, added = np.flatnonzero(copies[now]), np.flatnonzero(~copies[now])
        to = target[now]
        if len(np.unique(to[copied])) < len(copied):
            return False
        value[to[copied]] = sent[copied]
        if len(added) and not _add(value, to[added], sent[added]):
            return False
        first = end
    total: dict[int, list[int]] = {}
    for at in task.pre:
        total.setdefault(at // task.ranks, []).append(at % task.ranks)
    for at, want in task.post.items():
        wanted = bits[list(want) if want is not None else total.get(at // task.ranks, [])].sum(axis=0)
        if (value[_addresses([at], task.ranks, chunks)[0]] != wanted).any():
            return False
    return True


def _add(value: np.ndarray, to: np.ndarray, sent: np.ndarray) -> bool:
    """Add each of `sent` to the value at its address `to`; return False where a contribution counts twice."""
    order = np.argsort(to, kind="stable")
    to, sent = to[order], sent[order]
    starts = np.flatnonzero(np.diff(to, prepend=-1))
    where = to[starts]
    union = np.bitwise_or.reduceat(sent, starts, axis=0) | value[where]
    if (np.add.reduceat(sent, starts, axis=0) + value[where] != union).any():
        return False
    value[where] = union
    return True
