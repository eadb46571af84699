"""SCCL's algorithms in the JSON of msccl-tools: steps of sends of chunks between ranks.

Format: microsoft/msccl-tools, msccl/serialization.py. A document with ``msccl_type: algorithm`` has `collective`, whose
`chunks` say by `addr`, `pre` and `post` which ranks have a chunk before and after, `steps` of `sends` ``[addr, source,
destination]``, and `topology`, where ``links[destination][source]`` is a number of units. Reductions are refused: there
several chunks have one address.
"""

from __future__ import annotations

from typing import Any

from synth.errors import FormatError, VerificationError
from synth.interchange.recorded_moves import MAX_RANKS, ChunkValue, NamedPlace, RecordedMoves
from synth.model.collective import COLLECTIVES, canonical_name, collective
from synth.model.topology import Link, Topology

MAX_CHUNKS, MAX_STEPS = 1 << 16, 1 << 12
ROOTED = {"broadcast": "pre", "scatter": "pre", "gather": "post"}  # the field that has the root


def is_algorithm(doc: object) -> bool:
    """Return True for a document of an algorithm."""
    return isinstance(doc, dict) and doc.get("msccl_type") == "algorithm"


def recorded(doc: dict, machine: Topology | None, file: str) -> RecordedMoves:
    """Return the moves of a document, by default on the links that it has.

    Raises FormatError for one that is malformed, VerificationError for a send of data that are not there.
    """
    try:
        return _recorded(doc, machine, file)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FormatError(f"is a malformed algorithm of msccl-tools: {error!r}"[:160], file) from None


def _recorded(doc: dict, machine: Topology | None, file: str) -> RecordedMoves:
    task, chunks = doc["collective"], doc["collective"]["chunks"]
    ranks, name = _whole(task["nodes"], MAX_RANKS + 1, file), canonical_name(str(task["runtime_name"]))
    if ranks < 2 or not 0 < len(chunks) <= MAX_CHUNKS or len(doc["steps"]) > MAX_STEPS:
        raise FormatError(f"has {ranks} ranks, {len(chunks)} chunks and {len(doc['steps'])} steps", file)
    addresses = {_whole(chunk["addr"], MAX_CHUNKS, file) for chunk in chunks}
    if name not in COLLECTIVES or len(addresses) < len(chunks) or task["triggers"]:
        raise FormatError(
            f"is SCCL's algorithm of msccl-tools for {name[:40]}, which is not read from JSON: `msccl ncclize FILE -o"
            " FILE.xml` writes MSCCL-IR, which is", file,
        )  # fmt: skip

    # The unit of a chunk is the one with the same ranks before and after; its parts are in the order of addresses.
    roots = (_whole(chunks[0][ROOTED[name]][0], ranks, file),) if name in ROOTED else ()
    known = collective(name, ranks, roots)
    members: dict[tuple[frozenset[int], frozenset[int]], list[int]] = {}
    for chunk in sorted(chunks, key=lambda chunk: chunk["addr"]):
        ends = frozenset(chunk["pre"]), frozenset(chunk["post"])
        members.setdefault(ends, []).append(chunk["addr"])
    units = dict(zip(zip(known.pre, known.post, strict=True), range(known.units), strict=True))
    still = {ends for ends in units if ends[1] <= ends[0]}  # data that stay where they are may be left out
    sizes = {len(some) for some in members.values()}
    if known.combining or len(sizes) != 1 or not units.keys() - still <= members.keys() <= units.keys():
        raise FormatError(f"has chunks that are not those of {name} on {ranks} ranks", file, "collective.chunks")

    if machine is None and not doc["topology"]["switches"]:
        machine = _topology(doc["topology"], ranks, file)
    parts = sizes.pop()
    moves = RecordedMoves(known, parts, machine, file)
    held: dict[tuple[int, int], ChunkValue] = {}
    for ends, some in members.items():
        for part, address in enumerate(some):
            for rank in ends[0]:
                held[address, rank] = moves.input(units[ends] * parts + part, rank)

    # All sends of a step start from what was there before it.
    for number, step in enumerate(doc["steps"]):
        arrived: dict[tuple[int, int], ChunkValue] = {}
        for k, send in enumerate(step["sends"]):
            place = NamedPlace(file, 0, None, f"steps[{number}].sends[{k}]")
            address, src, dst = (_whole(value, MAX_CHUNKS, str(place)) for value in send)
            if src >= ranks or dst >= ranks or src == dst:
                raise FormatError(f"a send from {src} to {dst} among {ranks} ranks", str(place))
            if (address, src) not in held:
                raise VerificationError(f"rank {src} sends chunk {address} and does not have it", str(place))
            arrived[address, dst] = moves.copy(held[address, src], dst, place)
        held = arrived | held
    return moves


def _topology(doc: dict, ranks: int, file: str) -> Topology:
    links = []
    for dst, row in enumerate(doc["links"]):
        for src, units in enumerate(row):
            if _whole(units, MAX_CHUNKS, file):
                links.append(Link(src, dst, units))
    return Topology(str(doc["name"])[:80], ranks, links)


def _whole(value: Any, below: int, place: str) -> int:
    if type(value) is not int or not 0 <= value < below:
        raise FormatError(f"{value!r} is no whole number below {below}"[:120], place)
    return value
