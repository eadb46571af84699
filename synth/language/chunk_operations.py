"""From values of a trace to operations on chunks: the outputs, the operations that they need, and their constraints.

A schedule keeps one current value of each chunk on a rank, and the rank's input beside it where sums are made. The
values that are needed are written to that place in the order of the program. An operation that reads a value takes
place at least a step behind the one that makes it, and no later than the one that replaces it: sends of a step read the
state before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from synth.errors import UsageError, VerificationError
from synth.language.place import SourceLine, error_at
from synth.language.trace import AlgorithmTrace, rank_names
from synth.model.collective import Collective
from synth.program.send_hints import SendHint


class Operation(NamedTuple):
    """A chunk that gets to a rank. `source` and `base` are numbers of operations, -1 for none.

    `kind`: input (before the collective), copy, sum (`source` added to `base`), or restore: the rank's input takes the
    place of the value that it has. `hint`: how the lowering is to send it, if the program says so.
    """

    kind: str
    rank: int
    chunk: int
    source: int
    base: int
    contents: int
    place: SourceLine | None
    step: int
    hint: SendHint | None = None


@dataclass
class Operations:
    """Operations on chunks, inputs first, and what orders them.

    Attributes
    ----------
    collective, chunks : C chunks of each unit.
    rows : the operations.
    outputs : the operation that makes each chunk of the postcondition, by (chunk, rank).
    needed : the numbers of the operations that the outputs need, inputs left out, ascending.
    before : for each needed operation the ones that come at least `lag` steps before it, as (operation, lag).
    writes : the needed operations that write each (chunk, rank), in their order; of sums alone.
    merged : copies that are added where they arrive, without an operation of their own.
    """

    collective: Collective
    chunks: int
    rows: list[Operation]
    outputs: dict[tuple[int, int], int] = field(default_factory=dict)
    needed: list[int] = field(default_factory=list)
    before: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    writes: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    merged: set[int] = field(default_factory=set)

    @property
    def unused(self) -> dict[SourceLine | None, int]:
        """The number of copies and sums that no output needs, by place; merged copies are left out."""
        used, counts = self.merged.union(self.needed), {}
        for i, row in enumerate(self.rows):
            if row.kind != "input" and i not in used:
                counts[row.place] = counts.get(row.place, 0) + 1
        return counts


def operations(trace: AlgorithmTrace, chunks: int, file: str) -> Operations:
    """Return the operations of a trace on `chunks` chunks of each unit.

    `file`: the name of the program in errors without a line. Raises VerificationError where outputs are missing,
    UsageError where a rank would need two sums of a chunk at once.
    """
    ops = Operations(trace.collective, chunks, [])
    _add_rows(ops, trace)
    candidates = _candidates(ops, lambda unit: range(unit * chunks, (unit + 1) * chunks))
    _check_outputs(ops, candidates, trace, file)
    ops.outputs = {key: made[0] for key, made in candidates.items()}
    needed = _needed(ops)
    if trace.collective.combining and _overwritten(ops, needed):
        ops.outputs = {key: made[-1] for key, made in candidates.items()}
        needed = _needed(ops)
    ops.needed = sorted(needed)
    ops.before = {i: _sources(ops.rows, i) for i in ops.needed}
    if trace.collective.combining:
        _add_places(ops)
    return ops


def _add_rows(ops: Operations, trace: AlgorithmTrace) -> None:
    """Append the operations of each value of a trace."""
    chunks = ops.chunks
    first: list[tuple[int, int]] = []  # of each value its first operation and chunk
    for number, value in enumerate(trace.values):
        start, end = int(value.lo * chunks), int(value.hi * chunks)
        offset = value.unit * chunks
        first.append((len(ops.rows), offset + start))
        if number in trace.merged:
            ops.merged.update(range(len(ops.rows), len(ops.rows) + end - start))
        source = base = 0
        if value.source >= 0:
            source = first[value.source][0] - first[value.source][1]
        if value.base >= 0:
            base = first[value.base][0] - first[value.base][1]
        for chunk in range(offset + start, offset + end):
            read = source + chunk if value.source >= 0 else -1
            held = base + chunk if value.base >= 0 else -1
            row = Operation(
                value.kind, value.rank, chunk, read, held, value.contents, value.place, value.step, value.hint
            )  # fmt: skip
            ops.rows.append(row)


def _candidates(ops: Operations, written: Callable[[int], Iterable[int]]) -> dict[tuple[int, int], list[int]]:
    """Return the operations that make each chunk of the postcondition, by (chunk, rank), in the program's order.

    `written`: the chunks of a unit that the program writes.
    """
    task = ops.collective
    made: dict[tuple[int, int], list[int]] = {}
    wanted: dict[tuple[int, int], int] = {}
    for unit, ranks in enumerate(task.post):
        for rank in sorted(ranks):
            bits = 0
            if task.combining:
                bits = sum(1 << contributor for contributor in task.wanted(unit, rank))
            for chunk in written(unit):
                wanted[chunk, rank] = bits
                made[chunk, rank] = []
    for i, row in enumerate(ops.rows):
        key = (row.chunk, row.rank)
        if wanted.get(key) == row.contents:
            made[key].append(i)
    return made


def _needed(ops: Operations) -> set[int]:
    """Return the operations that the outputs need."""
    needed: set[int] = set()
    stack = list(ops.outputs.values())
    while stack:
        i = stack.pop()
        row = ops.rows[i]
        if row.kind == "input" or i in needed:
            continue
        needed.add(i)
        stack += [j for j in (row.source, row.base) if j >= 0]
    return needed


def _overwritten(ops: Operations, needed: set[int]) -> bool:
    """Return True if a needed operation replaces a sum that is an output."""
    for i in needed:
        row = ops.rows[i]
        output = ops.outputs.get((row.chunk, row.rank), i)
        if output < i and ops.rows[output].kind != "input":
            return True
    return False


def _sources(rows: list[Operation], i: int) -> list[tuple[int, int]]:
    """Return the operations that make what operation `i` reads, with the lag: what it adds to may be of its step."""
    row = rows[i]
    read = [(row.source, 1), (row.base, 0)]
    return [(j, lag) for j, lag in read if j >= 0 and rows[j].kind != "input"]


def _add_places(ops: Operations) -> None:
    """Let each needed operation follow those that read what it replaces.

    Inserts a restore where a rank's input is needed after another value took its place. Raises UsageError where a value
    that is replaced must be there later.
    """
    rows = ops.rows
    readers: dict[int, list[int]] = {}
    for i in ops.needed:
        if rows[i].source >= 0:
            readers.setdefault(rows[i].source, []).append(i)
    current: dict[tuple[int, int], int] = {}  # the operation whose value has the place
    for i in list(ops.needed):
        row = rows[i]
        key = (row.chunk, row.rank)
        if row.kind == "sum" and current.get(key, row.base) != row.base:
            if rows[row.base].kind != "input":
                made, replaced = rows[row.base].place, rows[current[key]].place
                raise replaced_too_early(row.place, row.rank, made, replaced)
            restored = _restore(ops, key, current, readers, row)
            ops.before[i].append((restored, 0))
        _replace(ops, key, i, current, readers)
    for key, output in ops.outputs.items():
        if current.get(key, output) == output:
            continue
        if rows[output].kind != "input":
            raise replaced_too_early(rows[current[key]].place, key[1], rows[output].place, rows[current[key]].place)
        _restore(ops, key, current, readers, rows[current[key]]._replace(step=-1))


def replaced_too_early(
    place: SourceLine | None, rank: int, made: SourceLine | None, replaced: SourceLine | None
) -> UsageError:
    """Return the error of a read at `place` of the sum that `made` wrote on `rank` and `replaced` overwrote."""
    return error_at(
        place,
        f"rank {rank} still reads its sum of {made} after {replaced} replaced it; "
        "a rank holds one sum of a chunk: send before adding",
    )


def _restore(
    ops: Operations, key: tuple[int, int], current: dict[tuple[int, int], int], readers: dict, row: Operation
) -> int:
    """Append the operation that puts the input of a rank in the place of its value, and return its number."""
    chunk, rank = key
    number = len(ops.rows)
    ops.rows.append(Operation("restore", rank, chunk, -1, -1, 1 << rank, row.place, row.step))
    ops.needed.append(number)
    ops.before[number] = []
    _replace(ops, key, number, current, readers)
    return number


def _replace(ops: Operations, key: tuple[int, int], i: int, current: dict[tuple[int, int], int], readers: dict) -> None:
    """Let operation `i` take the place `key`, no earlier than the last read of the value there."""
    old = current.get(key, -1)
    if old >= 0:
        ops.before[i] += [(reader, 0) for reader in readers.get(old, ()) if reader != i]
    current[key] = i
    ops.writes.setdefault(key, []).append(i)


def _check_outputs(
    ops: Operations, candidates: dict[tuple[int, int], list[int]], trace: AlgorithmTrace, file: str
) -> None:
    """Raise VerificationError where a rank ends without a chunk, with the rank that is nearest to having it."""
    chunks = ops.chunks
    missing = {}
    for (chunk, rank), made in candidates.items():
        if not made:
            missing.setdefault((chunk // chunks, rank), chunk)
    if not missing:
        return
    total = len({(chunk // chunks, rank) for chunk, rank in candidates})
    (unit, rank), chunk = next(iter(missing.items()))
    if trace.collective.combining:
        wanted = trace.collective.wanted(unit, rank)
        bits = sum(1 << contributor for contributor in wanted)
        what = f"the sum {rank_names(bits)} of unit {unit}"
    else:
        sources = trace.collective.pre[unit]
        # whoever writes an alltoall counts by source and destination
        of = f" of rank {min(sources)}" if len(sources) == 1 == len(trace.collective.post[unit]) else ""
        what, bits = f"unit {unit}{of}", 0
    row = _nearest(ops, trace, chunk, rank, bits)
    nearest = "no rank that has it reaches this one"
    if row is not None:
        has = f" has {rank_names(row.contents)}" if row.contents not in (0, bits) else ""
        nearest = f"nearest: rank {row.rank}{has}, {row.place or 'its input'}"
    others = sorted({other for _, other in missing} - {rank})
    text = f"{len(missing)} of {total} outputs are missing: rank {rank} ends without {what} ({nearest})"
    if trace.topology is not None and row is not None:  # a program, whose writer can change it
        whole = row.contents in (0, bits)
        text += f": copy it there with .to({rank})" if whole else f": add what it lacks with a.sum({rank}, [...])"
    if len(missing) > 1:
        on = f" on ranks {', '.join(map(str, others))}" if others else f" on rank {rank}"
        text += f"; and {len(missing) - 1} alike{on}"
    if trace.empty:
        text += f"; {trace.empty}"
    raise VerificationError(f"{file}: {text}")


def _nearest(ops: Operations, trace: AlgorithmTrace, chunk: int, rank: int, bits: int) -> Operation | None:
    """Return the operation whose result is the chunk, or the sum with most of the contributions `bits`.

    Of several it is the one on the rank nearest to `rank`.
    """
    distance: list[int | None] = [1] * trace.collective.ranks
    if trace.network is not None:
        distance = trace.network.reversed().distances_from([rank])
    best: tuple[tuple, Operation] | None = None
    for row in ops.rows:
        away = distance[row.rank]
        if row.chunk != chunk or away is None or row.contents & ~bits:
            continue
        rate = (-row.contents.bit_count(), away, bool(row.place), row.rank)  # inputs first
        if best is None or rate < best[0]:
            best = (rate, row)
    return None if best is None else best[1]
