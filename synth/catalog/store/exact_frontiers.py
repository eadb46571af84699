"""Frontiers of exact synthesis in a catalog: one document, which holds the schedules."""

from __future__ import annotations

from synth.catalog.entry import Entry, Options, fingerprint
from synth.catalog.store.blobs import Blob, pack, unpack
from synth.checker.documents import exact_frontier
from synth.model.frontier import Frontier


def packed(frontier: Frontier) -> dict[str, Blob]:
    """Return the blobs of `frontier` by name."""
    return {"frontier": pack(frontier.to_json())}


def unpacked(blobs: dict[str, Blob]) -> Frontier:
    """Return the frontier in the blobs of `packed`. Raises FormatError, KeyError, ValueError, TypeError."""
    return Frontier.from_json(unpack(blobs["frontier"]))


def problem(frontier: Frontier, options: Options) -> str:
    """Return the fingerprint of the problem that `frontier` answers."""
    return fingerprint(frontier.network, frontier.collective, options)


def check(entry: Entry, blobs: dict[str, Blob]) -> list[str]:
    """Check an entry; return a line for each verified claim. `blobs` are not needed. Raises VerificationError."""
    frontier = entry.exact
    if frontier is None:
        return []
    lines = exact_frontier.document(frontier.to_json())
    if entry.certificate:
        from synth.checker.certificates import cuts

        cuts.check(entry.certificate, frontier.network, frontier.collective.document)
        lines.append(f"{entry.state}: {entry.certificate.get('kind')} certificate checked")
    return lines
