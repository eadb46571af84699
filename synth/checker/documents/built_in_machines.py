"""Comparison of a document's machine with the built-in machine whose name it bears."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from synth.errors import SynthError
from synth.model.documents import json_diff
from synth.model.rational import counted, show
from synth.model.topology import Topology


def difference(doc: dict, named_machine: Callable[[str], Topology | None]) -> str:
    """Return a line on how the machine of a checked document differs from the built-in one of its name.

    "" where it does not differ, and where `named_machine` knows no machine of that name. The order of links counts for
    nothing. What a sketch leaves of a
    machine is another machine, and bears the sketch's name, too.
    """
    return next((line(name, found) for name, found in differences(doc, named_machine)), "")


def differences(doc: dict, named_machine: Callable[[str], Topology | None]) -> Iterator[tuple[str, str]]:
    """Yield name and difference of each machine of a document that is not the built-in one of its name."""
    for machine in _machines(doc):
        name = machine["name"]
        named = named_machine(name)
        if named is None:
            continue
        if isinstance(machine.get("links"), dict):
            from synth.checker.documents import link_columns  # loads NumPy

            found = topology_difference(link_columns.read(machine), named)
        elif "links" in machine:
            found = _network_difference(machine, named)
        else:
            found = ""  # the document means the machine that the name gives
        if found:
            yield name, found


def line(name: str, found: str) -> str:
    """Return the line on a machine that is called `name` and differs from the built-in one in `found`."""
    return f"differs: the machine of this document is called {name!r} and is not that built-in machine: {found}"


def topology_difference(machine: Topology, named: Topology) -> str:
    """Return how a machine differs from the built-in one in links and limits; "" where it does not."""
    counts = _counts(
        (machine.ranks, named.ranks, "rank"), (len(machine.switches), len(named.switches), "switch"),
        (len(machine.links), len(named.links), "link"), (len(machine.limits), len(named.limits), "limit"),
    )  # fmt: skip
    if counts:
        return counts
    if machine.unit_bandwidth() != named.unit_bandwidth():
        return f"a unit of {show(machine.unit_bandwidth())} GB/s, the built-in one of {show(named.unit_bandwidth())}"
    if machine.links == named.links and machine.limits == named.limits:
        return ""
    one, other = _contents(machine), _contents(named)
    return "" if one == other else "other links or limits, bandwidths or latencies"


def _contents(machine: Topology) -> tuple[Counter, Counter]:
    """Return the links and the limits of a machine, in no order."""
    links = [(link.src, link.dst, link.bandwidth, link.latency, link.kind) for link in machine.links]
    limits = []
    for limit in machine.limits:
        limits.append((limit.bandwidth, tuple(sorted(links[i] for i in limit.links))))
    return Counter(links), Counter(limits)


def _network_difference(machine: dict, named: Topology) -> str:
    try:
        network = named.multicast_network() if "multicast" in machine else named.network()
    except SynthError as error:
        return str(error)
    other = network.document
    counts = _counts(
        (machine["ranks"], other["ranks"], "rank"), (len(machine["links"]), len(other["links"]), "link"),
        (len(machine["limits"]), len(other["limits"]), "limit"),
        (len(machine.get("multicast", [])), len(other.get("multicast", [])), "switch that multicasts"),
    )  # fmt: skip
    if counts:
        return counts
    here, there = _sorted(machine), _sorted(other)
    return "" if here == there else json_diff.describe(here, there, "in the built-in one")


def _sorted(machine: dict) -> dict:
    """Return a machine without its name, its links and limits sorted, and limits as the links that they hold."""
    latencies = machine.get("latency_us") or ["0"] * len(machine["links"])
    links = sorted(([*link, late] for link, late in zip(machine["links"], latencies, strict=True)), key=str)
    limits = [[limit["units"], sorted(limit["links"], key=str)] for limit in machine["limits"]]
    switches = []
    for switch in machine.get("multicast", []):
        ports = []
        for rank, up, down in switch["ports"]:
            above = sorted((limits[k] for k in up), key=str)
            below = sorted((limits[k] for k in down), key=str)
            ports.append([rank, above, below])
        switches.append([switch["switch"], switch["own"], ports])
    return {
        "unit_gbps": machine["unit_gbps"], "links": links, "limits": sorted(limits, key=str),
        "wires": sorted(machine.get("wires", []), key=str), "multicast": switches,
    }  # fmt: skip


def _counts(*rows: tuple[int, int, str]) -> str:
    """Return the first pair of numbers that differ, in words."""
    for here, there, what in rows:
        if here != there:
            return f"{counted(here, what)}, the built-in one has {there}"
    return ""


def _machines(doc: dict) -> Iterator[dict]:
    """Yield the machine of a document, and that of its switches that multicast."""
    yield doc["topology"]
    if "multicast" in doc:
        yield doc["multicast"]["topology"]
