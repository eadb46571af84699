"""Problem and Schedule: the question, and the answer that the checker replays.

    Problem   network collective chunks steps rounds          C, S, R of the SCCL paper
    Schedule  network collective chunks steps                 steps: tuple[Step, ...]
    Step      rounds sends
    Send      chunk src dst kind via                          kind: copy, reduce, copy-input, reduce-input

All sends of a step read the state before it. Within a step copies land before reductions add. A "-input" send carries
the input of its rank. From a rank to itself it uses no link: the rank's input replaces the value that it holds, or is
added to it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from typing import NamedTuple

from synth.model.collective import Collective
from synth.model.topology import Network

SCHEMA = "synth.schedule/1"
SEND_KINDS = ("copy", "reduce", "copy-input", "reduce-input")


class Send(NamedTuple):
    """One chunk over one route in one step; or a rank's input, added again where it is."""

    chunk: int
    src: int
    dst: int
    kind: str = "copy"
    via: tuple[str, ...] = ()

    @property
    def local(self) -> bool:
        """True if the chunk stays on its rank, and so uses no link."""
        return self.src == self.dst


class Step(NamedTuple):
    """A step of `rounds` rounds: a route of b units carries at most b * rounds of its sends."""

    rounds: int
    sends: tuple[Send, ...]


def canonical(doc: object) -> bytes:
    """Return canonical JSON: sorted keys, no white space. Every fingerprint is a hash of it."""
    return json.dumps(doc, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def problem_fingerprint(network: Network, collective: Collective) -> str:
    """SHA-256 of the document that a certificate speaks about: links, limits, pre and post with one chunk per unit."""
    held = network.document | collective.document
    doc = {key: held[key] for key in ("links", "limits", "pre", "post", "combining")}
    return hashlib.sha256(canonical(doc)).hexdigest()


@dataclass(frozen=True)
class Problem:
    """Is there a schedule with `chunks` chunks per unit, `steps` steps and `rounds` rounds in all?"""

    network: Network
    collective: Collective
    chunks: int
    steps: int
    rounds: int

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over topology, collective and (C, S, R)."""
        base = problem_fingerprint(self.network, self.collective)
        return hashlib.sha256(canonical([base, self.chunks, self.steps, self.rounds])).hexdigest()

    def reversed(self) -> Problem:
        """Return the time reversal: routes reversed, before and after exchanged."""
        return Problem(self.network.reversed(), self.collective.reversed(), self.chunks, self.steps, self.rounds)


@dataclass(frozen=True)
class Schedule:
    """A step-synchronous schedule. It may be wrong: `synth.checker.schedule.replay` decides."""

    network: Network
    collective: Collective
    chunks: int
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        sends = sum(not send.local for step in self.steps for send in step.sends)
        size = f"C={self.chunks}, S={len(self.steps)}, R={self.rounds}, {sends} sends"
        return f"<Schedule of {self.collective.name} on {self.network.name}: {size}>"

    def __reduce__(self) -> tuple:
        # Pickled column by column: that saves one object for each of up to some hundred thousand sends.
        columns = [(step.rounds, list(zip(*step.sends, strict=True))) for step in self.steps]
        return _from_columns, (self.network, self.collective, self.chunks, columns)

    @property
    def rounds(self) -> int:
        """R: the rounds of all steps together."""
        return sum(step.rounds for step in self.steps)

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C, rounds per chunk."""
        return Fraction(self.rounds, self.chunks)

    @property
    def problem(self) -> Problem:
        """The problem that this schedule answers."""
        return Problem(self.network, self.collective, self.chunks, len(self.steps), self.rounds)

    def reversed(self) -> Schedule:
        """Return the time reversal of a non-combining schedule: copies become reductions, the last step is first."""
        kind = {"copy": "reduce", "reduce": "copy"}
        steps = []
        for step in reversed(self.steps):
            sends = sorted(Send(s.chunk, s.dst, s.src, kind[s.kind], s.via[::-1]) for s in step.sends)
            steps.append(Step(step.rounds, tuple(sends)))
        return Schedule(self.network.reversed(), self.collective.reversed(), self.chunks, tuple(steps))

    def to_json(self) -> dict:
        """Return the schedule as a JSON document (schema: docs/formats.md)."""
        rows = []
        for step in self.steps:
            sends: list[list] = []
            for send in step.sends:
                sends.append([send.chunk, send.src, send.dst, send.kind])
                if send.via:
                    sends[-1].append(list(send.via))
            rows.append({"rounds": step.rounds, "sends": sends})
        return {
            "schema": SCHEMA, "fingerprint": self.problem.fingerprint, "topology": self.network.to_json(),
            "collective": self.collective.to_json(self.chunks), "chunks": self.chunks, "steps": rows,
        }  # fmt: skip

    @staticmethod
    def from_json(doc: dict) -> Schedule:
        """Return the schedule of a document. Raises KeyError, ValueError or TypeError on a malformed one."""
        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        steps = []
        for row in doc["steps"]:
            sends = []
            for chunk, src, dst, kind, *via in row["sends"]:
                sends.append(Send(chunk, src, dst, kind, tuple(via[0]) if via else ()))
            steps.append(Step(row["rounds"], tuple(sends)))
        network = Network.from_json(doc["topology"])
        collective = Collective.from_json(doc["collective"], doc["chunks"])
        return Schedule(network, collective, doc["chunks"], tuple(steps))


def _from_columns(
    network: Network, collective: Collective, chunks: int, columns: list[tuple[int, list[tuple]]]
) -> Schedule:
    """The schedule whose steps are given as their rounds and the columns of their sends."""
    send = partial(tuple.__new__, Send)
    steps = []
    for rounds, sends in columns:
        steps.append(Step(rounds, tuple(map(send, zip(*sends, strict=True)))))
    return Schedule(network, collective, chunks, tuple(steps))
