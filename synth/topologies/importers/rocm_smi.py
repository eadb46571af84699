"""AMD's tools: weights, hops and link types between GPUs, as text and as JSON.

    rocm-smi --showtopo [--json]      tables of GPU0 GPU1 ...; "(Topology) Weight between DRM devices 0 and 1"
    amd-smi topology [--json]         tables of PCI addresses; a list of GPUs, each with its links

Hops are always 1 between GPUs that xGMI joins, directly or not (ROCm/rocm-systems, issue 5763). The weight tells: 15 a
hop. RCCL takes 13, 15 and 41 for direct links (src/misc/rocm_smi_wrap.cc).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from synth.errors import FormatError
from synth.model.documents.file_reader import Fields, Plain, parse_json
from synth.model.rational import show
from synth.model.topology import Topology
from synth.topologies.importers.fabric import XGMI, DumpFabric, Pcie, amd_gpu, topology
from synth.topologies.importers.pasted import AMD_JSON, LINK_CELL, MOST_GPUS, P2P_CELL, json_of, tables

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

MI300X_GBPS, XGMI_GBPS = Fraction(64), Fraction(50)
# RCCL's figures (src/graph/topo.h): PCIe 4.0 x16, and between two sockets of AMD's.
PCIE_GBPS, SOCKET_GBPS = Fraction(24), Fraction(16)
DIRECT = (13, 15, 41)
ACROSS_HIVES = 72
HOP = 15
# MB/s of one link that Linux prints for every GPU since gfx90a until it knew the speed of xGMI (amdgpu_amdkfd.c).
FIXED_MBPS = 50_000
TITLES = {
    "weight": r"Weight between two GPUs|WEIGHT TABLE:",
    "type": r"Link Type between two GPUs|LINK TYPE TABLE:",
    "bandwidth": r"NUMA BW TABLE:",
}
# Tables that tell nothing of links: hops, access, coherency, atomics, DMA.
OTHER_TITLES = r"Hops between two GPUs|(?:HOPS|ACCESS|COHERANCY|COHERENCY|ATOMICS|DMA|BI-DIRECTIONAL) TABLE:"
KINDS = {"weight": r"\d{1,6}|N/A", "type": r"XGMI|PCIE|SELF|UNKNOWN|N/A|0", "bandwidth": r"N/A|\d{1,9}-\d{1,9}"}
MOST_LINKS = 16  # xGMI links between two GPUs

Pair = tuple[int, int]


@dataclass
class _Dump:
    """`values[kind][u, v]`: the text of a table's cell; `homes[u]`: the NUMA node near a GPU."""

    labels: tuple[int, ...]
    values: dict[str, dict[Pair, str]] = field(default_factory=dict)
    homes: dict[int, str] = field(default_factory=dict)


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a dump. Raises FormatError for a table that is missing, cut off or not symmetric."""
    if AMD_JSON.search(text):
        dump = _from_json(parse_json(json_of(text, file), file), file)
    else:
        dump = _from_text(text.split("\n"), file)
    if "type" not in dump.values and "weight" not in dump.values:
        raise FormatError(
            "lacks the tables 'Link Type between two GPUs' and 'Weight between two GPUs' of rocm-smi --showtopo "
            "(amd-smi topology: LINK TYPE TABLE, WEIGHT TABLE)",
            file,
        )
    ranks = len(dump.labels)
    if ranks < 2:
        raise FormatError("lists one GPU; a topology needs at least two", file)
    if ranks > MOST_GPUS:
        raise FormatError(f"has {ranks} GPUs, at most {MOST_GPUS} are supported", file)
    _check(dump, file)
    homeless = [label for u, label in enumerate(dump.labels) if dump.homes and u not in dump.homes]
    if homeless:
        raise FormatError(f"lacks the NUMA node of GPU {homeless[0]} and prints others'; the text is cut off", file)
    fabric = DumpFabric(name, ranks, "xgmi", XGMI_GBPS, labels=dump.labels, nodes=(0,) * ranks)
    # The pairs that xGMI joins directly, with their numbers of links, and notes on those that it does not.
    weights, types = dump.values.get("weight", {}), dump.values.get("type", {})
    bandwidths = dump.values.get("bandwidth", {})
    far, odd, unknown = [], [], set()
    for u, v in combinations(range(ranks), 2):
        pair, weight = f"{dump.labels[u]}-{dump.labels[v]}", weights.get((u, v), "")
        number = int(weight) if weight.isdecimal() else 0
        least, _, most = bandwidths.get((u, v), "").partition("-")
        joined = types[u, v] == "XGMI" if types else number in DIRECT
        if not joined:
            continue
        several = number == ACROSS_HIVES or (number > HOP and number % HOP == 0)
        if several or (most == "0" and number not in DIRECT):
            far.append(pair)
            continue
        if number not in DIRECT:
            unknown.add(weight or "none")

        # Linux adds up the links of a pair in the greater of the two (RCCL counts them so).
        links = Fraction(int(most), int(least)) if most and int(least) else Fraction(0)
        fabric.pairs[u, v] = 1
        if links in range(1, MOST_LINKS + 1) and bandwidths[u, v] == bandwidths.get((v, u)):
            fabric.pairs[u, v] = int(links)
        elif bandwidths:
            odd.append(pair)
    if far:
        fabric.notes.append(
            f"xGMI joins {', '.join(far[:12])}{' ...' if len(far) > 12 else ''} over other GPUs (weight {HOP} a hop; "
            f"hops are printed as 1): no links"
        )
    if unknown:
        which = f"weights {', '.join(sorted(unknown))}" if unknown != {"none"} else "no table of weights"
        fabric.notes.append(
            f"{which}: hops of xGMI are always printed as 1, so each such pair is taken for a link, which is wrong "
            f"where GPUs lie between (MI50, MI250X): rocm-smi --showtopo prints the weights"
        )
    if not types:
        fabric.notes.append(f"the dump has no table of link types: pairs of weight {HOP} are taken for xGMI")
    if odd:
        fabric.notes.append(
            f"the bandwidths of {', '.join(odd[:12])} do not tell how many links there are: one is assumed"
        )
    if not bandwidths:
        fabric.notes.append("the dump prints no number of links: one is assumed for each xGMI pair")
    if fabric.pairs:
        # The bandwidth of a link: given, of the GPU that the text names, as printed, or assumed with a note.
        printed = set()
        for (u, v), cell in dump.values.get("bandwidth", {}).items():
            least = cell.partition("-")[0]
            if (min(u, v), max(u, v)) in fabric.pairs and least.isdecimal() and int(least):
                printed.add(int(least))
        gpu = amd_gpu(text)
        if assumed.gbps_per_link is not None:
            fabric.gbps = assumed.gbps_per_link
        elif gpu in XGMI:
            fabric.gbps = XGMI[gpu]
            fabric.notes.append(f"the text names {gpu}: {show(fabric.gbps)} GB/s each way for one xGMI link")
        elif printed and printed != {FIXED_MBPS}:
            fabric.gbps = Fraction(min(printed), 1000)
            fabric.notes.append(f"{show(fabric.gbps)} GB/s each way for one xGMI link, as printed in MB/s")
        else:
            if fabric.ranks == 8 and len(fabric.pairs) == 28:
                fabric.gbps = MI300X_GBPS
            why = f"the text names {gpu}, which is not known" if gpu else "the dump prints no bandwidth"
            if printed:
                why = "the dump prints 50 GB/s a link, which older drivers print for every GPU"
            fabric.notes.append(
                f"{why}: {show(fabric.gbps)} GB/s each way assumed for one xGMI link; MI355X has 76.8, MI300X 64, "
                f"MI250X 50, MI50 and MI100 24: `synth topo import --gbps-per-link`"
            )
    # A port for each GPU; bridges between NUMA nodes where the dump prints them.
    slot = assumed.pcie_gbps or PCIE_GBPS
    pcie = Pcie([(f"PCIe slot {u}", frozenset([u]), slot) for u in range(ranks)])
    if assumed.pcie_gbps is None:
        pcie.notes.append(
            "PCIe 4.0 x16 assumed, 24 GB/s a slot; `synth topo import --pcie-gbps 12` for 3.0, 48 for 5.0"
        )
    nodes: dict[str, set[int]] = {}
    for u, home in dump.homes.items():
        nodes.setdefault(home, set()).add(u)
    between = min(slot, SOCKET_GBPS)
    for one, other in combinations(sorted(nodes), 2):
        pcie.bridges.append((f"NUMA nodes {one}-{other}", frozenset(nodes[one]), frozenset(nodes[other]), between))
    if len(nodes) > 1:
        pcie.notes.append(f"{show(between)} GB/s assumed between two NUMA nodes")
    elif not nodes:
        pcie.notes.append("the dump prints no NUMA nodes: one is assumed")
    return topology(fabric, pcie)


def _from_text(lines: list[str], file: str) -> _Dump:
    """The tables of a text, by the title above each, and the lines of NUMA nodes."""
    dump, names = _Dump(()), ()
    for table in tables(lines, file):
        title, kind = _title(table.above)
        if kind is None:
            cells = {cell for row in table.cells.values() for cell in row}
            if any(re.fullmatch(rf"(?!X$){LINK_CELL}", cell) for cell in cells):
                raise FormatError("holds a table of nvidia-smi beside AMD's; take one of the two", file, table.line)
            if not all(re.fullmatch(P2P_CELL, cell) for cell in cells):
                raise FormatError(f"has a table below {title[:60]!r}, which is no title of AMD's", file, table.line)
        if kind not in TITLES:
            continue
        if table.others or any(table.rest.values()):
            raise FormatError(f"words stand beside the columns of GPUs in {title[:60]!r}", file, table.line)
        if names and names != table.gpus:
            raise FormatError(f"the table {title[:60]!r} names other GPUs than the one before", file, table.line)
        names = table.gpus
        places = {gpu: i for i, gpu in enumerate(names)}
        values = {}
        for gpu, row in table.cells.items():
            for other, cell in zip(names, row, strict=True):
                values[places[gpu], places[other]] = cell
        if dump.values.setdefault(kind, values) != values:
            raise FormatError(f"has two tables of one kind that differ: {title[:60]!r}", file, table.line)
        dump.labels = tuple(range(len(names)))
        if all(gpu.startswith("GPU") for gpu in names):
            dump.labels = tuple(int(gpu[3:]) for gpu in names)
    for kind, title in TITLES.items():
        if kind not in dump.values and any(re.search(title, line) for line in lines):
            first = title.split("|")[0]
            raise FormatError(f"the table {first!r} has a title and no line that names its GPUs, or is cut", file)
    for line in lines:
        match = re.search(r"GPU\[(\d{1,4})\]\s*:\s*\(Topology\) Numa Node:\s*(-?\d{1,4})", line)
        if match and int(match[1]) in dump.labels:
            place = dump.labels.index(int(match[1]))
            if dump.homes.setdefault(place, match[2]) != match[2]:
                raise FormatError(f"prints two NUMA nodes of GPU {match[1]}", file)
    return dump


def _title(above: tuple[str, ...]) -> tuple[str, str | None]:
    """The title in the lines above a table, which may be wrapped, and the kind of table; None for none of AMD's."""
    choices = [above[-1]] if above else [""]
    if len(above) > 1:
        choices += ["".join(above), " ".join(above)]
    for title in choices:
        for kind, pattern in {**TITLES, "other": OTHER_TITLES}.items():
            if re.search(pattern, title, re.IGNORECASE):
                return title, kind
    return choices[0], None


def _from_json(doc: Any, file: str) -> _Dump:
    """The dump in a parsed document of rocm-smi or amd-smi. Raises FormatError for other documents."""
    fields = Fields(file)
    if isinstance(doc, dict) and isinstance(doc.get("gpu_data"), list):
        doc = doc["gpu_data"]
    if isinstance(doc, list):
        # The dump in amd-smi's list of GPUs, each with a list of links.
        keys = {"weight": "weight", "type": "link_type", "bandwidth": "bandwidth"}
        labels = []
        for i, row in enumerate(fields.sequence(doc, "GPUs", MOST_GPUS)):
            if not isinstance(row, dict) or "gpu" not in row or "links" not in row:
                fields.fail("expected a GPU of amd-smi topology --json, with its 'gpu' and 'links'", f"[{i}]")
            labels.append(fields.integer(row["gpu"], f"[{i}].gpu", 0, 9999))
        if len(set(labels)) < len(labels):
            fields.fail("lists a GPU twice", None)
        dump = _Dump(tuple(labels))
        for u, row in enumerate(doc):
            for j, link in enumerate(fields.sequence(row["links"], f"[{u}].links", MOST_GPUS)):
                place = f"[{u}].links[{j}]"
                if not isinstance(link, dict) or "gpu" not in link:
                    fields.fail("expected a link with its 'gpu'", place)
                number = fields.integer(link["gpu"], f"{place}.gpu", 0, 9999)
                if number not in labels:
                    fields.fail(f"GPU {number} is not in the list; the text is cut off", place)
                for kind, key in keys.items():
                    value = link.get(key)
                    if isinstance(value, Plain | str):
                        dump.values.setdefault(kind, {})[u, labels.index(number)] = str(value)
        return dump
    values: dict[str, dict[Pair, str]] = {}
    system = doc.get("system") if isinstance(doc, dict) else None
    if not isinstance(system, dict):
        raise FormatError("is JSON, and neither of rocm-smi --showtopo nor of amd-smi topology", file)
    for key, value in system.items():
        match = re.fullmatch(r"\(Topology\) (Weight|Link type) between DRM devices (\d{1,4}) and (\d{1,4})", key)
        if match:
            kind = "weight" if match[1] == "Weight" else "type"
            u, v = int(match[2]), int(match[3])
            values.setdefault(kind, {})[u, v] = values.setdefault(kind, {})[v, u] = str(value)
    cards = {int(key[4:]): card for key, card in doc.items() if re.fullmatch(r"card\d{1,4}", key)}
    numbers = sorted({*cards, *(u for pairs in values.values() for u, _ in pairs)})
    dump = _Dump(tuple(numbers))
    place = {number: i for i, number in enumerate(numbers)}
    for kind, pairs in values.items():
        dump.values[kind] = {(place[u], place[v]): value for (u, v), value in pairs.items()}
    for number, card in cards.items():
        home = card.get("(Topology) Numa Node") if isinstance(card, dict) else None
        if isinstance(home, str) and re.fullmatch(r"-?\d{1,4}", home):
            dump.homes[place[number]] = home
    return dump


def _check(dump: _Dump, file: str) -> None:
    """Refuses tables with cells that are missing, of another kind, or not the same both ways."""
    ranks, labels = range(len(dump.labels)), dump.labels
    for kind, values in dump.values.items():
        for u in ranks:
            for v in ranks:
                if u == v:
                    continue
                between = f"{kind} of GPU{labels[u]} to GPU{labels[v]}"
                cell, back = values.get((u, v)), values.get((v, u))
                if cell is None:
                    raise FormatError(f"the {between} is missing; the text is cut off", file)
                if not re.fullmatch(KINDS[kind], cell):
                    raise FormatError(f"the {between} is {cell[:20]!r}, which is none of the tool's words", file)
                if kind != "bandwidth" and back is not None and back != cell:
                    raise FormatError(f"the {between} is {cell}, and back it is {back[:20]}", file)
