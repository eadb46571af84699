"""Symbolic execution: the final value of every cell, in every order in which the blocks can run.

The ops run once, in one order that dependencies, messages, signals, barriers and packets allow. Vector clocks
(`synth.program.analysis.vector_clocks`) show which accesses are ordered by these in *every* execution. Waiting for
space in a FIFO is not counted as an order. If no two accesses to a cell race, all orders give the same values, so one
run decides.

The analysis goes chunk by chunk: chunk k of a message is ordered before the receive of chunk k only, as when messages
are split into single chunks. Coarser splits order more, so accesses that are ordered here are ordered at every size.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from synth.program.analysis.cells import Junk, Memory, Value, add
from synth.program.analysis.connection_tables import ConnectionTables
from synth.program.analysis.finding import NOT_ANALYSED, Finding, error
from synth.program.analysis.vector_clocks import Clocks, Row
from synth.program.buffer_layout import Layout
from synth.program.program import RECEIVING, REDUCING, SENDING, Op, Place, Program, Span
from synth.program.straight_line import StraightLine

PART = 4096  # actors whose clocks are stored at once: 64 MiB for as many blocks
FOLLOWING = ("wrong-output", "uninitialised")  # rules that are not reported for a program with races


class ExecutionOutcome(NamedTuple):
    """The result for one way to call a program: findings, number of outputs compared, number of ordered accesses."""

    findings: list[Finding]
    outputs: int
    accesses: int


def execute_two_sided(
    program: Program, wired: ConnectionTables, done: list[tuple[int, int]], in_place: bool, part: int = PART
) -> ExecutionOutcome:
    """Execute a two-sided program symbolically and return its findings.

    `done`: an order in which its ops can end, as (flat block, op). `in_place`: the input lies in the output. `part`:
    number of blocks whose clocks are in memory at once. The execution is repeated for each part.
    """
    parts = parts_of(len(wired.blocks), part)
    return merge_outcomes([TwoSided(program, wired, in_place, watched).run(done) for watched in parts])


def parts_of(actors: int, part: int) -> list[range]:
    """Return the actors in parts of at most `part`, whose clocks are stored at once."""
    return [range(first, min(actors, first + part)) for first in range(0, max(1, actors), part)]


def merge_outcomes(outcomes: list[ExecutionOutcome]) -> ExecutionOutcome:
    """Return one outcome from those of all parts, which differ only in the races they report, with each finding once.

    If any part has a race, findings on wrong outputs and uninitialised reads are dropped: their values depend on it.
    """
    findings = list(dict.fromkeys(finding for outcome in outcomes for finding in outcome.findings))
    if any(finding.rule == "race" for finding in findings):
        findings = [finding for finding in findings if finding.rule not in FOLLOWING]
    return outcomes[0]._replace(findings=findings)


class SymbolicExecution:
    """Symbolic execution common to both styles: memory, clocks and findings."""

    def __init__(self, line: StraightLine, in_place: bool, actors: int, watched: range) -> None:
        self.line, self.program = line, line.program
        program = line.program
        self.layout = None if program.collective is None else Layout(program.collective, program.chunks)
        self.memory = Memory(line, self.layout, in_place)
        self.in_place = in_place
        self.clocks = Clocks(actors, len(self.memory.values), watched)
        self.findings = []
        self.reported_places = set()
        self.accesses = 0

    def add_finding(
        self, rule: str, place: tuple[int | None, int | None, int | None], message: str, severity: str = "error"
    ) -> None:
        """Add a finding, once for every rule and place."""
        if (rule, place) not in self.reported_places:
            self.reported_places.add((rule, place))
            self.findings.append(Finding(rule, severity, *place, message))

    def first_cell(self, rank: int, span: Span) -> int:
        """Return the memory cell of the first chunk of `span`. A span without a rank is in the memory of `rank`."""
        return self.memory.base[span.owner(rank)][span.buffer] + span.offset

    def load(self, cell: int, actor: int, op: int, place: Place) -> Value:
        """Return the value of `cell` and record a read by op `op` of `actor`.

        A cell that was never written is a finding at `place`, (gpu, block, op), and gives a Junk value.
        """
        self.accesses += 1
        self.clocks.read(cell, actor, op)
        value = self.memory.values[cell]
        if value is None:
            name = self.memory.name(cell)
            text, severity = f"reads {name} before anything is written there", "error"
            if self.layout is None and name.startswith("output"):
                text, severity = f"{text}; in a call in place it could be input", NOT_ANALYSED
            self.add_finding("uninitialised", place, text, severity)
            return Junk("comes from memory that was never written", place)
        return value

    def store(self, cell: int, value: Value, actor: int, op: int) -> None:
        """Set the value of `cell` and record a write by op `op` of `actor`."""
        self.accesses += 1
        self.clocks.write(cell, actor, op)
        self.memory.values[cell] = value

    def operands(self, rank: int, op: Op, place: Place) -> tuple[list[int], list[int]]:
        """Return the first cells of sources and destinations; report an op that overlaps itself or writes the input."""
        sources = [self.first_cell(rank, span) for span in op.src]
        targets = [self.first_cell(rank, span) for span in op.dst]
        # an op that writes what it reads elsewhere depends on the order of its threads
        for k, into in enumerate(targets):
            twice = any(abs(other - into) < op.count for other in targets[:k])
            if twice or any(0 < abs(source - into) < op.count for source in sources):
                text = f"{op.code} moves {op.count} chunks onto themselves, shifted: what it writes depends on timing"
                self.add_finding("overlap", place, text)
        for span in op.dst if not self.in_place else ():
            if span.buffer == "i":
                text = (
                    f"{op.code} writes input {span.offset // self.line.cells}; a call that is not in place leaves its "
                )
                self.add_finding("input-written", place, f"{text}input as it is")
        return sources, targets

    def add_race(self, name: str, first: Place, then: Place, kind: str) -> None:
        """Add the finding that nothing orders two ops on the chunk `name`, once for a pair of ops."""
        words = {"write-read": "reads", "write-write": "writes", "read-write": "overwrites"}
        before = "reads it" if kind == "read-write" else "writes it"
        other = f"gpu {first[0]} block {first[1]} step {first[2]}"
        if first[0] == then[0]:
            other = f"block {first[1]} step {first[2]}"
        text = (
            f"{words[kind]} {name} while {other} {before}: nothing orders the two; "
            "add a dependency (and its flag) between them"
        )
        key = ("race", *sorted((first, then)))
        if key not in self.reported_places:
            self.reported_places.add(key)
            self.findings.append(error("race", then, text))

    def check_outputs(self) -> int:
        """Compare every output with the collective's demand; return the number of output chunks."""
        count, cells = 0, self.line.cells
        for rank in range(self.program.ranks):
            # an output declared too small ends before scratch, but in place the input may go on behind it
            end = self.memory.base[rank]["s"]
            for k, cell, want in self.memory.wanted(rank):
                count += 1
                value = self.memory.values[cell] if cell < end else None
                if value == want:
                    continue
                text = f"output {k // cells} of rank {rank} {_wrong(value, want, cells)}"
                self.findings.append(error("wrong-output", (rank, None, None), text))
        return count // cells


def _wrong(value: Value, want: tuple[int, int], cells: int) -> str:
    needs = f"must end with chunk {want[0] // cells}"
    if value is None:
        return f"is never written; it {needs}"
    if isinstance(value, Junk):
        gpu, block, op = value.place
        return f"{needs}, but what it holds {value.reason} (gpu {gpu} block {block} step {op})"
    if value[0] != want[0]:
        part = " in part" if value[0] // cells == want[0] // cells else ""
        return f"{needs}, but holds chunk {value[0] // cells}{part}"
    # the right chunk, but not the right sum
    faults = []
    if lacks := _ranks(want[1] & ~value[1]):
        faults.append(f"without the contribution of rank {lacks}")
    if extra := _ranks(value[1] & ~want[1]):
        faults.append(f"with that of rank {extra}, which is not wanted")
    return f"holds chunk {want[0] // cells} " + " and ".join(faults)


def _ranks(mask: int) -> str:
    ranks = [r for r in range(mask.bit_length()) if mask >> r & 1]
    return ", ".join(map(str, ranks[:6])) + (f" and {len(ranks) - 6} more" if len(ranks) > 6 else "")


class TwoSided(SymbolicExecution):
    """Symbolic execution of a two-sided program: blocks, dependencies and FIFO messages."""

    def __init__(self, program: Program, wired: ConnectionTables, in_place: bool, watched: range) -> None:
        super().__init__(StraightLine(program), in_place, len(wired.blocks), watched)
        self.wired = wired
        # chunks under way: (value, row of the sender, the sender, its time); ops that only send share one row
        self.fifos: list[deque[tuple[Value, Row, int, int]]] = [deque() for _ in wired.ends]
        self.waiters = {}  # op → number of ops that have yet to wait for it
        for waits in wired.waits:
            for needed in waits.values():
                for place in needed:
                    self.waiters[place] = self.waiters.get(place, 0) + 1
        self.ended = {}

    def run(self, done: list[tuple[int, int]]) -> ExecutionOutcome:
        """Execute the ops in the order `done`; the outputs are compared if all ops have run."""
        for b, i in done:
            self.execute_op(b, i)
        # if blocks race, the values are those of one order among several: see `merge_outcomes`
        outputs, places = self.check_outputs() if len(done) == self.program.ops else 0, self.wired.blocks
        for cell, (first, i), (then, j), kind in self.clocks.races:
            self.add_race(self.memory.name(cell), (*places[first], i), (*places[then], j), kind)
        return ExecutionOutcome(self.findings, outputs, self.accesses)

    def execute_op(self, b: int, i: int) -> None:
        """Execute one op, chunk by chunk."""
        rank, number = self.wired.blocks[b]
        op = self.program.gpus[rank].blocks[number].ops[i]
        place, clocks = (rank, number, i), self.clocks
        for needed in self.wired.waits[b].get(i, ()):
            if needed[0] != b:
                clocks.join(b, self.ended[needed])
            self.waiters[needed] -= 1
            if not self.waiters[needed]:
                self.ended.pop(needed, None)
        sources, targets = self.operands(rank, op, place) if op.src or op.dst else ([], [])
        # Chunk k of a message is ordered before the receive of chunk k, and before no more.
        receives, sends, reduces = op.code in RECEIVING, op.code in SENDING, op.code in REDUCING
        inbox, outbox = (
            self.fifos[self.wired.receives[b]] if receives else None,
            self.fifos[self.wired.sends[b]] if sends else None,
        )
        known = sent = None
        for k in range(op.count if op.code != "nop" else 0):
            row = clocks.tick(b)
            value: Value = None
            if inbox is not None:
                value, before, sender, time = inbox.popleft()
                if before is not known:
                    clocks.join(b, before)
                    known = before
                clocks.learn(b, sender, time)
            if sources:
                local = self.load(sources[0] + k, b, i, place)
                value = add(value, local, place) if inbox is not None and reduces else local
            if op.code == "re":
                value = add(self.load(targets[0] + k, b, i, place), value, place)
            if targets and not (op.code == "cpy" and targets == sources):  # in place a copy onto itself writes nothing
                self.store(targets[0] + k, value, b, i)
            if outbox is not None:
                sent = row.copy() if sent is None or receives else sent
                outbox.append((value, sent, b, clocks.now[b]))
        if self.waiters.get((b, i)):
            self.ended[b, i] = clocks.rows[b].copy()
