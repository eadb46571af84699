"""`nvidia-smi topo -m`: a matrix of NVLink counts and PCIe distances."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from synth.errors import FormatError
from synth.model.graphs import components
from synth.model.rational import show
from synth.model.topology import Topology
from synth.topologies.importers.fabric import PCIE3_GBPS, SOCKET_GBPS, DumpFabric, Pcie, topology
from synth.topologies.importers.pasted import LINK_CELL, P2P_CELL, tables
from synth.topologies.machines import V100_US

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

NVLINK_GBPS = Fraction(25)
P100_GBPS = Fraction(20)
# No GPU has more NVLinks than this; a row that adds up to more counts the links into a switch once for every peer.
MOST_LINKS = 18
# Boards that join three GPUs or more directly join four or eight: each GPU has links to three others at least.
LEAST_PEERS = 3
# A V100 has this many, and is the one GPU with them of which eight or more stand in a machine.
V100_LINKS = 6
# Names in texts that name the GPUs (nvidia-smi -L, collect_env): GB/s of one NVLink each way, NVLinks of a GPU.
MODELS = {
    r"P100": (P100_GBPS, 4),
    r"V100": (Fraction(25), V100_LINKS),
    r"A100": (Fraction(25), 12),
    r"A30": (Fraction(25), 4),
    r"A800|H800": (Fraction(25), 8),
    r"H100|H200|H20|GH200": (Fraction(25), 18),
    r"G?B200|G?B300": (Fraction(50), 18),
    r"A40|A[456]000|A[45]500|3090(?: Ti)?": (Fraction("14.0625"), 4),
}

Matrix = list[tuple[str, ...]]


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a dump. Raises FormatError for a matrix that is cut off, torn or not symmetric."""
    # The table of links among those of a text, and notes on the others.
    found = tables(text.split("\n"), file)
    if not found:
        raise FormatError("holds no header line GPU0 GPU1 ...", file)
    table, notes = None, []
    for other in found:
        row = other.cells[other.gpus[0]]
        if len(row) > 1 and all(re.fullmatch(P2P_CELL, cell) for cell in row):
            notes.append(f"line {other.line} begins a table of another kind (such as topo -p2p), which is left out")
            continue
        for gpu in other.gpus:
            for peer, cell in zip(other.gpus, other.cells[gpu], strict=True):
                if not re.fullmatch(LINK_CELL, cell) or (cell == "X") != (gpu == peer):
                    raise FormatError(
                        f"{gpu} to {peer}: {cell[:20]!r} is not one of NV#, PIX, PXB, PHB, NODE, SYS (X: itself)",
                        file,
                        other.lines[gpu],
                    )
                back = other.cells[peer][other.gpus.index(gpu)]
                if back != cell:
                    raise FormatError(f"{gpu} to {peer} is {cell}, and back it is {back[:20]}", file, other.lines[gpu])
        if table is None:
            table = other
        elif (table.gpus, table.cells) == (other.gpus, other.cells):
            notes.append(f"line {other.line} begins the same table again, which is left out")
        else:
            raise FormatError(f"holds two tables that differ, from lines {table.line} and {other.line}", file)
    if table is None:
        raise FormatError("holds no table of links, which `nvidia-smi topo -m` prints", file, found[0].line)
    ranks = len(table.gpus)
    if not all(gpu.startswith("GPU") for gpu in table.gpus):
        raise FormatError("names its GPUs by PCI addresses, and its links as nvidia-smi does, which says GPU0", file)
    if ranks < 2:
        raise FormatError("lists one GPU; a topology needs at least two", file)
    matrix = [table.cells[gpu] for gpu in table.gpus]
    pairs = combinations(range(ranks), 2)
    counts = {(u, v): int(matrix[u][v][2:]) for u, v in pairs if matrix[u][v].startswith("NV")}
    labels = tuple(int(gpu[3:]) for gpu in table.gpus)
    fabric = DumpFabric(name, ranks, "nvlink", NVLINK_GBPS, labels=labels, nodes=(0,) * ranks, notes=notes)
    # The GPUs that the text names, as `nvidia-smi -L` and collect_env print them: GPU 0: NVIDIA B200.
    names = re.findall(r"(?m)\bGPU[ \t]+\d{1,4}:[ \t]+([^\n(]{2,60}?)[ \t]*(?:\(|$)", text)
    names += re.findall(r"(?m)\|\s+\d{1,3}\s+((?:NVIDIA|Tesla|Quadro) [^|\n]{2,40}?)\s{2,}(?:On|Off)\s*\|", text)
    _links(fabric, counts, {" ".join(name.split()) for name in names}, assumed.gbps_per_link, file)
    if table.others:
        legend = dict(re.findall(r"(?m)\b(NIC\d+):\s*(\S+)\s*$", text))
        nics = [legend.get(nic, nic) for nic in table.others]
        fabric.notes.append(
            f"NICs in the dump: {', '.join(nics)}; their bandwidth is not printed, so they are left out"
        )
    if len(set(labels)) == ranks and max(labels) >= ranks:
        fabric.notes.append(f"the dump has {ranks} of the GPUs 0 to {max(labels)}: {', '.join(map(str, labels))}")
    # A port for each GPU, shared ones for those behind one PCIe switch or bridge, a bridge between each two
    # sockets.
    slot = assumed.pcie_gbps or PCIE3_GBPS
    pcie = Pcie([(f"PCIe slot {u}", frozenset([u]), slot) for u in range(ranks)])
    if assumed.pcie_gbps is None:
        pcie.notes.append(
            "PCIe 3.0 x16 assumed, 12 GB/s a slot; `synth topo import --pcie-gbps 24` for 4.0, 48 for 5.0"
        )
    # What leaves GPUs under one switch (PIX) shares its port, and so does what leaves switches under one (PXB).
    ports: dict[frozenset[int], None] = {}
    for words in (("PIX",), ("PIX", "PXB")):
        for members in _classes(_among(matrix, words)):
            if len(members) > 1:
                ports[members] = None
    pcie.groups += [(f"PCIe switch {i}", members, slot) for i, members in enumerate(ports)]
    near = _among(matrix, ("PIX", "PXB", "PHB", "NODE"))
    part = {u: members for members in _classes(near) for u in members}
    *others, last = (len(table.rest[gpu].split()) for gpu in table.gpus)
    if others and last < min(others) == max(others):
        raise FormatError(f"the row {table.gpus[-1]} ends before columns that all others have: it is cut off", file)
    cpus = [table.rest[gpu].split(" ")[0] for gpu in table.gpus]
    printed = bool(re.search(r"CPU\s+Affinity", table.head)) and all(cpus)
    guessed = False
    for u, row in enumerate(matrix):
        for v, cell in enumerate(row):
            apart = any(matrix[a][b] in ("SYS", "SOC") for a in part[u] for b in part[v])
            if cell.startswith("NV") and part[u] != part[v] and not apart and (not printed or cpus[u] == cpus[v]):
                near[u][v] = True
                guessed = guessed or not printed
    if any(cell.startswith("NV") for row in matrix for cell in row):
        pcie.notes.append("NV# hides PCIe switches: GPUs that NVLink joins are taken to share none with each other")
    if guessed:
        pcie.notes.append("no CPU affinity is printed: GPUs that NVLink joins are taken to share a socket")
    sockets = _classes(near)
    between = min(slot, SOCKET_GBPS)
    for i, j in combinations(range(len(sockets)), 2):
        pcie.bridges.append((f"sockets {i}-{j}", sockets[i], sockets[j], between))
    if len(sockets) > 1:
        pcie.notes.append(f"{show(between)} GB/s assumed between two sockets")
    return topology(fabric, pcie)


def _links(
    fabric: DumpFabric, counts: dict[tuple[int, int], int], models: set[str], gbps: Fraction | None, file: str
) -> None:
    """Sets links or switch ports from the NV# of all pairs, and the bandwidth of a link."""
    if not counts:
        return
    ranks = fabric.ranks
    known = {name: value for name in models for key, value in MODELS.items() if re.search(rf"\b(?:{key})\b", name)}
    most = MOST_LINKS
    if known and len(known) == len(models):
        most = max(links for _, links in known.values())
    # NVLinks of a GPU in all.
    sums = [0] * ranks
    near = [[False] * ranks for _ in range(ranks)]
    for (u, v), count in counts.items():
        sums[u] += count
        sums[v] += count
        near[u][v] = True
    for members in _classes(near):
        inside = {pair: count for pair, count in counts.items() if pair[0] in members}
        if inside:
            _part(fabric, members, inside, most, not models, file)
    values = {value for value, _ in known.values()}
    if gbps is not None:
        fabric.gbps = gbps
    elif known and len(known) == len(models):
        fabric.gbps = min(values)
        fabric.notes.append(f"the text names {', '.join(sorted(models))}: {show(fabric.gbps)} GB/s a link each way")
    elif not models and ranks == 8 and set(sums) == {4} and set(counts.values()) == {1}:
        fabric.gbps = P100_GBPS
        fabric.notes.append("four single NVLinks on each of eight GPUs: taken for P100, 20 GB/s a link")
    else:
        why = f"the text names {', '.join(sorted(models))[:80]}, whose NVLink is not known" if models else ""
        fabric.notes.append(
            f"{why or 'the dump prints no NVLink bandwidth'}: {show(fabric.gbps)} GB/s a link assumed (V100, A100, "
            f"H100); `synth topo import --gbps-per-link 50` for B200"
        )
    each = set(fabric.ports.values()) if fabric.ports else set(sums)
    if ranks >= 8 and each == {V100_LINKS}:
        fabric.latency = V100_US
    if fabric.ports and fabric.gbps * max(fabric.ports.values()) >= 450:
        fabric.multicast = True


def _part(
    fabric: DumpFabric, members: frozenset[int], counts: dict[tuple[int, int], int], most: int, unnamed: bool, file: str
) -> None:
    """Sets the links of GPUs that NV# joins, or those into a switch where they are more than the `most` of a GPU.

    Raises FormatError for GPUs on a switch with fewer links between them than both have.
    """
    sums, widest = dict.fromkeys(members, 0), dict.fromkeys(members, 0)
    for pair, count in counts.items():
        for u in pair:
            sums[u] += count
            widest[u] = max(widest[u], count)
    # Three GPUs or more with one number of links everywhere are a part of a larger board, or hang on a switch.
    links, needed = max(widest.values()), max(sums.values())
    whole = 2 * len(counts) == len(members) * (len(members) - 1)
    uniform = len(members) >= LEAST_PEERS and whole and set(counts.values()) == {links}
    what = f"the NVLinks of a GPU to all others add up to {needed}"
    if uniform and links * LEAST_PEERS > needed:
        needed = links * LEAST_PEERS
        what = f"NV{links} on four GPUs (the least board without switches) would be {needed} a GPU"
    if needed <= most:
        fabric.pairs |= counts
        note = (
            f"NV{links} between all GPUs is taken for {links} links a pair, as four H100 have; on V100 with NVSwitches "
            f"it is {links} a GPU"
        )
        if uniform and unnamed and links == V100_LINKS and note not in fabric.notes:
            fabric.notes.append(note)
        return
    for u in members:
        fabric.ports[u], fabric.switch[u] = widest[u], min(members)
        for v in members:
            between = counts.get((min(u, v), max(u, v)), 0)
            if u != v and between != min(widest[u], widest[v]):
                raise FormatError(
                    f"GPU{fabric.labels[u]} and GPU{fabric.labels[v]} have {between} NVLinks between them, where links "
                    f"into one switch would give {min(widest[u], widest[v])}",
                    file,
                )
    note = f"{what}, more than the {most} that it can have: taken for an NVSwitch, {links} links a GPU"
    if note not in fabric.notes:
        fabric.notes.append(note)


def _among(matrix: Matrix, words: tuple[str, ...]) -> list[list[bool]]:
    """True for the pairs whose cell is one of `words`."""
    return [list(map(words.__contains__, row)) for row in matrix]


def _classes(near: list[list[bool]]) -> list[frozenset[int]]:
    """The classes of GPUs that `near` joins."""
    classes: dict[int, list[int]] = {}
    joined = [(u, v) for u, row in enumerate(near) for v, one in enumerate(row) if one]
    for u, least in components(range(len(near)), joined).items():
        classes.setdefault(least, []).append(u)
    return [frozenset(members) for members in classes.values()]
