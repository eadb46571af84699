"""The table of the bound of a machine at scale, and its limit in words."""

from __future__ import annotations

from synth.model.documents.int_ranges import runs
from synth.model.frontier import Frontier
from synth.model.rational import counted
from synth.view.frontier_text import Report, fraction_text, heading


def bound(found: Frontier) -> Report:
    """Return the table of `synth bound` at scale: the bound in GB/s, and its limit in words."""
    columns = ("bound on", ">at least", ">GB/s at most", "certificate")
    kind = str(found.certificate["kind"])
    rows = (
        ("steps", str(found.least_steps), "", "distance"),
        ("rounds/chunk", fraction_text(found.bound), f"{float(found.bound_gbps):.6g}", kind),
    )  # fmt: skip
    said = (
        f"limited by: {limit(found)}",
        "GB/s: size / time (algorithmic bandwidth) that no schedule in this model can exceed, whatever its steps",
    )
    said += found.notes
    said += tuple(f"left open: {'; '.join(found.unfinished)}" for _ in found.unfinished[:1])
    return Report.of(heading(found), columns, rows, said)


def limit(found: Frontier) -> str:
    """Return the limit that the certificate proves, in words."""
    certificate, ranks = found.certificate, found.topology.ranks
    match certificate["kind"]:
        case "throughput-cut":
            inside: list[int] = []
            for first, last in certificate["inside"]:
                inside += range(first, min(last + 1, ranks))
            outside = sorted(set(range(ranks)) - set(inside))
            through = f" through {_shared(len(certificate['limits']))}" if certificate["limits"] else ""
            within = f"what rank{'s' if len(inside) > 1 else ''} {_few(inside)} must"
            if found.collective_name in ("reduce-scatter", "reduce"):
                return f"{within} take in from {_few(outside)}{through}"
            return f"{within} send to {_few(outside)}{through}"
        case "throughput-cuts":
            return f"{counted(len(certificate['cuts']), 'cut')} together, which share ports or NICs"
        case "allreduce-parts":
            parts = [_below(region, ranks) for region in certificate["regions"]]
            sizes = {len(part) for part in parts}
            if len(sizes) == 1:
                each = f"{len(parts)} parts of {sizes.pop()}"
            else:
                each = " | ".join(_few(part) for part in parts[:6])
            return f"the partition into {each}: each byte crosses between parts at least {2 * (len(parts) - 1)} times"
        case _:
            return "lengths of links and limits: every pair's cheapest way together against what all links can pay"


def _below(ends: list[int], ranks: int) -> list[int]:
    return [end for end in ends if end < ranks]


def _shared(count: int) -> str:
    return "1 port or NIC" if count == 1 else f"{count} ports or NICs"


def _few(ranks: list[int]) -> str:
    shown = []
    for first, last in runs(ranks):
        shown.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(shown) if len(shown) <= 8 else f"{','.join(shown[:8])},... ({len(ranks)} in all)"
