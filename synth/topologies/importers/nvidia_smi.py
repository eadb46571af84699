"""`nvidia-smi topo -m`: a matrix of NVLink counts and PCIe distances."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.errors import FormatError
from synth.model.rational import show
from synth.model.topology import Topology
from synth.topologies.importers.fabric import PCIE3_GBPS, SOCKET_GBPS, DumpFabric, Pcie, topology
from synth.topologies.machines import V100_US

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

NVLINK_GBPS = Fraction(25)
P100_GBPS = Fraction(20)
# No GPU has more NVLinks than this; a row that adds up to more counts the links into a switch once for every peer.
MOST_LINKS = 18
# A V100 has this many, and is the one GPU with them of which eight or more stand in a machine.
V100_LINKS = 6
MOST_GPUS = 256
_CELL = re.compile(r"X|NV[1-9]\d?|PIX|PXB|PHB|NODE|SYS|SOC")
_GPU = re.compile(r"GPU(\d{1,4})")
# Words of the header that end the columns of the matrix: CPU Affinity, NUMA Affinity, GPU NUMA ID.
_AFFINITY = {"CPU", "NUMA", "GPU"}

Matrix = list[list[str]]


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a dump. Raises FormatError for a matrix that is cut off, torn or not symmetric."""
    labels, matrix, nics, affinity = _matrix(text.split("\n"), file)
    ranks = len(labels)
    if ranks < 2:
        raise FormatError("lists one GPU; a topology needs at least two", file)
    counts = {
        (u, v): int(matrix[u][v][2:])
        for u in range(ranks)
        for v in range(u + 1, ranks)
        if matrix[u][v].startswith("NV")
    }
    fabric = DumpFabric(name, ranks, "nvlink", NVLINK_GBPS, labels=labels, nodes=(0,) * ranks)
    _links(fabric, counts, assumed.gbps_per_link)
    if nics:
        fabric.notes.append(
            f"NICs in the dump: {', '.join(nics)}; their bandwidth is not printed, so they are left out"
        )
    return topology(fabric, _host(matrix, affinity, assumed.pcie_gbps))


def _matrix(lines: list[str], file: str) -> tuple[tuple[int, ...], Matrix, list[str], list[str]]:
    """Numbers of the GPUs, the matrix among them, the names of NICs, and the CPUs near each GPU ("" where not
    printed)."""
    head = next((i for i, line in enumerate(lines) if _is_header(line.split())), None)
    if head is None:
        raise FormatError("holds no header line GPU0 GPU1 ...", file)
    columns: list[str] = []
    for word in lines[head].split():
        if word in _AFFINITY:
            break
        columns.append(word)
    gpus = [c for c in columns if _GPU.fullmatch(c)]
    if len(set(columns)) < len(columns):
        raise FormatError("names a column twice", file, head + 1)
    if len(gpus) > MOST_GPUS:
        raise FormatError(f"has {len(gpus)} GPUs, at most {MOST_GPUS} are supported", file, head + 1)
    rows: dict[str, tuple[int, list[str]]] = {}
    near: dict[str, str] = {}
    for number, line in enumerate(lines[head + 1 :], head + 2):
        words = line.split()
        if not words or words[0] not in gpus:
            continue
        if words[0] in rows:
            raise FormatError(f"gives the row {words[0]} twice", file, number)
        cells = words[1 : len(columns) + 1]
        if len(cells) < len(columns):
            raise FormatError(
                f"the row {words[0]} has {len(cells)} of {len(columns)} columns; the text is cut off", file, number
            )
        near[words[0]] = "".join(words[len(columns) + 1 : len(columns) + 2])
        rows[words[0]] = number, [cell for column, cell in zip(columns, cells, strict=True) if column in gpus]
    for gpu in gpus:
        if gpu not in rows:
            raise FormatError(f"has no row for {gpu}; the text is cut off", file, len(lines))
    for i, gpu in enumerate(gpus):
        _check_row(i, gpus, rows, file, rows[gpu][0])
    legend = dict(re.findall(r"(?m)^\s*(NIC\d+):\s*(\S+)\s*$", "\n".join(lines)))
    nics = [legend.get(c, c) for c in columns if c not in gpus]
    numbers = [_GPU.fullmatch(gpu) for gpu in gpus]
    indices = tuple(int(m[1]) for m in numbers if m)
    matrix = [rows[gpu][1] for gpu in gpus]
    return indices, matrix, nics, [near[gpu] for gpu in gpus]


def _is_header(words: list[str]) -> bool:
    """True if the line names columns: GPU0, then no cell of a matrix."""
    return bool(words) and bool(_GPU.fullmatch(words[0])) and not any(_CELL.fullmatch(w) for w in words[1:2])


def _check_row(i: int, gpus: list[str], rows: dict[str, tuple[int, list[str]]], file: str, line: int) -> None:
    for j, cell in enumerate(rows[gpus[i]][1]):
        if not _CELL.fullmatch(cell) or (cell == "X") != (i == j):
            raise FormatError(
                f"{gpus[i]} to {gpus[j]}: {cell[:20]!r} is not one of NV#, PIX, PXB, PHB, NODE, SYS (X: itself)",
                file,
                line,
            )
        back = rows[gpus[j]][1][i]
        if back != cell:
            raise FormatError(f"{gpus[i]} to {gpus[j]} is {cell}, and back it is {back[:20]}", file, line)


def _links(fabric: DumpFabric, counts: dict[tuple[int, int], int], gbps: Fraction | None) -> None:
    """Sets links or switch ports from the NV# of all pairs, and the bandwidth of a link."""
    ranks = fabric.ranks
    sums, widest = [0] * ranks, [0] * ranks  # NVLinks of a GPU: in all, and to one other
    for pair, count in counts.items():
        for u in pair:
            sums[u] += count
            widest[u] = max(widest[u], count)
    switched = max(sums) > MOST_LINKS
    if switched:
        fabric.ports = {u: widest[u] for u in range(ranks) if sums[u]}
        most = max(fabric.ports.values())
        fabric.notes.append(
            f"the NVLinks of a GPU to all others add up to {max(sums)}, more than the {MOST_LINKS} that it can have: "
            f"taken for an NVSwitch, {most} links a GPU"
        )
    else:
        fabric.pairs = counts
    if gbps is not None:
        fabric.gbps = gbps
    elif ranks == 8 and set(sums) == {4} and set(counts.values()) == {1}:
        fabric.gbps = P100_GBPS
        fabric.notes.append("four single NVLinks on each of eight GPUs: taken for P100, 20 GB/s a link")
    elif counts:
        fabric.notes.append(
            f"the dump prints no NVLink bandwidth: {show(fabric.gbps)} GB/s a link assumed (V100, A100, H100)"
        )
    each = set(fabric.ports.values()) if switched else set(sums)
    if ranks >= 8 and each == {V100_LINKS}:
        fabric.latency = V100_US
    if switched and fabric.gbps * max(fabric.ports.values()) >= 450:
        fabric.multicast = True


def _host(matrix: Matrix, affinity: list[str], gbps: Fraction | None) -> Pcie:
    """A port for each GPU, a shared one for those behind one PCIe switch, and a bridge between each two sockets.

    NV# hides how far two GPUs are over PCIe: they are taken to share a socket if they share their CPUs.
    """
    slot, ranks = gbps or PCIE3_GBPS, len(matrix)
    pcie = Pcie([(f"PCIe slot {u}", frozenset([u]), slot) for u in range(ranks)])
    same_switch, same_socket = [], []
    for u, row in enumerate(matrix):
        same_switch.append([cell in ("PIX", "PXB") for cell in row])
        near = []
        for v, cell in enumerate(row):
            beside = cell.startswith("NV") and affinity[u] == affinity[v]
            near.append(beside or cell in ("PIX", "PXB", "PHB", "NODE"))
        same_socket.append(near)
    behind = _classes(same_switch)
    pcie.groups += [(f"PCIe switch {i}", members, slot) for i, members in enumerate(behind) if len(members) > 1]
    sockets = _classes(same_socket)
    for i, one in enumerate(sockets):
        for j in range(i + 1, len(sockets)):
            pcie.bridges.append((f"sockets {i}-{j}", one, sockets[j], min(slot, SOCKET_GBPS)))
    return pcie


def _classes(near: list[list[bool]]) -> list[frozenset[int]]:
    """The classes of GPUs that `near` joins."""
    part = list(range(len(near)))
    for u, row in enumerate(near):
        for v, joined in enumerate(row):
            if joined and part[u] != part[v]:
                old, new = max(part[u], part[v]), min(part[u], part[v])
                for rank, p in enumerate(part):
                    part[rank] = new if p == old else p
    classes: dict[int, set[int]] = {}
    for u, p in enumerate(part):
        classes.setdefault(p, set()).add(u)
    return [frozenset(classes[p]) for p in sorted(classes)]
