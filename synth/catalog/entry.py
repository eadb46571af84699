"""Entry: what a catalog keeps of one problem: its frontier, where it comes from, and what was measured.

Entry       fingerprint topology collective ranks options state frontier certificate reason seconds provenance measurements
Provenance  versions seed solver encoding machine created
"""

from __future__ import annotations

from dataclasses import dataclass, field

from synth.frontier import Frontier
from synth.large import Large

DONE, OPEN, INFEASIBLE, FAILED = "done", "open", "infeasible", "failed"
STATES = (DONE, OPEN, INFEASIBLE, FAILED)


@dataclass(frozen=True)
class Provenance:
    """Who made an entry: versions of synth, Python and the solvers by name, the seed, what was asked for, and when (UTC, ISO 8601)."""

    versions: tuple[tuple[str, str], ...] = ()
    seed: int = 0
    solver: str = "auto"
    encoding: str = "auto"
    machine: str = ""
    created: str = ""


@dataclass(frozen=True)
class Entry:
    """One problem of a catalog, keyed by `fingerprint`: of the network, the collective and the options that change the answer.

    `state`: "done" (the frontier is complete, or all that the options ask for is decided), "open" (a budget ran out: the
    frontier holds its intervals), "infeasible" (`certificate` proves it) or "failed" (`reason`: two crashes).
    `measurements`: documents ``synth.measured/1`` of this problem's programs.
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
