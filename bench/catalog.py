"""A catalog of ten thousand entries: list, look up by machine and size, fetch, find in another numbering, write.

python -m bench.catalog [--entries 10000] [--runs 5] [-o results.json]
python -m bench.catalog --table

The entries are real frontiers (`PROBLEMS`), each kept many times under another seed and other machine names; nothing of
them is shared in the file. Each row is a process of its own that has loaded what it needs before its clock starts; CPU
seconds of the process, medians of the runs. The file lies in the page cache. Each answer is compared with what was put.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from bench.measure import RESULTS, command, keep, markdown, median, seconds, setting, where
from synth import api
from synth.catalog.entry import DONE, Entry, Provenance, fingerprint
from synth.catalog.store.rows import EntryRow
from synth.catalog.store.store import Store
from synth.errors import UsageError
from synth.model.frontier import Frontier
from synth.model.topology import Cap, Network, Route

PROBLEMS = (
    ("dgx1", "allgather", 4),
    ("dgx1", "broadcast", 5),
    ("dgx1", "reduce-scatter", 3),
    ("dgx1", "alltoall", 3),
    ("ring:8", "allgather", 6),
    ("hypercube:8", "broadcast", 5),
    ("torus:3x3", "allgather", 4),
    ("dgx1-p100", "allgather", 3),
    ("line:4", "broadcast", 8),
)
MACHINES = 200  # names among which the entries are spread
BATCH = 100


class Goal(NamedTuple):
    """A stage, its goal in CPU seconds (None: only the answer counts), and what it does."""

    stage: str
    goal: float | None
    says: str


STAGES = (
    Goal("ls", 0.2, "open the file, list all entries"),
    Goal("ls printed", 0.2, "the same, as a table"),
    Goal("ls of one machine", 0.2, "open the file, list its entries"),
    Goal("lookup", 0.2, "open the file, points of a machine and collective, the fastest at 1 MiB first"),
    Goal("has", None, "open the file, is this problem answered?"),
    Goal("get", None, "open the file, one entry with its frontier"),
    Goal("find", None, "open the file, the answer to a problem that is an entry's"),
    Goal(
        "find renumbered",
        None,
        "the same of a machine in another numbering: mapped, moved over, replayed, certificates re-checked",
    ),
    Goal("put", None, "open the file, one entry"),
)


def frontiers() -> list[Frontier]:
    """One for each of `PROBLEMS`."""
    found = []
    for name, collective, steps in PROBLEMS:
        made = api.frontier(name, collective, max_steps=steps, max_chunks=6, time_limit=20)
        if isinstance(made, Frontier):
            found.append(made)
    return found


def entry(found: Frontier, number: int) -> Entry:
    """The frontier under a machine name and options of its own."""
    options = (("seed", str(number // len(PROBLEMS))),)
    network = replace(found.network, name=f"machine-{number // len(PROBLEMS) % MACHINES}")
    points = tuple(replace(p, source=replace(p.schedule, network=network)) for p in found.points)
    key = fingerprint(network, found.collective, options)
    made = Provenance((("synth", "0.1.0"),), number, "auto", "auto", "x86_64", "2026-01-01T00:00:00Z")
    moved = replace(found, network=network, points=points)
    return Entry(
        key,
        network.name,
        found.collective.name,
        network.ranks,
        options,
        DONE,
        moved,
        seconds=found.seconds,
        provenance=made,
    )


def fill(path: Path, count: int, found: list[Frontier]) -> float:
    """Write `count` entries; CPU seconds of packing and writing them."""
    began = time.process_time()
    with Store.open(path, create=True) as store:
        for start in range(0, count, BATCH):
            store.put_all([entry(found[i % len(found)], i) for i in range(start, min(start + BATCH, count))])
    return time.process_time() - began


def renumbered(network: Network, rng: random.Random) -> tuple[Network, list[int]]:
    """The same links in another numbering."""
    ranks = rng.sample(range(network.ranks), network.ranks)
    routes = tuple(Route(ranks[r.src], ranks[r.dst], r.units, r.via, r.latency) for r in network.routes)
    return Network(
        "renumbered", network.ranks, routes, tuple(Cap(c.routes, c.units) for c in network.caps), network.unit
    ), ranks


def inside(stage: str, path: Path, count: int, frontier: Frontier) -> dict:
    """One stage in this process: CPU seconds from opening the file on, and what is wrong with the answer."""
    given = entry(frontier, 0)
    own = given.frontier
    assert isinstance(own, Frontier)
    network, roots = renumbered(own.network, random.Random(1))
    task = api.collective(own.collective.name, network.ranks, [roots[r] for r in own.collective.roots])
    fresh = entry(frontier, len(PROBLEMS) * (count + 1))

    def whole(store: Store) -> str:
        rows = list(store.ls())
        return "" if len(rows) == count and all(isinstance(row, EntryRow) for row in rows) else f"{len(rows)} rows"

    def printed(store: Store) -> str:
        from synth.cli.catalog.table import print_rows

        text = io.StringIO()
        with redirect_stdout(text):
            print_rows([row for row in store.ls() if isinstance(row, EntryRow)])
        return "" if text.getvalue().endswith(f"{count} entries, {count} done\n") else text.getvalue()[-80:]

    def machine(store: Store) -> str:
        rows = list(store.ls(given.topology))
        return "" if len(rows) == sum(i // len(PROBLEMS) % MACHINES == 0 for i in range(count)) else f"{len(rows)} rows"

    def lookup(store: Store) -> str:
        found = store.lookup(given.topology, given.collective, 1 << 20)
        best = own.best(1 << 20)
        return "" if any((c.steps, c.rounds) == (best.steps, best.rounds) for c in found[:1]) else f"{found[:1]}"

    def has(store: Store) -> str:
        return str(store.state_of(given.fingerprint)).removeprefix(DONE)

    def get(store: Store) -> str:
        found = store.get(given.fingerprint).frontier
        return "" if isinstance(found, Frontier) and found.to_json() == own.to_json() else "another frontier"

    def find(store: Store) -> str:
        found = store.find(own.network, own.collective, given.options)
        return "" if found is not None and found[1] is None else "not found"

    def moved(store: Store) -> str:
        found = store.find(network, task, given.options)
        return "" if found is not None and found[1] is not None else "not found"

    def put(store: Store) -> str:
        made = store.put(fresh)
        store.delete(fresh.fingerprint)
        return "" if made else "not put"

    calls: dict[str, Callable[[Store], str]] = {
        "ls": whole,
        "ls printed": printed,
        "ls of one machine": machine,
        "lookup": lookup,
        "has": has,
        "get": get,
        "find": find,
        "find renumbered": moved,
        "put": put,
    }
    with tempfile.TemporaryDirectory() as folder:  # what is imported when first used
        other = Path(folder) / "warm.db"
        with Store.open(other, create=True) as store:
            store.put(given)
            calls[stage](store)
    began, wall = time.process_time(), time.perf_counter()
    with Store.open(path) as store:
        try:
            wrong = calls[stage](store)
        except UsageError as error:  # there is no such entry
            wrong = str(error)
    return {"cpu": time.process_time() - began, "wall": time.perf_counter() - wall, "wrong": wrong}


def measure(stage: Goal, path: Path, count: int, runs: int, frontier: Path) -> dict:
    """Medians of a stage over processes of its own."""
    found = []
    for _ in range(runs):
        run = command(
            [sys.executable, "-m", "bench.catalog", "--inside", stage.stage, str(path), str(count), str(frontier)],
            timeout=300,
        )
        if run.code:
            return {"stage": stage.stage, "wrong": (run.stderr.strip().splitlines() or ["stopped"])[-1][:200]}
        found.append(json.loads(run.stdout))
    kept = {
        "stage": stage.stage,
        "goal": stage.goal,
        "says": stage.says,
        "wrong": next((f["wrong"] for f in found if f["wrong"]), ""),
    }
    return kept | {"cpu": round(median(f["cpu"] for f in found), 4), "wall": round(median(f["wall"] for f in found), 4)}


def table(document: dict) -> str:
    """The measurement as Markdown."""
    text = (
        f"# A catalog of {document['entries']} entries\n\nCPU seconds after start-up, medians of {document['runs']} "
        f"processes. The file has"
        f" {document['bytes'] / 1e6:.0f} MB, {document['points']} points; "
        f"{document['filled'] * 1e3 / document['entries']:.1f} ms of CPU an"
        f" entry to write it. {setting(document['setting'])}\n\n"
    )
    rows = []
    for row in document["rows"]:
        goal = "" if row.get("goal") is None else f"{row['goal']:g}" + ("" if row["cpu"] < row["goal"] else " (missed)")
        time_ = seconds(row["cpu"]) if "cpu" in row else ""
        rows.append((row["stage"], time_, goal, f"wrong: {row['wrong']}" if row["wrong"] else row["says"]))
    return text + markdown(("stage", "s>", "goal s>", "what it does"), rows)


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when an answer is wrong (not when it is slow)."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.catalog", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=10_000, metavar="N", help="how many")
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="processes a stage")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("--inside", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "catalog.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    if given.inside:
        stage, path, count, frontier = given.inside
        found = Frontier.from_json(json.loads(Path(frontier).read_text(encoding="utf-8")))
        print(json.dumps(inside(stage, Path(path), int(count), found)))
        return 0
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path, first = Path(folder) / "catalog.db", Path(folder) / "frontier.json"
        found = frontiers()
        filled = fill(path, given.entries, found)
        first.write_text(json.dumps(found[0].to_json()), encoding="utf-8")
        with Store.open(path) as store:
            points = store.base.execute("SELECT count(*) FROM points").fetchone()[0]
        document: dict = {
            "setting": where(),
            "entries": given.entries,
            "runs": given.runs,
            "bytes": path.stat().st_size,
            "points": points,
            "filled": round(filled, 2),
            "rows": [],
        }
        for stage in STAGES:
            document["rows"].append(measure(stage, path, given.entries, given.runs, first))
            print(json.dumps(document["rows"][-1]), file=sys.stderr)
    keep(document, table(document), given.output)
    print(table(document))
    return int(any(row["wrong"] for row in document["rows"]))


if __name__ == "__main__":
    sys.exit(main())
