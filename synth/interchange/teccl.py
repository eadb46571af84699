"""TE-CCL's schedules in JSON: an allgather or an alltoall as flows of chunks in epochs.

Format: microsoft/TE-CCL. Names begin with a digit that differs between files. A flow is a sentence: ``Chunk c from s
traveled over i->j [with volume x] in epoch k [via switches w]``. Numbers of nodes count switches too. The demands
follow from the names of the chunk paths: ``Demand at d for chunk c from s met by epoch k``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import groupby
from math import lcm
from typing import Any, NamedTuple

from synth.errors import FormatError, VerificationError
from synth.interchange.recorded_moves import MAX_RANKS, ChunkValue, NamedPlace, RecordedMoves
from synth.model.collective import collective
from synth.model.topology import Topology

# Bounds of a file that is read.
MAX_FLOWS, MAX_SWITCHES = 1 << 18, 1 << 12
# Volumes are solutions of a linear program in floating point; each is read as a fraction with at most this denominator.
MAX_PARTS = 64
VOLUME_ERROR = Fraction(1, 10**5)

_FLOW = re.compile(
    r"Chunk (\d{1,9}) from (\d{1,9}) traveled over (\d{1,9})->(\d{1,9})"
    r"(?: with volume (\d{1,9}(?:\.\d{1,30})?(?:e-?\d{1,3})?))? in epoch (\d{1,12})(?: via switches ([\d, ]{1,80}))?"
)
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


@dataclass
class _Document:
    flows: list[Flow] = field(default_factory=list)
    demands: dict[tuple[int, int], set[int]] = field(default_factory=dict)  # (source, chunk) -> destinations
    switches: set[int] = field(default_factory=set)


def is_schedule(doc: object) -> bool:
    """Return True for a document with a list of flows."""
    return isinstance(doc, dict) and _named(doc, "flows") is not None


def recorded(doc: dict, machine: Topology | None, file: str) -> RecordedMoves:
    """Return the moves of a document.

    Raises FormatError for one that is malformed, VerificationError for a flow of data that are not there.
    """
    found = _document(doc, file)
    ends = {flow.src for flow in found.flows}
    ends |= {flow.dst for flow in found.flows}
    nodes = sorted(ends)
    for node in nodes:
        if node in found.switches:
            raise FormatError(f"a flow ends at node {node}, which another one names as a switch", file)
    if not 2 <= len(nodes) <= MAX_RANKS:
        raise FormatError(f"has flows between {len(nodes)} nodes; 2 to {MAX_RANKS} are read", file)
    rank = {node: i for i, node in enumerate(nodes)}
    for (source, _), wanted in found.demands.items():
        for node in {source} | wanted:
            if node not in rank:
                raise FormatError(f"a demand names node {node}, which no flow reaches", file)
    parts = lcm(*[flow.volume.denominator for flow in found.flows])
    if parts > MAX_PARTS:
        raise FormatError(f"has volumes that cut chunks into {parts} parts; at most {MAX_PARTS} are read", file)
    moves, places = _task(found, rank, parts, machine, file)
    _follow(found, rank, parts, moves, places)
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
        found.flows.append(Flow(int(match[6]), source, chunk, src, dst, _volume(match[5], place), place))
        if match[7]:
            found.switches |= _numbers(match[7])
    if len(found.switches) > MAX_SWITCHES:
        raise FormatError(f"names more than {MAX_SWITCHES} switches", file, key)
    named = doc.get(paths) if paths else None
    if not isinstance(named, dict) or not named:
        raise FormatError("has no chunk paths, whose names say which node wants which chunk", file, paths)
    for name in named:
        match = _DEMAND.fullmatch(name)
        if match is None:
            raise FormatError(f"{name!r}"[:80] + " is no demand `Demand at d for chunk c from s met by epoch k`",
                              file, paths)  # fmt: skip
        found.demands.setdefault((int(match[3]), int(match[2])), set()).add(int(match[1]))
    found.flows.sort(key=lambda flow: flow.epoch)
    return found


def _numbers(text: str) -> set[int]:
    return {int(part) for part in text.replace(",", " ").split()}


def _volume(text: str | None, place: NamedPlace) -> Fraction:
    exact = Fraction(text) if text else Fraction(1)
    near = exact.limit_denominator(MAX_PARTS)
    if not 0 < near <= 1 or abs(near - exact) > VOLUME_ERROR:
        raise FormatError(f"volume {text} is no fraction of a chunk with a denominator up to {MAX_PARTS}", str(place))
    return near


def _task(
    found: _Document, rank: dict[int, int], parts: int, machine: Topology | None, file: str
) -> tuple[RecordedMoves, dict[tuple[int, int], int]]:
    """Return empty moves of the collective, and the first chunk of each (source, chunk) of the file."""
    everywhere = all(len(wanted | {source}) == len(rank) for (source, _), wanted in found.demands.items())
    others = {key: wanted - {key[0]} for key, wanted in found.demands.items()}
    if everywhere and len(rank) > 2:
        name, groups = "allgather", _grouped(found.demands, lambda source, _: rank[source])
    elif all(len(wanted) <= 1 for wanted in others.values()):
        name = "alltoall"
        groups = _grouped(found.demands, lambda source, chunk: (rank[source], rank[min(found.demands[source, chunk])]))
    else:
        raise FormatError("its demands are neither those of allgather nor those of alltoall", file)
    task = collective(name, len(rank))
    sizes = {len(members) for members in groups.values()}
    own = {(r, r) for r in range(len(rank))}
    expected = len(rank) if name == "allgather" else len(rank) ** 2 - len(own - groups.keys())
    if len(groups) != expected or len(sizes) != 1:
        raise FormatError(f"its demands are not those of {name}: units are missing, or have unlike numbers of chunks",
                          file)  # fmt: skip
    chunks = sizes.pop() * parts
    first = {}
    for key, members in groups.items():
        unit = key if name == "allgather" else key[0] * len(rank) + key[1]
        for i, member in enumerate(sorted(members)):
            first[member] = unit * chunks + i * parts
    return RecordedMoves(task, chunks, machine, file), first


def _grouped(keys: Iterable[tuple[int, int]], group: Any) -> dict[Any, list[tuple[int, int]]]:
    groups: dict[Any, list[tuple[int, int]]] = {}
    for source, chunk in keys:
        groups.setdefault(group(source, chunk), []).append((source, chunk))
    return groups


def _follow(
    found: _Document, rank: dict[int, int], parts: int, moves: RecordedMoves, first: dict[tuple[int, int], int]
) -> None:
    """Record the flows, epoch by epoch. A node that sends a part of an alltoall's chunk on has it no longer."""
    copies = moves.task.name == "allgather"
    held: dict[tuple[tuple[int, int], int], list[ChunkValue]] = {}
    for (source, chunk), start in first.items():
        held[(source, chunk), rank[source]] = [moves.input(start + i, rank[source]) for i in range(parts)]
    for _, flows in groupby(found.flows, key=lambda flow: flow.epoch):
        late = _epoch(list(flows), lambda flow: _move(flow, rank, parts, moves, held, copies))
        if late is not None:
            raise VerificationError(
                f"node {late.src} sends chunk {late.chunk} of {late.source} in epoch {late.epoch} and does not have "
                "that much of it",
                str(late.place),
            )


def _epoch(flows: list[Flow], move: Callable[[Flow], bool]) -> Flow | None:
    """Record the flows of an epoch in an order in which their data are there; return the first for which there is none.

    `move` records a flow, or returns False. A flow is tried again when data came to its node, those with little first.
    """
    waiting: dict[tuple[int, int, int], list[tuple[Fraction, int]]] = {}
    for number, flow in enumerate(flows):
        ready = [number] if move(flow) else []
        if not ready:
            heappush(waiting.setdefault((flow.source, flow.chunk, flow.src), []), (flow.volume, number))
        while ready:
            reached = flows[ready.pop()]
            there = waiting.get((reached.source, reached.chunk, reached.dst), [])
            while there and move(flows[there[0][1]]):
                ready.append(heappop(there)[1])
    late = [number for there in waiting.values() for _, number in there]
    return flows[min(late)] if late else None


def _move(
    flow: Flow, rank: dict[int, int], parts: int, moves: RecordedMoves, held: dict, copies: bool
) -> bool:  # fmt: skip
    """Record a flow; return False if its data are not there yet."""
    key = flow.source, flow.chunk
    stock = held.get((key, rank[flow.src]), [])
    count = int(flow.volume * parts)
    if len(stock) < count or (copies and count < parts):
        return False
    there = held.setdefault((key, rank[flow.dst]), [])
    sent = list(stock[:count])
    if not copies:
        del stock[:count]
    arrived = [moves.copy(cell, rank[flow.dst], flow.place) for cell in sent]
    if not (copies and there):
        there += arrived
    return True
