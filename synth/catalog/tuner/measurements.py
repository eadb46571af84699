"""Measured times of algorithms, read from `synth bench`, a catalog or nccl-tests.

    Sample       size seconds
    Measurement  label backend collective ranks samples .. says file

Sizes are nccl-tests' (the larger of one rank's send and receive buffers), times seconds of one call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import gcd
from pathlib import Path
from statistics import median_low
from typing import Any, NamedTuple

from synth.catalog.tuner.clock import Time
from synth.errors import FormatError, UsageError
from synth.model.collective import collective as named
from synth.model.documents import json_reader
from synth.model.documents.text_file import text_of
from synth.model.tuning_plan import OURS
from synth.program.program import PROTOCOLS

SCHEMA = "synth.measured/1"
MOST = 256 << 20  # bytes of a document
BEYOND = 2  # times the last measured size that times are carried on to


class Sample(NamedTuple):
    """The median seconds at one size in bytes."""

    size: int
    seconds: float


class Measurement(NamedTuple):
    """Times of one algorithm over sizes.

    `backend` is the library. For a program of synth, `chunks` (per unit of data, instances included), `steps`,
    `rounds_per_chunk` and `fingerprint` are set. A call must have a multiple of `divisor` elements. `modelled`: the
    times come from a model, not from a clock. `options`: the backend's names of its own algorithm and protocol.
    """

    label: str
    backend: str
    collective: str
    ranks: int
    samples: tuple[Sample, ...]
    says: str
    file: str
    root: int | None = None
    protocol: str = "Simple"
    chunks: int | None = None
    steps: int | None = None
    rounds_per_chunk: str | None = None
    fingerprint: str | None = None
    divisor: int = 1
    topology: str | None = None
    modelled: bool = False
    options: tuple[tuple[str, str], ...] = ()


def load(path: Path, in_place: bool = False) -> list[Measurement]:
    """Return the measurements in a file that ``synth bench -o`` wrote. Raises FormatError."""
    return from_document(json_reader.document(text_of(path, MOST), str(path)), str(path), in_place)


def from_document(doc: Any, file: str, in_place: bool = False) -> list[Measurement]:
    """Return one measurement for each program of a document ``synth.measured/1``.

    `in_place`: take the times of calls in place; a program that has only the other kind keeps that. `file` is named in
    errors. Raises FormatError.
    """
    if not isinstance(doc, dict) or doc.get("schema") != SCHEMA:
        said = json_reader.schema_text(doc.get("schema")) if isinstance(doc, dict) else f"is a {type(doc).__name__}"
        raise FormatError(f"{said}, expected {SCHEMA!r}; `synth bench -o` writes such files", file)
    try:
        if not isinstance(doc["collective"], str):
            raise ValueError("it does not say which collective was measured; `synth bench --coll NAME` does")

        # the times of each program, out of place and in place
        samples_of: list[dict[bool, list[Sample]]] = [{} for _ in doc["programs"]]
        for i, row in enumerate(doc["rows"]):
            k, size, time = row["program"], row["size"], row["seconds"]
            if not isinstance(k, int) or not 0 <= k < len(samples_of):
                raise ValueError(f"rows[{i}]: there is no program {k!r}")
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"rows[{i}]: size {size!r} is no whole number of bytes")
            if not isinstance(time, int | float) or not 0 < time < float("inf"):
                raise ValueError(f"rows[{i}]: the median {time!r} is no time in seconds")
            samples_of[k].setdefault(bool(row["in_place"]), []).append(Sample(size, float(time)))

        # chunks of the whole buffer; of an unknown collective what divides all element counts
        ranks = int(doc["ranks"])
        try:
            units = named(doc["collective"], ranks).buffer_units
        except UsageError:
            units = None
        found = []
        for program, rows in zip(doc["programs"], samples_of, strict=True):
            protocol, samples = program["protocol"], rows.get(in_place) or rows.get(not in_place) or []
            if protocol not in PROTOCOLS:
                raise ValueError(f"{program['label']}: protocol {protocol!r}; there are {', '.join(PROTOCOLS)}")
            if not samples:
                continue
            if units is None:
                divisor = gcd(*(row["element_count"] for row in doc["rows"])) or 1
            else:
                divisor = program["chunks"] * units
            one = Measurement(
                str(program["label"]), OURS, doc["collective"], ranks, median_samples(samples), str(doc["says"]), file,
                doc["root"], protocol, program["chunks"], program["steps"], program["bandwidth"],
                program["fingerprint"], divisor, doc["topology"], bool(doc["modelled"]),
            )  # fmt: skip
            found.append(one)
        return found
    except KeyError as error:
        raise FormatError(f"has no {error.args[0]!r}", file) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(str(error), file) from None


def median_samples(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """Return for each size, in increasing order, the lower median of its samples, which is a measured time."""
    at: dict[int, list[float]] = {}
    for sample in samples:
        at.setdefault(sample.size, []).append(sample.seconds)
    return tuple(Sample(size, median_low(times)) for size, times in sorted(at.items()))


def merge_measurements(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return one measurement for each algorithm, in the order of first occurrence, with the median at each size.

    Measurements are of one algorithm if backend, fingerprint (or label, without one), collective, ranks, root and
    options agree: repeated runs, or files for different sizes.
    """
    groups: dict[tuple, list[Measurement]] = {}
    for one in measurements:
        name = (one.fingerprint or one.label, one.fingerprint is None)
        key = (one.backend, name, one.collective, one.ranks, one.root, one.options)
        groups.setdefault(key, []).append(one)
    result = []
    for rows in groups.values():
        samples = median_samples([sample for row in rows for sample in row.samples])
        result.append(rows[0]._replace(samples=samples))
    return result


def interpolated(samples: Sequence[Sample], size: int) -> Time | None:
    """Return the time at `size` on the line through the measured times on both sides; None beyond twice those sizes.

    Held-back times of a DGX-1's programs were met to 2% so, to 10% by a straight line between logarithms. The first and
    the last line go on to half and twice the sizes measured, no steeper than in proportion to the size.
    """
    # the measured times on both sides of the size, or the first or last two
    first, last = samples[0], samples[-1]
    if size * BEYOND < first.size or size > last.size * BEYOND:
        return None
    place = min(max(1, bisect_right(samples, size, key=lambda s: s.size)), max(1, len(samples) - 1))
    low, high = samples[place - 1], samples[min(place, len(samples) - 1)]

    # beyond the measured sizes the line goes through the nearer of them
    slope = 0.0 if low is high else (high.seconds - low.seconds) / (high.size - low.size)
    if not low.size <= size <= high.size:
        low = min(low, high, key=lambda s: abs(s.size - size))
        slope = min(max(slope, 0.0), low.seconds / low.size)
    return Time(low.seconds + slope * (size - low.size))
