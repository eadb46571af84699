"""The entry of a catalog: one problem with its frontier, its provenance and its measurements.

Entry       fingerprint topology collective ranks options state frontier certificate reason seconds provenance
            measurements
Provenance  versions seed solver encoding machine created time_limit memory
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from synth.model.canonical_json import canonical
from synth.model.collective import Collective
from synth.model.frontier import Frontier, ParetoFrontier
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network, Topology

DONE, OPEN, INFEASIBLE, FAILED = "done", "open", "infeasible", "failed"
STATES = (DONE, OPEN, INFEASIBLE, FAILED)
Options = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Provenance:
    """The origin of an entry.

    `versions`: of synth, Python and the solvers, by name. `machine`: the computer. `created`: UTC, ISO 8601.

    `time_limit` (wall seconds) and `memory` (bytes) are the limits of the task, None for no limit.
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
        """Return the JSON object that a catalog stores."""
        return {
            "versions": dict(self.versions), "seed": self.seed, "solver": self.solver, "encoding": self.encoding,
            "machine": self.machine, "created": self.created, "time_limit": self.time_limit, "memory": self.memory,
        }  # fmt: skip

    @staticmethod
    def from_json(doc: dict) -> Provenance:
        """Return the value of a JSON object, the inverse of `to_json`."""
        return Provenance(
            tuple(doc["versions"].items()), doc["seed"], doc["solver"], doc["encoding"], doc["machine"], doc["created"],
            doc.get("time_limit"), doc.get("memory"),
        )  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One problem of a catalog, keyed by the `fingerprint` of the network, the collective and the options.

    `state`: "done" (the frontier is complete, or everything that the options request is decided), "open" (a budget ran
    out: the frontier holds the open intervals), "infeasible" (`certificate` proves it) or "failed" (`reason`: the task
    crashed twice). `frontier`: present in every state but "failed", since it defines the problem; it has no points
    where no schedule was found or none exists. `measurements`: documents ``synth.measured/1`` of this problem's
    programs.
    """

    fingerprint: str
    topology: str
    collective: str
    ranks: int
    options: tuple[tuple[str, str], ...]
    state: str
    frontier: ParetoFrontier | None = None
    certificate: dict = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0
    provenance: Provenance = Provenance()
    measurements: tuple[dict, ...] = ()

    @property
    def id(self) -> str:
        """The first 12 digits of the fingerprint, which users type; any other unique prefix works too."""
        return self.fingerprint[:12]

    @property
    def exact(self) -> Frontier | None:
        """The frontier of exact synthesis, which also answers the problem in other numbers of the ranks; None for one
        of flow methods, or none at all."""
        return self.frontier if isinstance(self.frontier, Frontier) else None

    @property
    def roots(self) -> tuple[int, ...]:
        """The roots of the collective; () where it has none or the entry has no frontier."""
        return () if self.frontier is None else self.frontier.roots


def fingerprint(network: Network, collective: Collective, options: Options = ()) -> str:
    """Return the SHA-256 of a problem: links, limits, the data before and after, and the options that change the answer
    (in any order).

    Names, latencies and the GB/s of one unit are not hashed: they do not change the frontier, which is returned for the
    machine of the query.
    """
    return _digest([problem_fingerprint(network, collective), sorted(map(list, options))])


def scale_fingerprint(topology: Topology, collective: str, root: int | None, options: Options = ()) -> str:
    """Return the SHA-256 of a problem of the flow engines: links and limits with exact bandwidths, the collective's
    name and root, and the options."""
    live = topology.live()
    digest = hashlib.sha256(
        canonical(["flow", live.ranks, len(live.switches), collective, root, sorted(map(list, options))])
    )
    words: dict[int, str] = {}  # a million links share a few bandwidths
    for item in (*live.links, *live.limits):
        if id(item.bandwidth) not in words:
            words[id(item.bandwidth)] = str(item.bandwidth)
    lines = [f"{k.src} {k.dst} {words[id(k.bandwidth)]}" for k in live.links]
    digest.update("\n".join(["", *lines]).encode())
    for limit in live.limits:
        digest.update(f"\n{words[id(limit.bandwidth)]} {','.join(map(str, limit.links))}".encode())
    return digest.hexdigest()


def _digest(doc: object) -> str:
    return hashlib.sha256(canonical(doc)).hexdigest()
