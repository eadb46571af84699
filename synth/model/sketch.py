"""Sketch: rules for the links that schedules may use, as TACCL's communication sketches have them.

    Sketch  name across inside without ways phases symmetric fixed fan relay_memory

A *place* is the position of a rank in its box, from 0. A sketch makes a smaller machine of a machine: the links that
its rules allow, and what remains of the limits; rules for sends stay with it
(`synth.model.send_rules`). Bounds, searches and checks on that machine are those under the sketch.

Shah et al., "TACCL: Guiding Collective Algorithm Synthesis using Communication Sketches", NSDI 2023.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from synth.errors import UsageError
from synth.model.send_rules import (
    ACROSS,
    INSIDE,
    LEAST,
    MOST_FIXED,
    MOST_NUMBER,
    MOST_STEPS,
    MOST_SYMMETRIES,
    OWN_RAIL,
    WAYS,
    FixedSend,
    Permutation,
    SendPhase,
    SendRules,
    permutation,
    places_in,
)
from synth.model.topology import Limit, Topology

RAIL = "rail"
OF_PLACES = ("across", "inside", "ways", "phases")  # rules that speak of boxes and places in them
Pair = tuple[int, int]


@dataclass(frozen=True)
class Sketch:
    """Rules for the links that schedules may use. Links in no rule are allowed.

    Parameters
    ----------
    name : of the sketch, in messages.
    across : links between boxes that may be used: "rail" for those between ranks of the same place, or pairs
        (place of the sender, place of the receiver). None: all.
    inside : the same for links inside boxes, by pairs. None: all.
    without : pairs of ranks (source, destination) whose links are not used.
    ways : rules for each unit of data by its *owner*, the rank that holds it first, or that wants the sum: "own rail",
        it crosses between boxes from and to ranks of its owner's place alone; "home", it crosses out of its owner's
        box alone, or into it where it is summed. One name, or several.
    phases : the steps in which links are used, from 1: {"across": (first, last), "inside": (first, last)}, where last
        is None for no end.
    symmetric : symmetries that map schedules to themselves, the chunks of a unit to those of its image: permutations,
        as the image of each rank, or TACCL's (offset, size), which turns each group of `size` ranks by `offset`.
    fixed : sends that are in every schedule, each as the number of a unit of data with its source and destination and
        the step from 1 in which all its chunks are sent. Each rank gets a chunk once (where data are summed: sends it
        once).
    fan : in each step a rank sends to at most so many ranks, and gets data from at most so many.
    relay_memory : units of data that a rank may hold at once, between two steps, to pass them on: units that it neither
        has first nor wants, nor gets by a fixed send.

    Examples
    --------
    >>> import synth
    >>> machine = synth.topology("dgx-a100*2")
    >>> rails = synth.Sketch("rails", across="rail")
    >>> len(machine.links), len(rails.applied(machine).links)
    (240, 128)
    """

    name: str = "sketch"
    across: str | tuple[Pair, ...] | None = None
    inside: tuple[Pair, ...] | None = None
    without: tuple[Pair, ...] = ()
    ways: str | tuple[str, ...] = ()
    phases: Mapping[str, tuple[int, int | None]] | tuple[SendPhase, ...] = ()
    symmetric: Sequence[Sequence[int]] = ()
    fixed: Sequence[Sequence[int]] = ()
    fan: int | None = None
    relay_memory: int | None = None

    def __post_init__(self) -> None:
        ways = (self.ways,) if isinstance(self.ways, str) else tuple(self.ways)
        for way in ways:
            if way not in WAYS or ways.count(way) > 1:
                raise UsageError(f"ways={self.ways!r}: each of {', '.join(map(repr, WAYS))} at most once")
        object.__setattr__(self, "ways", ways)
        object.__setattr__(self, "phases", _phases(self.phases))
        object.__setattr__(self, "symmetric", _symmetric(self.symmetric))
        object.__setattr__(self, "fixed", _fixed(self.fixed))
        for key, least in LEAST.items():
            value = getattr(self, key)
            if value is not None and not (type(value) is int and least <= value <= MOST_NUMBER):
                raise UsageError(f"{key}={value!r}: a whole number from {least}")
        if isinstance(self.across, str) and self.across != RAIL:
            raise UsageError(f"across={self.across!r}: {RAIL!r}, or pairs of places such as ((0, 1), (2, 3))")

    @cached_property
    def rules(self) -> dict[str, Any]:
        """The rules as a JSON document."""
        found: dict[str, Any] = {}
        for key in ("across", "inside", "without"):
            value = getattr(self, key)
            if isinstance(value, str):
                found[key] = value
            elif value is not None and value != ():
                found[key] = [list(pair) for pair in value]
        found |= self._send_rules(()).document
        del found["boxes"]
        return found

    def _send_rules(self, boxes: tuple[int, ...]) -> SendRules:
        """Return the rules for sends; the fields are tuples since `__post_init__`."""
        phases = tuple(map(SendPhase._make, self.phases))
        fixed = tuple(map(FixedSend._make, self.fixed))
        symmetric = tuple(map(tuple, self.symmetric))
        return SendRules(boxes, tuple(self.ways), phases, symmetric, fixed, self.fan, self.relay_memory)

    def allows(self, src: int, dst: int, boxes: Sequence[int], places: Sequence[int]) -> bool:
        """Return True if a link from rank `src` to rank `dst` may be used.

        `boxes`, `places` : of each rank its box and its place in it.
        """
        if (src, dst) in self.without:
            return False
        pair = places[src], places[dst]
        if boxes[src] == boxes[dst]:
            return self.inside is None or pair in self.inside
        if (isinstance(self.across, str) or OWN_RAIL in self.ways) and pair[0] != pair[1]:
            return False
        return self.across is None or isinstance(self.across, str) or pair in self.across

    def applied(self, topology: Topology) -> Topology:
        """Return the machine with the allowed links alone.

        Raises UsageError for a machine with switches of its own, and for a rule that none of its links can meet; the
        error's `rule` is its place in the sketch, such as ``without[2]``.
        """
        if topology.switches:
            raise UsageError(f"{topology.name} has switches of its own; a sketch needs links between ranks")
        boxes = topology.nodes or (0,) * topology.ranks
        places = places_in(boxes)
        self._check(topology, boxes, places)
        kept = [i for i, link in enumerate(topology.links) if self.allows(link.src, link.dst, boxes, places)]
        number = {link: i for i, link in enumerate(kept)}
        limits = []
        for limit in topology.limits:
            inside = [number[link] for link in limit.links if link in number]
            if inside:
                limits.append(Limit(limit.name, inside, limit.bandwidth))
        links = tuple(topology.links[i] for i in kept)
        rules: SendRules | None = self._send_rules(boxes)
        if rules == SendRules(boxes):
            rules = None
        under = replace(
            topology, name=f"{topology.name} under {self.name}", links=links, limits=tuple(limits),
            unit=topology.unit_bandwidth(), generators=(), multicast=(), rules=rules,
        )  # fmt: skip
        self._check_symmetries(under)
        self._check_fixed(under)
        return under

    def _check_fixed(self, under: Topology) -> None:
        """Raise RuleError for a fixed send over a link, or in a step, that the other rules do not leave."""
        links = {(link.src, link.dst) for link in under.links}
        phases = {phase.links: phase for phase in map(SendPhase._make, self.phases)}
        peers = self._peers_of_fixed()
        for i, (_, src, dst, step) in enumerate(map(FixedSend._make, self.fixed)):
            place = f"fixed[{i}]"
            if (src, dst) not in links:
                raise RuleError(place, f"{under.name} has no link from rank {src} to rank {dst}")
            phase = phases.get(under.rules.kind(src, dst)) if under.rules else None
            if phase and not phase.first <= step <= (step if phase.last is None else phase.last):
                raise RuleError(place, f"phases do not open the link from rank {src} to rank {dst} in step {step}")
            for end in (("out", src, step), ("in", dst, step)):
                if self.fan is not None and len(peers[end]) > self.fan:
                    raise RuleError(place, f"rank {end[1]} has more peers in step {step} than fan {self.fan}")

    def _peers_of_fixed(self) -> dict[tuple[str, int, int], set[int]]:
        """Return whom each ("out", rank, step) sends fixed sends to, and who sends such to each ("in", rank, step)."""
        peers: dict[tuple[str, int, int], set[int]] = {}
        for _, src, dst, step in map(FixedSend._make, self.fixed):
            peers.setdefault(("out", src, step), set()).add(dst)
            peers.setdefault(("in", dst, step), set()).add(src)
        return peers

    def _check_symmetries(self, under: Topology) -> None:
        """Raise RuleError for a symmetry that the machine under the other rules has not."""
        network = under.network() if self.symmetric else None
        for i, row in enumerate(self.symmetric):
            place = f"symmetric[{i}]"
            try:
                ranks = permutation(tuple(row), under.ranks)
            except UsageError as error:
                raise RuleError(place, str(error)) from None
            if network is not None and network.image(ranks) is None:
                raise RuleError(place, f"{list(row)} does not keep the links and limits of {under.name}")

    def _check(self, topology: Topology, boxes: Sequence[int], places: Sequence[int]) -> None:
        """Raise RuleError for a rule about links that the machine has not."""
        ranks, near, far = set[Pair](), set[Pair](), set[Pair]()
        for link in topology.links:
            ranks.add((link.src, link.dst))
            pair = places[link.src], places[link.dst]
            (near if boxes[link.src] == boxes[link.dst] else far).add(pair)
        if len(set(boxes)) == len(boxes):
            for rule in self.rules:
                if rule in OF_PLACES:
                    message = f"each rank of {topology.name} is a box of its own, so there is one place alone"
                    raise RuleError(rule, message)
        crossing = {"across": self.across is not None, "ways": bool(self.ways)}
        crossing["phases.across"] = ACROSS in self.rules.get("phases", {})
        for rule, given in crossing.items():
            if given and not far:
                raise RuleError(rule, f"{topology.name} has no links between boxes")
        rows = (("across", self.across, far, "place"), ("inside", self.inside, near, "place"),
                ("without", self.without, ranks, "rank"))  # fmt: skip
        for key, pairs, known, what in rows:
            for i, (a, b) in enumerate(() if pairs is None or isinstance(pairs, str) else pairs):
                if (a, b) not in known:
                    raise RuleError(f"{key}[{i}]", f"{topology.name} has no such link from {what} {a} to {what} {b}")


def _phases(given: Any) -> tuple[SendPhase, ...]:
    """Return phases from a mapping of links to (first, last), or as they are."""
    if isinstance(given, Mapping):
        given = [(links, *steps) for links, steps in given.items()]
    found = tuple(SendPhase(*row) for row in sorted(given))
    for links, first, last in found:
        good = links in (ACROSS, INSIDE) and 1 <= first <= (MOST_STEPS if last is None else last) <= MOST_STEPS
        if not good or [phase.links for phase in found].count(links) > 1:
            raise UsageError(
                f"phases: {links}, {first} to {last}: such as {{'across': (1, 2)}}, for across and inside, steps from 1"
            )
    return found


def _symmetric(given: Any) -> tuple[Permutation, ...]:
    """Return symmetries as tuples. Raises UsageError for what is a permutation, or (offset, size), of no machine."""
    rows = tuple(map(tuple, given))
    if len(rows) > MOST_SYMMETRIES:
        raise UsageError(f"symmetric: {len(rows)} symmetries; at most {MOST_SYMMETRIES} are read")
    for row in rows:
        turn = len(row) == 2 and 0 < row[0] < row[1]
        if not turn and (len(row) < 2 or sorted(row) != list(range(len(row)))):
            raise UsageError(
                f"symmetric: {list(row)}: the image of each rank, or [offset, size] with 0 < offset < size"
            )
    return rows


def _fixed(given: Any) -> tuple[FixedSend, ...]:
    """Return fixed sends. Raises UsageError for too many, and for one that is none."""
    rows = tuple(map(tuple, given))
    if len(rows) > MOST_FIXED or len(set(rows)) < len(rows):
        raise UsageError(f"fixed: {len(rows)} sends; at most {MOST_FIXED}, each once")
    for row in rows:
        if len(row) != 4 or min(row) < 0 or not 1 <= row[3] <= MOST_STEPS:
            raise UsageError(f"fixed: {list(row)}: (unit, source, destination, step), the step from 1")
    return tuple(FixedSend(*row) for row in rows)


class RuleError(UsageError):
    """A rule that does not fit the machine; `rule` is its place in the sketch."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(f"{rule}: {message}")
        self.rule, self.message = rule, message
