"""The tables of `synth bench` (nccl-tests' columns) and `synth emulate`, from their documents."""

from __future__ import annotations

from synth.model.number_text import number, size_text
from synth.view.frontier_text import Report


def measured(doc: dict) -> Report:
    """Return the table of `synth bench`: a row per program and size, out of place and in place, as in nccl-tests."""
    half = (("time (us)", "right"), ("algbw (GB/s)", "right"), ("busbw (GB/s)", "right"), ("#wrong", "right"))
    columns = (
        ("program", "left"),
        ("size (B)", "right"),
        ("count", "right"),
        ("type", "left"),
        ("redop", "left"),
        ("root", "right"),
        *half,
        *((f"in place: {half[0][0]}", "right"), *half[1:]),
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
            _operator(doc),
            _root(doc),
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
    return Report(
        f"{doc['collective']}, {doc['ranks']} ranks, {doc['executor']} executor",
        columns,
        tuple(rows),
        tuple(sentences),
        ("redop", "root", "type", "count", "algbw (GB/s)"),
    )


def _operator(doc: dict) -> str:
    return (
        doc["op"] if doc["collective"] in ("allreduce", "reduce", "reduce-scatter", "scan", "multi-reduce") else "none"
    )


def _root(doc: dict) -> str:
    return "-1" if doc["root"] is None else str(doc["root"])


def _half(row: dict | None) -> tuple[str, ...]:
    if row is None:
        return ("", "", "", "")
    rates = (_rate(row["algbw_gbps"]), _rate(row["busbw_gbps"]))
    return (f"{row['seconds'] * 1e6:.2f}", *rates, "0" if row["right"] else "N/A")


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def emulated(doc: dict) -> list[Report]:
    """Return the tables of `synth emulate`.

    They are the predicted and emulated µs of every entry by size with the regret, then the negative control, then paced
    runs, if any.
    """
    entries = doc["entries"]
    columns = [("size", "right")]
    for entry in entries:
        columns += [(f"{entry['label']}: synchronous", "right"), ("event-driven", "right")]
    columns += [("chosen", "left"), ("best", "left"), ("regret", "right")]
    rows = []
    for at in doc["sizes"]:
        row = [size_text(at["size"])]
        for predicted, time in zip(at["predicted"], at["emulated"], strict=True):
            row += [_micro(predicted), _micro(time)]
        row += [entries[at["chosen"]]["label"], entries[at["best"]]["label"], f"{100 * at['regret']:.2f}%"]
        rows.append(tuple(row))
    title = f"{doc['collective']} on {doc['topology']}, µs: {doc['says']}"
    beside = [entry["label"] for entry in entries if not entry["choice"]]
    sentences = [
        f"event-driven, as in `synth run`: {doc['model']}",
        "synchronous: predicted, steps are barriers, bare links without a launch",
        "regret: what the point that the synchronous model chooses takes longer than the best, as emulated",
    ]
    sentences += [f"{' and '.join(beside)}: beside the points, not chosen from"] if beside else []
    controls = []
    for c in doc["controls"]:
        heard = "yes" if c["heard"] else "NO"
        times = _micro(c["before"]), _micro(c["after"])
        controls.append((c["change"], size_text(c["size"]), *times, _best(entries, c), heard))
    heads = (
        ("change", "left"),
        ("size", "right"),
        ("before", "right"),
        ("after", "right"),
        ("best", "left"),
        ("heard", "left"),
    )
    control = Report(
        "negative control: the same programs on changed links, µs",
        heads,
        tuple(controls),
        (f"all of this is {doc['says']}",),
    )
    optional = tuple(name for name, _ in columns if name.endswith("predicted"))
    reports = [Report(title, tuple(columns), tuple(rows), tuple(sentences), (*optional, "best")), control]
    return [*reports, _paced(doc)] if doc.get("paced") else reports


def _paced(doc: dict) -> Report:
    """Return the table of paced runs: real time against its multiple of logical time, and whether a run is valid."""
    columns = (
        ("program", "left"),
        ("size", "right"),
        ("times longer", "right"),
        ("logical", "right"),
        ("real / times", "right"),
        ("of logical", "right"),
        ("not held", "right"),
        ("valid", "left"),
    )
    rows = []
    for run in doc["paced"]:
        rows.append(
            (
                doc["entries"][run["entry"]]["label"],
                size_text(run["size"]),
                str(run["stretch"]),
                _micro(run["picoseconds"]),
                number(run["nanoseconds"] / run["stretch"] / 1e3),
                f"{run['ratio']:.4f}",
                number(run["unshaped"] / 1e3),
                "yes" if run["valid"] else "NO",
            )
        )
    sentences = (
        f"paced: the best program of each size, real time held to a multiple of logical time; all of this is "
        f"{doc['says']}",
        "valid: by itself, not held, the executor takes less than half of that real time",
    )
    return Report("paced runs, µs", columns, tuple(rows), sentences)


def _best(entries: list[dict], control: dict) -> str:
    before, after = (entries[control[key]]["label"] for key in ("best_before", "best_after"))
    return f"{before}, as before" if before == after else f"{after} instead of {before}"


def _micro(picoseconds: int) -> str:
    return number(picoseconds / 1e6)
