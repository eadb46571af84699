"""Tables of lower bounds: at each number of steps, of large machines, with multicast, and in time."""

from __future__ import annotations

import json
from collections.abc import Sequence

from synth.model.bounds.time_bound import TimeBound
from synth.model.collective import Collective
from synth.model.documents.int_ranges import runs
from synth.model.frontier import Frontier, LowerBound
from synth.model.number_text import number, size_text
from synth.model.rational import counted, show
from synth.model.topology import MULTICAST_NOTE, Network, Topology
from synth.view.frontier_text import Report, fraction_text, heading, title


def document(network: Network, collective: Collective, found: Sequence[tuple[int | None, LowerBound]]) -> dict:
    """Return the content of `report` as JSON, with complete certificates.

    `found`: (steps, bound); steps None: a bound for any number of steps.
    """
    bounds = [{"steps": steps} | bound.to_json() for steps, bound in found]
    return {
        "schema": "synth.bounds/1",
        "topology": network.to_json(),
        "collective": collective.to_json(1),
        "bounds": bounds,
    }


def report(topology: Topology, collective: Collective, found: Sequence[tuple[int | None, LowerBound]]) -> Report:
    """Return a row for each bound: its subject, its value, the kind and size of its certificate."""
    columns = ("bound on", "for", ">at least", "certificate", ">bytes")
    # A bound on steps, or for any number of them, is one of any schedule.
    rows = []
    for steps, bound in found:
        what, kind = _subject(bound)
        scope = "any schedule" if steps is None or what == "steps" else counted(steps, "step")
        size = len(json.dumps(bound.certificate, separators=(",", ":")))
        rows.append((what, scope, show(bound.value), kind, str(size)))
    lines = [
        "each holds for any number of chunks; --format json prints the certificates, which `synth verify` re-checks"
    ]
    lines += [MULTICAST_NOTE] if topology.multicast else []
    return Report.of(title(topology.network(), collective, topology.labels), columns, rows, lines)


def multicast_report(
    network: Network, collective: Collective, found: Sequence[tuple[int | None, LowerBound]], labels: Sequence[int]
) -> Report:
    """Return a row for each bound where the switches of `network` multicast and reduce."""
    columns = ("bound on", ">at least", ">GB/s at most", "certificate")
    rows = []
    for steps, bound in found:
        what, kind = _subject(bound)
        gbps = f"{float(network.unit / (bound.value * collective.unit_share)):.6g}" if steps is None else ""
        rows.append((what, show(bound.value), gbps, kind))
    sentence = "for schedules with the sends of these switches, too"
    return Report.of(title(network, collective, labels), columns, rows, (sentence,))


def _subject(bound: LowerBound) -> tuple[str, str]:
    """Return what is bounded, and the kind of the certificate."""
    kind = str(bound.certificate.get("kind", ""))
    return ("steps" if kind in ("distance", "too-few-steps") else "rounds/chunk"), kind


def scale_report(found: Frontier) -> Report:
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
            count = len(certificate["limits"])
            through = f" through {count} ports or NICs" if count > 1 else " through 1 port or NIC" * count
            within = f"what rank{'s' if len(inside) > 1 else ''} {_few(inside)} must"
            if found.collective_name in ("reduce-scatter", "reduce"):
                return f"{within} take in from {_few(outside)}{through}"
            return f"{within} send to {_few(outside)}{through}"
        case "throughput-cuts":
            return f"{counted(len(certificate['cuts']), 'cut')} together, which share ports or NICs"
        case "allreduce-parts":
            parts = []
            for region in certificate["regions"]:
                parts.append([end for end in region if end < ranks])
            sizes = {len(part) for part in parts}
            if len(sizes) == 1:
                each = f"{len(parts)} parts of {sizes.pop()}"
            else:
                each = " | ".join(_few(part) for part in parts[:6])
            return f"the partition into {each}: each byte crosses between parts at least {2 * (len(parts) - 1)} times"
        case _:
            return "lengths of links and limits: every pair's cheapest way together against what all links can pay"


def _few(ranks: list[int]) -> str:
    shown = []
    for first, last in runs(ranks):
        shown.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(shown) if len(shown) <= 8 else f"{','.join(shown[:8])},... ({len(ranks)} in all)"


def time_report(found: TimeBound, ranks: int, protocol: str = "") -> Report:
    """Return the table of `synth bound --sizes`; `protocol`: the one whose launch and links count."""
    columns = (">size", ">µs at least", ">GB/s at most", "because of")
    rows = []
    for row in found.rows:
        gbps = number(row.size / row.microseconds / 1000) if row.microseconds else ""
        rows.append((size_text(row.size), f"{float(row.microseconds):.6g}", gbps, row.reason))
    root = "" if found.root is None else f" from {found.root}"
    title = f"{found.collective}{root} on {found.topology}: {counted(ranks, 'rank')}"
    holds = f"holds for {found.holds_for}, with any number and size of messages"
    if found.certificate is None:
        holds += "; no bound on rounds per chunk is known here, so large sizes may take much longer"
    clock = "bounds are on bare links: predicted times count a launch and each protocol's costs too (--protocol)"
    if protocol:
        launch = max(row.launch for row in found.rows)
        clock = f"bounds are by the clock of predicted times in {protocol}, {number(launch)} µs launch included"
    return Report.of(title, columns, rows, (holds, clock))
