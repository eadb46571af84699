"""The folder of a schedule for ASTRA-sim 2: traces, a workload of one collective, system and network files.

`collective.R.et` are the traces, ASTRA-sim's custom implementation of a collective; `workload.R.et` has one node, the
call of it; `system.json` names the traces; `network.yml` is the machine for the analytical backend, which describes a
ring, a switch or a full mesh of equal links in one dimension and nothing else.
"""

from __future__ import annotations

import json
from fractions import Fraction
from typing import NamedTuple

from synth.export.chakra import protobuf
from synth.export.chakra.trace import traces
from synth.model.rational import show
from synth.model.schedule import Schedule
from synth.model.topology import Network

# ASTRA-sim's collectives: the type of a call, and the name in the system file.
COLLECTIVES = {
    "allreduce": (0, "all-reduce"),
    "allgather": (2, "all-gather"),
    "alltoall": (6, "all-to-all"),
    "reduce-scatter": (7, "reduce-scatter"),
}
GIB = 1 << 30


class AstraFolder(NamedTuple):
    """The files, (name, content) each, and remarks on what could not be written."""

    files: tuple[tuple[str, bytes], ...]
    remarks: tuple[str, ...]


def folder(schedule: Schedule, size: int, path: str) -> AstraFolder:
    """Return the files of a schedule for a call of `size` bytes, and remarks on those that ASTRA-sim has no form for.

    `path`: the folder in which the files will lie, as the system file names it.
    """
    files, remarks = [], []
    task, network = schedule.collective, schedule.network
    for rank, nodes in enumerate(traces(schedule, size)):
        files.append((f"collective.{rank}.et", protobuf.file(nodes)))
    if task.name in COLLECTIVES:
        kind, name = COLLECTIVES[task.name]
        attributes = [
            ("comm_type", protobuf.INT64, kind), ("comm_size", protobuf.INT64, size), ("is_cpu_op", protobuf.BOOL, 0),
        ]  # fmt: skip
        call = protobuf.TraceNode(1, task.name, protobuf.COMM_COLL, (), (), attributes)
        for rank in range(task.ranks):
            files.append((f"workload.{rank}.et", protobuf.file([call])))
        files.append(("system.json", _system(name, f"{path.rstrip('/')}/collective")))
    else:
        remarks.append(f"ASTRA-sim has no {task.name}: the traces are a workload of their own, without a system file")
    shape = shape_of(network)
    if shape:
        files.append(("network.yml", _network(network, shape)))
    else:
        remarks.append(
            f"no network file: ASTRA-sim's analytical backend describes a ring, a switch or a full mesh of equal "
            f"links, and {network.name} is none"
        )
    if schedule.uses_multicast:
        remarks.append("ASTRA-sim has no switches that multicast: their sends are written as sends from rank to rank")
    return AstraFolder(tuple(files), tuple(remarks))


def shape_of(network: Network) -> str:
    """Return Ring, Switch or FullyConnected for a network that is one, with its ranks in order; "" for any other."""
    n, routes = network.ranks, network.routes
    pairs = {(route.src, route.dst) for route in routes}
    kinds = {(route.units, route.latency) for route in routes}
    if len(kinds) != 1 or len(pairs) != len(routes) or n < 3:
        return ""
    if not network.caps:
        ring = {(r, (r + 1) % n) for r in range(n)}
        if pairs == ring.union([(dst, src) for src, dst in ring]) and n > 3:
            return "Ring"
        return "FullyConnected" if len(pairs) == n * (n - 1) else ""
    ports = set()
    for rank in range(n):
        ports.add(frozenset(i for i, route in enumerate(routes) if route.src == rank))
        ports.add(frozenset(i for i, route in enumerate(routes) if route.dst == rank))
    (units, _), *_ = kinds
    caps = {frozenset(cap.routes) for cap in network.caps}
    equal = {cap.units for cap in network.caps} == {units}
    return "Switch" if equal and caps == ports and len(pairs) == n * (n - 1) else ""


def _system(name: str, prefix: str) -> bytes:
    document: dict[str, object] = {
        "scheduling-policy": "FIFO", "endpoint-delay": 0, "active-chunks-per-dimension": 1,
        "preferred-dataset-splits": 1,
    }  # fmt: skip
    for _, other in COLLECTIVES.values():
        if other == name:
            document[f"{other}-implementation-custom"] = [prefix]
        else:
            document[f"{other}-implementation"] = ["ring"]
    document |= {"collective-optimization": "baseline", "local-mem-bw": 1000, "boost-mode": 0}
    return (json.dumps(document, indent=2) + "\n").encode()


def _network(network: Network, shape: str) -> bytes:
    """Return the network file; a message passes a switch in two hops, each with half of the latency."""
    route = network.routes[0]
    latency = route.latency * 1000 / (2 if shape == "Switch" else 1)
    gigabytes = route.units * network.unit * 10**9 / Fraction(GIB)
    lines = [f"topology: [ {shape} ]", f"npus_count: [ {network.ranks} ]",
             f"bandwidth: [ {float(gigabytes)!r} ]  # GiB/s, {show(route.units * network.unit)} GB/s",
             f"latency: [ {float(latency)!r} ]  # ns of a hop"]  # fmt: skip
    return ("\n".join(lines) + "\n").encode()
