"""From values of a trace to operations on chunks: the outputs, the operations that they need, and their constraints.

A schedule keeps one current value of each chunk on a rank, and the rank's input beside it where sums are made. The
values that are needed are written to that place in the order of the program. An operation that reads a value takes
place at least a step behind the one that makes it, and no later than the one that replaces it: sends of a step read the
state before it.
"""

from __future__ import annotations

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
    made = _outputs(ops)
    if missing := [key for key, candidates in made.items() if not candidates]:
        raise VerificationError(f"{file}: {_missing_outputs(ops, trace, missing, len(made))}")

    # The first operation that makes an output counts, or the last one where the program adds to the first further on.
    ops.outputs = {key: candidates[0] for key, candidates in made.items()}
    needed = _needed(ops)
    if trace.collective.combining and _overwritten(ops, needed):
        ops.outputs = {key: candidates[-1] for key, candidates in made.items()}
        needed = _needed(ops)
    ops.needed = sorted(needed)

    # What an operation copies or adds is made a step before; what it adds to may be made in its own step.
    for i in ops.needed:
        read = [(ops.rows[i].source, 1), (ops.rows[i].base, 0)]
        ops.before[i] = [(j, lag) for j, lag in read if j >= 0 and ops.rows[j].kind != "input"]
    if trace.collective.combining:
        _Places(ops).assign()
    return ops


def _add_rows(ops: Operations, trace: AlgorithmTrace) -> None:
    """Append the operations of each value of a trace."""
    # Operations of a value are consecutive, so that those on a chunk are found by counting.
    shift: list[int] = []  # of each value the number of its operation on a chunk, less the chunk
    for number, value in enumerate(trace.values):
        offset = value.unit * ops.chunks
        written = range(offset + int(value.lo * ops.chunks), offset + int(value.hi * ops.chunks))
        shift.append(len(ops.rows) - written.start)
        if number in trace.merged:
            ops.merged.update(range(len(ops.rows), len(ops.rows) + len(written)))
        for chunk in written:
            source = chunk + shift[value.source] if value.source >= 0 else -1
            base = chunk + shift[value.base] if value.base >= 0 else -1
            row = Operation(
                value.kind, value.rank, chunk, source, base, value.contents, value.place, value.step, value.hint
            )  # fmt: skip
            ops.rows.append(row)


def _outputs(ops: Operations) -> dict[tuple[int, int], list[int]]:
    """Return the operations that make each chunk of the postcondition, by (chunk, rank), in the program's order."""
    # Of a sum exactly the wanted contributions are an output, of a copy any value of the chunk.
    made: dict[tuple[int, int], list[int]] = {}
    wanted: dict[tuple[int, int], int] = {}
    for unit, ranks in enumerate(ops.collective.post):
        for rank in sorted(ranks):
            bits = 0
            if ops.collective.combining:
                bits = sum(1 << contributor for contributor in ops.collective.wanted(unit, rank))
            for chunk in range(unit * ops.chunks, (unit + 1) * ops.chunks):
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
    # Walk back from the outputs; what is not reached is left out.
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


class _Places:
    """The place of each chunk on a rank, which holds one value at a time."""

    def __init__(self, ops: Operations) -> None:
        self.ops = ops
        self.current: dict[tuple[int, int], int] = {}  # the operation whose value has the place
        self.readers: dict[int, list[int]] = {}
        for i in ops.needed:
            if ops.rows[i].source >= 0:
                self.readers.setdefault(ops.rows[i].source, []).append(i)

    def assign(self) -> None:
        """Let each needed operation follow those that read what it replaces.

        Inserts a restore where a rank's input is needed after another value took its place. Raises UsageError where a
        value that is replaced must be there later.
        """
        ops, rows = self.ops, self.ops.rows
        for i in list(ops.needed):
            key = (rows[i].chunk, rows[i].rank)
            if rows[i].kind == "sum" and self.current.get(key, rows[i].base) != rows[i].base:
                restored = self.restore(key, rows[i].base, rows[i])
                ops.before[i].append((restored, 0))
            self.replace(key, i)
        for key, output in ops.outputs.items():
            if self.current.get(key, output) != output:
                self.restore(key, output, rows[self.current[key]]._replace(step=-1))

    def restore(self, key: tuple[int, int], needed: int, at: Operation) -> int:
        """Put the input of a rank, the value of operation `needed`, in its place again; return the operation."""
        ops = self.ops
        if ops.rows[needed].kind != "input":
            raise replaced_too_early(at.place, at.rank, ops.rows[needed].place, ops.rows[self.current[key]].place)
        number = len(ops.rows)
        ops.rows.append(Operation("restore", at.rank, at.chunk, -1, -1, 1 << at.rank, at.place, at.step))
        ops.needed.append(number)
        ops.before[number] = []
        self.replace(key, number)
        return number

    def replace(self, key: tuple[int, int], i: int) -> None:
        """Let operation `i` take a place, no earlier than the last read of the value there."""
        for reader in self.readers.get(self.current.get(key, -1), ()):
            if reader != i:
                self.ops.before[i].append((reader, 0))
        self.current[key] = i
        self.ops.writes.setdefault(key, []).append(i)


def replaced_too_early(
    place: SourceLine | None, rank: int, made: SourceLine | None, replaced: SourceLine | None
) -> UsageError:
    """Return the error of a read at `place` of the sum that `made` wrote on `rank` and `replaced` overwrote."""
    return error_at(
        place,
        f"rank {rank} still reads its sum of {made} after {replaced} replaced it; "
        "a rank holds one sum of a chunk: send before adding",
    )


def _missing_outputs(ops: Operations, trace: AlgorithmTrace, missing: list[tuple[int, int]], outputs: int) -> str:
    """Return the sentence on missing outputs (chunk, rank): the first, and the value that is nearest to it."""
    (chunk, rank), unit = missing[0], missing[0][0] // ops.chunks
    task = trace.collective
    bits = 0
    what = f"unit {unit}"
    if task.combining:
        bits = sum(1 << contributor for contributor in task.wanted(unit, rank))
        what = f"the sum {rank_names(bits)} of unit {unit}"
    elif len(task.pre[unit]) == 1 == len(task.post[unit]):
        # Whoever writes an alltoall counts by source and destination.
        what += f" of rank {min(task.pre[unit])}"

    # Of the values with most of the contributions the one on the nearest rank, inputs first.
    distance: list[int | None] = [1] * task.ranks
    if trace.network is not None:
        distance = trace.network.reversed().distances_from([rank])
    near = [row for row in ops.rows if row.chunk == chunk and distance[row.rank] is not None]
    near = [row for row in near if not row.contents & ~bits]
    nearest = "no rank that has it reaches this one"
    advice = ""
    if near:
        row = min(near, key=lambda row: (-row.contents.bit_count(), distance[row.rank], bool(row.place), row.rank))
        has = f" has {rank_names(row.contents)}" if row.contents != bits else ""
        nearest = f"nearest: rank {row.rank}{has}, {row.place or 'its input'}"
        advice = ": copy it there with .to(...)" if row.contents == bits else ": add what it lacks with a.sum(...)"
    units = {(chunk // ops.chunks, rank) for chunk, rank in missing}
    count = f"{len(units)} of {outputs // ops.chunks}"
    return f"{count} outputs are missing: rank {rank} ends without {what} ({nearest}){advice}"
