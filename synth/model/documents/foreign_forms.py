"""The names of other programs' forms of files, for errors where another form is read."""

from __future__ import annotations

import json
import re

OLD_PLAN = (
    "is a MSCCL++ plan in the form before August 2025 (inputChunks), not read: write it anew with MSCCL++ of today"
)
PLAN = "is a MSCCL++ plan: `synth lint` and `synth run` read it"
ELEMENTS = {
    "algo": "is MSCCL-IR: `synth lint`, `synth import` and `synth run` read it",
    "Algo": "is ForestColl's trees: `synth import` reads it",
    "system": "is NCCL's topology of a machine: `synth topo import` reads it",
    "graphml": "is GraphML: in Python, `synth.topology(networkx.read_graphml(FILE))` reads it",
    "graphs": "is NCCL's graph file (NCCL_GRAPH_DUMP_FILE): `synth topo import` reads the file of NCCL_TOPO_DUMP_FILE",
}
_ELEMENT = re.compile(r"(?s)(?:\s|<\?.*?\?>|<!--.*?-->)*<(\w+)")
_LOG = re.compile(r"#\s*size\s.*\balgbw\b")


def form_of(text: str) -> str:
    """Return what the text of a file is and which command reads it, as ``is MSCCL-IR: ..``; "" if that is not known."""
    start = text.lstrip()[:1]
    if start == "<":
        element = _ELEMENT.match(text)
        return ELEMENTS.get(element[1], "") if element else ""
    if start == "{":
        try:
            return named_form(json.loads(text))
        except (ValueError, RecursionError):
            return ""
    if _LOG.search(text):
        return "is nccl-tests' output: `synth tune --log nccl=FILE` reads it"
    return ""


def named_form(doc: object) -> str:
    """Return what a document in JSON is, as `form_of` does."""
    if not isinstance(doc, dict):
        return ""
    gpus = doc.get("gpus")
    if isinstance(gpus, list) and {"name", "collective", "protocol"} <= doc.keys():
        old = any(isinstance(gpu, dict) and "inputChunks" in gpu for gpu in gpus)
        return OLD_PLAN if old else PLAN
    if "msccl_type" in doc:
        return "is SCCL's JSON of msccl-tools, not read: `msccl ncclize FILE -o FILE.xml` writes MSCCL-IR, which is"
    if any(re.fullmatch(r"\d+-flows", str(key).lower()) for key in doc):
        return "is TE-CCL's schedule: `synth import` reads it"
    if "TopologyParams" in doc:
        return "is TE-CCL's input, which names a machine: `synth list topologies` has NDv2 (dgx1-v100), DGX-2 and MI250"
    if "gpus_per_node" in doc:
        return "is TACCL's topology, which names a machine: `synth list topologies` has NDv2 (dgx1-v100) and DGX-2"
    if isinstance(doc.get("results"), list) and "args" in doc:
        return "is nccl-tests' JSON: `synth tune --log nccl=FILE` reads it"
    if str(doc.get("schema", "")).startswith("synth."):
        return f"is a document {str(doc['schema'])[:40]}"
    return ""
