"""Changes of a machine by a user: an allocation of its ranks; broken, slow or measured links.

Links and ranks are named by the machine's own numbers, whatever the order of the options: measured values first,
then slow links, then broken ones, the allocation last. A declared symmetry that no longer holds is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from synth.errors import FormatError, UsageError
from synth.model.documents.file_reader import Fields
from synth.model.documents.int_ranges import read
from synth.model.documents.text_file import text_of
from synth.model.permutations import symmetric_group
from synth.model.rational import rational, show
from synth.model.topology import Limit, Link, Topology
from synth.topologies.builders import with_generators

COLUMNS = ("src", "dst", "bandwidth_gbps", "latency_us")


def apply(
    topology: Topology,
    *,
    ranks: str | Sequence[int] | None = None,
    without: Sequence[str] = (),
    degrade: Sequence[str] = (),
    links: str | Path | None = None,
) -> Topology:
    """Return `topology` with all changes, in the syntax of the command line: ranks "0,1,2,5-7", without "0-3", degrade
    "0-3:1/2" or "0:17/18", links a CSV file.

    Raises UsageError for a change that makes no sense on this machine, FormatError for a bad file.
    """
    if links is not None:
        topology = with_measured(topology, Path(links))
    for text in degrade:
        ends, colon, factor = text.rpartition(":")
        if not colon:
            raise UsageError(f"--degrade {text}: expected two ranks or one, and a factor, such as 0-3:1/2 or 0:17/18")
        try:
            value = rational(factor)
        except ValueError as error:
            raise UsageError(f"--degrade {text}: {error}") from None
        if not 0 < value <= 1:
            raise UsageError(f"--degrade {text}: expected a factor above 0 and at most 1; --without removes a link")
        topology = degraded(topology, ends, value)
    for text in without:
        topology = broken(topology, *_pair(topology, "without", text))
    if isinstance(ranks, str):
        try:
            ranks = read(ranks)
        except ValueError as error:
            raise UsageError(f"--ranks {ranks}: {error}, such as 0,1,2 or 0-3") from None
    return topology if ranks is None else with_ranks(topology, ranks)


def with_ranks(topology: Topology, ranks: Sequence[int]) -> Topology:
    """Return the topology on these ranks alone, renumbered from 0 in their order; `labels` keeps the machine's own
    numbers."""
    if not ranks:
        raise UsageError("--ranks: the allocation is empty")
    for rank in ranks:
        if not 0 <= rank < topology.ranks:
            raise UsageError(
                f"--ranks: there is no rank {rank} on {topology.name}, which has ranks 0..{topology.ranks - 1}"
            )
    if len(set(ranks)) < len(ranks):
        raise UsageError(f"--ranks: {','.join(map(str, ranks))} names a rank twice")
    n, place = len(ranks), {rank: i for i, rank in enumerate(ranks)}
    place |= {topology.ranks + s: n + s for s in range(len(topology.switches))}
    old_nodes = topology.nodes or (0,) * topology.ranks
    old_labels = topology.labels or tuple(range(topology.ranks))
    used = {old_nodes[rank] for rank in ranks}
    boxes = {box: i for i, box in enumerate(sorted(used))}

    def moved(link: Link) -> Link | None:
        if link.src not in place or link.dst not in place:
            return None
        return replace(link, src=place[link.src], dst=place[link.dst])

    kept = relinked(topology, moved)
    restricted = []  # the symmetries that keep the allocation
    for pi in topology.generators:
        image = [pi[rank] for rank in ranks]
        if set(image) == set(ranks):
            restricted.append([place[rank] for rank in image])
    # Cheap to try, and right wherever all links are alike.
    likely = [*symmetric_group(range(n), n), tuple(range(n))[::-1]]
    multicast = []
    for switch in topology.multicast:
        members = tuple(place[rank] for rank in switch.ranks if rank in place)
        if len(members) > 1 or not switch.ranks:
            multicast.append(replace(switch, ranks=members))
    smaller = replace(
        kept,
        name=f"{topology.name} --ranks {','.join(map(str, ranks[:16]))}{',...' if n > 16 else ''}",
        ranks=n,
        nodes=tuple(boxes[old_nodes[r]] for r in ranks),
        labels=tuple(old_labels[r] for r in ranks),
        multicast=tuple(multicast),
    )
    return with_generators(smaller, [*restricted, *likely])


def broken(topology: Topology, one: int, other: int) -> Topology:
    """Return `topology` without the links between the two ends, in both directions.

    Raises UsageError where there is no such link.
    """
    ends = _existing(topology, "without", one, other)
    fewer = relinked(topology, lambda k: None if (k.src, k.dst) in ends else k)
    name = f"{topology.name} --without {_name(topology, one)}-{_name(topology, other)}"
    return with_generators(replace(fewer, name=name), topology.generators)


def degraded(topology: Topology, ends: str, factor: Fraction) -> Topology:
    """Return `topology` with some links at `factor` (above 0, at most 1) of their bandwidth, both ways.

    `ends`: two ranks or switches, "0-3"; or one rank, "0", for all that it sends and receives, as where one of a GPU's
    18 NVLinks to the switches is down: its links, and the limits that are its own, such as a switch port.
    """
    rank = int(ends) if ends.isdecimal() and int(ends) < topology.ranks else None
    pairs = {(link.src, link.dst) for link in topology.links if rank in (link.src, link.dst)}
    if rank is None:
        one, other = _pair(topology, "degrade", ends)
        pairs = _existing(topology, "degrade", one, other)
        ends = f"{_name(topology, one)}-{_name(topology, other)}"

    def slowed(link: Link) -> Link:
        share = factor if (link.src, link.dst) in pairs else 1
        return replace(link, bandwidth=link.bandwidth * share)

    slower = relinked(topology, slowed)

    # a limit is the rank's own if all of its links leave the rank, or all enter it
    limits = []
    for limit in slower.limits:
        sources = {slower.links[i].src for i in limit.links}
        targets = {slower.links[i].dst for i in limit.links}
        if {rank} in (sources, targets):
            limit = replace(limit, bandwidth=limit.bandwidth * factor)
        limits.append(limit)
    changed = replace(slower, name=f"{topology.name} --degrade {ends}:{show(factor)}", limits=tuple(limits))
    return with_generators(changed, topology.generators)


def with_measured(topology: Topology, path: Path) -> Topology:
    """Measured values in place of nominal ones, for the links that the CSV file lists.

    Columns src, dst, bandwidth_gbps (GB/s) and, optionally, latency_us (µs; empty: unchanged); one directed link a
    row; ends are ranks or names of switches; lines that begin with # are skipped. Raises FormatError with the line.
    """
    read, file = Fields(str(path)), str(path)
    ends, links = _ends(topology), {(k.src, k.dst): k for k in topology.links}
    header: list[str] = []
    measured: dict[tuple[int, int], Link] = {}
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        place, cells = str(number), [cell.strip().strip('"') for cell in line.split(",")]

        # The first line names the columns, each other one a link that the machine has.
        if not header:
            header = [column.lower() for column in cells]
            if sorted(header) not in (sorted(COLUMNS), sorted(COLUMNS[:3])):
                columns, shown = ", ".join(COLUMNS), ", ".join(header)[:80]
                raise FormatError(f"the columns must be {columns} (the last one optional), found {shown}", file, number)
            continue
        if len(cells) != len(header):
            read.fail(f"expected {len(header)} values, found {len(cells)}", place)
        row = dict(zip(header, cells, strict=True))
        pair = ends.get(row["src"], -1), ends.get(row["dst"], -1)
        if pair not in links:
            read.fail(f"{topology.name} has no link {row['src'][:20]}→{row['dst'][:20]}", place)
        if pair in measured:
            read.fail(f"the link {row['src']}→{row['dst']} is listed twice", place)
        bandwidth, latency = read.number(row["bandwidth_gbps"], place), links[pair].latency
        if row.get("latency_us"):
            latency = read.number(row["latency_us"], place, zero=True)
        measured[pair] = replace(links[pair], bandwidth=bandwidth, latency=latency)
    if not header:
        raise FormatError(f"is empty; expected the columns {', '.join(COLUMNS)}", file)
    if not measured:
        raise FormatError("lists no link", file)
    updated = relinked(topology, lambda k: measured.get((k.src, k.dst), k))
    note = f"measured values of {len(measured)} of {len(topology.links)} links from {path.name}; the others are nominal"
    return with_generators(replace(updated, notes=(*topology.notes, note)), topology.generators)


def relinked(topology: Topology, change: Callable[[Link], Link | None]) -> Topology:
    """Each link changed or (None) removed, limits following; a limit that its links can no longer reach is dropped."""
    links, index = [], {}
    for i, link in enumerate(map(change, topology.links)):
        if link is not None:
            index[i] = len(links)
            links.append(link)
    limits = []
    for limit in topology.limits:
        members = tuple(index[i] for i in limit.links if i in index)
        if sum(links[i].bandwidth for i in members) > limit.bandwidth:
            limits.append(Limit(limit.name, members, limit.bandwidth))
    return replace(topology, links=tuple(links), limits=tuple(limits))


def _ends(topology: Topology) -> dict[str, int]:
    ends = {str(rank): rank for rank in range(topology.ranks)}
    ends.update({name: topology.ranks + i for i, name in enumerate(topology.switches)})
    return ends


def _name(topology: Topology, end: int) -> str:
    return str(end) if end < topology.ranks else topology.switches[end - topology.ranks]


def _existing(topology: Topology, option: str, one: int, other: int) -> set[tuple[int, int]]:
    ends = {(one, other), (other, one)}
    if not any((k.src, k.dst) in ends for k in topology.links):
        near = {k.dst for k in topology.links if k.src == one}
        near |= {k.src for k in topology.links if k.dst == one}
        known = ", ".join(_name(topology, end) for end in sorted(near)[:12]) or "nothing"
        known += ", ..." * (len(near) > 12)
        a, b = _name(topology, one), _name(topology, other)
        said = f"{topology.name} has no link between {a} and {b}; {a} is joined to {known}"
        raise UsageError(f"--{option} {a}-{b}: {said}")
    return ends


def _pair(topology: Topology, option: str, text: str) -> tuple[int, int]:
    ends = _ends(topology)
    for dash in re.finditer("-", text):
        one, other = text[: dash.start()].strip(), text[dash.end() :].strip()
        if one in ends and other in ends:
            return ends[one], ends[other]
    raise UsageError(f"--{option} {text}: expected two ranks of 0..{topology.ranks - 1}, such as 0-3")
