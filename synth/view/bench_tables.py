"""The tables of `synth bench`, with nccl-tests' columns, from their documents."""

from __future__ import annotations

from synth.view.frontier_text import Report


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
        *(f">in place: {half[0][0]}", *half[1:]),
    )
    pairs: dict[tuple[int, int], dict[bool, dict]] = {}
    for row in doc["rows"]:
        pairs.setdefault((row["program"], row["size"]), {})[row["in_place"]] = row
    rows = []
    for (k, size), timings in pairs.items():
        timing = next(iter(timings.values()))
        start = (
            doc["programs"][k]["label"],
            str(size),
            str(timing["element_count"]),
            doc["dtype"],
            (
                doc["op"]
                if doc["collective"] in ("allreduce", "reduce", "reduce-scatter", "scan", "multi-reduce")
                else "none"
            ),
            ("-1" if doc["root"] is None else str(doc["root"])),
        )
        rows.append((*start, *_half(timings.get(False)), *_half(timings.get(True))))
    for row in doc.get("beside", ()):
        time, rate = f"{row['seconds'] * 1e6:.2f}", _rate(row["gbps"])
        rows.append((row["label"], str(row["size"]), "", doc["dtype"], "", "", time, rate, "-", "-", *[""] * 4))
    repeats = max((row["repeats"] for row in doc["rows"]), default=1)
    sentences = [f"times are {doc['says']}"]
    sentences += list(
        dict.fromkeys(f"{row['label']}: {row['says']}; GB/s of the bytes written" for row in doc.get("beside", ()))
    )
    if repeats > 1:
        sentences.append(f"each time is the median of {repeats} launches; the least and the most are in the JSON")
    return Report.of(
        f"{doc['collective']}, {doc['ranks']} ranks, {doc['executor']} executor",
        columns,
        rows,
        sentences,
    )


def _half(row: dict | None) -> tuple[str, ...]:
    if row is None:
        return ("", "", "", "")
    rates = (_rate(row["algbw_gbps"]), _rate(row["busbw_gbps"]))
    return (f"{row['seconds'] * 1e6:.2f}", *rates, "0" if row["right"] else "N/A")


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
