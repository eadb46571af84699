"""The topology XML of NCCL and RCCL: cpu > pci > ... > gpu > nvlink or xgmi, as NCCL_TOPO_DUMP_FILE writes it."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from synth.errors import FormatError
from synth.model.documents.foreign_forms import ELEMENTS
from synth.model.documents.xml_tree import Element, parse
from synth.model.rational import rational, show
from synth.model.topology import Topology
from synth.topologies.importers import bare_pci
from synth.topologies.importers.fabric import XGMI, XGMI_LINKS, DumpFabric, Pcie, topology
from synth.topologies.importers.pasted import MOST_GPUS, xml_of
from synth.topologies.machines import V100_US

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

# NCCL refuses to read more elements than this.
NCCL_ELEMENTS = 256
# GB/s of one NVLink each way, by compute capability.
NVLINK = {60: 20, 70: 25, 75: 25, 80: 25, 86: Fraction("14.0625"), 90: 25, 100: 50, 103: 50}
# GPUs from this compute capability on can share a switch across hosts.
ACROSS_HOSTS = 90
# RCCL's older names of architectures.
GCN = {"906": "gfx906", "908": "gfx908", "910": "gfx90a", "940": "gfx940", "941": "gfx941", "942": "gfx942"}
# NCCL (src/graph/topo.cc): GB/s of one lane x 80, by the speed in GT/s; PCIe 3.0 x16 where nothing is stated.
LANE = {"5/2": 15, "5": 30, "8": 60, "16": 120, "32": 240, "64": 480}
NVSWITCH_CLASS = "0x068000"
BRIDGE_CLASS = "0x0604"
GPU_CLASSES = {"0x03", "0x12"}  # how the classes of displays and of accelerators begin


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the topology of a dump. Raises FormatError with the line, or saying what a file without GPUs lacks."""
    root = parse(xml_of(text, file), file)
    elements = list(root.walk())
    if root.tag != "system":
        raise FormatError(
            ELEMENTS.get(
                root.tag, f"is XML with the root <{root.tag[:40]}>; NCCL's topology files start with <system>"
            ),
            file,
            root.line,
        )
    if not any(e.tag == "gpu" for e in elements):
        return topology(bare_pci.read(elements, file, name, assumed.gbps_per_link), Pcie())
    # The <gpu> elements in the order of their ranks (of hosts and devices, where ranks are not all there), and
    # the host of each, by which alone bus ids are unique.
    gpus = [e for e in elements if e.tag == "gpu"]
    if len(gpus) == 1:
        raise FormatError(
            "holds one <gpu>; a topology needs at least two: this is a part of a machine's file", file, gpus[0].line
        )
    if len(gpus) > MOST_GPUS:
        raise FormatError(f"holds {len(gpus)} GPUs, at most {MOST_GPUS} are supported", file)
    for gpu in gpus:
        if gpu.parent is None or gpu.parent.tag != "pci" or not gpu.parent.attributes.get("busid"):
            raise FormatError("a <gpu> must stand in a <pci> that has a busid", file, gpu.line)
        if gpu.parent.attributes.get("class", "").startswith(BRIDGE_CLASS):
            raise FormatError("a <gpu> stands in a bridge, not in its own <pci>: lines are missing", file, gpu.line)
        around = [outer.attributes.get("class", "")[:4] for outer in gpu.parent.ancestors() if outer.tag == "pci"]
        if not GPU_CLASSES.isdisjoint(around):
            raise FormatError("a GPU stands in the <pci> of another GPU: lines are missing", file, gpu.line)
    nodes = _nodes(gpus)
    twice = [bus for (_, bus), n in Counter(zip(nodes, map(_bus, gpus), strict=True)).items() if n > 1]
    if twice:
        raise FormatError(f"two GPUs of a host have the bus id {twice[0][:40]}", file)
    ranked = {gpu.attributes.get("rank") for gpu in gpus} - {None}
    place = {id(gpu): (node, _number(gpu, "dev", file)) for gpu, node in zip(gpus, nodes, strict=True)}
    if len(ranked) == len(gpus):
        place = {id(gpu): (0, _number(gpu, "rank", file)) for gpu in gpus}
    gpus = sorted(gpus, key=lambda gpu: place[id(gpu)])
    nodes = _nodes(gpus)
    kind, gbps, how = _speed(gpus, assumed.gbps_per_link, file)
    labels = tuple(_number(gpu, "dev", file) for gpu in gpus)
    fabric = DumpFabric(
        name, len(gpus), kind, gbps, labels=labels if len(set(labels)) == len(gpus) else (), nodes=nodes
    )
    _links(fabric, gpus, elements, file)
    if kind == "nvlink" and all(gpu.attributes["sm"] == "70" for gpu in gpus):
        fabric.latency = V100_US
    if fabric.pairs or fabric.ports:
        fabric.notes.append(how)
    nics = []
    for net in elements:
        if net.tag == "net":
            nics.append(f"{net.attributes.get('name', '?')} {net.attributes.get('speed', '?')} Mbit/s")
    if nics:
        fabric.notes.append(f"NICs in the dump, left out of one machine's topology: {', '.join(nics)}")
    if len(elements) > NCCL_ELEMENTS:
        fabric.notes.append(f"the file has {len(elements)} elements; NCCL itself reads at most {NCCL_ELEMENTS}")
    # Each <pci> is a port that all GPUs beneath share; CPUs of one host are joined pairwise.
    pcie, members, cpus, unstated = Pcie(), {}, {}, 0
    for u, gpu in enumerate(gpus):
        for element in gpu.ancestors():
            if element.tag == "pci":
                members.setdefault(id(element), (element, set()))[1].add(u)
            elif element.tag == "cpu":
                cpus.setdefault(id(element), (element, set()))[1].add(u)
    for element, beneath in members.values():
        # GB/s of a port, NCCL's figure for its speed and width, and whether the file states both.
        speed = element.attributes.get("link_speed", "").split("GT/s")[0].strip()
        width = element.attributes.get("link_width", "") or "0"
        if not width.isdecimal() or len(width) > 3:
            raise FormatError(f'link_width="{width[:20]}": expected a number of lanes', file, element.line)
        try:
            speed = show(rational(speed)) if speed else ""
        except ValueError:
            speed = ""
        lane = LANE.get(speed)
        gbps, stated = Fraction((int(width) or 16) * (lane or LANE["8"]), 80), lane is not None and int(width) > 0
        unstated += assumed.pcie_gbps is None and not stated
        name = f"PCIe port {element.attributes.get('busid', '?')[:20]}"
        pcie.groups.append((name, frozenset(beneath), gbps if assumed.pcie_gbps is None else assumed.pcie_gbps))
    if unstated:
        pcie.notes.append(
            f"PCIe 3.0 x16 (12 GB/s) assumed where no known speed or width is stated, {unstated} of {len(members)} "
            f"ports; `synth topo import --pcie-gbps 24` for 4.0, 48 for 5.0"
        )
    inside = set().union(*(beneath for _, beneath in cpus.values()))
    if len(inside) < len(gpus):
        pcie.notes.append(f"{len(gpus) - len(inside)} GPUs stand in no <cpu>: nothing is counted between their sockets")
    between = set()
    for (one, near), (other, far) in combinations(cpus.values(), 2):
        gbps = min(_socket(one), _socket(other))
        if one.attributes.get("host_hash") == other.attributes.get("host_hash"):
            between.add(gbps)
        name = f"CPUs {one.attributes.get('numaid', '?')[:8]}-{other.attributes.get('numaid', '?')[:8]}"
        pcie.bridges.append((name, frozenset(near), frozenset(far), gbps))
    if between:
        pcie.notes.append(f"{' or '.join(map(show, sorted(between)))} GB/s assumed between two CPUs, NCCL's figure")
    return topology(fabric, pcie)


def _bus(gpu: Element) -> str:
    return gpu.parent.attributes["busid"].lower() if gpu.parent else ""


def _number(element: Element, key: str, file: str) -> int:
    text = element.attributes.get(key, "")
    if not text.isdecimal() or len(text) > 6:
        raise FormatError(f'<{element.tag} {key}="{text[:20]}">: expected a whole number', file, element.line)
    return int(text)


def _nodes(gpus: list[Element]) -> tuple[int, ...]:
    """The box of each GPU: NCCL tells hosts apart by the host_hash of their CPUs."""
    hosts = []
    for gpu in gpus:
        cpus = [a for a in gpu.ancestors() if a.tag == "cpu"]
        hosts.append(cpus[0].attributes.get("host_hash", "") if cpus else "")
    order = {host: i for i, host in enumerate(dict.fromkeys(hosts))}
    return tuple(order[host] for host in hosts)


def _speed(gpus: list[Element], given: Fraction | None, file: str) -> tuple[str, Fraction, str]:
    """Return kind and bandwidth (GB/s) of a link between GPUs, and the note on where the bandwidth comes from."""
    kind, what = "xgmi", "gcn"
    names = {gpu.attributes["gcn"].partition(":")[0] for gpu in gpus if "gcn" in gpu.attributes}
    options = {GCN.get(name, name): XGMI.get(GCN.get(name, name)) for name in names}
    least = min(XGMI.values())
    if not names:
        kind, what = "nvlink", "sm"
        numbers = {_number(gpu, "sm", file) for gpu in gpus}
        options = {str(number): NVLINK.get(number) for number in numbers}
        least = NVLINK[max((sm for sm in NVLINK if sm <= min(numbers)), default=min(NVLINK))]
    if given is not None:
        return kind, given, f"{show(given)} GB/s a link and way, as given"

    # Of several models the slowest; one that is not known is taken for the least that it could be.
    unknown = ", ".join(sorted(name[:20] for name, gbps in options.items() if gbps is None))
    widths = [width for width in options.values() if width is not None]
    gbps = Fraction(min([*widths, least] if len(widths) < len(options) else widths))
    each = f"{show(gbps)} GB/s each way"
    if unknown:
        said = f"GPUs of {what} {unknown} are not known: {each} assumed for one link"
        return kind, gbps, f"{said}; `synth topo import --gbps-per-link` sets another"
    listed = ", ".join(sorted(options))[:60]
    return kind, gbps, f"the file counts links but prints no bandwidth: {each} for one of {what} {listed}"


def _links(fabric: DumpFabric, gpus: list[Element], elements: list[Element], file: str) -> None:
    """Direct links, links into switches, and a note for each kind of target that is neither."""
    place = {(fabric.nodes[i], _bus(gpu)): i for i, gpu in enumerate(gpus)}
    listed: dict[tuple[int, int], int] = {}
    ignored: Counter[str] = Counter()
    for u, gpu in enumerate(gpus):
        for link in gpu.children:
            if link.tag not in ("nvlink", "xgmi"):
                continue
            count, target = _number(link, "count", file), link.attributes.get("target", "").lower()
            v = place.get((fabric.nodes[u], target))
            if not 1 <= count <= 64:
                raise FormatError(f"a count of {count} links; expected 1 to 64", file, link.line)
            if v == u:
                ignored["links from a GPU to itself are left out"] += 1
            elif v is not None:
                listed[u, v] = listed.get((u, v), 0) + count
            elif link.attributes.get("tclass") == NVSWITCH_CLASS or target.startswith("fffffff:"):
                fabric.ports[u] = fabric.ports.get(u, 0) + count
            else:
                ignored[f"links to {target[:20]}, which is no GPU of the file, are left out"] += 1
    for (u, v), count in listed.items():
        if listed.get((v, u), 0) != count:
            ignored["links listed at one end only, or with two counts, are taken with the larger"] += 1
        fabric.pairs[min(u, v), max(u, v)] = max(count, listed.get((v, u), 0))
    # More xGMI links of a GPU than it has are refused: RCCL with amd-smi counts one for pairs several hops apart.
    for u, gpu in enumerate(gpus):
        gcn = gpu.attributes.get("gcn", "").partition(":")[0]
        most = XGMI_LINKS.get(GCN.get(gcn, gcn))
        links = sum(count for pair, count in fabric.pairs.items() if u in pair)
        if most is not None and links > most:
            raise FormatError(
                f"a GPU of gcn {gcn} has {links} xGMI links here and at most {most} in hardware: RCCL counted pairs "
                f"several hops apart; `rocm-smi --showtopo` tells them by weight",
                file,
                gpu.line,
            )
    _switches(fabric, gpus, ignored)
    devices = {id(gpu.parent) for gpu in gpus}
    for element in elements:
        if element.attributes.get("class", "")[:4] in GPU_CLASSES and id(element) not in devices:
            ignored[f"the GPU {element.attributes.get('busid', '?')[:20]} has no <gpu> and is left out"] += 1
    ranks = sorted(_number(gpu, "rank", file) for gpu in gpus if "rank" in gpu.attributes)
    if len(ranks) == len(gpus) and ranks[-1] - ranks[0] >= len(ranks):
        ignored[f"the file has {len(ranks)} of the ranks {ranks[0]} to {ranks[-1]}; others are left out"] += 1
    fabric.notes += list(ignored)


def _switches(fabric: DumpFabric, gpus: list[Element], ignored: Counter[str]) -> None:
    """Notes on the links into switches; NVLink before H100 ends at the host, so there each host has a switch."""
    hosts = set(fabric.nodes)
    if len(hosts) > 1 and all(gpu.attributes["sm"].isdecimal() for gpu in gpus if "sm" in gpu.attributes):
        across = all(int(gpu.attributes.get("sm", "0")) >= ACROSS_HOSTS for gpu in gpus)
        if not across:
            fabric.switch = dict(enumerate(fabric.nodes))
        if fabric.ports and across:
            fabric.notes.append(
                f"{len(hosts)} hosts in one file, as NCCL writes those of one NVLink domain: they share one switch"
            )
    for members in fabric.switches():
        if len(members) == 1:
            ignored["links of a single GPU into a switch are left out"] += 1
            del fabric.ports[members[0]]
    if not fabric.ports:
        return
    counts = sorted(set(fabric.ports.values()))
    fabric.notes.append(
        f"links into NVSwitches: {' or '.join(map(str, counts))} a GPU, taken for one non-blocking switch"
        f"{' a host' if len(fabric.switches()) > 1 else ''}"
    )
    fewer = [u for u in range(fabric.ranks) if fabric.ports.get(u, 0) < counts[-1]]
    if fewer:
        ignored[f"rank {', '.join(map(str, fewer[:16]))}: fewer links into switches than the other GPUs"] += 1
    if fabric.gbps * counts[-1] >= 450:
        fabric.multicast = True


def _socket(cpu: Element) -> Fraction:
    """GB/s between two CPUs: NCCL's figures (src/graph/topo.h) by vendor and, for Intel, model."""
    a = cpu.attributes
    model = a.get("modelid", "")
    if a.get("vendor") == "AuthenticAMD":
        return Fraction(16)
    if a.get("vendor") == "GenuineIntel":
        number = int(model) if model.isdecimal() and len(model) < 6 else 85
        if number >= 143:
            return Fraction(40)
        return Fraction(10 if number >= 85 else 6)
    return Fraction(32 if a.get("arch") == "ppc64" else 6)
