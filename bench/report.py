"""The page of `synth report` on a hundred entries: how large it is, and how long a browser takes to open it.

python -m bench.report [--entries 100] [--limit 8] [--runs 5] [--db catalog.db] [-o results.json]
python -m bench.report --table

The entries are frontiers of machines with up to 16 GPUs under every collective, each found within `--limit` seconds
(what is open by then stays open), put into a catalog in the order of the list below; `--db` keeps the catalog, or takes
one that is there. Opening is timed by Chromium's own clock, from the start of the navigation to its load event, by when
the list of entries is drawn; then from the address of the entry with the longest schedule to its drawing. Each run is a
new browser. Wall seconds: other work on the machine shows. A second page holds the entry with the most sends a hundred
times, which is more than a catalog would.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from pathlib import Path

from bench.chromium import Chromium, missing
from bench.measure import RESULTS, keep, markdown, median, setting, where
from synth import api
from synth.catalog.entry import DONE, OPEN, Entry, Provenance
from synth.catalog.report import ReportSource
from synth.catalog.store.store import Store
from synth.errors import SynthError
from synth.model.frontier import Frontier

MACHINES = (
    "dgx1-v100",
    "dgx1-p100",
    "dgx-a100",
    "mi50-z52",
    "mi100-4p3l",
    "mi300x",
    "mi250",
    "dgx2",
    "dgx1*2:cross=0+2",
    "torus:4x4",
    "hypercube:16",
    "ring:8",
    "hypercube:8",
    "mesh:2x4",
    "star:8",
    "fully-connected:8",
)
COLLECTIVES = (
    "allgather",
    "reduce-scatter",
    "allreduce",
    "broadcast",
    "reduce",
    "alltoall",
    "scatter",
    "gather",
    "scan",
)
GOALS = {"megabytes": 5.0, "open": 2.0}


def fill(path: Path, entries: int, limit: float) -> None:
    """Put frontiers into the catalog at `path` until it has so many."""
    with Store.open(path, create=True) as store:
        for collective in COLLECTIVES:
            for machine in MACHINES:
                if len(store) >= entries:
                    return
                mark = hashlib.sha256(f"{machine} {collective}".encode()).hexdigest()
                if store.state_of(mark):
                    continue
                start = time.monotonic()
                try:
                    found = api.frontier(machine, collective, time_limit=limit, jobs=1, engine="exact", fresh=True)
                except SynthError as error:
                    print(f"{machine} {collective}: {error}", file=sys.stderr)
                    continue
                if not isinstance(found, Frontier) or not found.points:
                    print(f"{machine} {collective}: nothing found in {limit:g} s", file=sys.stderr)
                    continue
                state = DONE if found.complete else OPEN
                made = Provenance((("synth", "bench"),), 0, "auto", "auto", "bench.report", "", limit)
                name, ranks = found.network.name, found.network.ranks
                store.put(
                    Entry(
                        mark,
                        name,
                        found.collective.name,
                        ranks,
                        (),
                        state,
                        found,
                        seconds=time.monotonic() - start,
                        provenance=made,
                    )
                )
                print(f"{len(store)}: {found!r}", file=sys.stderr)


def made(given: list[ReportSource], verify: bool) -> tuple[str, int, float]:
    """The page, how many entries it has, and the CPU seconds it took."""
    start = time.process_time()
    page = api.report(given, verify=verify)
    return page.html, page.entries, time.process_time() - start


def heavy(path: Path, entries: int) -> list[ReportSource]:
    """The entry with the most sends of a catalog, so many times."""
    with Store.open(path) as store:
        every = [store.get(fingerprint) for fingerprint in store.fingerprints()]

    def sends(entry: Entry) -> int:
        points = entry.frontier.points if isinstance(entry.frontier, Frontier) else ()
        return sum(len(step.sends) for point in points for step in point.schedule.steps)

    return [max(every, key=sends)] * entries


def heaviest(html: str) -> tuple[int, int]:
    """The place of the entry with the longest schedule that is drawn, from 1, and its sends."""
    found = []
    for k, part in enumerate(html.split('id="entry-')[1:], 1):
        doc = json.loads(part.partition(">")[2].partition("</script>")[0])
        found += [(a["move"]["sends"], -k) for a in doc["algorithms"] if a["move"]]
    sends, k = max(found)
    return -k, sends


def opened(path: Path, entry: int) -> dict[str, float]:
    """Seconds of one opening in a new browser: to the load event, to the first paint with content, and of one entry."""
    timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    drawn = (
        "new Promise(done => {{ const start = performance.now(); location.hash = '#{}';"
        " const look = () => document.querySelector('#player .wire') ? done(performance.now() - start)"
        " : requestAnimationFrame(look); look(); }})"
    )
    with Chromium() as browser:
        browser.window(1200, 900)
        browser.open(path)
        browser.wait(f"{timing} > 0 && ({paint}) > 0")
        rows = browser.run("document.querySelectorAll('.list tbody tr').length")
        if not rows or browser.complaints():
            raise SystemExit(f"the page did not open: {rows} rows, {browser.complaints()}")
        found = {"open": browser.run(timing) / 1e3, "paint": browser.run(paint) / 1e3}
        return found | {"entry": browser.run(drawn.format(entry)) / 1e3}


def measure(name: str, given: list[ReportSource], runs: int) -> dict:
    """All figures of one page."""
    page, entries, checked = made(given, True)
    unchecked = made(given, False)[2]
    entry, sends = heaviest(page)
    with tempfile.TemporaryDirectory(prefix="synth-report-") as folder:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        seen = [opened(file, entry) for _ in range(runs)]
    return {
        "name": name,
        "entries": entries,
        "megabytes": len(page.encode()) / 1e6,
        "drawn": page.count('"move":{'),
        "left_out": page.count("left out to keep this page small"),
        "cpu_checked": checked,
        "cpu_unchecked": unchecked,
        "sends": sends,
        **{key: [run[key] for run in seen] for key in ("open", "paint", "entry")},
    }


def table(doc: dict) -> str:
    """A column for each page, with the goals."""
    rows = doc["rows"]

    def seconds(key: str) -> list[str]:
        return [f"{median(row[key]):.2f} ({min(row[key]):.2f} to {max(row[key]):.2f})" for row in rows]

    lines = [
        ("entries", *(str(row["entries"]) for row in rows), ""),
        ("size of the page, MB", *(f"{row['megabytes']:.2f}" for row in rows), f"< {GOALS['megabytes']:g}"),
        ("schedules drawn", *(str(row["drawn"]) for row in rows), ""),
        ("schedules left out for room", *(str(row["left_out"]) for row in rows), ""),
        ("opening, s to the load event", *seconds("open"), f"< {GOALS['open']:g}"),
        ("opening, s to the first paint with content", *seconds("paint"), ""),
        ("sends of the longest schedule", *(str(row["sends"]) for row in rows), ""),
        ("its entry, s until it is drawn", *seconds("entry"), ""),
        ("making the page, CPU s, everything re-checked", *(f"{row['cpu_checked']:.1f}" for row in rows), ""),
        ("making the page, CPU s, `--no-verify`", *(f"{row['cpu_unchecked']:.1f}" for row in rows), ""),
    ]
    head = ("what", *(f"{row['name']}>" for row in rows), "goal>")
    how = (
        f"Seconds: median (least to most) of {len(rows[0]['open'])} new browsers, wall time, by the browser's "
        f"clock; {doc['browser']}."
    )
    return f"# The page of a report\n\n{markdown(head, lines)}\n{how}\n\n{setting(doc['setting'])}\n"


def main(arguments: list[str] | None = None) -> int:
    """Measures, prints the table, and keeps it. 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--entries", type=int, default=100)
    parser.add_argument("--limit", type=float, default=8.0)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--table", action="store_true", help="print the table of what was measured")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "report.json")
    given = parser.parse_args(arguments)
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    if lack := missing():
        print(lack, file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="synth-report-") as folder:
        path = given.db or Path(folder) / "catalog.db"
        fill(path, given.entries, given.limit)
        rows = [
            measure("a catalog", [path], given.runs),
            measure("its heaviest entry, again and again", heavy(path, given.entries), given.runs),
        ]
    with Chromium() as browser:
        version = browser.call("Browser.getVersion")["product"]
    doc = {"setting": where(), "browser": version, "limit": given.limit, "rows": rows}
    keep(doc, table(doc), given.output)
    print(table(doc))
    missed = [
        row["name"]
        for row in rows
        if row["megabytes"] >= GOALS["megabytes"]
        or median(row["open"]) >= GOALS["open"]
        or row["entries"] < given.entries
    ]
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
