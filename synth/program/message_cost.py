"""The cost of a message at its sender and at its receiver, beside the time on the links.

The overhead o of the LogP model (Culler et al., PPoPP 1993): a rank is busy for o with every message that it sends,
and for o with every message that it receives. It sends one message at a time, and receives one at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import UsageError
from synth.model.rational import rational, show
from synth.program.program import PROTOCOLS

_UNITS = {"ns": Fraction(1, 1000), "us": Fraction(1), "µs": Fraction(1), "μs": Fraction(1), "ms": Fraction(1000)}
_COST = re.compile(r"([^a-zµμ\s]+)\s*([a-zµμ]*)$", re.IGNORECASE)
# Greatest accepted cost, µs. More is a mistake in the unit.
MAXIMUM = 1_000_000


@dataclass(frozen=True)
class MessageCost:
    """Microseconds at each end of a message, by protocol: `by_protocol` are pairs (protocol, µs), others cost 0."""

    by_protocol: tuple[tuple[str, Fraction], ...] = ()

    def microseconds(self, protocol: str) -> Fraction:
        """Return the µs of a message at either end."""
        return dict(self.by_protocol).get(protocol, Fraction(0))

    def picoseconds(self, protocol: str) -> int:
        """Return the ps of a message at either end, rounded up."""
        cost = self.microseconds(protocol) * 10**6
        return -(-cost.numerator // cost.denominator)

    def words(self, protocol: str | None = None) -> str:
        """Return the cost as a clause: that of `protocol`, by default of all."""
        costs = {cost for _, cost in self.by_protocol}
        if protocol is not None:
            amount = _text(self.microseconds(protocol))
        elif len(self.by_protocol) == len(PROTOCOLS) and len(costs) == 1:
            amount = _text(costs.pop())
        else:
            amount = ", ".join(f"{name} {_text(cost)}" for name, cost in self.by_protocol)
        return f"a message costs {amount} µs at either end"

    def times(self, factor: Fraction) -> MessageCost:
        """Return `factor` times the cost."""
        return MessageCost(tuple((name, cost * factor) for name, cost in self.by_protocol))

    def __bool__(self) -> bool:
        return any(cost for _, cost in self.by_protocol)

    def __str__(self) -> str:
        """Return text that `parse` reads."""
        costs = {cost for _, cost in self.by_protocol}
        if len(self.by_protocol) == len(PROTOCOLS) and len(costs) == 1:
            return f"{_text(costs.pop())}us"
        return ",".join(f"{name}={_text(cost)}us" for name, cost in self.by_protocol)

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
        """Return the cost that ``0.3us`` (all protocols) or ``Simple=1us,LL=300ns`` names. Raises ValueError."""
        if "=" not in text:
            cost = _microseconds(text)
            return MessageCost(tuple((name, cost) for name in PROTOCOLS))
        known = {name.lower(): name for name in PROTOCOLS}
        costs = {}
        for part in text.split(","):
            name, _, cost = part.partition("=")
            protocol = known.get(name.strip().lower())
            if protocol is None:
                raise ValueError(f"{part.strip()!r}: the protocols are {', '.join(PROTOCOLS)}, as in LL=300ns")
            if protocol in costs:
                raise ValueError(f"{text!r} gives {protocol} twice")
            costs[protocol] = _microseconds(cost)
        return MessageCost(tuple((name, costs[name]) for name in PROTOCOLS if name in costs))


NO_COST = MessageCost()


def _text(cost: Fraction) -> str:
    decimal = f"{float(cost):.12g}"
    return decimal if Fraction(decimal) == cost else show(cost)


def _microseconds(text: str) -> Fraction:
    match = _COST.match(text.strip())
    try:
        value = rational(match[1]) if match else None
    except ValueError:
        value = None
    if match is None or value is None:
        raise ValueError(f"{text.strip()[:40]!r} is no time such as 0.3us or 300ns")
    scale = _UNITS.get(match[2].lower())
    if scale is None:
        said = f"unknown unit {match[2]!r}" if match[2] else "no unit"
        raise ValueError(f"{text.strip()[:40]!r} has {said}; write 0.3us or 300ns")
    if value < 0:
        raise ValueError(f"{text.strip()[:40]!r} is negative; a message costs 0 or more")
    if value * scale > MAXIMUM:
        raise ValueError(f"{text.strip()[:40]!r} is more than a second for one message")
    return value * scale
