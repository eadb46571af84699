"""Tables of a topology: a matrix or list of links, limits, distances, symmetries, notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from synth.model.number_text import number
from synth.model.rational import counted, show
from synth.model.topology import Topology
from synth.view.frontier_text import Report

MATRIX_RANKS = 20  # wider matrices do not fit a terminal: links are then counted by bandwidth


def topology_report(topology: Topology, symmetries: tuple[int, str]) -> tuple[Report, ...]:
    """Return the tables of `synth topo show`.

    `symmetries`: the number of generators, and the order of their group in words.
    """
    network = topology.network()
    boxes = len(set(topology.nodes)) or 1
    what = f"{topology.name}: {counted(topology.ranks, 'rank')}" + (f" in {boxes} boxes" if boxes > 1 else "")
    title = f"{what}, {counted(len(topology.links), 'link')}, 1 unit = {show(network.unit)} GB/s"
    small = topology.ranks <= MATRIX_RANKS and not topology.switches
    links = _matrix(topology, title) if small else _kinds(topology, title)

    # Distances, latencies, symmetries and labels are sentences.
    pairs = Counter(d for n, row in enumerate(network.distances) for m, d in enumerate(row) if n != m)
    disconnected = pairs.pop(None, 0)
    diameter = max((d for d in pairs if d is not None), default=0)
    by_distance = sorted(pairs.items(), key=lambda item: item[0] or 0)
    histogram = ", ".join(f"{counted(count, 'pair')} at {d}" for d, count in by_distance)
    if disconnected:
        lines = [f"not connected: {disconnected} pairs of ranks cannot reach each other"]
    else:
        lines = [f"distances: diameter {diameter}" + (f" ({histogram})" if histogram else "")]
    speeds = Counter((k.kind, k.latency) for k in topology.links)
    lines += [f"{kind} links: latency {number(latency)} µs" for kind, latency in sorted(speeds) if latency]
    generators, order = symmetries
    if generators:
        lines.append(f"symmetries: {order}, from {counted(generators, 'generator')}")
    else:
        lines.append("symmetries: none")
    if topology.labels and topology.labels != tuple(range(topology.ranks)):
        lines.append(f"labels on the machine: {', '.join(map(str, topology.labels))}")
    return (
        links,
        *_limits(topology),
        Report.of("", (), (), lines + [f"note: {note}" for note in topology.notes]),
    )


def match_report(what: str, topology: str, machine: str, labels: Sequence[int]) -> Report:
    """Return the table of `synth topo match`: the label in `topology` of each rank of `machine`.

    `what`: the result of the match in words, for the title.
    """
    columns = (f">rank of {machine}", f">label in {topology}")
    return Report.of(f"{topology} is {what}", columns, ((str(rank), str(label)) for rank, label in enumerate(labels)))


def _matrix(topology: Topology, title: str) -> Report:
    # Parallel links of a pair count together.
    total: Counter[tuple[int, int]] = Counter()
    for link in topology.links:
        total[link.src, link.dst] += link.bandwidth  # type: ignore[assignment]
    ranks = range(topology.ranks)
    rows = []
    for src in ranks:
        row = [str(src)]
        for dst in ranks:
            row.append(show(total[src, dst]) if total[src, dst] else ".")
        rows.append(row)
    return Report.of(title, (">GB/s from \\ to", *(f">{rank}" for rank in ranks)), rows)


def _kinds(topology: Topology, title: str) -> Report:
    # Links of the same ends, kind and rate are counted together.
    side = ["rank"] * topology.ranks + ["switch"] * len(topology.switches)
    kinds = Counter((side[k.src], side[k.dst], k.kind, k.bandwidth, k.latency) for k in topology.links)
    columns = (">links", "from", "to", "kind", ">GB/s", ">µs")
    rows = tuple(
        (str(n), a, b, kind, show(bandwidth), number(latency))
        for (a, b, kind, bandwidth, latency), n in kinds.most_common()
    )
    return Report.of(title, columns, rows)


def _limits(topology: Topology) -> list[Report]:
    if not topology.limits:
        return []
    columns = ("limits", ">links each", ">GB/s each")
    # Limits of as many links and the same rate are one row.
    alike: dict[tuple, list[str]] = {}
    for limit in topology.limits:
        alike.setdefault((len(limit.links), limit.bandwidth), []).append(limit.name)
    rows = []
    for (count, bandwidth), names in alike.items():
        few = len(names) <= 4
        said = ", ".join(names) if few else f"{names[0]}, {names[1]} ... {names[-1]} ({len(names)})"
        rows.append((said, str(count), show(bandwidth)))
    return [Report.of("", columns, rows)]
