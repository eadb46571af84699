"""Independent replay of schedules: the root of trust.

Works on the JSON document, not on the values that made it, and shares no code with what it checks. Only the machine of
a `Schedule` is read from the values of its network, by the rules for a document. Checked are structure, the meaning of
a named collective, holdings, contributions counted once, the load of every link, limit and physical wire in every step,
and the postcondition. Anything wrong raises `VerificationError` with the place in the document.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from synth.checker.fingerprints import size_fingerprint, with_one_chunk
from synth.checker.schedule.collective import ReplayCollective
from synth.checker.schedule.machine import ReplayMachine, count_loads, machine_of, switch_sends
from synth.checker.schedule.state import HeldChunks, HeldSums
from synth.errors import VerificationError
from synth.model.documents import json_reader
from synth.model.gc_pause import collector_off
from synth.model.schedule import Schedule


@dataclass(frozen=True)
class Replay:
    """The result of a replay: C, S, R and the number of sends between ranks."""

    chunks: int
    steps: int
    rounds: int
    sends: int

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C."""
        return Fraction(self.rounds, self.chunks)


@collector_off()
def schedule(given: Schedule | dict, place: str = "$") -> Replay:
    """Replay a schedule, or its JSON document, step by step; return its C, S, R and number of sends.

    Raises VerificationError at the first thing that is wrong; `place` is where the document stands in another one.
    """
    own = {"schema", "collective", "chunks", "steps"}
    if isinstance(given, Schedule):
        doc, required = given.document_without_machine, own
    else:
        doc, required = given, own | {"topology"}
    fields = json_reader.fields(doc, place, required, {"fingerprint", "timed"})
    if fields["schema"] != "synth.schedule/1":
        raise VerificationError(f"schema is {fields['schema']!r}, expected 'synth.schedule/1'", f"{place}.schema")
    if not isinstance(fields.get("timed", False), bool):
        raise VerificationError(f"timed is {fields['timed']!r}, expected true or false", f"{place}.timed")
    topology = given.network if isinstance(given, Schedule) else fields["topology"]
    machine = machine_of(topology, f"{place}.topology")
    machine.check_wires(f"{place}.topology")
    chunks = json_reader.number(fields["chunks"], f"{place}.chunks", 1)
    task = ReplayCollective.read(fields["collective"], chunks, machine.ranks, f"{place}.collective")
    state = HeldSums(task, place) if task.combining else HeldChunks(task, place)
    rounds = sends = 0
    for t, row in enumerate(json_reader.items(fields["steps"], f"{place}.steps")):
        here = f"{place}.steps[{t}]"
        step = json_reader.fields(row, here, {"rounds", "sends"}, {"switch_sends"})
        r = json_reader.number(step["rounds"], f"{here}.rounds", 1)
        moves = json_reader.items(step["sends"], f"{here}.sends")
        groups = json_reader.items(step.get("switch_sends", []), f"{here}.switch_sends")
        more, ports = switch_sends(groups, task.chunks, machine, f"{here}.switch_sends")
        loads = count_loads(moves, task.chunks, machine, f"{here}.sends")
        machine.check_loads(loads, ports, r, here)
        state.step(moves + more, here)
        rounds, sends = rounds + r, sends + len(groups) + sum(row[1] != row[2] for row in moves)
    state.finish()
    if "fingerprint" in fields:
        _check_fingerprint(fields, machine, chunks, rounds, place)
    return Replay(chunks, len(fields["steps"]), rounds, sends)


def problem(topology: object, collective: object, place: str = "$") -> None:
    """Check the documents of a problem: their form, and that a named collective is what its name says.

    The collective has one chunk per unit. Raises VerificationError.
    """
    machine = machine_of(topology, f"{place}.topology")
    machine.check_wires(f"{place}.topology")
    ReplayCollective.read(collective, 1, machine.ranks, f"{place}.collective")


def _check_fingerprint(doc: dict, machine: ReplayMachine, chunks: int, rounds: int, place: str) -> None:
    """Check that a schedule's fingerprint is that of its own topology, collective, C, S and R."""
    problem = machine.problem_fingerprint(with_one_chunk(doc["collective"], chunks))
    if doc["fingerprint"] != size_fingerprint(problem, chunks, len(doc["steps"]), rounds):
        raise VerificationError("does not belong to this topology, collective, C, S and R", f"{place}.fingerprint")
