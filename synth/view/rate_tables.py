"""The tables of rates of `synth allocations` and `synth explain`, from any objects with the fields used here."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from statistics import geometric_mean
from typing import Any

from synth.model.collective import Collective
from synth.model.graphs import latency
from synth.model.number_text import number
from synth.model.rational import counted, show
from synth.model.topology import MULTICAST_NOTE, Topology
from synth.view.frontier_text import Report, table_title


def gbps_text(units: Fraction, unit: Fraction) -> str:
    """Return the algorithmic bandwidth of `units` units of `unit` GB/s each, as text without the unit's name."""
    return number(units * unit)


def allocations(
    title: str, unit: Fraction, names: Sequence[str], rows: Sequence[Any], missing: Sequence[str] = ()
) -> Report:
    """Return the table of `synth allocations`, with a row per class of isomorphic allocations.

    A row shows the least member of the class, its number of members, its rings, and each collective's rate. `unit`:
    GB/s of one unit. `names`: the collectives. `rows`: (allocation, rates). `missing`: the rates that a time
    limit left out, in words.
    """
    columns = [">GPUs", "ranks", ">alike", ">rings"]
    for name in names:
        columns += [f">{name} units", ">GB/s", ">x rings"]
        columns += [">x RS+AG"] if name == "allreduce" else []
    # A rate that no schedule attains is an upper bound.
    table = []
    for allocation, rates in rows:
        rings = str(rates.ring_units) if rates.rings_proved_maximum else f">= {rates.ring_units}"
        row = [str(len(allocation.ranks)), ",".join(map(str, allocation.ranks)), str(allocation.members), rings]
        for name in names:
            best = rates.best[name]
            mark = "" if name in rates.attained else "<= "
            row += [mark + show(best), mark + gbps_text(best, unit), _ratio(best, rates.ring[name])]
            row += [_ratio(best, rates.composed)] if name == "allreduce" else []
        table.append(tuple(row))
    # How many classes have no ring, and what trees gain over rings.
    left = [f"left open: {', '.join(missing)}"] if missing else []
    ringless = sum(not rates.ring_units for _, rates in rows)
    members = counted(sum(allocation.members for allocation, _ in rows), "allocation")
    classes = f"{counted(len(rows), 'class')} of allocations up to isomorphism"
    lines = [f"{classes}, {members}; {ringless} without a ring"]
    if "allreduce" in names:
        ratios = [float(r.best["allreduce"] / r.composed) for _, r in rows if r.composed]
        faster = sum(ratio > 1 for ratio in ratios)
        than = "than the optimal reduce-scatter + allgather"
        if faster:
            mean = geometric_mean(ratios)
            lines.append(f"allreduce by trees is faster {than} in {faster}, by {mean:.3f} in geometric mean")
        elif ratios:
            lines.append(f"allreduce by trees is nowhere faster {than}")
    lines.append(
        "GB/s: size / time (algorithmic bandwidth) for large messages; rings: units that disjoint rings carry together"
    )
    return Report.of(title, columns, table, (*lines, *left))


def _ratio(best: Fraction, other: Fraction | None) -> str:
    return "-" if not other else f"{float(best / other):.2f}"


def title(topology: Topology, collective: Collective) -> str:
    """Return the title of `synth explain`."""
    return table_title(
        collective.name, collective.roots, topology, topology.unit_bandwidth(), latency(topology), topology.labels
    )


def explanation(title: str, unit: Fraction, made: Any, notes: Sequence[str] = ()) -> Report:
    """Return the table of `synth explain`: a row per algorithm, the optimum first, and its limit.

    A rate with switch sends is no part of the bound without them.
    """
    if any(algorithm.multicast for algorithm in made.rates):
        notes = [note for note in notes if note != MULTICAST_NOTE]
    # Rates are parts of the optimum, or of the bound where that is not known.
    top = made.rates[0].units
    columns = ("algorithm", ">units", ">GB/s", ">of the bound", "")
    if made.rates[0].name == "optimum":
        columns = (*columns[:3], ">of the optimum", columns[4])
    rows = []
    for algorithm in made.rates:
        rate = ("-", "-", "-")
        if algorithm.units is not None:
            part = "-" if algorithm.multicast or not top else f"{float(algorithm.units / top):.3f}"
            rate = (show(algorithm.units), gbps_text(algorithm.units, unit), part)
        rows.append((algorithm.name, *rate, algorithm.remark))
    lines = [
        f"limited by: {made.limit}",
        "GB/s: size / time (algorithmic bandwidth) for large messages, without latency",
    ]
    if made.open:
        lines.append(f"left open: {', '.join(made.open)}")
    return Report.of(title, columns, rows, (*lines, *(f"note: {note}" for note in notes)))


def explained(topology: str, collective: str, unit: Fraction, made: Any) -> dict[str, Any]:
    """Return the document of `synth explain --format json`: rates, the cycles of the rings, the ranks of the limit."""
    # Rates as fractions of units and in GB/s.
    ways = []
    for row in made.rates:
        units, rate = (None, None) if row.units is None else (show(row.units), float(row.units * unit))
        ways.append({"way": row.name, "units": units, "gbps": rate, "remark": row.remark})
    document: dict[str, Any] = {"topology": topology, "collective": collective, "unit_gbps": show(unit), "ways": ways}
    document |= {"limit": made.limit, "limit_ranks": [list(part) for part in made.parts], "open": list(made.open)}
    if made.rings is not None:
        rings = made.rings
        document["rings"] = {
            "most": rings.proved_maximum,
            "bound_units": rings.maximum,
            "cycles": [{"ranks": list(r), "units": n} for r, n in rings.rings],
        }
    return document
