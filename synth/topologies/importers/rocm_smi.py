"""`rocm-smi --showtopo`: tables of weights, hops and link types between GPUs."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.errors import FormatError
from synth.model.rational import show
from synth.model.topology import Topology
from synth.topologies.importers.fabric import DumpFabric, Pcie, topology

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

MOST_GPUS = 256
MI300X_GBPS, XGMI_GBPS = Fraction(64), Fraction(50)
# RCCL's figures (src/graph/topo.h): PCIe 4.0 x16, and between two sockets of AMD's.
PCIE_GBPS, SOCKET_GBPS = Fraction(24), Fraction(16)
TABLES = {"weight": "Weight between two GPUs", "hops": "Hops between two GPUs", "type": "Link Type between two GPUs"}
# One xGMI link between neighbours; 72 is xGMI by way of another hive, 40 PCIe within a socket.
NEAR_WEIGHT = "15"

Table = list[list[str]]


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a dump. Raises FormatError for a table that is missing, cut off or not symmetric."""
    lines = text.split("\n")
    tables, labels = {}, ()
    for key, title in TABLES.items():
        found = _table(lines, title, file)
        if found is not None:
            if labels and found[0] != labels:
                raise FormatError(f"the table {title!r} names other GPUs than the one before", file)
            labels, tables[key] = found
    if "type" not in tables and "weight" not in tables:
        raise FormatError(
            "lacks the tables 'Link Type between two GPUs' and 'Weight between two GPUs' of rocm-smi --showtopo", file
        )
    ranks = len(labels)
    if ranks < 2:
        raise FormatError("lists one GPU; a topology needs at least two", file)
    pairs = [(u, v) for u in range(ranks) for v in range(u + 1, ranks)]
    near = [pair for pair in pairs if _is_near(tables, *pair)]
    gbps = assumed.gbps_per_link or (MI300X_GBPS if ranks == 8 and len(near) == len(pairs) else XGMI_GBPS)
    fabric = DumpFabric(name, ranks, "xgmi", gbps, dict.fromkeys(near, 1), labels=labels, nodes=(0,) * ranks)
    if near:
        fabric.notes.append(
            f"the dump prints neither bandwidth nor number of links: one of {show(gbps)} GB/s for each xGMI pair"
        )
    return topology(fabric, _host(lines, labels, assumed.pcie_gbps or PCIE_GBPS))


def _table(lines: list[str], title: str, file: str) -> tuple[tuple[int, ...], Table] | None:
    """Numbers of the GPUs and cells of the table under `title`, None where there is none."""
    start = next((i for i, line in enumerate(lines) if title.lower() in line.lower()), None)
    if start is None:
        return None
    columns = lines[start + 1].split() if start + 1 < len(lines) else []
    if not columns or not all(re.fullmatch(r"GPU\d{1,4}", c) for c in columns) or len(set(columns)) < len(columns):
        raise FormatError(f"expected a line GPU0 GPU1 ... under {title!r}", file, start + 2)
    if len(columns) > MOST_GPUS:
        raise FormatError(f"has {len(columns)} GPUs, at most {MOST_GPUS} are supported", file, start + 2)
    cells = []
    for i, column in enumerate(columns):
        at = start + 2 + i
        words = lines[at].split() if at < len(lines) else []
        if len(words) != len(columns) + 1 or words[0] != column:
            raise FormatError(
                f"expected the row {column} with {len(columns)} columns in {title!r}; is the text cut off?",
                file,
                at + 1,
            )
        cells.append(words[1:])
    for i, row in enumerate(cells):
        for j, cell in enumerate(row):
            if i != j and not re.fullmatch(r"\d{1,6}|XGMI|PCIE", cell):
                raise FormatError(
                    f"{columns[i]} to {columns[j]}: {cell[:20]!r} is no number, XGMI or PCIE", file, start + 3 + i
                )
            if cells[j][i] != cell:
                raise FormatError(
                    f"{columns[i]} to {columns[j]} is {cell}, and back it is {cells[j][i][:20]}", file, start + 3 + i
                )
    return tuple(int(c[3:]) for c in columns), cells


def _is_near(tables: dict[str, Table], u: int, v: int) -> bool:
    """True if the two are joined by xGMI without another GPU between them."""
    if "type" in tables and tables["type"][u][v] != "XGMI":
        return False
    if "hops" in tables and "type" in tables:
        return tables["hops"][u][v] == "1"
    return tables["weight"][u][v] == NEAR_WEIGHT if "weight" in tables else True


def _host(lines: list[str], labels: tuple[int, ...], slot: Fraction) -> Pcie:
    """A port for each GPU; bridges between NUMA nodes where the dump prints them."""
    pcie = Pcie([(f"PCIe slot {u}", frozenset([u]), slot) for u in range(len(labels))])
    homes: dict[str, set[int]] = {}
    for line in lines:
        found = re.match(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\) Numa Node:\s*(\d{1,4})", line.strip())
        if found and int(found[1]) in labels:
            homes.setdefault(found[2], set()).add(labels.index(int(found[1])))
    names = sorted(homes)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            pcie.bridges.append(
                (f"NUMA nodes {one}-{other}", frozenset(homes[one]), frozenset(homes[other]), min(slot, SOCKET_GBPS))
            )
    return pcie
