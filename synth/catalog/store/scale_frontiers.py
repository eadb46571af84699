"""Frontiers of the flow engines in a catalog: a document, and for each point the compact file of its schedule."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.catalog.entry import Entry, Options, scale_fingerprint
from synth.catalog.store.blobs import MOST_BYTES, Blob, pack, pack_bytes, unpack, unpack_bytes
from synth.checker.documents import scale_frontier
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.scale_frontier import ScaleFrontier
from synth.model.topology import Topology
from synth.topologies import topology_files
from synth.topologies.file_reader import parse_json

if TYPE_CHECKING:
    from synth.model.compressed_schedule import CompressedSchedule

# Bytes of a schedule's file: a larger schedule is not stored, and `synth pareto` makes it again when it is needed.
MOST_SCHEDULE = 1 << 26


def packed(frontier: ScaleFrontier) -> dict[str, Blob]:
    """Return the blobs of `frontier` by name: "frontier", "topology" where a topology file can represent it, and
    "point-K" for each schedule of at most `MOST_SCHEDULE` bytes."""
    blobs, files = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for i, point in enumerate(frontier.points):
            path = Path(folder) / "point.npz"
            point.schedule.save(path)
            if path.stat().st_size <= min(MOST_SCHEDULE, MOST_BYTES):
                files[i] = f"point-{i + 1}"
                blobs[files[i]] = pack_bytes(path.read_bytes())
    topology = frontier.topology
    blob = pack(topology_files.dump(topology))
    if _reads_back(blob, topology):
        blobs["topology"] = blob
    elif not files or not _loads(blobs[next(iter(files.values()))]):
        raise SynthError(
            f"{topology.name!r}: neither the machine, of {topology.ranks} ranks, nor a schedule can be kept"
        )
    return blobs | {"frontier": pack(frontier.to_json(files, links=False))}


def unpacked(blobs: dict[str, Blob]) -> ScaleFrontier:
    """Return the frontier in the blobs of `packed`; schedules are unpacked on demand.

    Raises FormatError, KeyError, ValueError, TypeError.
    """
    doc = unpack(blobs["frontier"])
    sources = [_source(row, blobs) for row in doc["points"]]
    return ScaleFrontier.from_json(doc, _topology(doc, blobs), sources)


def problem(frontier: ScaleFrontier, options: Options) -> str:
    """Return the fingerprint of the problem that `frontier` answers."""
    return scale_fingerprint(frontier.topology, frontier.collective_name, frontier.root, options)


def check(entry: Entry, blobs: dict[str, Blob]) -> list[str]:
    """Check an entry and its stored `blobs`; return a line for each verified claim. Raises VerificationError."""
    frontier = unpacked(blobs)
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for i in range(len(frontier.points)):
            name = f"point-{i + 1}"
            if name in blobs:
                files[i] = name
                (Path(folder) / name).write_bytes(unpack_bytes(blobs[name]))
        return scale_frontier.document(frontier.to_json(files, links=False), Path(folder), lambda: frontier.topology)


def _topology(doc: dict, blobs: dict[str, Blob]) -> Topology:
    if "topology" in blobs:
        return _read_topology(blobs["topology"])
    first = next(row for row in doc["points"] if "file" in row)
    return _source(first, blobs)().topology


def _read_topology(blob: Blob) -> Topology:
    return topology_files.from_document(parse_json(unpack_bytes(blob).decode(), "topology"), "topology")


def _reads_back(blob: Blob, topology: Topology) -> bool:
    """Return True if a topology file represents `topology`, which has neither too many ranks nor parallel links."""
    try:
        return topology.ranks <= topology_files.MAX_FILE_RANKS and _read_topology(blob) == topology
    except FormatError:
        return False


def _loads(blob: Blob) -> bool:
    try:
        stored_schedule(blob)
    except (FormatError, VerificationError):
        return False
    return True


def _source(row: dict[str, Any], blobs: dict[str, Blob]) -> Callable[[], CompressedSchedule]:
    """Return the function that unpacks the schedule of a row of the document's points."""
    name = row.get("file")
    if name is None:
        return _not_stored(row["steps"])
    if name not in blobs:
        raise FormatError(f"lacks the schedule {name}")
    return lambda: stored_schedule(blobs[name])


def stored_schedule(blob: Blob) -> CompressedSchedule:
    """Return the schedule in a blob. Raises FormatError."""
    from synth.checker.documents import schedule_archive

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "point.npz"
        path.write_bytes(unpack_bytes(blob))
        try:
            return schedule_archive.load(path)
        except FormatError as error:
            raise FormatError(str(error).removeprefix(f"{path}: ")) from None


def _not_stored(steps: int) -> Callable[[], CompressedSchedule]:
    def make() -> CompressedSchedule:
        raise SynthError(
            f"the {steps}-step schedule was too large for the catalog; `synth pareto --engine flow --schedules DIR` "
            f"makes it"
        )

    return make
