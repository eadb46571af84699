"""The table of `synth run`, from its document."""

from __future__ import annotations

from fractions import Fraction

from synth.model.number_text import bytes_text, size_text
from synth.view.frontier_text import Report

SHOWN = 3  # maximum number of busiest links in the table


def execution(doc: dict) -> Report:
    """Return the table of `synth run`: result of the comparison, time, bandwidths, bound, busiest links."""
    rows = [("result", _result(doc))]
    # Times, bandwidths and bound, where the executor has a clock.
    time = doc["picoseconds"]
    if time is not None:
        rows.append(("time", f"{_microseconds(time)} µs ({doc['model']})"))
    if doc.get("nanoseconds") is not None:
        rows.append(("real time of the launch", f"{_microseconds(doc['nanoseconds'] * 1000)} µs"))
    if doc["gbps"] is not None:
        rows.append(("algorithmic bandwidth", f"{doc['gbps']:.3f} GB/s"))
    if doc["bus_gbps"] is not None:
        rows.append(("bus bandwidth", f"{doc['bus_gbps']:.3f} GB/s"))
    if doc["ratio"] is not None:
        bound = -(-Fraction(doc["bound_picoseconds"]) // 1)
        launch = " with the launch" if doc["launch_picoseconds"] else ""
        least = f"{_microseconds(int(bound))} µs{launch}"
        rows.append(("certified bound", f"{least}; this is {doc['ratio']:.4f} times as long"))
    if time and doc["links"]:
        busiest = ", ".join(f"{_link(used['link'])} {100 * used['busy'] / time:.0f}%" for used in doc["links"][:SHOWN])
        rows.append(("busiest links", f"{busiest} of {len(doc['links'])} in use"))
    untimed = not doc["topology"] and doc["executor"] == "reference"
    sentences = ("no times: a program has no network of its own, --topo gives it one",) if untimed else ()
    if "says" in doc:
        sentences = (*sentences, doc["says"])
    # The title says the call: program, collective, machine, size and type.
    where = f" on {doc['topology']}" if doc["topology"] else ""
    how = " in place" if doc["in_place"] else ""
    size = size_text(doc["size"])
    if doc["size"] >= 1024 and doc["size"] & (doc["size"] - 1):  # no power of two
        size += f" ({bytes_text(doc['size'])})"
    call = f"{doc['collective']}{where}, {doc['ranks']} ranks, {size} of {doc['dtype']} ({doc['op']}){how}"
    return Report.of(f"{doc['program']}: {call}, {doc['executor']} executor", ("", ""), rows, sentences)


def _result(doc: dict) -> str:
    if doc["right"] is None:
        return "not compared (no data)"
    exact = "all exactly"
    if doc["exact"] != doc["elements"]:
        exact = f"{doc['exact']:,} exactly, the others within their rounding bound"
    return f"right: {doc['elements']:,} elements compared, {exact}"


def _microseconds(picoseconds: int) -> str:
    whole, rest = divmod(picoseconds, 10**6)
    return f"{whole:,}.{rest:06d}".rstrip("0").rstrip(".")


def _link(key: list) -> str:
    return f"{key[0]}->{key[1]}" + (f" through {' '.join(key[2])}" if len(key) > 2 else "")


# The tables of `synth bench`, with nccl-tests' columns, from their documents.


def measured(doc: dict) -> Report:
    """Return the table of `synth bench`: a row per program and size, out of place and in place, as in nccl-tests."""
    half = (">time (us)", ">algbw (GB/s)", ">busbw (GB/s)", ">#wrong")
    columns = (
        "program",
        ">size (B)",
        ">count",
        "type",
        "redop",
        ">root",
        *half,
        f">in place: {half[0][1:]}",
        *half[1:],
    )
    # nccl-tests has no operation for collectives without sums, and root -1 for those without one.
    sums = ("allreduce", "reduce", "reduce-scatter", "scan", "multi-reduce")
    redop = doc["op"] if doc["collective"] in sums else "none"
    root = "-1" if doc["root"] is None else str(doc["root"])
    pairs: dict[tuple[int, int], dict[bool, dict]] = {}
    for row in doc["rows"]:
        pairs.setdefault((row["program"], row["size"]), {})[row["in_place"]] = row
    rows = []
    for (k, size), timings in pairs.items():
        timing = next(iter(timings.values()))
        start = doc["programs"][k]["label"], str(size), str(timing["element_count"]), doc["dtype"], redop, root
        rows.append((*start, *_half(timings.get(False)), *_half(timings.get(True))))
    repeats = max((row["repeats"] for row in doc["rows"]), default=1)
    sentences = [f"times are {doc['says']}"]
    if repeats > 1:
        sentences.append(f"each time is the median of {repeats} launches; the least and the most are in the JSON")
    title = f"{doc['collective']}, {doc['ranks']} ranks, {doc['executor']} executor"
    return Report.of(title, columns, rows, sentences)


def _half(row: dict | None) -> tuple[str, ...]:
    if row is None:
        return ("", "", "", "")
    rates = (_rate(row["algbw_gbps"]), _rate(row["busbw_gbps"]))
    return (f"{row['seconds'] * 1e6:.2f}", *rates, "0" if row["right"] else "N/A")


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
