"""Where a schedule's ranks are on a machine: which machine it was made for, and how the two numberings correspond."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from synth.checker.documents.built_in_machines import differences
from synth.errors import SynthError
from synth.model import symmetry
from synth.model.topology import Network, Topology
from synth.topologies.name_grammar import topology as named
from synth.topologies.name_grammar import topology_or_none


def known(network: Network) -> Topology | None:
    """The machine or family of that name, if its links are those of `network`; None where nothing more is known of
    it."""
    try:
        found = named(network.name)
    except SynthError:
        return None
    return found if found.ranks == network.ranks and same(found.network(), network) else None


def same(one: Network, other: Network) -> bool:
    """True if the two have the same routes, rank for rank."""
    routes = sorted((r.src, r.dst, r.via, r.units) for r in one.routes)
    return routes == sorted((r.src, r.dst, r.via, r.units) for r in other.routes)


def marked(doc: dict) -> dict:
    """Return a document whose machines are named as others where they are not the built-in ones whose names they bear.

    So every table and page on a document that claims too much says it. A document that no reader takes is returned as
    it is.
    """
    try:
        false = {name for name, _ in differences(doc, topology_or_none)}
    except (SynthError, KeyError, TypeError, ValueError, IndexError, AttributeError):
        return doc
    return _renamed(doc, false) if false else doc


def _renamed(value: Any, false: set[str]) -> Any:
    if isinstance(value, list):
        return [_renamed(item, false) for item in value]
    if not isinstance(value, dict):
        return value
    copy = dict(value)
    for key in ("points", "algorithms", "schedule", "multicast"):
        if isinstance(value.get(key), dict | list):
            copy[key] = _renamed(value[key], false)
    machine = value.get("topology")
    if isinstance(machine, dict) and machine.get("name") in false:
        copy["topology"] = machine | {"name": f"{machine['name']}-not-the-built-in"}
    return copy


def place(network: Network, machine: Network, default: Sequence[int]) -> tuple[tuple[int, ...], bool]:
    """The rank of `machine` for each rank of `network`, and whether it comes from a match of their links.

    `default` where it already carries every route to one of the machine that is as wide, or where no renumbering makes
    them equal.
    """
    placed = sorted((default[r.src], default[r.dst], r.units) for r in network.routes)
    if placed == sorted((r.src, r.dst, r.units) for r in machine.routes):
        return tuple(default), False
    found = symmetry.isomorphism(network, machine)
    return (tuple(default), False) if found is None else (tuple(found), True)
