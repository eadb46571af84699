"""Importers of what real machines and other tools print: the content decides what a file is, never its name.

    nvidia-smi   text of `nvidia-smi topo -m`              nccl-xml   NCCL_TOPO_DUMP_FILE of NCCL and RCCL
    rocm-smi     text of `rocm-smi --showtopo`             topology   a user's file, node-link JSON or GraphML

Each format has a module with `read(text, file, name, assumed)`: the topology of the dump `text`. `file` is its path in
errors, `name` the name that the topology gets.

What a format does not say is assumed, and each assumption is a note of the topology (docs/importing.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from synth.errors import FormatError
from synth.model.documents.text_file import text_of
from synth.model.rational import rational
from synth.model.topology import Topology

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_SMI_HEADER = re.compile(r"(?m)^[ \t]*GPU\d{1,4}[ \t]+\S")


@dataclass(frozen=True)
class Assumed:
    """Bandwidths (GB/s, each way) in place of the documented ones: of one NVLink or xGMI link, of a PCIe slot."""

    gbps_per_link: Fraction | None = None
    pcie_gbps: Fraction | None = None


def sniff(text: str) -> str:
    """Return the format of `text`, a name of the list above; "topology" if it is no dump."""
    start = text.lstrip()
    if start.startswith("<"):
        return "nccl-xml" if re.search(r"<(system|cpu|pci|gpu)\b", text) and "<graphml" not in text else "topology"
    if start.startswith("{"):
        return "topology"
    if re.search(r"(?mi)(between two GPUs|ROCm System Management)", text):
        return "rocm-smi"
    return "nvidia-smi" if _SMI_HEADER.search(text) else "topology"


def load(path: str | Path, gbps_per_link: object = None, pcie_gbps: object = None) -> Topology:
    """Return the topology of a dump, or of a user's topology file. Raises FormatError: one line with file and place.

    `gbps_per_link`, `pcie_gbps`: GB/s in place of those assumed where a dump prints none; a topology file takes
    neither.
    """
    path = Path(path)
    assumed = Assumed(_given(path, gbps_per_link), _given(path, pcie_gbps))
    text = _ANSI.sub("", text_of(path)).replace("\r\n", "\n").replace("\r", "\n")
    file, name, form = str(path), path.stem, sniff(text)
    if not text.strip():
        raise FormatError("is empty; expected a dump of a machine or a topology file", file)
    if form == "nccl-xml":
        from synth.topologies.importers.nccl_xml import read
    elif form == "nvidia-smi":
        from synth.topologies.importers.nvidia_smi import read
    elif form == "rocm-smi":
        from synth.topologies.importers.rocm_smi import read
    elif re.search(r"NVIDIA-SMI|^GPU \d+: .*\(UUID", text, re.M):
        raise FormatError("lists GPUs, not their links; those are printed by `nvidia-smi topo -m`", file)
    elif not re.search(r"(?i)link|edge", text):
        raise FormatError("is neither a dump (nvidia-smi, rocm-smi, NCCL) nor a topology file, which has links", file)
    else:
        from synth.topologies import topology_files

        return topology_files.load(path)
    return read(text, file, name, assumed)


def _given(path: Path, value: object) -> Fraction | None:
    if value is None:
        return None
    try:
        number = rational(value)
    except ValueError as error:
        raise FormatError(f"a bandwidth in GB/s was given with it that is none: {error}", str(path)) from None
    if number <= 0:
        raise FormatError(f"the bandwidth given with it must be positive, found {value}", str(path))
    return number
