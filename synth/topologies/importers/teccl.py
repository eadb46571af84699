"""TE-CCL's input JSON: it names a machine and a number of chassis; the links are in TE-CCL's code, so those of ours are
taken."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from synth.errors import FormatError
from synth.model.rational import show
from synth.model.topology import Topology
from synth.topologies.file_reader import Fields, Plain, parse_json
from synth.topologies.name_grammar import topology

if TYPE_CHECKING:
    from synth.topologies.importers import Assumed

# TE-CCL (arXiv 2305.13479) and its code: the name, ours, and its bandwidth of the fastest link where that differs.
MACHINES: dict[str, tuple[str, Fraction | None]] = {
    "ndv2": ("dgx1-v100", None),
    "dgx1": ("dgx1-v100", None),
    "dgx2": ("dgx2", Fraction(125)),
    "amd": ("mi250", None),
}
NICS = {"mi250": ":nic=25"}


def read(text: str, file: str, name: str, assumed: Assumed) -> Topology:
    """Return the machine or cluster that a dump names. Raises FormatError for a machine that is not known."""
    doc = parse_json(text, file)
    fields = Fields(file)
    params = doc.get("TopologyParams") if isinstance(doc, dict) else None
    if not isinstance(params, dict):
        fields.fail("expected a mapping", "TopologyParams")
    title = fields.string(params.get("name"), "TopologyParams.name")
    if title.lower() not in MACHINES:
        known = "NDv2, DGX1, DGX2 and AMD"
        fields.fail(
            f"{title!r} is none of {known}, and the file lacks the links, which are in TE-CCL's code",
            "TopologyParams.name",
        )
    ours, gbps = MACHINES[title.lower()]
    boxes = fields.integer(params.get("chassis", Plain("1")), "TopologyParams.chassis", 1, 64)
    if assumed.pcie_gbps is not None:
        raise FormatError("names a machine without PCIe links; leave the PCIe bandwidth out", file)
    spec = ours if boxes == 1 else f"{ours}*{boxes}{NICS.get(ours, '')}"
    made = topology(spec)
    notes = [
        *made.notes,
        f"TE-CCL's {title} with {boxes} chassis is taken for {spec}; the rest of its file concerns its solver",
    ]
    inside = max(k.bandwidth for k in made.links if k.kind != "net")
    wanted = gbps if assumed.gbps_per_link is None else None
    if assumed.gbps_per_link is not None and made.unit:
        wanted = assumed.gbps_per_link * inside / made.unit
    if wanted is not None and wanted != inside:
        made = _scaled(made, wanted / inside)
        notes.append(
            f"links within a box scaled to {show(wanted)} GB/s, "
            + ("TE-CCL's figure" if assumed.gbps_per_link is None else "as given")
        )
    return replace(made, name=name, notes=tuple(notes))


def _scaled(made: Topology, factor: Fraction) -> Topology:
    def scaled(item: Any, kind: str) -> Any:
        return item if kind == "net" else replace(item, bandwidth=item.bandwidth * factor)

    links = tuple(scaled(link, link.kind) for link in made.links)
    limits = tuple(scaled(limit, made.links[limit.links[0]].kind) for limit in made.limits)
    return replace(made, links=links, limits=limits, unit=None, generators=made.generators)
