"""Problem and Schedule: the question, and the answer that the checker replays.

    Problem   network collective chunks steps rounds          C, S, R of the SCCL paper
    Schedule  network collective chunks steps                 steps: tuple[Step, ...]
    Step      rounds sends switch_sends
    Send      chunk src dst kind via                          kind: copy, reduce, copy-input, reduce-input
    SwitchSend  chunk rank group kind switch                  kind: multicast, multicast-reduce, fetch-reduce

All sends of a step read the state before it. Within a step copies land before reductions add. A "-input" send carries
the input of its rank. From a rank to itself it uses no link: the rank's input replaces the value that it holds, or is
added to it. A switch send is done by a switch that multicasts: it copies the value of `rank` to its `group`
(multicast), adds it there (multicast-reduce), or adds the values of the group to that of `rank` (fetch-reduce).
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from synth.model.collective import Collective
from synth.model.documents.canonical_json import canonical
from synth.model.documents.whole_file import whole_file
from synth.model.registry import NOTEBOOK, load
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


class SwitchSend(NamedTuple):
    """One chunk between `rank` and the ranks of `group` through the switch `switch` in one step.

    `group` is ascending and holds `rank` itself, whose value a multicast leaves as it is. `kind`: "multicast" copies
    the value of `rank` to the group, "multicast-reduce" adds it to theirs, "fetch-reduce" adds theirs to that of
    `rank`.
    """

    chunk: int
    rank: int
    group: tuple[int, ...]
    kind: str
    switch: str

    @property
    def local(self) -> bool:
        """False: the chunk passes the switch."""
        return False

    def expanded(self) -> tuple[Send, ...]:
        """Return the sends from rank to rank with the same effect. They use more bandwidth."""
        others = [rank for rank in self.group if rank != self.rank]
        if self.kind == "fetch-reduce":
            return tuple(Send(self.chunk, rank, self.rank, "reduce") for rank in others)
        kind = "copy" if self.kind == "multicast" else "reduce"
        return tuple(Send(self.chunk, self.rank, rank, kind) for rank in others)

    def reversed(self) -> SwitchSend:
        """Return the send reversed in time: a fetch-reduce for a multicast, and a multicast for a fetch-reduce."""
        turned = {"multicast": "fetch-reduce", "fetch-reduce": "multicast"}
        return self._replace(kind=turned[self.kind])


class Step(NamedTuple):
    """A step of `rounds` rounds: a route of b units carries at most b * rounds of its sends.

    A port of a switch counts `switch_sends` and sends together (docs/model.md).
    """

    rounds: int
    sends: tuple[Send, ...]
    switch_sends: tuple[SwitchSend, ...] = ()

    @property
    def unicast_sends(self) -> tuple[Send, ...]:
        """The sends, and those from rank to rank with the effect of the switch sends."""
        sends = list(self.sends)
        for switch_send in self.switch_sends:
            sends += switch_send.expanded()
        return tuple(sends)


def problem_fingerprint(network: Network, collective: Collective) -> str:
    """SHA-256 of the document that a certificate speaks about: links, limits, multicast, rules, pre and post.

    With one chunk per unit. The network keeps it, as certificates, schedules and logs all name their problem.
    """
    known = network.fingerprints.get(collective)
    if known is not None:
        return known
    fields = {key: collective.document[key] for key in ("combining", "post", "pre")}
    fields |= {key: network.document[key] for key in ("links", "limits", "multicast") if key in network.document}
    return network.fingerprints.setdefault(collective, hashlib.sha256(canonical(fields)).hexdigest())


@dataclass(frozen=True)
class Problem:
    """The question of `synth.solve`: is there a schedule of these chunks, steps and rounds?

    Encodings of plug-ins take it (docs/plugins.md).

    Attributes
    ----------
    network, collective : the machine and the collective.
    chunks, steps, rounds : C of each unit of data, S, and R of all steps together.

    Examples
    --------
    >>> import synth
    >>> network = synth.topology("ring:4").network()
    >>> problem = synth.Problem(network, synth.collective("allgather", 4), chunks=2, steps=2, rounds=3)
    >>> problem.collective, problem.rounds
    (<Collective allgather: 4 ranks, 4 units>, 3)
    """

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

    def of_reversal(self, schedule: Schedule) -> Schedule:
        """Return the schedule of this problem for one of its time reversal; for one of itself where it copies."""
        steps = (schedule.reversed() if self.collective.combining else schedule).steps
        return Schedule(self.network, self.collective, schedule.chunks, steps)


class SynchronousSchedule(ABC):
    """Interface of every step-synchronous schedule: `Schedule` lists all sends, `CompressedSchedule` one of each orbit.

    They stay two classes. The listed one needs no NumPy, which takes longer to import than exact synthesis of a small
    problem; the one by orbits keeps columns and the links of the machine, of which a list would be a billion objects.

    Attributes
    ----------
    chunks: C, the number of chunks of a unit.
    suffix: the end of the name of a file that `save` writes.
    """

    suffix: ClassVar[str]
    chunks: int

    @property
    @abstractmethod
    def sends(self) -> int:
        """The number of sends."""

    @property
    @abstractmethod
    def step_count(self) -> int:
        """S: the number of steps."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """R: the rounds of all steps together."""

    @property
    def rounds_per_chunk(self) -> Fraction:
        """R / C, rounds per chunk."""
        return Fraction(self.rounds, self.chunks)

    @abstractmethod
    def written_out(self) -> Schedule:
        """Return the schedule with every send listed. Raises TooManySendsError where they are too many."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write a file that `synth verify` reads: whole or not at all. Raises OSError."""


@dataclass(frozen=True)
class Schedule(SynchronousSchedule):
    """A step-synchronous schedule. It may be wrong: `synth.verify` decides.

    Attributes
    ----------
    network, collective : the problem.
    chunks : C, the chunks of each unit of data; chunk ``unit * C + i`` is part i of the unit.
    steps : for each step its rounds and its sends, ``Send(chunk, src, dst, kind, via)``. All sends of a step read the
        state before it.
    timed : the steps only put the messages of each link in the order of time (list scheduling). Then every link has one
        connection, and no receive waits for a link to forward.

    Examples
    --------
    >>> import synth
    >>> schedule = synth.frontier("fully-connected:3", "allgather").points[0].schedule
    >>> for send in schedule.steps[0].sends[:2]:
    ...     print(f"rank {send.src} sends chunk {send.chunk} to rank {send.dst}")
    rank 0 sends chunk 0 to rank 1
    rank 0 sends chunk 0 to rank 2
    """

    suffix: ClassVar[str] = ".json"

    network: Network
    collective: Collective
    chunks: int
    steps: tuple[Step, ...]
    timed: bool = False

    def __repr__(self) -> str:
        sends = sum(not send.local for step in self.steps for send in (*step.sends, *step.switch_sends))
        size = f"C={self.chunks}, S={len(self.steps)}, R={self.rounds}, {sends} sends"
        return f"<Schedule of {self.collective.name} on {self.network.name}: {size}>"

    def _repr_html_(self) -> str:
        return load(NOTEBOOK["schedule"])(self)

    @property
    def step_count(self) -> int:
        """S: the number of steps."""
        return len(self.steps)

    @property
    def rounds(self) -> int:
        """R: the rounds of all steps together."""
        return sum(step.rounds for step in self.steps)

    @property
    def uses_multicast(self) -> bool:
        """True if a step has switch sends."""
        return any(step.switch_sends for step in self.steps)

    @property
    def sends(self) -> int:
        """The number of sends, local ones included."""
        return sum(len(step.sends) + len(step.switch_sends) for step in self.steps)

    def written_out(self) -> Schedule:
        """Return the schedule itself, which lists every send."""
        return self

    @property
    def latency(self) -> Fraction:
        """The sum over the steps of the greatest latency of a route that the step uses, µs.

        A switch send takes that of the routes through its switch.
        """
        latencies = {(route.src, route.dst, route.via): route.latency for route in self.network.routes}
        through: dict[tuple[int, int, str], Fraction] = {}
        for route in self.network.routes if self.uses_multicast else ():
            for switch in route.via or ("",):
                through.setdefault((route.src, route.dst, switch), route.latency)

        # A step lasts as long as its slowest route, or the slowest one through a switch that it uses.
        total = Fraction(0)
        for step in self.steps:
            used = {(send.src, send.dst, send.via) for send in step.sends if not send.local}
            times = [latencies[route] for route in used if route in latencies]
            pairs = set()
            for switch_send in step.switch_sends:
                pairs |= {(send.src, send.dst, switch_send.switch) for send in switch_send.expanded()}
            for src, dst, switch in pairs:
                times.append(through.get((src, dst, switch), through.get((src, dst, ""), Fraction(0))))
            total += max(times, default=Fraction(0))
        return total

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
            switch_sends = tuple(send.reversed() for send in step.switch_sends)
            steps.append(Step(step.rounds, tuple(sends), switch_sends))
        return Schedule(self.network.reversed(), self.collective.reversed(), self.chunks, tuple(steps), self.timed)

    def save(self, path: Path) -> None:
        """Write the JSON document: whole or not at all. Raises OSError."""
        with whole_file(path) as part:
            part.write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")

    def to_json(self) -> dict:
        """Return the schedule as a JSON document (schema: docs/formats.md)."""
        return self._document({"topology": self.network.to_json(), "collective": self.collective.to_json(self.chunks)})

    @property
    def document(self) -> dict:
        """`to_json()` without a copy of the machine's document, for readers that change nothing in it."""
        problem = {"topology": self.network.document, "collective": self.collective.document_of(self.chunks)}
        return self._document(problem)

    @property
    def document_without_machine(self) -> dict:
        """`document` without `topology`, for readers that have the network."""
        return self._document({"collective": self.collective.document_of(self.chunks)})

    @property
    def document_without_problem(self) -> dict:
        """`document` without `topology` and `collective`, for readers that have both."""
        return self._document({})

    def _document(self, problem: dict) -> dict:
        # Switches and switch sends are left out of the rows of the many steps without them.
        rows = []
        for step in self.steps:
            sends: list[list] = []
            for send in step.sends:
                sends.append([send.chunk, send.src, send.dst, send.kind])
                if send.via:
                    sends[-1].append(list(send.via))
            rows.append({"rounds": step.rounds, "sends": sends})
            if step.switch_sends:
                rows[-1]["switch_sends"] = [[*send[:2], list(send.group), *send[3:]] for send in step.switch_sends]
        timed = {"timed": True} if self.timed else {}
        return {
            "schema": SCHEMA, "fingerprint": self.problem.fingerprint, **problem,
            "chunks": self.chunks, **timed, "steps": rows,
        }  # fmt: skip

    @staticmethod
    def from_json(doc: dict, problem: tuple[Network, Collective] | None = None) -> Schedule:
        """Return the schedule of a document. Raises KeyError, ValueError or TypeError on a malformed one.

        `problem`: its machine and collective where they are known; those of the document are not read then.
        """
        if doc["schema"] != SCHEMA:
            raise ValueError(f"schema {doc['schema']!r}, expected {SCHEMA!r}")
        # Rows as `_document` writes them; whether they are sends of the problem is for the replay.
        steps = []
        for row in doc["steps"]:
            if type(row["rounds"]) is not int:
                raise ValueError(f"{row['rounds']!r:.40} is no whole number of rounds")
            sends = []
            for chunk, src, dst, kind, *via in row["sends"]:
                sends.append(Send(chunk, src, dst, kind, tuple(via[0]) if via else ()))
            switch_sends = []
            for chunk, rank, group, kind, switch in row.get("switch_sends", []):
                switch_sends.append(SwitchSend(chunk, rank, tuple(group), kind, switch))
            steps.append(Step(row["rounds"], tuple(sends), tuple(switch_sends)))
        if problem is None:
            problem = Network.from_json(doc["topology"]), Collective.from_json(doc["collective"], doc["chunks"])
        network, collective = problem
        return Schedule(network, collective, doc["chunks"], tuple(steps), doc.get("timed", False))
