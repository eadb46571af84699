"""Importers of what real machines and other tools print: the content decides what a file is, never its name.

    nvidia-smi   text of `nvidia-smi topo -m`              nccl-xml   NCCL_TOPO_DUMP_FILE of NCCL and RCCL
    rocm-smi     `rocm-smi --showtopo`, `amd-smi topology`
    topology     a user's file

Each format has a module with `read(text, file, name, assumed)`: the topology of the dump `text`. `file` is its path in
errors, `name` the name that the topology gets.

What a format does not say is assumed, and each assumption is a note of the topology (docs/importing.md).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from synth.errors import FormatError, UsageError
from synth.model.documents.foreign_forms import form_of
from synth.model.documents.text_file import text_of
from synth.model.rational import rational
from synth.model.topology import Topology
from synth.topologies import importers
from synth.topologies.importers.pasted import AMD_JSON, clean, is_table


@dataclass(frozen=True)
class Assumed:
    """Bandwidths (GB/s, each way) in place of the documented ones: of one NVLink or xGMI link, of a PCIe slot."""

    gbps_per_link: Fraction | None = None
    pcie_gbps: Fraction | None = None


def sniff(text: str) -> str:
    """Return the format of `text`, a name of the list above; "topology" if it is no dump."""
    start = text.lstrip()
    if re.search(r"<system\b", text):
        return "nccl-xml"
    if start.startswith("<"):
        return "nccl-xml" if re.search(r"<(cpu|pci|gpu)\b", text) else "topology"
    if AMD_JSON.search(text):
        return "rocm-smi"
    if start.startswith("{"):
        return "topology"
    if re.search(r"(?mi)(between two GPUs|ROCm System Management|(?:WEIGHT|LINK TYPE) TABLE:)", text):
        return "rocm-smi"
    return "nvidia-smi" if is_table(text) else "topology"


def load(path: str | Path, gbps_per_link: object = None, pcie_gbps: object = None) -> Topology:
    """Return the topology of a dump, or of a user's topology file. Raises FormatError: one line with file and place.

    `gbps_per_link`, `pcie_gbps`: GB/s in place of those assumed where a dump prints none; a topology file takes
    neither.
    """
    path = Path(path)
    assumed = Assumed(_given(path, gbps_per_link), _given(path, pcie_gbps))
    text = clean(text_of(path))
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
    elif not _is_topology_file(path, text):
        first = text.strip().split("\n")[0].strip()
        raise FormatError(
            form_of(text)
            or f"is neither a dump (nvidia-smi, rocm-smi, amd-smi, NCCL) nor a topology file, which "
            f"has links; it begins with {first[:40]!r}",
            file,
        )
    else:
        from synth.topologies import topology_files

        if gbps_per_link is not None or pcie_gbps is not None:
            raise UsageError(
                f"{path} is a topology file, which states its bandwidths; leave --gbps-per-link and --pcie-gbps out"
            )
        return topology_files.load(path)
    return read(text, file, name, assumed)


def _is_topology_file(path: Path, text: str) -> bool:
    """True for YAML or JSON with the keys of a topology file, and not for other text with such words."""
    if not re.search(r"""(?m)(?:^\s*|[{,]\s*|["'])(?:links|edges|ranks|schema)["']?\s*:""", text):
        return False
    begins = re.match(r"""\s*(?:["']?[A-Za-z_]+["']?\s*:(?:\s|$)|[\[{#]|---)""", text)
    return bool(begins) or path.suffix.lower() in (".yaml", ".yml")


def _given(path: Path, value: object) -> Fraction | None:
    if value is None:
        return None
    try:
        number = rational(value)
    except ValueError as error:
        raise UsageError(f"--gbps-per-link and --pcie-gbps take GB/s for {path.name}: {error}") from None
    if number <= 0:
        raise UsageError(f"--gbps-per-link and --pcie-gbps take GB/s above 0 for {path.name}, found {value}")
    return number


# The machine that this process runs on, from the tools of its GPUs.


# Commands that print how the GPUs are connected, in the order in which they are tried.
COMMANDS = (("nvidia-smi", "topo", "-m"), ("rocm-smi", "--showtopo"))
SECONDS = 60.0  # seconds after which such a command is given up
ADVICE = "name one, such as dgx1, or give a dump: `nvidia-smi topo -m > topo.txt` there, then topo.txt here"


def this_machine() -> Topology:
    """Return the topology that `nvidia-smi topo -m` or `rocm-smi --showtopo` prints here.

    Raises UsageError where neither command is installed or prints GPUs.
    """
    missing = []
    for command in COMMANDS:
        if shutil.which(command[0]) is None:
            missing.append(command[0])
            continue
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"no topology given, and `{' '.join(command)}` fails here ({error}); {ADVICE}") from None
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[:1]
            raise UsageError(f"no topology given, and `{' '.join(command)}` fails here ({''.join(said)}); {ADVICE}")
        with tempfile.TemporaryDirectory() as folder:
            dump = Path(folder) / "this-machine"
            dump.write_text(done.stdout)
            return importers.load(dump)
    raise UsageError(f"no topology given, and this machine has no {' or '.join(missing)}; {ADVICE}")
