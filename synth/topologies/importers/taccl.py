"""TACCL's topology JSON: latencies and inverse bandwidths measured at one size; the links are those of the machine it
names."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from synth.model.rational import show
from synth.model.topology import Topology
from synth.topologies.file_reader import Fields, parse_json
from synth.topologies.machines import dgx1_v100, nvswitch

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

KEYS = (
    "name",
    "gpus_per_node",
    "nics_per_node",
    "alpha",
    "node_betas_list",
    "node_invbws_list",
    "remote_invbw",
    "remote_alpha",
    "remote_beta",
)
# TACCL multiplies all values by the size they are for and by a scale; what its files share is this latency, so it gives
# the scale.
ALPHA_US = Fraction(3, 10)
SIZES = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
MEGABYTE = 1 << 20


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the box that a dump names, as the file itself holds no links. Raises FormatError for an unknown name."""
    fields = Fields(file)
    doc = fields.mapping(parse_json(text, file), None, KEYS, ("name", "gpus_per_node", "alpha", "node_betas_list"))
    title = fields.string(doc["name"], "name")
    shape = re.fullmatch(r"([A-Za-z0-9]+?)_(\d{1,4})([KMG]B)", title)
    base = {"ndv2": dgx1_v100(), "dgx2": nvswitch("dgx2", 16, 6, Fraction(25))}.get(shape[1].lower() if shape else "")
    if shape is None or base is None:
        fields.fail(
            f"{title!r} is no known machine and size such as NDv2_1MB or DGX2_1KB, and the file lacks the links "
            f"themselves",
            "name",
        )
    if fields.integer(doc["gpus_per_node"], "gpus_per_node", 1, 1 << 12) != base.ranks:
        fields.fail(f"{shape[1]} has {base.ranks} GPUs", "gpus_per_node")
    alpha = fields.number(doc["alpha"], "alpha")
    # µs per MB = value / scale, times MB per size.
    factor = ALPHA_US / alpha * Fraction(MEGABYTE, int(shape[2]) * SIZES[shape[3]]) if int(shape[2]) else Fraction(0)
    if not factor:
        fields.fail("the size is 0", "name")
    listed = fields.sequence(doc["node_betas_list"], "node_betas_list", 8)
    betas = sorted(fields.number(beta, f"node_betas_list[{i}]") * factor for i, beta in enumerate(listed))
    speeds = sorted({k.bandwidth for k in base.links}, reverse=True)
    if len(betas) != len(speeds):
        fields.fail(
            f"expected {len(speeds)} values, one for each bandwidth among the links of {base.name}", "node_betas_list"
        )
    given = {speed: _gbps(beta) for speed, beta in zip(speeds, betas, strict=True)}
    if assumed.gbps_per_link is not None:
        given = {speed: speed / speeds[-1] * assumed.gbps_per_link for speed in speeds}
    links = tuple(replace(k, bandwidth=given[k.bandwidth], latency=ALPHA_US) for k in base.links)
    limits = tuple(replace(m, bandwidth=given[m.bandwidth]) for m in base.limits)
    notes = [
        f"the file holds no links: those of {base.name} are taken, ranks labelled as there",
        "values scaled so that the latency is 0.3 µs, as in all of TACCL's files: "
        + ", ".join(f"{show(beta)} µs/MB" for beta in betas),
    ]
    if "remote_beta" in doc:
        remote = fields.number(doc["remote_beta"], "remote_beta") * factor
        notes.append(f"between boxes, left out of one machine's topology: {float(_gbps(remote)):.2f} GB/s a NIC")
    return replace(base, name=name, links=links, limits=limits, unit=None, notes=tuple(notes))


def _gbps(beta: Fraction) -> Fraction:
    """GB/s (1e9 bytes/s) from µs per MB, where MB = 2^20 bytes."""
    return Fraction(MEGABYTE, 1000) / beta
