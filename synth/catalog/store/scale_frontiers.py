"""Frontiers of the flow engines in a catalog: the document, and each point's schedule as the compact file it has
elsewhere."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.catalog.store.blobs import MOST_BYTES, Blob, pack, pack_bytes, unpack, unpack_bytes
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.rational import rational
from synth.model.scale_frontier import Large, LargePoint
from synth.model.topology import Topology
from synth.topologies import topology_files
from synth.topologies.file_reader import parse_json

if TYPE_CHECKING:
    from synth.model.compressed_schedule import Bulk

# A schedule above this size is left out: it is made again from the topology when it is needed.
MOST_SCHEDULE = 1 << 26


def packed(found: Large) -> dict[str, Blob]:
    """The blobs of `found`: "frontier", "topology" where files can hold it, "point-K" for each schedule that is not too
    large."""
    blobs, kept = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for i, point in enumerate(found.points):
            path = Path(folder) / "point.npz"
            point.make().save(path)
            if path.stat().st_size <= min(MOST_SCHEDULE, MOST_BYTES):
                kept[i] = f"point-{i + 1}"
                blobs[kept[i]] = pack_bytes(path.read_bytes())
    text = pack(topology_files.dump(found.topology))
    if _reads_back(text, found.topology):
        blobs["topology"] = text
    elif not kept or not _loads(blobs[next(iter(kept.values()))]):
        raise SynthError(
            f"{found.topology.name!r}: neither the machine, of {found.topology.ranks} ranks, nor a schedule can be kept"
        )
    return blobs | {"frontier": pack(found.to_json(kept, links=False))}


def unpacked(blobs: dict[str, Blob]) -> Large:
    """The inverse of `packed`; schedules are unpacked when they are asked for. Raises FormatError, KeyError,
    ValueError, TypeError."""
    doc = unpack(blobs["frontier"])
    points = tuple(_point(row, blobs) for row in doc["points"])
    topology = _topology(doc, blobs, points)
    bound = doc["bound"]
    return Large(
        topology,
        doc["collective"],
        doc["root"],
        rational(bound["value"]),
        bound["certificate"],
        doc["least_steps"],
        points,
        doc["seconds"],
        tuple(doc["notes"]),
        tuple(doc.get("open", ())),
    )


def _topology(doc: dict, blobs: dict[str, Blob], points: tuple[LargePoint, ...]) -> Topology:
    if "topology" in blobs:
        return _written(blobs["topology"])
    first = next(i for i, row in enumerate(doc["points"]) if "file" in row)
    return points[first].make().topology


def _written(blob: Blob) -> Topology:
    return topology_files.from_document(parse_json(unpack_bytes(blob).decode(), "topology"), "topology")


def _reads_back(blob: Blob, topology: Topology) -> bool:
    """Whether files can hold it: not with more ranks than they take, nor with parallel links, say."""
    try:
        return topology.ranks <= topology_files.MAX_FILE_RANKS and _written(blob) == topology
    except FormatError:
        return False


def _loads(blob: Blob) -> bool:
    try:
        bulk(blob)
    except (FormatError, VerificationError):
        return False
    return True


def _point(row: dict[str, Any], blobs: dict[str, Blob]) -> LargePoint:
    name = row.get("file")
    if name is not None and name not in blobs:
        raise FormatError(f"lacks the schedule {name}")
    make = _left_out(row["steps"]) if name is None else _kept(blobs[name])
    return LargePoint(row["steps"], rational(row["bandwidth"]), row["chunks"], row["engine"], make)


def _kept(blob: Blob) -> Callable[[], Bulk]:
    return lambda: bulk(blob)


def bulk(blob: Blob) -> Bulk:
    """The schedule in a blob. Raises FormatError."""
    from synth.checker.documents import schedule_archive

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "point.npz"
        path.write_bytes(unpack_bytes(blob))
        try:
            return schedule_archive.load(path)
        except FormatError as error:
            raise FormatError(str(error).removeprefix(f"{path}: ")) from None


def _left_out(steps: int) -> Callable[[], Bulk]:
    def make() -> Bulk:
        raise SynthError(
            f"the {steps}-step schedule was too large for the catalog; `synth pareto --engine flow --schedules DIR` "
            f"makes it"
        )

    return make
