"""Independent replay of schedules: the root of trust.

Works on the JSON document, not on the values that made it, and shares no code with what it checks. Checked are
structure, the meaning of a named collective, holdings, contributions counted once, the load of every link, limit and
physical wire in every step, and the postcondition. Anything wrong raises `VerificationError` with the place in the
document.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from weakref import finalize

from synth.checker.fields import need
from synth.checker.fingerprints import size_fingerprint, with_one_chunk
from synth.checker.schedule.collective import ReplayCollective
from synth.checker.schedule.machine import machine_of
from synth.checker.schedule.sends import count_loads, switch_sends
from synth.checker.schedule.state import HeldChunks, HeldSums
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


_replays: dict[int, Replay] = {}  # by the id of each schedule that is there and was replayed


@collector_off()
def schedule(given: Schedule | dict, place: str = "$") -> Replay:
    """Replay a schedule, or its JSON document, step by step; return its C, S, R and number of sends.

    A `Schedule`, which does not change, is replayed once. Raises VerificationError at the first thing that is wrong;
    `place` is where the document stands in another one.
    """
    required = {"schema", "collective", "chunks", "steps"}
    if isinstance(given, Schedule):
        if id(given) in _replays:
            return _replays[id(given)]
        doc: object = given.document_without_machine
        topology: object = given.network
        fields = json_reader.fields(doc, place, required, {"fingerprint", "timed"})
    else:
        fields = json_reader.fields(given, place, required | {"topology"}, {"fingerprint", "timed"})
        topology = fields["topology"]

    # the problem: machine, collective, chunks
    json_reader.one_of(fields["schema"], ("synth.schedule/1",), f"{place}.schema")
    need(type(fields.get("timed", False)) is bool, "is true or false", f"{place}.timed")
    machine = machine_of(topology, f"{place}.topology")
    machine.check_wires(f"{place}.topology")
    chunks = json_reader.number(fields["chunks"], f"{place}.chunks", 1)
    task = ReplayCollective.read(fields["collective"], chunks, machine.ranks, f"{place}.collective")

    # its steps: what they put on links, limits and wires, then what they do to the data
    state = HeldSums(task, place) if task.combining else HeldChunks(task, place)
    rounds = sends = 0
    for t, row in enumerate(json_reader.items(fields["steps"], f"{place}.steps")):
        here = f"{place}.steps[{t}]"
        step = json_reader.fields(row, here, {"rounds", "sends"}, {"switch_sends"})
        r = json_reader.number(step["rounds"], f"{here}.rounds", 1)
        moves = json_reader.items(step["sends"], f"{here}.sends")
        groups = json_reader.items(step.get("switch_sends", []), f"{here}.switch_sends")
        loads = count_loads(moves, task.chunks, machine, f"{here}.sends")
        more, ports = switch_sends(groups, task.chunks, machine, f"{here}.switch_sends")
        machine.check_loads(loads, ports, r, here)
        state.step(moves + more, here)
        rounds, sends = rounds + r, sends + len(groups) + loads.total()
    state.finish()
    if "fingerprint" in fields:
        problem = machine.problem_fingerprint(with_one_chunk(fields["collective"], chunks))
        own = size_fingerprint(problem, chunks, len(fields["steps"]), rounds)
        fault = "does not belong to this topology, collective, C, S and R"
        need(fields["fingerprint"] == own, fault, f"{place}.fingerprint")

    found = Replay(chunks, len(fields["steps"]), rounds, sends)
    if isinstance(given, Schedule):
        _replays[id(given)] = found
        finalize(given, _replays.pop, id(given), None).atexit = False
    return found


def problem(topology: object, collective: object, place: str = "$") -> None:
    """Check the documents of a problem: their form, and that a named collective is what its name says.

    The collective has one chunk per unit. Raises VerificationError.
    """
    machine = machine_of(topology, f"{place}.topology")
    machine.check_wires(f"{place}.topology")
    ReplayCollective.read(collective, 1, machine.ranks, f"{place}.collective")
