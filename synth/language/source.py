"""A schedule as a program of the chunk language, which compiles back to the same schedule.

Sends that symmetries of the schedule take to each other are one row in a loop over the symmetries. The text has names
of this package and numbers alone: nothing of a file's own texts.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from synth.errors import UsageError
from synth.model.collective import COLLECTIVES, Collective, collective
from synth.model.rational import counted
from synth.model.schedule import Schedule, Send
from synth.model.symmetry import generators

_HEAD = '''\
"""{title}

Compile it with `synth compile`{options}.
"""

from synth.language import algorithm

CHUNKS = {chunks}  # of each unit
# Symmetries of the schedule: for each the image of every rank, and of every chunk.
SYMMETRIES = [
{symmetries}]


@algorithm("{collective}")
def found(a):
    first = {{}}
    for rank in a.ranks:
        for unit in a.input(rank).units:
            for i, part in enumerate(a.input(rank).unit(unit).split(CHUNKS)):
                first[CHUNKS * unit + i, rank] = part
    now = dict(first)
'''
_STEP = """
    with a.step():  # {number}: {rounds}
        before = dict(now)
        for ranks, chunks in SYMMETRIES:
"""
_LOOP = """\
            for chunk, src, dst in [
{rows}
            ]:
                end = chunks[chunk], ranks[dst]
                now[end] = {value}
"""


class _Symmetry(NamedTuple):
    """The images of ranks and of chunks under a permutation that takes the sends of each step to themselves."""

    ranks: tuple[int, ...]
    chunks: tuple[int, ...]


def python_source(schedule: Schedule) -> str:
    """Return a program of the chunk language whose steps are those of a schedule.

    Raises UsageError for schedules whose switches multicast, or whose steps last parts of a round, and for a collective
    without a name of this package.
    """
    task = schedule.collective
    if task.name not in COLLECTIVES or collective(task.name, task.ranks, task.roots) != task:
        raise UsageError("a program names its collective; this schedule's is none of `synth list collectives`")
    if schedule.uses_multicast:
        raise UsageError("the chunk language has no multicasts of switches; export a point without --multicast")
    if (parts := schedule.parts_of_round) > 1:
        raise UsageError(
            f"steps of the chunk language have whole rounds; this schedule's last {counted(schedule.rounds, 'round')} "
            f"together, in parts of 1/{parts}"
        )
    group = _free_group(schedule)
    sizes = f"{counted(schedule.step_count, 'step')}, {counted(schedule.rounds, 'round')}"
    rows = [f"    ({_tuple(one.ranks)}, {_tuple(one.chunks)}),\n" for one in group]
    options = f" and --root {','.join(map(str, task.roots))}" if task.roots else ""
    title = f"{task.name} on {counted(task.ranks, 'rank')}: {sizes}, C={schedule.chunks}."
    text = _HEAD.format(
        title=title, options=options, chunks=schedule.chunks, symmetries="".join(rows), collective=task.name
    )
    held = set()  # the (chunk, rank) that have a value
    for unit, ranks in enumerate(task.pre):
        held.update((chunk, rank) for rank in ranks for chunk in _chunks(schedule, unit))
    for number, step in enumerate(schedule.steps, 1):
        text += _STEP.format(number=number, rounds=counted(step.rounds, "round"))
        loops: dict[str, list[Send]] = {}
        for send in sorted(_representatives(step.sends, group), key=lambda send: send.kind.startswith("reduce")):
            source = "first" if send.kind.endswith("-input") else "before"
            data = f"{source}[chunks[chunk], ranks[src]]"
            adds = send.kind.startswith("reduce") and (send.chunk, send.dst) in held
            value = f"now[end].add({data})" if adds else f"{data}.to(ranks[dst])"
            loops.setdefault(value, []).append(send)
            held.update((one.chunks[send.chunk], one.ranks[send.dst]) for one in group)
        for value, sends in loops.items():
            rows = ", ".join(f"({send.chunk}, {send.src}, {send.dst})" for send in sends) + ","
            lines = textwrap.fill(rows, 116, initial_indent=" " * 16, subsequent_indent=" " * 16)
            text += _LOOP.format(rows=lines, value=value)
    return text


def _tuple(numbers: Sequence[int]) -> str:
    """Return numbers as a tuple or a range in Python."""
    if len(numbers) > 2 and tuple(numbers) == tuple(range(len(numbers))):
        return f"range({len(numbers)})"
    return str(tuple(numbers))


def _chunks(schedule: Schedule, unit: int) -> range:
    return range(unit * schedule.chunks, (unit + 1) * schedule.chunks)


def _representatives(sends: Sequence[Send], group: Sequence[_Symmetry]) -> list[Send]:
    """Return one send of each orbit. The group acts freely on ranks, so each send is one image of one of these."""
    seen: set[tuple[int, int, int, str]] = set()
    chosen = []
    for send in sends:
        if (send.chunk, send.src, send.dst, send.kind) in seen:
            continue
        chosen.append(send)
        for one in group:
            seen.add((one.chunks[send.chunk], one.ranks[send.src], one.ranks[send.dst], send.kind))
    return chosen


def _free_group(schedule: Schedule) -> list[_Symmetry]:
    """Return symmetries of the schedule that form a group in which only the identity keeps a rank.

    It is grown one by one from translations of the rank numbers, in all mixed radices of two digits and in binary, and
    from generators of the network's automorphisms.
    """
    finder = _SymmetryFinder(schedule)
    identity = tuple(range(schedule.collective.ranks))
    group = [identity]
    for ranks in _candidates(schedule):
        if ranks in group or finder.chunks(ranks) is None:
            continue
        grown = _closure([*group, ranks], len(identity))
        if grown is not None and all(finder.chunks(one) is not None for one in grown):
            group = grown
    found = []
    for ranks in sorted(group):
        chunks = finder.chunks(ranks)
        assert chunks is not None
        found.append(_Symmetry(ranks, chunks))
    return found


def _candidates(schedule: Schedule) -> Iterator[tuple[int, ...]]:
    """Yield permutations of ranks that may be symmetries, those of long orbits first."""
    n = schedule.collective.ranks
    for width in (n, *[width for width in range(n // 2, 1, -1) if n % width == 0]):
        for low in range(1, width):
            yield tuple(r - r % width + (r + low) % width for r in range(n))
        for high in range(width, n, width):
            yield tuple((r + high) % n for r in range(n))
    if n & (n - 1) == 0:
        for mask in range(1, n):
            yield tuple(r ^ mask for r in range(n))
    for one in generators(schedule.network, schedule.collective):
        yield tuple(one.ranks)


def _closure(permutations: Sequence[tuple[int, ...]], most: int) -> list[tuple[int, ...]] | None:
    """Return the group that permutations generate; None where one but the identity keeps a rank."""
    identity = tuple(range(len(permutations[0])))
    known = {identity}
    queue = [identity]
    for one in queue:
        for other in permutations:
            image = tuple(other[r] for r in one)
            if image in known:
                continue
            if any(r == s for r, s in enumerate(image)) or len(known) == most:
                return None
            known.add(image)
            queue.append(image)
    return queue


class _SymmetryFinder:
    """Images of chunks under permutations of the ranks that keep a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        count = schedule.collective.units * schedule.chunks
        paths: list[list[tuple[int, int, int, str]]] = [[] for _ in range(count)]
        for t, step in enumerate(schedule.steps):
            for send in step.sends:
                paths[send.chunk].append((t, send.src, send.dst, send.kind))
        self.paths = [tuple(sorted(path)) for path in paths]
        self._known: dict[tuple[int, ...], tuple[int, ...] | None] = {}

    def chunks(self, ranks: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the image of each chunk: one with the image of its sends, the i-th of equal ones for the i-th."""
        if ranks not in self._known:
            self._known[ranks] = self._images(ranks)
        return self._known[ranks]

    def _images(self, ranks: tuple[int, ...]) -> tuple[int, ...] | None:
        task = self.schedule.collective
        moved_ends = [_ends(task, unit, ranks) for unit in range(task.units)]
        units = _matched(moved_ends, [_ends(task, unit, range(task.ranks)) for unit in range(task.units)])
        if units is None:
            return None
        images: list[int] = []
        for unit, image in enumerate(units):
            moved = []
            for chunk in _chunks(self.schedule, unit):
                path = [(t, ranks[src], ranks[dst], kind) for t, src, dst, kind in self.paths[chunk]]
                moved.append(tuple(sorted(path)))
            there = _chunks(self.schedule, image)
            parts = _matched(moved, [self.paths[chunk] for chunk in there])
            if parts is None:
                return None
            images += [there[part] for part in parts]
        return tuple(images)


def _ends(task: Collective, unit: int, place: Sequence[int]) -> tuple:
    """Return who has a unit and who wants which contributions of it, with ranks renumbered."""
    wanted = []
    for rank in task.post[unit]:
        contributions = task.wanted(unit, rank) if task.combining else ()
        wanted.append((place[rank], frozenset(place[r] for r in contributions)))
    return frozenset(place[rank] for rank in task.pre[unit]), frozenset(wanted)


def _matched(keys: Sequence, others: Sequence) -> list[int] | None:
    """Return for each key the number of its equal among `others`, the i-th of equal ones for the i-th; or None."""
    places: dict[object, list[int]] = {}
    for number, other in enumerate(others):
        places.setdefault(other, []).append(number)
    for row in places.values():
        row.reverse()
    found = []
    for key in keys:
        if not places.get(key):
            return None
        found.append(places[key].pop())
    return found
