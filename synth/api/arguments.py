"""Keyword arguments of the public functions: a misspelled one gets the nearest as an answer, a wrong limit an error."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from numbers import Real
from typing import ParamSpec, TypeVar

from synth.errors import ArgumentError, unknown

P = ParamSpec("P")
R = TypeVar("R")


def keywords_checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` with the same signature; a keyword that it does not have raises ArgumentError.

    So does a `time_limit` that is no number of seconds, 0 or more.

    The error is a TypeError, as Python's own, and names the nearest keywords. A function that takes any keyword, for an
    executor, is left as it is: `make_executor` answers.
    """
    parameters = inspect.signature(function).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return function
    named = [one.name for one in parameters if one.kind is not one.POSITIONAL_ONLY]
    known = frozenset(named)

    @functools.wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if not known.issuperset(kwargs):
            wrong = next(name for name in kwargs if name not in known)
            line, _, hint = unknown("keyword", wrong, named, "").partition("; ")
            hint = hint if hint.startswith("did you mean") else f"there are {', '.join(named)}"
            raise ArgumentError(f"{function.__name__}() has an {line}; {hint}")
        limit = kwargs.get("time_limit")
        if limit is not None and not (isinstance(limit, Real) and float(limit) >= 0):
            raise ArgumentError(f"time_limit: {limit!r:.60} is not a number of seconds, such as 20 or 0.5")
        return function(*args, **kwargs)

    return checked
