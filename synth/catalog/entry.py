"""Entry: what a catalog keeps of one problem: its frontier, where it comes from, and what was measured.

Entry       fingerprint topology collective ranks options state frontier certificate reason seconds provenance
            measurements
Provenance  versions seed solver encoding machine created time_limit memory
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from synth.model.collective import Collective
from synth.model.frontier import Frontier
from synth.model.scale_frontier import Large
from synth.model.schedule import canonical, problem_fingerprint
from synth.model.topology import Network, Topology

DONE, OPEN, INFEASIBLE, FAILED = "done", "open", "infeasible", "failed"
STATES = (DONE, OPEN, INFEASIBLE, FAILED)
Options = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Provenance:
    """Who made an entry: versions of synth, Python and the solvers by name, the seed, what was asked for, and when
    (UTC, ISO 8601).

    `time_limit` (wall seconds) and `memory` (bytes) are what the task was allowed, None for no limit.
    """

    versions: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    solver: str = "auto"
    encoding: str = "auto"
    machine: str = ""
    created: str = ""
    time_limit: float | None = None
    memory: int | None = None

    def to_json(self) -> dict:
        """As a catalog keeps it."""
        return {
            "versions": dict(self.versions), "seed": self.seed, "solver": self.solver, "encoding": self.encoding,
            "machine": self.machine, "created": self.created, "time_limit": self.time_limit, "memory": self.memory,
        }  # fmt: skip

    @staticmethod
    def from_json(doc: dict) -> Provenance:
        """The inverse of `to_json`."""
        return Provenance(
            tuple(doc["versions"].items()), doc["seed"], doc["solver"], doc["encoding"], doc["machine"], doc["created"],
            doc.get("time_limit"), doc.get("memory"),
        )  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One problem of a catalog, keyed by `fingerprint` (see `fingerprint`): of the network, the collective and the
    options.

    `state`: "done" (the frontier is complete, or all that the options ask for is decided), "open" (a budget ran out:
    the frontier holds its intervals), "infeasible" (`certificate` proves it) or "failed" (`reason`: two crashes).
    `frontier`: in every state but "failed" it is given, as it says what the problem is; without points where nothing
    was found or nothing exists. `measurements`: documents ``synth.measured/1`` of this problem's programs.
    """

    fingerprint: str
    topology: str
    collective: str
    ranks: int
    options: tuple[tuple[str, str], ...]
    state: str
    frontier: Frontier | Large | None = None
    certificate: dict = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    provenance: Provenance = Provenance()
    measurements: tuple[dict, ...] = ()

    @property
    def id(self) -> str:
        """What users type: the first 12 digits of the fingerprint; any unique prefix of it is understood too."""
        return self.fingerprint[:12]

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of the collective, () where it has none or nothing is known of it."""
        if isinstance(self.frontier, Frontier):
            return self.frontier.collective.roots
        return () if self.frontier is None or self.frontier.root is None else (self.frontier.root,)


def fingerprint(network: Network, collective: Collective, options: Options = ()) -> str:
    """SHA-256 over links, limits, before and after, and the options that change the answer (in any order).

    Names, latencies and the GB/s of one unit are no part of it: the frontier is the same, and is given for the machine
    asked for.
    """
    return _digest([problem_fingerprint(network, collective), sorted(map(list, options))])


def large_fingerprint(topology: Topology, collective: str, root: int | None, options: Options = ()) -> str:
    """The same for the flow engines: over links and limits with exact bandwidths, the collective's name and root, the
    options."""
    live = topology.live()
    found = hashlib.sha256(
        canonical(["flow", live.ranks, len(live.switches), collective, root, sorted(map(list, options))])
    )
    words: dict[int, str] = {}  # a million links share a few bandwidths
    for item in (*live.links, *live.limits):
        if id(item.bandwidth) not in words:
            words[id(item.bandwidth)] = str(item.bandwidth)
    found.update("\n".join(["", *(f"{k.src} {k.dst} {words[id(k.bandwidth)]}" for k in live.links)]).encode())
    for limit in live.limits:
        found.update(f"\n{words[id(limit.bandwidth)]} {','.join(map(str, limit.links))}".encode())
    return found.hexdigest()


def _digest(doc: object) -> str:
    return hashlib.sha256(canonical(doc)).hexdigest()
