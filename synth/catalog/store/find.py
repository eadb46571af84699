"""Problems that are answered already: under their own fingerprint, or by an entry that another numbering makes
theirs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from synth.catalog import relabelling as relabel
from synth.catalog.entry import Entry, Options
from synth.catalog.isomorphism import Relabelling, relabelling
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.checker.documents import exact_frontier
from synth.errors import FormatError, VerificationError
from synth.model.collective import Collective
from synth.model.frontier import Frontier
from synth.model.schedule import canonical, problem_fingerprint
from synth.model.topology import Network


@dataclass(frozen=True)
class Alias:
    """A machine that an entry answers for too. `map` None: in the entry's own numbering, under another name or with
    other speeds."""

    network: Network
    collective: Collective
    labels: tuple[int, ...]
    map: Relabelling | None

    def packed(self, problem: str) -> tuple[str, Blob]:
        """A fingerprint of its own, over the problem's and all that is said of the machine, and the blob."""
        doc: dict[str, Any] = {
            "topology": self.network.to_json(),
            "collective": self.collective.to_json(1),
            "labels": list(self.labels),
        }
        own = hashlib.sha256(canonical([problem, doc])).hexdigest()
        return own, pack(doc | {"map": None if self.map is None else list(map(list, self.map))})

    @staticmethod
    def read(blob: Blob) -> Alias:
        """The inverse of `packed`. Raises FormatError, KeyError, ValueError, TypeError."""
        doc = unpack(blob)
        moved = None if doc["map"] is None else Relabelling(*(tuple(pi) for pi in doc["map"]))
        return Alias(
            Network.from_json(doc["topology"]), Collective.from_json(doc["collective"], 1), tuple(doc["labels"]), moved
        )

    def of(self, entry: Entry) -> Entry:
        """What `entry` says, for this machine. Raises FormatError where the two do not fit together."""
        found = entry.frontier
        if not isinstance(found, Frontier):
            raise FormatError("belongs to an entry without a frontier")
        if self.map is None:
            if problem_fingerprint(found.network, found.collective) != problem_fingerprint(
                self.network, self.collective
            ):
                raise FormatError("is of another problem")
            points = tuple(replace(p, schedule=replace(p.schedule, network=self.network)) for p in found.points)
            moved = replace(found, network=self.network, points=points, labels=self.labels)
            return replace(entry, topology=self.network.name, frontier=moved)
        try:
            moved = relabel.frontier(found, self.network, self.collective, self.map, self.labels)
            move = relabel.Move((found.network, found.collective), (self.network, self.collective), self.map)
            proof = relabel.certificate(entry.certificate, move) if entry.certificate else {}
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise FormatError(f"does not fit its entry: {error!r}"[:200]) from None
        return replace(entry, topology=self.network.name, frontier=moved, certificate=proof)


def search(
    network: Network,
    collective: Collective,
    options: Options,
    labels: Sequence[int],
    candidates: Iterator[tuple[int, Callable[[], Entry]]],
) -> tuple[int, Alias, Entry] | None:
    """The first of `candidates` (a row each, read when its turn comes) that a relabelling makes an answer, checked like
    any frontier.

    None where none is. A candidate that is damaged, or whose schedules do not add in the same order on all ranks where
    `options` ask for that, is passed over.
    """
    for number, read in candidates:
        try:
            entry = read()
            if not isinstance(entry.frontier, Frontier):
                continue
            found = relabelling((entry.frontier.network, entry.frontier.collective), (network, collective))
            if found is None:
                continue
            alias = Alias(network, collective, tuple(labels), found)
            made = alias.of(entry)
            if ("same_bits", "true") in [(key, value.lower()) for key, value in options] and not _same_bits(made):
                continue
            checked(made)
        except (FormatError, VerificationError):
            continue
        return number, alias, made
    return None


def checked(entry: Entry) -> list[str]:
    """What is established about an entry of exact synthesis, a line each. Raises VerificationError."""
    found = entry.frontier
    if not isinstance(found, Frontier):
        return []
    said = exact_frontier.document(found.to_json())
    if entry.certificate:
        from synth.checker.certificates import cuts

        cuts.check(entry.certificate, found.network.to_json(), found.collective.to_json(1))
        said.append(f"{entry.state}: {entry.certificate.get('kind')} certificate checked")
    return said


def _same_bits(entry: Entry) -> bool:
    return isinstance(entry.frontier, Frontier) and all(p.same_bits for p in entry.frontier.points)
