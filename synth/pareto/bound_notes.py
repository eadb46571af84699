"""The note that there may be a higher bound for any number of steps: said where its search was ended, unless a schedule
attains it."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

NOTE = "the bound for any number of steps may be higher: "


def note(why: str) -> str:
    """The note, with what ended the search."""
    return NOTE + why


def settled(notes: Iterable[str], best: Fraction | None, floor: Fraction | None) -> tuple[str, ...]:
    """`notes` without that one where the least R/C found is the bound: then there is no higher one."""
    attained = best is not None and floor is not None and best <= floor
    return tuple(text for text in notes if not (attained and text.startswith(NOTE)))
