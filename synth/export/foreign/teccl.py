"""TE-CCL's schedules in JSON: an allgather or an alltoall as flows of chunks in epochs.

Format: microsoft/TE-CCL. Names begin with a digit that differs between files. A flow is a sentence: ``Chunk c from s
traveled over i->j [with volume x] in epoch k [via switches w]``. Numbers of nodes count switches too. The demands
follow from the names of the chunk paths: ``Demand at d for chunk c from s met by epoch k``.

An allgather copies whole chunks, and its flows are followed. An alltoall divides chunks among paths. Its flows are a
set, in which two parts that travel together stand once (teccl/solvers/alltoall.py), so its chunk paths are followed in
their stead: each is a list of ``[k, i->j with volume x in epoch k]``, and brings its volume to the destination.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any, NamedTuple

from synth.errors import FormatError, VerificationError
from synth.language.recorded_moves import MAX_RANKS, NamedPlace, RecordedMoves
from synth.model.collective import collective
from synth.model.topology import Topology

# Bounds of a file that is read.
MAX_FLOWS, MAX_SWITCHES = 1 << 18, 1 << 12
# Volumes are solutions of a linear program in floating point, as texts: numbers of parts of a chunk, of which there are
# at most `MAX_PARTS`. Few parts may have lost digits (0.333333), many are those of the text up to its last digits.
FEW_PARTS, MAX_PARTS = 64, 1024
VOLUME_ERROR, DIGITS_ERROR = Fraction(1, 10**5), Fraction(1, 10**9)

_HOP = (
    r"(\d{1,9})->(\d{1,9})(?: with volume (\d{1,9}(?:\.\d{1,30})?(?:e-?\d{1,3})?))? in epoch (\d{1,12})"
    r"(?: via switches ([\d, >-]{1,80}))?"
)
_FLOW = re.compile(rf"Chunk (\d{{1,9}}) from (\d{{1,9}}) traveled over {_HOP}")
_STEP = re.compile(_HOP)
_DEMAND = re.compile(r"Demand at (\d{1,9}) for chunk (\d{1,9}) from (\d{1,9}) met by epoch \d{1,12}")


class Flow(NamedTuple):
    """A part `volume` of chunk `chunk` of node `source`, sent from node `src` to node `dst`."""

    epoch: int
    source: int
    chunk: int
    src: int
    dst: int
    volume: Fraction
    place: NamedPlace


class _Demand(NamedTuple):
    """A chunk of `source` that node `dst` wants, and the field of its paths."""

    source: int
    chunk: int
    dst: int
    field: str
    paths: Any


@dataclass
class _Document:
    flows: list[Flow] = field(default_factory=list)
    demands: list[_Demand] = field(default_factory=list)
    wanted: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # (source, chunk) -> destinations
    switches: set[int] = field(default_factory=set)


def is_schedule(doc: object) -> bool:
    """Return True for a document with a list of flows."""
    return isinstance(doc, dict) and _named(doc, "flows") is not None


def recorded(doc: dict, machine: Topology | None, file: str) -> RecordedMoves:
    """Return the moves of a document.

    Raises FormatError for one that is malformed, VerificationError for a flow of data that are not there.
    """
    found = _document(doc, file)
    # Nodes between which flows go are ranks; switches stand only between them.
    ends = {flow.src for flow in found.flows}
    ends |= {flow.dst for flow in found.flows}
    nodes = sorted(ends)
    for node in nodes:
        if node in found.switches:
            raise FormatError(f"a flow ends at node {node}, which another one names as a switch", file)
    if not 2 <= len(nodes) <= MAX_RANKS:
        raise FormatError(f"has flows between {len(nodes)} nodes; 2 to {MAX_RANKS} are read", file)
    rank = {node: i for i, node in enumerate(nodes)}
    for (source, _), wanted in found.wanted.items():
        for node in {source} | wanted:
            if node not in rank:
                raise FormatError(f"a demand names node {node}, which no flow reaches", file)
    name, groups = _collective(found, rank, file)
    paths = []
    parts = 1
    if name == "alltoall":
        paths = [_paths(demand, file) for demand in found.demands]
        parts = _parts(found.demands, paths, file)

    # The first chunk of each (source, chunk) of the file.
    chunks = len(next(iter(groups.values()))) * parts
    moves = RecordedMoves(collective(name, len(rank)), chunks, machine, file)
    first = {}
    for (source, dst), members in groups.items():
        unit = source if name == "allgather" else source * len(rank) + dst
        for i, member in enumerate(sorted(members)):
            first[member] = unit * chunks + i * parts
    if name == "allgather":
        _follow_flows(found, rank, moves, first)
    else:
        # The flows of all paths, epoch by epoch; each path has parts of its own.
        steps = []
        for demand, some in zip(found.demands, paths, strict=True):
            start = first[demand.source, demand.chunk]
            for path in some:
                count = round(path[0].volume * parts) if path else 0
                cells = [moves.input(start + i, rank[demand.source]) for i in range(count)]
                steps += [(flow.epoch, number, flow, cells) for number, flow in enumerate(path)]
                start += count
        for _, _, flow, cells in sorted(steps, key=lambda step: step[:2]):
            cells[:] = [moves.copy(cell, rank[flow.dst], flow.place) for cell in cells]
    return moves


def _named(doc: dict, name: str) -> str | None:
    """Return the key of the document that is a number, a hyphen and `name`, in any case."""
    for key in doc:
        digits, _, rest = key.partition("-")
        if digits.isdecimal() and rest.lower() == name:
            return key
    return None


def _document(doc: dict, file: str) -> _Document:
    found = _Document()
    key, paths = _named(doc, "flows"), _named(doc, "chunk paths")
    rows = doc[key] if key else None
    if not isinstance(rows, list) or not rows or len(rows) > MAX_FLOWS:
        raise FormatError(f"expected a list of 1 to {MAX_FLOWS} flows", file, key)
    for i, row in enumerate(rows):
        place = NamedPlace(file, 0, None, f"{key}[{i}]")
        match = _FLOW.fullmatch(row) if isinstance(row, str) else None
        if match is None:
            raise FormatError(f"{row!r}"[:80] + " is no flow `Chunk c from s traveled over i->j in epoch k`",
                              file, f"{key}[{i}]")  # fmt: skip
        chunk, source, src, dst = map(int, match.group(1, 2, 3, 4))
        found.flows.append(Flow(int(match[6]), source, chunk, src, dst, _volume(match[5], str(place)), place))
        found.switches |= set(map(int, re.findall(r"\d+", match[7] or "")))
    if len(found.switches) > MAX_SWITCHES:
        raise FormatError(f"names more than {MAX_SWITCHES} switches", file, key)
    named = doc.get(paths) if paths else None
    if not isinstance(named, dict) or not named:
        raise FormatError("has no chunk paths, whose names say which node wants which chunk", file, paths)
    for name, rows in named.items():
        match = _DEMAND.fullmatch(name)
        if match is None:
            raise FormatError(f"{name!r}"[:80] + " is no demand `Demand at d for chunk c from s met by epoch k`",
                              file, paths)  # fmt: skip
        dst, chunk, source = map(int, match.groups())
        if dst in found.wanted.setdefault((source, chunk), set()):
            raise FormatError(f"{name!r}"[:80] + " is a demand that is there twice", file, paths)
        found.wanted[source, chunk].add(dst)
        found.demands.append(_Demand(source, chunk, dst, f"{paths}.{name}", rows))
    found.flows.sort(key=lambda flow: flow.epoch)
    return found


def _volume(text: str | None, place: str) -> Fraction:
    volume = Fraction(text) if text else Fraction(1)
    if not 0 < volume <= 1 + VOLUME_ERROR:
        raise FormatError(f"volume {text} is no share of a chunk", place)
    return volume


def _collective(
    found: _Document, rank: dict[int, int], file: str
) -> tuple[str, dict[tuple[int, int], list[tuple[int, int]]]]:
    """Return the name of the collective, and for each pair of source and destination rank its (source, chunk).

    The destination of an allgather's chunks is 0.
    """
    # Of an allgather every other node wants each chunk, of an alltoall one node.
    everywhere = all(len(wanted | {source}) == len(rank) for (source, _), wanted in found.wanted.items())
    others = [wanted - {source} for (source, _), wanted in found.wanted.items()]
    groups = {}
    if everywhere and len(rank) > 2:
        name, expected = "allgather", len(rank)
        for source, chunk in found.wanted:
            groups.setdefault((rank[source], 0), []).append((source, chunk))
    elif all(len(wanted) <= 1 for wanted in others):
        name = "alltoall"
        for (source, chunk), wanted in found.wanted.items():
            groups.setdefault((rank[source], rank[min(wanted)]), []).append((source, chunk))
        own = {(r, r) for r in range(len(rank))}
        expected = len(rank) ** 2 - len(own - groups.keys())
    else:
        raise FormatError("its demands are neither those of allgather nor those of alltoall", file)
    if len(groups) != expected or len({len(members) for members in groups.values()}) != 1:
        raise FormatError(
            f"its demands are not those of {name}: units are missing, or have unlike numbers of chunks", file
        )
    return name, groups


def _paths(demand: _Demand, file: str) -> list[list[Flow]]:
    """Return the paths of a demand of an alltoall, each with its flows in their order.

    They are lists of ``[epoch, text]``; a single path of a whole chunk may be a list of texts.
    """
    # A path of a whole chunk may stand without the list around it.
    rows = demand.paths
    if isinstance(rows, list) and rows and all(isinstance(row, str) for row in rows):
        rows = [[[None, row] for row in rows]]
    if not isinstance(rows, list) or len(rows) > MAX_PARTS:
        raise FormatError(f"expected a list of at most {MAX_PARTS} paths", file, demand.field)
    if not rows and demand.source != demand.dst:
        raise FormatError("has no path", file, demand.field)
    paths = []
    for i, row in enumerate(rows):
        where = f"{demand.field}[{i}]"
        place, path, at = NamedPlace(file, 0, None, where), list[Flow](), demand.source
        for hop in row if isinstance(row, list) else [None]:
            text = hop[1] if isinstance(hop, list) and len(hop) == 2 else None
            match = _STEP.fullmatch(text) if isinstance(text, str) else None
            if match is None:
                raise FormatError(f"{hop!r}"[:80] + " is no part `[k, \"i->j with volume x in epoch k\"]` of a path",
                                  file, where)  # fmt: skip
            src, dst, epoch, volume = int(match[1]), int(match[2]), int(match[4]), _volume(match[3], str(place))
            if src != at or (path and epoch < path[-1].epoch):
                raise VerificationError(
                    f"chunk {demand.chunk} of {demand.source} is at node {at}, and the path goes on from {src}"
                    f" in epoch {epoch}", str(place),
                )  # fmt: skip
            if path and abs(volume - path[0].volume) > VOLUME_ERROR:
                raise VerificationError(f"{float(path[0].volume)} of a chunk become {float(volume)} on a path",
                                        str(place))  # fmt: skip
            path.append(Flow(epoch, demand.source, demand.chunk, src, dst, volume, place))
            at = dst
        if at != demand.dst:
            raise VerificationError(f"a path ends at node {at} instead of {demand.dst}", str(place))
        paths.append(path)
    return paths


def _parts(demands: Sequence[_Demand], paths: Sequence[list[list[Flow]]], file: str) -> int:
    """Return the least number of parts of a chunk of which all volumes are whole numbers, and add up to the chunk."""
    # Alike demands ask for alike parts: each set of volumes is tried once.
    shares = set()
    for some in paths:
        shares.add(tuple(sorted(path[0].volume for path in some if path)))
    for parts in range(1, MAX_PARTS + 1):
        error = VOLUME_ERROR if parts <= FEW_PARTS else DIGITS_ERROR
        for volumes in filter(None, shares):
            counts = [round(volume * parts) for volume in volumes]
            near = all(abs(Fraction(n, parts) - volume) <= error for n, volume in zip(counts, volumes, strict=True))
            if 0 in counts or sum(counts) != parts or not near:
                break
        else:
            return parts
    for demand, some in zip(demands, paths, strict=True):
        total = sum(path[0].volume for path in some if path)
        if some and abs(total - 1) > VOLUME_ERROR * len(some):
            raise VerificationError(f"its paths bring {float(total)} of the chunk", f"{file}: {demand.field}")
    raise FormatError(f"has volumes that are no whole numbers of up to {MAX_PARTS} parts of a chunk", file)


def _follow_flows(
    found: _Document, rank: dict[int, int], moves: RecordedMoves, first: dict[tuple[int, int], int]
) -> None:
    """Record the flows of an allgather, epoch by epoch."""
    held = {}
    for (source, chunk), start in first.items():
        held[source, chunk, source] = moves.input(start, rank[source])

    # In an epoch, a flow may need what another one of the same epoch brings: it waits until that is there.
    late = [flow for flow in found.flows if flow.volume < 1 - VOLUME_ERROR]  # an allgather copies whole chunks
    for _, group in groupby(found.flows if not late else (), key=lambda flow: flow.epoch):
        ready = []
        waiting = {}
        for flow in group:
            have = flow.source, flow.chunk, flow.src
            (ready if have in held else waiting.setdefault(have, [])).append(flow)
        for flow in ready:  # grows
            arrived = moves.copy(held[flow.source, flow.chunk, flow.src], rank[flow.dst], flow.place)
            reached = flow.source, flow.chunk, flow.dst
            held.setdefault(reached, arrived)
            ready += waiting.pop(reached, [])
        for flows in waiting.values():
            late += flows
        if late:
            break
    if late:
        flow = late[0]
        raise VerificationError(
            f"node {flow.src} sends chunk {flow.chunk} of {flow.source} in epoch {flow.epoch} and does not have that "
            "much of it", str(flow.place),
        )  # fmt: skip
