"""Comparison of a document's machine with the built-in machine whose name it bears."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from synth.errors import SynthError
from synth.model.documents import json_diff
from synth.model.rational import counted, show
from synth.model.topology import Topology


def differences(doc: dict, named_machine: Callable[[str], Topology | None]) -> Iterator[tuple[str, str]]:
    """Yield the name of a checked document's machine and how it differs from the built-in one of that name.

    Nothing where it does not differ, and where `named_machine` knows no machine of that name. The order of links counts
    for nothing.
    """
    machine = doc["topology"]
    named = named_machine(machine["name"])
    found = ""  # without links the document means the machine that the name gives
    if named is not None and isinstance(machine.get("links"), dict):
        from synth.checker.documents import link_columns  # loads NumPy

        found = topology_difference(link_columns.read(machine), named)
    elif named is not None and "links" in machine:
        found = _network_difference(machine, named)
    if found:
        yield machine["name"], found


def line(name: str, found: str) -> str:
    """Return the line on a machine that is called `name` and differs from the built-in one in `found`."""
    return f"differs: the machine of this document is called {name!r} and is not that built-in machine: {found}"


def topology_difference(machine: Topology, named: Topology) -> str:
    """Return how a machine differs from the built-in one in links and limits; "" where it does not."""
    sizes = {"rank": machine.ranks, "switch": len(machine.switches), "link": len(machine.links)}
    others = {"rank": named.ranks, "switch": len(named.switches), "link": len(named.links)}
    counts = _counts(sizes | {"limit": len(machine.limits)}, others | {"limit": len(named.limits)})
    if counts:
        return counts
    unit, other = machine.unit_bandwidth(), named.unit_bandwidth()
    if unit != other:
        return f"a unit of {show(unit)} GB/s, the built-in one of {show(other)}"
    if machine.links == named.links and machine.limits == named.limits:
        return ""

    # the links and the limits of both, in no order
    contents = []
    for each in (machine, named):
        links = [(link.src, link.dst, link.bandwidth, link.latency, link.kind) for link in each.links]
        limits: Counter[tuple] = Counter()
        for limit in each.limits:
            limits[limit.bandwidth, tuple(sorted(links[i] for i in limit.links))] += 1
        contents.append((Counter(links), limits))
    return "" if contents[0] == contents[1] else "other links or limits, bandwidths or latencies"


def _network_difference(machine: dict, named: Topology) -> str:
    try:
        other = named.multicast_network() if "multicast" in machine else named.network()
    except SynthError as error:
        return str(error)
    sizes = []
    for each in (machine, other.document):
        row = {"rank": each["ranks"], "link": len(each["links"]), "limit": len(each["limits"])}
        sizes.append(row | {"switch that multicasts": len(each.get("multicast", []))})
    if counts := _counts(*sizes):
        return counts
    here, there = _sorted(machine), _sorted(other.document)
    return "" if here == there else json_diff.describe(here, there, "in the built-in one")


def _sorted(machine: dict) -> dict:
    """Return a machine without its name, its links and limits sorted, and limits as the links that they hold."""
    latencies = machine.get("latency_us") or ["0"] * len(machine["links"])
    links = [[*link, late] for link, late in zip(machine["links"], latencies, strict=True)]
    limits = [[limit["units"], sorted(limit["links"], key=str)] for limit in machine["limits"]]
    switches = []
    for switch in machine.get("multicast", []):
        ports = []
        for rank, *sides in switch["ports"]:
            ports.append([rank])
            for side in sides:
                ports[-1].append(sorted([limits[k] for k in side], key=str))
        switches.append([switch["switch"], switch["own"], ports])
    rows = {"links": links, "limits": limits, "wires": machine.get("wires", [])}
    found = {key: sorted(value, key=str) for key, value in rows.items()}
    return found | {"unit_gbps": machine["unit_gbps"], "multicast": switches}


def _counts(here: dict[str, int], there: dict[str, int]) -> str:
    """Return the first pair of numbers that differ, in words."""
    for what, count in here.items():
        if count != there[what]:
            return f"{counted(count, what)}, the built-in one has {there[what]}"
    return ""
