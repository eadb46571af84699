"""Machines in a part of their common unit, so that one link carries several chunks in a round."""

from dataclasses import replace

from synth.model.topology import Network


def finer(network: Network, parts: int) -> Network:
    """Return the network in units of one of `parts` equal parts of its own."""
    routes = tuple(route._replace(units=route.units * parts) for route in network.routes)
    caps = tuple(replace(cap, units=cap.units * parts) for cap in network.caps)
    wires = tuple((a, b, units * parts) for a, b, units in network.wires)
    return replace(network, routes=routes, caps=caps, wires=wires, unit=network.unit / parts)
