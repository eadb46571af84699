"""Measured times as the tuner takes them, whoever wrote them: `synth bench`, a catalog, nccl-tests, OSU's
micro-benchmarks.

    Sample       size seconds spread
    Measurement  label backend collective ranks samples .. says file

Sizes are nccl-tests' (the larger of one rank's send and receive buffers), times seconds of one call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from synth.errors import FormatError, UsageError
from synth.model.collective import collective as named
from synth.model.documents.text_file import text_of
from synth.model.tuning_plan import OURS
from synth.program.program import PROTOCOLS

SCHEMA = "synth.measured/1"
MOST = 256 << 20  # bytes of a document


class Sample(NamedTuple):
    """The median time at one size; `spread`: how far below it the fastest repeat was (0: not known), as noise only
    adds."""

    size: int
    seconds: float
    spread: float = 0.0


class Measurement(NamedTuple):
    """One algorithm over sizes. `chunks` per unit of data after instances, `steps`, `bandwidth`, `fingerprint` (of its
    program) where it is one of ours; a call must have a multiple of `divisor` elements. `modelled`: no clock was read.
    `options`: what the backend calls its own choices."""

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
    bandwidth: str | None = None
    fingerprint: str | None = None
    divisor: int = 1
    topology: str | None = None
    modelled: bool = False
    options: tuple[tuple[str, str], ...] = ()


def load(path: Path, in_place: bool = False) -> list[Measurement]:
    """The measurements in a file that ``synth bench -o`` wrote. Raises FormatError."""
    try:
        doc = json.loads(text_of(path, MOST))
    except json.JSONDecodeError as error:
        raise FormatError(f"is not JSON: {error.msg}", str(path), error.lineno) from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        raise FormatError(f"is not JSON that can be read: {str(error)[:80]}", str(path)) from None
    return document(doc, str(path), in_place)


def document(doc: Any, file: str, in_place: bool = False) -> list[Measurement]:
    """The measurements in a document ``synth.measured/1``, from `file`.

    Times out of place, or in place where that is asked for; the other where a program has no such time. Raises
    FormatError.
    """
    if not isinstance(doc, dict) or doc.get("schema") != SCHEMA:
        said = repr(doc.get("schema")) if isinstance(doc, dict) else f"a {type(doc).__name__}"
        raise FormatError(f"its schema is {said}, expected {SCHEMA!r}; `synth bench -o` writes such files", file)
    try:
        return _measurements(doc, file, in_place)
    except KeyError as error:
        raise FormatError(f"has no {error.args[0]!r}", file) from None
    except (TypeError, ValueError, AttributeError) as error:
        raise FormatError(str(error), file) from None


def _measurements(doc: dict, file: str, in_place: bool) -> list[Measurement]:
    if not isinstance(doc["collective"], str):
        raise ValueError("it does not say which collective was measured; `synth bench --coll NAME` does")
    held: list[dict[bool, list[Sample]]] = [{} for _ in doc["programs"]]
    for i, row in enumerate(doc["rows"]):
        k = row["program"]
        if not isinstance(k, int) or not 0 <= k < len(held):
            raise ValueError(f"rows[{i}]: there is no program {k!r}")
        held[k].setdefault(bool(row["in_place"]), []).append(_sample(row, f"rows[{i}]"))
    found = []
    for program, rows in zip(doc["programs"], held, strict=True):
        samples = rows.get(in_place) or rows.get(not in_place) or []
        if program["protocol"] not in PROTOCOLS:
            raise ValueError(f"{program['label']}: protocol {program['protocol']!r}; there are {', '.join(PROTOCOLS)}")
        if samples:
            found.append(
                Measurement(
                    str(program["label"]),
                    OURS,
                    doc["collective"],
                    int(doc["ranks"]),
                    pooled(samples),
                    str(doc["says"]),
                    file,
                    doc["root"],
                    program["protocol"],
                    program["chunks"],
                    program["steps"],
                    program["bandwidth"],
                    program["fingerprint"],
                    _divisor(doc, program["chunks"]),
                    doc["topology"],
                    bool(doc["modelled"]),
                )
            )
    return found


def _divisor(doc: dict, chunks: int) -> int:
    """Chunks of the whole buffer; of a collective that has no name here, what divides all that was measured."""
    try:
        return chunks * named(doc["collective"], int(doc["ranks"])).buffer_units
    except UsageError:
        return gcd(*(row["element_count"] for row in doc["rows"])) or 1


def _sample(row: Mapping[str, Any], place: str) -> Sample:
    size, time, least = row["size"], row["seconds"], row["least"]
    if not isinstance(size, int) or size < 1:
        raise ValueError(f"{place}: size {size!r} is no whole number of bytes")
    if not all(isinstance(value, int | float) and 0 < value < float("inf") for value in (time, least)) or least > time:
        raise ValueError(f"{place}: the median {time!r} and the least {least!r} are no times in seconds")
    return Sample(size, float(time), float(time - least))


def pooled(samples: Sequence[Sample]) -> tuple[Sample, ...]:
    """One sample a size, by growing size: the median of those there are, whatever their order."""
    at: dict[int, list[Sample]] = {}
    for sample in samples:
        at.setdefault(sample.size, []).append(sample)
    return tuple(_middle(sorted(found, key=lambda s: (s.seconds, s.spread))) for _, found in sorted(at.items()))


def _middle(samples: list[Sample]) -> Sample:
    """The lower median, so that it is a time that was seen; its spread reaches down to the fastest of all."""
    chosen = samples[(len(samples) - 1) // 2]
    least = min(sample.seconds - sample.spread for sample in samples)
    return Sample(chosen.size, chosen.seconds, chosen.seconds - least)


def merged(found: Sequence[Measurement]) -> list[Measurement]:
    """Several measurements of one algorithm (runs repeated, files per range of sizes) as one, in the order they first
    came."""
    groups: dict[tuple, list[Measurement]] = {}
    for one in found:
        key = (
            one.backend,
            one.label if one.fingerprint is None else "",
            one.fingerprint,
            one.collective,
            one.ranks,
            one.root,
            one.options,
        )
        groups.setdefault(key, []).append(one)
    return [rows[0]._replace(samples=pooled([s for one in rows for s in one.samples])) for rows in groups.values()]
