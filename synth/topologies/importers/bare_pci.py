"""NCCL's topology files that list PCI devices alone, as cloud providers ship them: NCCL finds the NVLinks when it runs.

The GPU follows from its PCI id, or the machine is a size of Azure's ND series. The NVLinks are those of the board that
GPUs of this model are built on. NVIDIA's manuals of the DGX and HGX machines describe these boards.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from synth.errors import FormatError
from synth.model.documents.xml_tree import Element
from synth.model.rational import show
from synth.topologies.importers.fabric import DumpFabric
from synth.topologies.machines import NVLINK_US, V100_US

DISPLAY, ACCELERATOR, NETWORK = "0x03", "0x12", "0x02"
INFINIBAND = "0x0207"
NVIDIA = "0x10de"
_BUS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
# Hyper-V gives each device that it passes to a virtual machine a PCI domain of its own.
_HYPER_V = re.compile(r"[0-9a-f]{4}:00:00\.0")
# nvidia-smi's order, which is that of bus ids, on NVIDIA's DGX-1 with V100.
DGX1_BY_BUS = ("01122000", "10210200", "12020010", "21200001", "20000112", "02001021", "00101202", "00012120")


@dataclass(frozen=True)
class SxmGpu:
    """A model: NVLinks of one GPU, GB/s of one link each way, and how many of them stand on one board."""

    name: str
    links: int
    gbps: Fraction = Fraction(25)
    latency: Fraction = NVLINK_US
    counts: tuple[int, ...] = (4, 8)


_A100 = SxmGpu("A100 SXM4", 12)
_H100 = SxmGpu("H100 SXM5", 18)
_V100 = SxmGpu("V100 SXM2", 6, latency=V100_US, counts=(8,))
# NVIDIA's devices in pci.ids (pci-ids.ucw.cz). The SXM models alone: cards have other links or none.
GPUS = {
    "0x1db1": _V100,
    "0x1db5": _V100,
    "0x20b0": _A100,
    "0x20b2": _A100,
    "0x2330": _H100,
    "0x2335": SxmGpu("H200 SXM", 18),
    "0x2901": SxmGpu("B200", 18, Fraction(50), counts=(8,)),
}
# Azure's files (Azure/azhpc-images, topology) print no PCI ids. CPU vendor and model, GPUs and InfiniBand NICs tell
# the sizes apart; H100 and H200 are on the same board.
AZURE = {
    ("GenuineIntel", "85", 8, 1): ("ND40rs_v2", _V100),
    ("AuthenticAMD", "49", 8, 8): ("ND A100 v4", _A100),
    ("GenuineIntel", "143", 8, 8): ("ND H100 v5 or H200 v5", _H100),
}


def read(elements: list[Element], file: str, name: str, gbps: Fraction | None) -> DumpFabric:
    """Return the NVLinks of the machine in `elements`, which have no <gpu>. `gbps`: of a link, in place of the model's.

    Rank r is the GPU of the r-th bus id, as nvidia-smi and CUDA (CUDA_DEVICE_ORDER=PCI_BUS_ID) number them. So the
    order of the file does not matter. Raises FormatError where the GPU is not known, or no board has so many.
    """
    devices = [e for e in elements if e.tag == "pci" and _class(e)[:4] in (DISPLAY, ACCELERATOR)]
    gpu, sign = _model(devices, elements)
    if gpu is None or len(devices) not in gpu.counts:
        found = f"{len(devices)} display-class <pci> devices but no <gpu>" if devices else "no <gpu>"
        raise FormatError(
            f"holds {found}, so it lacks links and their counts, which NCCL adds at run time; run it with "
            f"NCCL_TOPO_DUMP_FILE",
            file,
        )
    bus, times = Counter(_bus(device, file) for device in devices).most_common(1)[0]
    if times > 1:
        raise FormatError(f"two GPUs have the bus id {bus}", file)
    fabric = DumpFabric(
        name, len(devices), "nvlink", gpu.gbps if gbps is None else gbps, nodes=(0,) * len(devices), latency=gpu.latency
    )
    # The links of four or eight GPUs of a model, and their description.
    ranks = range(fabric.ranks)
    if gpu == _V100:
        for u, row in enumerate(DGX1_BY_BUS):
            for v in range(u):
                if row[v] != "0":
                    fabric.pairs[v, u] = int(row[v])
        board = "the hybrid cube mesh of a DGX-1 in DGX-1's order of bus ids, which is assumed too"
    elif fabric.ranks == 4:
        count = gpu.links // 3
        fabric.pairs = {(u, v): count for u in ranks for v in range(u + 1, fabric.ranks)}
        board = f"{count} links between every two"
    else:
        fabric.ports = dict.fromkeys(ranks, gpu.links)
        fabric.multicast = fabric.gbps * gpu.links >= 450
        board = f"{gpu.links} links of each GPU into NVSwitches"
    fabric.notes += [
        f"the file lists PCI devices and no NVLinks, which NCCL finds when it runs: {sign} are taken for "
        f"{len(devices)} {gpu.name} on one board, {board}, {show(fabric.gbps)} GB/s a link",
        "compare the NVLinks taken with `nvidia-smi topo -m`, or import a file that NCCL_TOPO_DUMP_FILE named",
    ]
    nics = [e.attributes.get("busid", "?")[:20] for e in elements if e.tag == "pci" and _class(e)[:4] == NETWORK]
    if nics:
        fabric.notes.append(f"NICs in the file, left out of one machine's topology: {', '.join(nics)}")
    return fabric


def _class(element: Element) -> str:
    return element.attributes.get("class", "").lower()


def _bus(device: Element, file: str) -> str:
    text = device.attributes.get("busid", "").lower()
    if not _BUS.fullmatch(text):
        raise FormatError(f'<pci busid="{text[:20]}">: expected a bus id such as 0000:10:1c.0', file, device.line)
    return text


def _model(devices: list[Element], elements: list[Element]) -> tuple[SxmGpu | None, str]:
    """The model of all devices, None where it is not known, and the sign by which it is known."""
    ids = {(e.attributes.get("vendor", "").lower(), e.attributes.get("device", "").lower()) for e in devices}
    if len(ids) != 1:
        return None, ""
    vendor, device = ids.pop()
    if vendor == NVIDIA:
        return GPUS.get(device), f"GPUs with the PCI id {NVIDIA[2:]}:{device[2:]}"
    if vendor or device or not all(_HYPER_V.fullmatch(e.attributes.get("busid", "").lower()) for e in devices):
        return None, ""
    cpus = {(e.attributes.get("vendor", ""), e.attributes.get("modelid", "")) for e in elements if e.tag == "cpu"}
    if len(cpus) != 1 or any(_class(e)[:4] != DISPLAY for e in devices):
        return None, ""
    infiniband = sum(e.tag == "pci" and _class(e)[:6] == INFINIBAND for e in elements)
    size, gpu = AZURE.get((*cpus.pop(), len(devices), infiniband), ("", None))
    return gpu, f"the GPUs, which print no PCI ids but stand as in an Azure {size},"
