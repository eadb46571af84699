"""The archive of a compressed schedule (`synth.model.compressed_schedule`, ``.npz``), read strictly.

No array is missing or unknown, and none of unknown size is unpacked.

The header is JSON (docs/scale.md), the arrays hold whole numbers. Numbers that name something are checked
here: ends of links, bandwidths, links of paths and of limits. `synth.checker.schedule.compressed_replay` checks the
schedule.
"""

from __future__ import annotations

import zipfile
import zlib
from fractions import Fraction
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np

from synth.checker.documents.scale_schema import MOST_RANKS
from synth.checker.fields import need
from synth.errors import FormatError, VerificationError, unreadable
from synth.model.compressed_schedule import SCHEMA, CompressedSchedule
from synth.model.documents import json_reader
from synth.model.documents.text_file import head_of
from synth.model.link_table import LinkTable, Sort
from synth.model.rational import printable
from synth.model.scale_collectives import COLLECTIVES
from synth.model.topology import KINDS, Limit, Topology

ARRAYS = ("rounds", "step", "chunk", "path", "kind", "path_links", "path_ends", "src", "dst", "width", "late", "sort")
LIMITS = ("limit_links", "limit_ends", "limit_width", "nodes")
MOST_NUMBERS = 1 << 30  # in all arrays of an archive together
# Bytes of the numbers in memory for each byte of the archive, and bytes that any archive may have: regular schedules of
# many steps take up to 800 times as much as their archives, and zeros that only fill memory 8,000 times.
MOST_UNPACKED, ALWAYS_UNPACKED = 2000, 1 << 26
MOST_LINKS = 1 << 25
MOST_HEADER = 1 << 28  # bytes
MOST_HEADER_UNPACKED, ALWAYS_HEADER = 100, 1 << 20  # the same for the bytes of the header: names of switches and limits
MOST_CHUNKS = 1 << 62
UNREADABLE = (
    zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, EOFError, RuntimeError, SyntaxError,
)  # fmt: skip


def load(path: Path) -> CompressedSchedule:
    """Return the schedule that `CompressedSchedule.save` wrote.

    Raises FormatError for a file that is no such archive, VerificationError where it makes no sense.
    """
    try:
        head_of(path, 0)  # for the error on a device or a pipe
        with zipfile.ZipFile(path) as archive:
            header, columns = _unpacked(archive, path.stat().st_size)
    except OSError as error:
        raise FormatError(unreadable(error), str(path)) from None
    except RecursionError:
        raise FormatError(f"is no schedule of {SCHEMA}: nested too deeply", str(path)) from None
    except UNREADABLE as error:
        raise FormatError(f"is no schedule of {SCHEMA}: {error}"[:200], str(path)) from None

    fields = json_reader.fields(header, "header", {"schema", "collective", "root", "chunks", "topology"})
    json_reader.one_of(fields["schema"], (SCHEMA,), "header.schema")
    collective = json_reader.one_of(fields["collective"], COLLECTIVES, "header.collective")
    topology = _machine(fields["topology"], columns)
    root = fields["root"]
    if root is not None:
        json_reader.number(root, "header.root", 0, topology.ranks)
    chunks = json_reader.number(fields["chunks"], "header.chunks", 1, MOST_CHUNKS)
    paths = tuple(tuple(path.tolist()) for path in _split("path_links", "path_ends", columns, len(topology.links)))
    generators, nodes = columns["generators"], topology.ranks + len(topology.switches)
    fits = not len(generators) or generators.shape[1] == nodes
    need(fits, f"has rows of {generators.shape[1]} numbers, ranks and switches are {nodes}", "generators")
    return CompressedSchedule(
        topology, collective, root, chunks, columns["rounds"], columns["step"], columns["chunk"], columns["path"],
        columns["kind"], paths, tuple(map(tuple, generators.tolist())),
    )  # fmt: skip


def _unpacked(archive: zipfile.ZipFile, packed: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Return the header and every array, int64, of an archive of `packed` bytes.

    Raises ValueError for other arrays, or too many numbers.
    """
    items = {item.filename: item for item in archive.infolist()}
    wanted = {f"{name}.npy" for name in ("header", "generators", *ARRAYS, *LIMITS)}
    if len(items) < len(archive.infolist()):
        raise ValueError("two of its files have one name")
    for name in sorted(wanted ^ items.keys()):
        raise ValueError(f"{name[:40]!r} is {'missing' if name in wanted else 'not known'}")

    # each array is unpacked after its size was seen, and there is room for it beside those before
    found: dict[str, np.ndarray] = {}
    total = 0
    for name in sorted(wanted):
        with archive.open(items[name]) as file:
            shape, kind = _shape(file)
            if len(shape) != (2 if name == "generators.npy" else 1):
                raise ValueError(f"{name} is an array of {len(shape)} dimensions")
            count = prod(shape)
            if name == "header.npy":
                if count > min(MOST_HEADER, ALWAYS_HEADER + MOST_HEADER_UNPACKED * packed):
                    raise ValueError(f"{packed} bytes would unpack to a header of {count}, more than a schedule has")
            else:
                total += count
                if total > MOST_NUMBERS:
                    raise ValueError(f"holds {total} numbers or more; at most {MOST_NUMBERS} are read")
                if 8 * total > ALWAYS_UNPACKED + MOST_UNPACKED * packed:
                    raise ValueError(f"{packed} bytes would unpack to {total} numbers, more than a schedule has")
            size = count * kind.itemsize
            data = file.read(size + 1)
            if len(data) != size:
                raise ValueError(f"{name} does not hold as many numbers as it says")
        found[name.removesuffix(".npy")] = np.frombuffer(data, kind).reshape(shape)
    header = found.pop("header")
    if header.dtype != np.uint8:
        raise ValueError("the header is no text")
    return json_reader.parsed(header.tobytes()), {name: values.astype(np.int64) for name, values in found.items()}


def _shape(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    """Return the shape and dtype that an array's header claims; the file then stands at its first number."""
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("an array of another version than 1.0")
    shape, fortran, kind = np.lib.format.read_array_header_1_0(file)
    if any(type(n) is not int or n < 0 for n in shape):
        raise ValueError(f"an array of the shape {shape}")
    if kind.kind not in "iu" or (kind.kind == "u" and kind.itemsize == 8) or (fortran and len(shape) > 1):
        raise ValueError(f"an array of {kind}, which are no whole numbers below 2^63 in rows")
    return shape, kind


def _machine(doc: object, columns: dict[str, np.ndarray]) -> Topology:
    place = "header.topology"
    names = {"name", "ranks", "switches", "connection", "widths", "latencies", "limits"}
    machine = json_reader.fields(doc, place, names)
    name = json_reader.text(machine["name"], f"{place}.name")
    ranks = json_reader.number(machine["ranks"], f"{place}.ranks", 1, MOST_RANKS + 1)
    switches = _texts(machine["switches"], f"{place}.switches")
    widths = _fractions(machine["widths"], f"{place}.widths")
    lates = _fractions(machine["latencies"], f"{place}.latencies")

    # links: their ends, and the numbers of what they have in common
    src, dst, nodes = columns["src"], columns["dst"], ranks + len(switches)
    need(len(src) <= MOST_LINKS, f"{len(src)} links; at most {MOST_LINKS} are read", "src")
    below = {"src": nodes, "dst": nodes, "width": len(widths), "late": len(lates), "sort": len(KINDS)}
    for key, most in below.items():
        need(len(columns[key]) == len(src), f"has {len(columns[key])} entries, src has {len(src)}", key)
        check_range(columns[key], most, key)
    loops = np.flatnonzero(src == dst)
    if len(loops):
        raise VerificationError(f"link {loops[0]} joins an end to itself", "dst")
    keys = (columns["width"] * max(1, len(lates)) + columns["late"]) * len(KINDS) + columns["sort"]
    kept, sort = np.unique(keys, return_inverse=True)
    sorts = []
    for key in kept.tolist():
        rest, kind = divmod(key, len(KINDS))
        wide, late = divmod(rest, max(1, len(lates)))
        sorts.append(Sort(widths[wide], lates[late], KINDS[kind]))

    # limits: a name, a bandwidth and links of each
    titles, narrow = _texts(machine["limits"], f"{place}.limits"), columns["limit_width"]
    members = _split("limit_links", "limit_ends", columns, len(src))
    alike = len(titles) == len(members) == len(narrow)
    need(alike, f"{len(titles)} names for {len(members)} limits of {len(narrow)} bandwidths", "limit_ends")
    check_range(narrow, len(widths), "limit_width")
    limits = []
    for title, links, width in zip(titles, members, narrow.tolist(), strict=True):
        limits.append(Limit(title, links.tolist(), widths[width]))

    boxes = columns["nodes"]
    need(len(boxes) in (0, ranks), f"names boxes of {len(boxes)} ranks, there are {ranks}", "nodes")
    check_range(boxes, 1 << 31, "nodes")
    connection = machine["connection"]
    if connection is not None:
        connection = json_reader.fraction(connection, f"{place}.connection")
    need(connection != 0, "0 is no bandwidth", f"{place}.connection")
    table = LinkTable(src, dst, sort.astype(np.int64), sorts)
    return Topology(name, ranks, table, tuple(limits), tuple(switches), tuple(boxes.tolist()), connection)


def _fractions(rows: object, place: str) -> list[Fraction]:
    return [json_reader.fraction(text, f"{place}[{i}]") for i, text in enumerate(json_reader.items(rows, place))]


def _texts(rows: object, place: str) -> list[str]:
    return [printable(json_reader.text(text, f"{place}[{i}]")) for i, text in enumerate(json_reader.items(rows, place))]


def check_range(values: np.ndarray, most: int, place: str) -> None:
    """Raise VerificationError, with `place`, unless every number of `values` is at least 0 and below `most`."""
    wrong = np.flatnonzero((values < 0) | (values >= most)) if most < 1 << 63 else np.flatnonzero(values < 0)
    if len(wrong):
        raise VerificationError(f"{values[wrong[0]]} lies outside 0..{most - 1}", f"{place}[{wrong[0]}]")


def _split(flat: str, ends: str, columns: dict[str, np.ndarray], links: int) -> list[np.ndarray]:
    """Return the links of each path or limit.

    Entry i of `ends` is the place in `flat` where those of path i end, and those of path i + 1 begin.
    """
    numbers, stops = columns[flat], columns[ends]
    check_range(numbers, links, flat)
    starts = np.concatenate([np.zeros(1, np.int64), stops])
    if (starts[1:] < starts[:-1]).any() or starts[-1] != len(numbers):
        raise VerificationError(f"does not part the {len(numbers)} numbers of {flat}", ends)
    return [numbers[a:b] for a, b in pairwise(starts.tolist())]
