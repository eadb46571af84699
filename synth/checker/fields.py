"""Readers of what a certificate holds, beside the strict readers of `synth.model.documents.json_reader`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from synth.errors import VerificationError, json_kind, malformed
from synth.model.documents.json_reader import items

Given = ParamSpec("Given")
Proved = TypeVar("Proved")


def strict(check: Callable[Given, Proved]) -> Callable[Given, Proved]:
    """Return `check`, the check of a certificate, raising VerificationError for whatever Python finds wrong with it."""

    @wraps(check)
    def checked(*given: Given.args, **named: Given.kwargs) -> Proved:
        try:
            return check(*given, **named)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise VerificationError(malformed(error, "certificate")) from None

    return checked


def need(truth: object, message: str, place: str) -> None:
    """Raise VerificationError with `message` at `place` where `truth` fails."""
    if not truth:
        raise VerificationError(message, place)


def mapping(value: object, place: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else raise VerificationError at `place`."""
    if not isinstance(value, dict):
        raise VerificationError(f"expected an object, found {json_kind(value)}", place)
    return value


def of_kind(certificate: dict, kinds: dict[str, set[str]]) -> str:
    """Return the kind of a certificate, one of `kinds`, after checking that it has the fields of that kind."""
    kind = certificate["kind"]
    need(kind in kinds, f"expected one of {', '.join(kinds)}", "kind")
    need(certificate.keys() == kinds[kind], f"expected the keys {', '.join(sorted(kinds[kind]))}", "$")
    return kind


def numbers_below(value: object, most: int, place: str) -> list[int]:
    """Return `value` if it is a list of different whole numbers from 0 to below `most`."""
    rows = items(value, place)
    inside = all(type(n) is int and 0 <= n < most for n in rows)
    if not inside or len(set(rows)) < len(rows):
        raise VerificationError(f"expected different numbers in 0..{most - 1}", place)
    return rows


def permutation(value: Any, size: int, place: str) -> list[int]:
    """Return `value` if it is a list of 0..`size`-1 in some order, else raise VerificationError at `place`."""
    need(type(value) is list and len(value) == size, f"expected {size} numbers", place)
    need(all(type(i) is int for i in value), f"expected {size} numbers", place)
    need(sorted(value) == list(range(size)), f"is no permutation of 0..{size - 1}", place)
    return value


def stretches(value: object, most: int, place: str) -> list[bool]:
    """Return which of 0..`most`-1 lie in the stretches [first, last] of a list."""
    inside = [False] * most
    for first, last in items(value, place):
        whole = type(first) is int and type(last) is int
        need(whole and 0 <= first <= last < most, "is no stretch of nodes", place)
        inside[first : last + 1] = [True] * (last + 1 - first)
    return inside
