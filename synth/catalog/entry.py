"""An entry of a catalog: the frontier of one problem, and where it comes from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth.model.collective import Collective
from synth.model.documents.canonical_json import canonical
from synth.model.frontier import Frontier
from synth.model.rational import show
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network

DONE, OPEN = "done", "open"
# The beginning of the sweep's reason for an interval that `max-chunks` leaves open, as the options request.
LIMITED = "chunks are limited to"


@dataclass(frozen=True)
class EntryRow:
    """An entry as it is listed, without its frontier.

    `topology`: the name of the machine that was searched. `options`: those that change the answer. `state`: "open"
    where the frontier holds intervals that a limit of time left, else "done". `points`: steps and rounds per chunk.
    `provenance`: versions, seed, machine, created (UTC, ISO 8601), time_limit (wall seconds) and memory (bytes).
    """

    fingerprint: str
    topology: str
    collective: str
    roots: tuple[int, ...]
    ranks: int
    options: dict[str, str]
    state: str
    points: tuple[tuple[int, str], ...]
    seconds: float
    provenance: dict[str, Any]

    @property
    def id(self) -> str:
        """The first 12 digits of the fingerprint, which users type; any other unique prefix works too."""
        return self.fingerprint[:12]

    def to_json(self) -> dict:
        """Return the JSON object that `synth catalog ls --format json` prints."""
        return {"id": self.id} | {name: value for name, value in vars(self).items() if name != "frontier"}

    @staticmethod
    def from_json(doc: dict) -> EntryRow:
        """Return the row of a JSON object of `to_json`. Raises KeyError, ValueError, TypeError."""
        doc = doc | {"roots": tuple(doc["roots"]), "points": tuple((steps, rate) for steps, rate in doc["points"])}
        del doc["id"]
        origin = doc["provenance"]
        texts = [doc[name] for name in ("fingerprint", "topology", "collective", "state")]
        numbers = [doc["ranks"], doc["seconds"], origin.get("time_limit") or 0, *doc["roots"]]
        if {*map(type, texts)} != {str} or not {*map(type, numbers)} <= {int, float}:
            raise TypeError("a text or a number is none")
        if type(doc["options"]) is not dict or type(origin.get("versions", {})) is not dict:
            raise TypeError("options or versions are no mapping")
        return EntryRow(**doc)


@dataclass(frozen=True)
class Entry(EntryRow):
    """An entry with its frontier."""

    frontier: Frontier

    @staticmethod
    def of(
        frontier: Frontier,
        options: Mapping[str, str] | None = None,
        seconds: float = 0.0,
        provenance: Mapping[str, Any] | None = None,
        topology: str = "",
    ) -> Entry:
        """Return the entry of a frontier; `topology` "" is the name of its machine."""
        options = dict(options or {})
        limited = "max-chunks" in options
        left = [interval for interval in frontier.open if not (limited and interval.reason.startswith(LIMITED))]
        return Entry(
            fingerprint(frontier.network, frontier.collective, options),
            topology or frontier.network.name,
            frontier.collective.name,
            frontier.roots,
            frontier.network.ranks,
            options,
            OPEN if left else DONE,
            tuple((point.steps, show(point.rounds_per_chunk)) for point in frontier.points),
            round(seconds, 3),
            dict(provenance or {}),
            frontier,
        )


def fingerprint(network: Network, collective: Collective, options: Mapping[str, str] | None = None) -> str:
    """Return the SHA-256 of a problem: links, limits, the data before and after, and the options that change the answer
    (in any order).

    Names, latencies and the GB/s of one unit are not hashed: they do not change the frontier, which is returned for the
    machine of the query.
    """
    problem = [problem_fingerprint(network, collective), sorted(map(list, (options or {}).items()))]
    return hashlib.sha256(canonical(problem)).hexdigest()
