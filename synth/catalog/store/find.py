"""Aliases, machines that an entry of an isomorphic problem answers, and the search for such an entry."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from synth.catalog import relabelling as relabel
from synth.catalog.entry import Entry, Options
from synth.catalog.isomorphism import Relabelling, relabelling
from synth.catalog.store import exact_frontiers
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.errors import FormatError, VerificationError
from synth.model.canonical_json import canonical
from synth.model.collective import Collective
from synth.model.schedule import problem_fingerprint
from synth.model.topology import Network


@dataclass(frozen=True)
class Alias:
    """A further machine that an entry answers. `map` leads from the entry's problem to the machine's.

    `map` is None where the machine has the entry's own numbering, and another name, other speeds or other labels.
    """

    network: Network
    collective: Collective
    labels: tuple[int, ...]
    map: Relabelling | None

    def packed(self, problem: str) -> tuple[str, Blob]:
        """Return the alias's fingerprint, which hashes the `problem`'s fingerprint and the machine, and its blob."""
        doc: dict[str, Any] = {
            "topology": self.network.document,
            "collective": self.collective.document,
            "labels": list(self.labels),
        }
        fingerprint = hashlib.sha256(canonical([problem, doc])).hexdigest()
        return fingerprint, pack(doc | {"map": None if self.map is None else list(map(list, self.map))})

    @staticmethod
    def read(blob: Blob) -> Alias:
        """Return the alias in a blob of `packed`. Raises FormatError, KeyError, ValueError, TypeError."""
        doc = unpack(blob)
        relabelling = None if doc["map"] is None else Relabelling(*map(tuple, doc["map"]))
        return Alias(
            Network.from_json(doc["topology"]),
            Collective.from_json(doc["collective"], 1),
            tuple(doc["labels"]),
            relabelling,
        )

    def of(self, entry: Entry) -> Entry:
        """Return `entry` for this machine. Raises FormatError where the map does not fit the entry."""
        frontier = entry.exact
        if frontier is None:
            raise FormatError("belongs to an entry without a frontier")
        if self.map is None:
            problem = problem_fingerprint(frontier.network, frontier.collective)
            if problem != problem_fingerprint(self.network, self.collective):
                raise FormatError("is of another problem")
            points = tuple(replace(p, source=replace(p.schedule, network=self.network)) for p in frontier.points)
            moved = replace(frontier, network=self.network, points=points, labels=self.labels)
            return replace(entry, topology=self.network.name, frontier=moved)
        try:
            moved = relabel.frontier(frontier, self.network, self.collective, self.map, self.labels)
            move = relabel.ProblemMap(
                (frontier.network, frontier.collective), (self.network, self.collective), self.map
            )
            proof = relabel.certificate(entry.certificate, move) if entry.certificate else {}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise FormatError(f"does not fit its entry: {error!r}"[:200]) from None
        return replace(entry, topology=self.network.name, frontier=moved, certificate=proof)


def find_isomorphic(
    network: Network,
    collective: Collective,
    options: Options,
    labels: Sequence[int],
    candidates: Iterator[tuple[int, Callable[[], Entry]]],
) -> tuple[int, Alias, Entry] | None:
    """Return the row, the alias and the relabelled entry of the first candidate whose problem is isomorphic, or None.

    `candidates`: row numbers, each with a function that reads its entry. The relabelled entry is checked like any
    frontier. A candidate is skipped if it is damaged, or if `options` request the same order of additions on all ranks
    and its schedules do not have it.
    """
    for number, read in candidates:
        try:
            entry = read()
            frontier = entry.exact
            if frontier is None:
                continue
            isomorphism = relabelling((frontier.network, frontier.collective), (network, collective))
            if isomorphism is None:
                continue
            alias = Alias(network, collective, tuple(labels), isomorphism)
            answer = alias.of(entry)
            if ("same_bits", "true") in [(key, value.lower()) for key, value in options] and not _same_bits(answer):
                continue
            exact_frontiers.check(answer, {})
        except (FormatError, VerificationError):
            continue
        return number, alias, answer
    return None


def _same_bits(entry: Entry) -> bool:
    return entry.exact is not None and all(p.same_bits for p in entry.exact.points)
