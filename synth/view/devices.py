"""The tables of `synth devices`, from its document."""

from __future__ import annotations

from synth.model.number_text import size_text
from synth.view.frontier_text import Report


def gpus(doc: dict) -> list[Report]:
    """Return a table with a row per GPU; no table where there is no GPU."""
    if not doc["gpus"]:
        return []
    columns = (
        ("GPU", "right"),
        ("name", "left"),
        ("compute", "right"),
        ("memory", "right"),
        ("SMs", "right"),
        ("reaches", "left"),
    )
    rows = []
    for gpu in doc["gpus"]:
        peers = ",".join(map(str, gpu["peers"])) or "no other"
        memory = size_text(gpu["bytes"] >> 30 << 30)
        rows.append((str(gpu["index"]), gpu["name"], gpu["compute"], memory, str(gpu["processors"]), peers))
    return [Report(doc["cuda"], columns, tuple(rows))]


def executors(doc: dict) -> Report:
    """Return a table with a row per executor."""
    rows = []
    for row in doc["executors"]:
        runs_on = row["on"] if row["missing"] is None else f"no: {row['missing']}"
        rows.append((row["executor"], runs_on))
    return Report("" if doc["gpus"] else doc["cuda"], (("executor", "left"), ("runs on", "left")), tuple(rows))
