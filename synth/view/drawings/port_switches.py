"""Switches that a machine has by its limits alone: ports in and out of them, and links between two of them.

A dump or a model of an NVSwitch, a network or a PCIe tree may name no switch: it lists a link for each pair of ranks,
and limits for what they share. With its switches such a machine can be drawn as it is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from synth.model.graphs import components

Ranks = frozenset[int]


@dataclass(frozen=True)
class Pairs:
    """Links from rank to rank with their rates, and limits: (links that share it, rate of all of them)."""

    ranks: int
    links: Sequence[tuple[int, int, Fraction | int]]
    limits: Sequence[tuple[Sequence[int], Fraction | int]]


@dataclass(frozen=True)
class Wiring:
    """The lines of a drawing.

    `names`: of the ends behind the ranks: switches, then adapters, ports that several ranks share. `lines`: (end, end,
    rate). `paths`: the lines of each link. `limits`: numbers of the limits for which no line stands.
    """

    names: tuple[str, ...]
    lines: tuple[tuple[int, int, Fraction | int], ...]
    paths: tuple[tuple[int, ...], ...]
    limits: tuple[int, ...]


def wiring(machine: Pairs) -> Wiring:
    """Return the lines of `machine`: those of switches where its limits show some, a line for each link elsewhere.

    A link goes through switches if it has a limit at its source, one at its destination and at most one in between,
    none of them higher than its own rate, and if this holds for all links of these limits.
    """
    sides = [_sides(machine, members) for members, _ in machine.limits]
    # For each link that goes through switches: its limits in the order in which it passes them.
    limits_of: dict[int, list[int]] = {}
    for limit, (members, _) in enumerate(machine.limits):
        for link in members:
            limits_of.setdefault(link, []).append(limit)
    chains: dict[int, tuple[int, ...]] = {}
    for link, limits in limits_of.items():
        least = min(machine.limits[limit][1] for limit in limits)
        if 2 <= len(limits) <= 3 and len(set(limits)) == len(limits) and machine.links[link][2] >= least:
            # a port out has few sources and many destinations, a port in few destinations
            chains[link] = tuple(sorted(limits, key=lambda limit: (len(sides[limit][0]) - len(sides[limit][1]), limit)))
    wrong = True
    while wrong:  # a limit that has another place in the chain of one of its links is none of a switch
        wrong = False
        for limit, (members, _) in enumerate(machine.limits):
            places = {_place(chains.get(link), limit) for link in members}
            if len(places) > 1 or None in places:
                wrong |= any(chains.pop(link, None) is not None for link in list(members))
    # The switch of each limit, as the number of one of its limits: the ports of a link without a limit in between are
    # at one switch, and so are a port out and that which leads back.
    into: dict[tuple[Ranks, Ranks], int] = {}
    for chain in chains.values():
        into.setdefault(sides[chain[-1]], chain[-1])
    same: list[tuple[int, int]] = []
    for first, *middle, last in chains.values():
        sources, targets = sides[first]
        same.append((first, into.get((targets, sources), first)))
        if not middle:
            same.append((first, last))
    switch_of = components(range(len(sides)), same)
    ranks_of: dict[int, set[int]] = {}
    between: dict[int, tuple[int, int]] = {}
    for chain in list(chains.values()):
        first, last = switch_of[chain[0]], switch_of[chain[-1]]
        ranks_of.setdefault(first, set()).update(sides[chain[0]][0])
        ranks_of.setdefault(last, set()).update(sides[chain[-1]][1])
        if len(chain) == 3 and (first == last or between.setdefault(chain[1], (first, last)) != (first, last)):
            chains = {}  # a limit between switches that joins more than two of them
    linked = {switch for ends in between.values() for switch in ends}
    kept = {switch: ranks for switch, ranks in ranks_of.items() if len(ranks) > 2 or switch in linked}
    if not chains:
        kept = {}
    # Switches are numbered after the ranks, ports that several ranks share after them.
    number = {switch: machine.ranks + k for k, switch in enumerate(kept)}
    adapters: dict[tuple[int, Ranks], int] = {}

    def stops(limit: int, rank: int, side: int) -> list[int]:
        """Return the ends from `rank` to its switch."""
        switch, ranks = switch_of[limit], sides[limit][side]
        if len(ranks) == 1:
            return [rank, number[switch]]
        return [rank, adapters.setdefault((switch, ranks), machine.ranks + len(number) + len(adapters)), number[switch]]

    lines: dict[tuple[int, int, int], int] = {}
    paths, drawn = [], set()
    rates: list[Fraction | int] = []
    for link, (source, target, rate) in enumerate(machine.links):
        chain = chains.get(link, ())
        path: list[tuple[int, int, int]] = [(source, target, -1 - link)]
        if chain and switch_of[chain[0]] in number:
            up, down = stops(chain[0], source, 0), stops(chain[-1], target, 1)[::-1]
            path = [(a, b, chain[0]) for a, b in pairwise(up)]
            if len(chain) == 3:
                path.append((up[-1], down[0], chain[1]))
            path += [(a, b, chain[-1]) for a, b in pairwise(down)]
            drawn.update(chain)
        for line in path:
            if line not in lines:
                lines[line] = len(lines)
                rates.append(machine.limits[line[2]][1] if line[2] >= 0 else rate)
        paths.append(tuple(lines[line] for line in path))
    found = tuple((a, b, rate) for (a, b, _), rate in zip(lines, rates, strict=True))
    switches = {end: kept[switch] for switch, end in number.items()}
    fastest: dict[int, Fraction | int] = {}
    for a, b, rate in found:
        for end in (a, b):
            fastest[end] = max(rate, fastest.get(end, 0))
    kinds = []
    for switch, members in switches.items():
        slower = any(fastest[rank] > fastest[switch] for rank in members)
        kinds.append("net" if slower else "switch")
    # Names with numbers, where there are several of a kind.
    names = []
    for k, kind in enumerate(kinds):
        names.append(f"{kind} {kinds[:k].count(kind)}" if kinds.count(kind) > 1 else kind)
    names = names + ["port"] * len(adapters)
    rest = tuple(limit for limit in range(len(machine.limits)) if limit not in drawn)
    return Wiring(tuple(names), found, tuple(paths), rest)


def _sides(machine: Pairs, members: Sequence[int]) -> tuple[Ranks, Ranks]:
    sources = {machine.links[k][0] for k in members}
    targets = {machine.links[k][1] for k in members}
    return frozenset(sources), frozenset(targets)


def _place(chain: tuple[int, ...] | None, limit: int) -> int | None:
    if chain is None:
        return None
    return {chain[-1]: 2, chain[0]: 0}.get(limit, 1)
