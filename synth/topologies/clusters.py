"""Any machine or family times a number of boxes."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import accumulate, pairwise, repeat
from math import prod
from operator import mul
from typing import TYPE_CHECKING

from synth.errors import UsageError
from synth.model.gc_pause import collector_off
from synth.model.permutations import Permutation, symmetric_group
from synth.model.rational import rational
from synth.model.topology import Limit, Link, Multicast, Topology
from synth.topologies.builders import (
    LARGE,
    MAX_LINKS,
    MAX_RANKS,
    Nic,
    duplex,
    port_limits,
    table_limits,
    with_generators,
)

if TYPE_CHECKING:
    from synth.model.link_table import LinkTable

OPTIONS = {
    "cross": "ranks of a box wired to their like in the next box, one unit each way, such as 0+2+5+7; no NICs",
    "net": "which pairs across boxes the network joins: all, rail (equal numbers) or odd-even (equal parity)",
    "net-latency": "µs from GPU to GPU between boxes below one switch",
    "nic": "GB/s of a NIC, each way",
    "nics": "NICs per box",
    "over": "oversubscription of each tier: bandwidth from below to bandwidth upwards, such as 2 or 2x4 (1)",
    "pod": "boxes below a leaf switch, and leaf switches below a spine switch: 4 for two tiers, 4x2 for three",
}
# From port to port of a switch above the leaves: under 150 ns on a Quantum-2 QM9700 (a reseller's page,
# router-switch.com/faq/nvidia-quantum-2-qm9700-vs-spectrum-4-sn5400.html; others give up to 330 ns).
SWITCH_US = Fraction(3, 20)
TIERS = ("leaf", "spine", "core")


@collector_off()
def cluster(box: Topology, boxes: int, nic: Nic, options: dict[str, str], name: str) -> Topology:
    """`boxes` copies of `box`, rank r of box b becoming b·ranks + r.

    With `cross`, the listed ranks are wired to their like in the next box, boxes in a ring. With `pod`, NICs end at the
    leaf switches of a tree of two or three tiers, whose uplinks `over` narrows. Otherwise every pair of ranks in
    different boxes that `net` joins is a link of one NIC's bandwidth, and what the ranks of a NIC send, and what they
    receive, is limited by it; `odd-even` is ForestColl's pair of switches (arXiv 2402.06787). Raises UsageError.
    """
    size = box.ranks
    if boxes < 2 or boxes * size > MAX_RANKS:
        raise UsageError(f"{name}: between 2 boxes and {MAX_RANKS} ranks in all are supported")
    links, limits = _copies(box, boxes)
    table: LinkTable | None = None
    switches = [f"box{b}.{s}" for b in range(boxes) for s in box.switches]
    pods = [] if "cross" in options else _pods(options, boxes, name)
    if "cross" in options:
        for key in [key for key in options if key != "cross"]:
            raise UsageError(f"{name}: cross= means wires instead of a network; remove {key}=")
        text = options["cross"]
        parts = text.split("+")
        members = [int(part) for part in parts if part.isdecimal() and len(part) < 6]
        if len(set(members)) < len(parts) or max(members) >= size:
            raise UsageError(
                f"{name}: cross={text} must be distinct ranks of 0..{size - 1} joined by +, such as cross=0+2"
            )
        latency = max((k.latency for k in box.links), default=Fraction(0))
        kind = box.links[0].kind if box.links else "unknown"
        for b in range(boxes if boxes > 2 else 1):  # two boxes have one pair
            wired = [(b * size + m, (b + 1) % boxes * size + m) for m in members]
            links += duplex(wired, box.unit_bandwidth(), latency, kind)
    elif pods:
        if "net" in options:
            raise UsageError(f"{name}: pod= joins all ranks through its switches; remove net=")
        tree, ports = _tree(links, len(switches), boxes, _chosen(nic, options, size, name), size, pods)
        if len(links) > MAX_LINKS:
            raise UsageError(f"{name} has more than {MAX_LINKS} links; ask for fewer boxes")
        switches += tree
        limits += ports
    else:
        nic = _chosen(nic, options, size, name)
        table, ports = _network(links, box, boxes, nic, options.get("net", "all"), name)
        limits += ports
    ends = boxes * size
    nodes = tuple(b * (max(box.nodes, default=0) + 1) + n for b in range(boxes) for n in (box.nodes or (0,) * size))
    multicast = []
    for b in range(boxes):
        for switch in box.multicast:
            ranks = tuple(b * size + rank for rank in switch.ranks)
            multicast.append(Multicast(f"box{b}.{switch.switch}", ranks, switch.own))
    whole = Topology(
        name,
        ends,
        tuple(links) if table is None else table,
        tuple(limits),
        tuple(switches),
        nodes,
        box.connection,
        (),
        (),
        box.notes,
        tuple(multicast),
    )
    return with_generators(whole, _candidates(box, boxes, options, [below for below, _ in pods]))


def _copies(box: Topology, boxes: int) -> tuple[list[Link], list[Limit]]:
    size, ranks = box.ranks, boxes * box.ranks
    links, limits = [], []
    for b in range(boxes):

        def end(e: int, b: int = b) -> int:
            return b * size + e if e < size else ranks + b * len(box.switches) + e - size

        start = len(links)
        links += [Link(end(k.src), end(k.dst), k.bandwidth, k.latency, k.kind) for k in box.links]
        for limit in box.limits:
            members = tuple(start + i for i in limit.links)
            limits.append(Limit(f"box {b} {limit.name}", members, limit.bandwidth))
    return links, limits


def _chosen(nic: Nic, options: dict[str, str], size: int, name: str) -> Nic:
    (bandwidth,) = _numbers(options, "nic", [nic.bandwidth], name)
    (latency,) = _numbers(options, "net-latency", [nic.latency], name)
    count = nic.count or size
    if bandwidth <= 0:
        raise UsageError(f"{name}: nic={options['nic']} must be positive")
    if latency < 0:
        raise UsageError(f"{name}: net-latency={options['net-latency']} must not be negative")
    if "nics" in options:
        text = options["nics"]
        count = int(text) if text.isdecimal() and len(text) < 6 else 0
        if not count or size % count:
            raise UsageError(f"{name}: nics={text} must divide the {size} ranks of a box")
    return Nic(bandwidth, latency, count)


def _numbers(options: dict[str, str], key: str, default: list[Fraction], name: str) -> list[Fraction]:
    """Return the numbers of an option, joined by x, as many as `default` has."""
    if key not in options:
        return default
    try:
        values = [rational(part) for part in options[key].split("x")]
    except ValueError as error:
        raise UsageError(f"{name}: {key}: {error}") from None
    if len(values) != len(default):
        raise UsageError(f"{name}: {key}={options[key]} has {len(values)} numbers instead of {len(default)}")
    return values


def _pods(options: dict[str, str], boxes: int, name: str) -> list[tuple[int, Fraction]]:
    """Return for each tier of switches but the top one the boxes or switches below each, and the oversubscription."""
    if "pod" not in options:
        if "over" in options:
            raise UsageError(f"{name}: over= is of the tiers that pod= makes; say pod= too, such as pod=2")
        return []
    parts = options["pod"].split("x")
    sizes = [int(part) for part in parts if part.isdecimal() and len(part) < 6]
    whole = prod(sizes)
    if len(sizes) < len(parts) or len(parts) >= len(TIERS) or not whole or boxes % whole or boxes == whole:
        raise UsageError(
            f"{name}: pod={options['pod']} must be one or two numbers whose product divides the {boxes} boxes into two "
            f"parts or more"
        )
    over = _numbers(options, "over", [Fraction(1)] * len(sizes), name)
    if min(over) < 1:
        raise UsageError(f"{name}: over={options['over']} must be at least 1")
    return list(zip(sizes, over, strict=True))


def _tree(
    links: list[Link], numbered: int, boxes: int, nic: Nic, size: int, pods: list[tuple[int, Fraction]]
) -> tuple[list[str], list[Limit]]:
    """Append to `links` those from the ranks to the leaf switches and between switches; each switch has one uplink.

    `numbered` switches exist already. The uplink stands for as many spine or core switches as there are: what crosses
    them may be divided at will. Returns the names of the new switches and the limits of NICs that ranks share.
    """
    ranks, start = boxes * size, len(links)
    first, width = ranks + numbered, pods[0][0] * nic.count * nic.bandwidth
    count = boxes // pods[0][0]
    share = size // nic.count
    links += duplex([(r, first + r * count // ranks) for r in range(ranks)], nic.bandwidth, nic.latency / 2, "net")
    limits = []
    for g in range(ranks // share if share > 1 else 0):
        for way, to in (("out", 0), ("in", 1)):
            members = tuple(start + 2 * r + to for r in range(g * share, (g + 1) * share))
            limits.append(Limit(f"NIC {g} {way}", members, nic.bandwidth))
    names = [f"{TIERS[0]}{i}" for i in range(count)]
    for tier, (_, over) in enumerate(pods):
        parts = pods[tier + 1][0] if tier + 1 < len(pods) else count
        width /= over
        links += duplex([(first + i, first + count + i // parts) for i in range(count)], width, SWITCH_US, "net")
        width, first, count = width * parts, first + count, count // parts
        names += [f"{TIERS[tier + 1]}{i}" for i in range(count)]
    return names, limits


def _network(
    links: list[Link], box: Topology, boxes: int, nic: Nic, net: str, name: str
) -> tuple[LinkTable | None, list[Limit]]:
    """Appends the links across boxes to `links`, or makes a table of them all where they are many; and the limits of
    the NICs."""
    size, start = box.ranks, len(links)
    numbers = range(size)
    joined: dict[str, list[range]] = {
        "all": [numbers] * size,
        "rail": [range(i, i + 1) for i in numbers],
        "odd-even": [range(i % 2, size, 2) for i in numbers],
    }
    if net not in joined:
        raise UsageError(f"{name}: net={net} is none of all, rail and odd-even")
    peers = joined[net]
    count = start + boxes * (boxes - 1) * sum(map(len, peers))
    if count > MAX_LINKS:
        raise UsageError(f"{name} has more than {MAX_LINKS} links; ask for fewer boxes, or net=rail")
    share = size // nic.count
    if count > LARGE:
        table = _table(links, peers, boxes, nic)
        return table, table_limits(table, boxes * size, share, nic.bandwidth, "NIC", start)
    for b in range(boxes):
        others = [c * size for c in range(boxes) if c != b]
        for i in numbers:
            far = [first + j for first in others for j in peers[i]]
            links += map(Link, repeat(b * size + i), far, repeat(nic.bandwidth), repeat(nic.latency), repeat("net"))
    groups = [range(r, r + share) for r in range(0, boxes * size, share)]
    return None, port_limits(links, groups, nic.bandwidth, "NIC", start)


def _table(inside: list[Link], peers: list[range], boxes: int, nic: Nic) -> LinkTable:
    """The links of the boxes, then those across: from every rank, box by box, to the peers of its number in each other
    box."""
    import numpy as np

    from synth.model.link_table import LinkTable, Sort

    own = LinkTable.of(inside)
    sources, targets = [own.src], [own.dst]
    for b in range(boxes):
        others = np.delete(np.arange(boxes), b)[:, None] * len(peers)
        for i, near in enumerate(peers):
            targets.append((others + np.array(near)).reshape(-1))
            sources.append(np.full(len(targets[-1]), b * len(peers) + i))
    src, dst = np.concatenate(sources), np.concatenate(targets)
    sort = np.concatenate([own.sort, np.full(len(src) - len(own.sort), len(own.sorts))])
    return LinkTable(src, dst, sort, [*own.sorts, Sort(nic.bandwidth, nic.latency, "net")])


def _candidates(box: Topology, boxes: int, options: dict[str, str], pods: list[int]) -> Iterator[Permutation]:
    """Permutations of a cluster that are likely automorphisms: of the boxes or pods, of all boxes alike, of one box, of
    the parities."""
    size, ranks = box.ranks, boxes * box.ranks

    def shuffled(order: list[int]) -> Permutation:
        return tuple(b * size + i for b in order for i in range(size))

    def alike(pi: Permutation) -> Permutation:
        return tuple(b * size + p for b in range(boxes) for p in pi)

    if "cross" in options:
        yield shuffled([(b + 1) % boxes for b in range(boxes)])
        yield shuffled([-b % boxes for b in range(boxes)])
    else:
        for small, large in pairwise([*accumulate(pods, mul, initial=1), boxes]):
            for pi in symmetric_group(range(large // small), large // small):
                yield shuffled([*(p * small + i for p in pi for i in range(small)), *range(large, boxes)])
    inner = list(box.generators)
    if options.get("net") == "odd-even":
        inner += [*symmetric_group(range(0, size, 2), size), *symmetric_group(range(1, size, 2), size)]
        if size % 2 == 0:
            inner.append(tuple(i ^ 1 for i in range(size)))
    if "cross" in options:
        wired = sorted(int(m) for m in options["cross"].split("+"))
        inner += [*symmetric_group(wired, size), *symmetric_group([i for i in range(size) if i not in wired], size)]
    for pi in inner:
        yield alike(pi)
        yield (*pi, *range(size, ranks))
