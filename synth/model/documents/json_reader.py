"""Reading a JSON document strictly: no field more or less than there should be, and every value of its kind.

Whatever is wrong raises `VerificationError` with the place in the document.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Set
from contextlib import contextmanager
from fractions import Fraction
from typing import Any

from synth.errors import FormatError, VerificationError, json_kind
from synth.model.rational import rational

# Numbers of documents are less than this: far beyond any real machine, and short enough to compute with at once.
BIG = 1 << 200


def parsed(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises ValueError for what is no JSON, for NaN and infinities, and for a field that is given twice.
    """
    return json.loads(text, parse_constant=_no_constant, object_pairs_hook=once)


def document(text: str, file: str | None) -> Any:
    """Return the value of the JSON text of `file`.

    Raises FormatError, with line and column, for what is no JSON, is nested too deeply, or gives a field twice.
    """
    if not text.strip():
        raise FormatError("is empty", file)
    with faults_of(file):
        return parsed(text)


@contextmanager
def faults_of(file: str | None) -> Iterator[None]:
    """Raise FormatError, which names `file`, where Python's JSON reader finds a fault."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise FormatError(f"is not JSON: {error.msg}", file, f"{error.lineno}:{error.colno}") from None
    except RecursionError:
        raise FormatError("is nested too deeply", file) from None
    except ValueError as error:  # as a number of thousands of digits
        raise FormatError(f"is not JSON: {error}"[:160], file) from None


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of (field, value) pairs. Raises ValueError for a field that is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
        raise ValueError(f"the field {twice[:40]!r} is given twice")
    return found


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def schema_text(schema: object) -> str:
    """Return what a document says of its schema as text: ``schema is 'synth.plan/1'``, ``has no schema``."""
    return "has no schema" if schema is None else f"schema is {schema!r}"


def fields(doc: object, place: str, needed: Set[str], allowed: Set[str] = frozenset()) -> dict:
    """Return `doc` if it is an object with every field of `needed` and no field outside `needed` and `allowed`.

    Raises VerificationError at `place` otherwise, as all functions below do.
    """
    if not isinstance(doc, dict):
        raise VerificationError(f"expected an object, found {json_kind(doc)}", place)
    for key in sorted(needed - doc.keys()):
        raise VerificationError(f"{key!r} is missing", place)
    for key in sorted(doc.keys() - needed - allowed):
        raise VerificationError(f"{key[:40]!r} is not a known field", place)
    return doc


def items(value: object, place: str) -> list:
    """Return `value` if it is a list."""
    if not isinstance(value, list):
        raise VerificationError(f"expected a list, found {json_kind(value)}", place)
    return value


def number(value: object, place: str, low: int, below: int = BIG) -> int:
    """Return `value` if it is a whole number with ``low <= value < below``."""
    if type(value) is int and low <= value < below:  # nearly always, and up to a million times a document
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise VerificationError(f"expected a whole number, found {value!r}"[:120], place)
    if not low <= value < below:
        span = f">= {low} and less than 2^200" if below == BIG else f"in {low}..{below - 1}"
        raise VerificationError(f"expected a number {span}, found {value}"[:120], place)
    return value


def text(value: object, place: str) -> str:
    """Return `value` if it is one line of printable text."""
    if not isinstance(value, str) or not value.isprintable():
        raise VerificationError(f"expected a line of text, found {value!r}"[:120], place)
    return value


def one_of(value: object, choices: Collection[str], place: str) -> str:
    """Return `value` if it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise VerificationError(f"expected one of {', '.join(choices)}, found {value!r}"[:240], place)
    return value


def fraction(value: object, place: str) -> Fraction:
    """Return the number, at least 0, that the text `value` denotes: "7/6", "0.1"."""
    try:
        found = rational(text(value, place))
    except ValueError as error:
        raise VerificationError(str(error), place) from None
    if found < 0:
        raise VerificationError(f"{value!r} is negative", place)
    return found


def seconds(value: object, place: str) -> float:
    """Return `value` if it is a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise VerificationError(f"expected seconds, found {value!r}"[:120], place)
    return value


def assumed(limits: bool = False, switches: Iterable[str] = ()) -> str:
    """Return the line on what a document's writer states of the machine, and no proof covers.

    `limits`: the document has some. `switches`: the names of those that multicast.
    """
    named = ", ".join(dict.fromkeys(switches))
    multicast = f", and ports of switches that multicast and reduce: {named}" if named else ""
    limited = "bandwidths, limits" if limits else "bandwidths"
    return f"assumed, not checked: that the machine has these links, {limited} and latencies{multicast}"


class Claims(list[str]):
    """The lines on a document that holds. `subject`: the collective, machine and number of ranks that it names.

    `differs`: how the machine is another than the built-in one whose name it bears, also the first line; "" where it is
    that machine, or bears no such name.
    """

    def __init__(self, lines: Iterable[str], subject: str, differs: str = "") -> None:
        super().__init__(([differs] if differs else []) + list(lines))
        self.subject = subject
        self.differs = differs


class Unchecked(str):
    """A line, "not checked: " and a claim of a document that verification could not decide: `synth verify` then exits
    with 4."""

    __slots__ = ()

    def __new__(cls, claim: str) -> Unchecked:
        """The line on `claim`."""
        return super().__new__(cls, f"not checked: {claim}")
