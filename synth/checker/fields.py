"""The reader of what a certificate holds, beside the strict readers of `synth.model.documents.json_reader`."""

from __future__ import annotations

from typing import Any

from synth.errors import VerificationError, json_kind


def need(truth: object, message: str, place: str) -> None:
    """Raise VerificationError with `message` at `place` where `truth` fails."""
    if not truth:
        raise VerificationError(message, place)


def mapping(value: object, place: str) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else raise VerificationError at `place`."""
    if not isinstance(value, dict):
        raise VerificationError(f"expected an object, found {json_kind(value)}", place)
    return value


def permutation(value: Any, size: int, place: str) -> list[int]:
    """Return `value` if it is a list of 0..`size`-1 in some order, else raise VerificationError at `place`."""
    need(type(value) is list and len(value) == size, f"expected {size} numbers", place)
    need(all(type(i) is int for i in value), f"expected {size} numbers", place)
    need(sorted(value) == list(range(size)), f"is no permutation of 0..{size - 1}", place)
    return value
