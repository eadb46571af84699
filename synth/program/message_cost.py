"""The cost of a message at its sender and at its receiver, beside the time on the links.

The overhead o of the LogP model (Culler et al., PPoPP 1993): a rank is busy for o with every message that it sends,
and for o with every message that it receives. It sends one message at a time, and receives one at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from synth.errors import UsageError
from synth.model.rational import rational, show

# µs of each unit
_UNITS = {"ns": Fraction(1, 1000), "us": Fraction(1), "µs": Fraction(1), "μs": Fraction(1), "ms": Fraction(1000)}
_COST = re.compile(r"([^a-zµμ\s]+)\s*(ns|us|µs|μs|ms)", re.IGNORECASE)
# Greatest accepted cost, µs. More is a mistake in the unit.
MAXIMUM = 1_000_000


@dataclass(frozen=True)
class MessageCost:
    """Microseconds at each end of a message."""

    microseconds: Fraction = Fraction(0)

    @property
    def picoseconds(self) -> int:
        """The ps of a message at either end, rounded up."""
        return ceil(self.microseconds * 10**6)

    @property
    def words(self) -> str:
        """The cost as a clause."""
        return f"a message costs {decimal(self.microseconds)} µs at either end"

    def __bool__(self) -> bool:
        return bool(self.microseconds)

    def __str__(self) -> str:
        """Return text that `parse` reads."""
        return f"{decimal(self.microseconds)}us"

    @staticmethod
    def of(given: MessageCost | str) -> MessageCost:
        """Return a cost that is given as a value or as text. Raises UsageError."""
        if isinstance(given, MessageCost):
            return given
        try:
            return MessageCost.parse(str(given))
        except ValueError as error:
            raise UsageError(f"per_send: {error}") from None

    @staticmethod
    def parse(text: str) -> MessageCost:
        """Return the cost that a text such as ``0.3us`` or ``300 ns`` names. Raises ValueError."""
        match = _COST.fullmatch(text.strip())
        try:
            cost = rational(match[1]) * _UNITS[match[2].lower()] if match else None
        except ValueError:
            cost = None
        if cost is None or not 0 <= cost <= MAXIMUM:
            raise ValueError(f"{text.strip()[:40]!r} is no time from 0 to a second, such as 0.3us or 300ns")
        return MessageCost(cost)


NO_COST = MessageCost()


def decimal(value: Fraction) -> str:
    """Return a number as a decimal where that is exact, else as a fraction."""
    text = f"{float(value):.12g}"
    return text if Fraction(text) == value else show(value)
