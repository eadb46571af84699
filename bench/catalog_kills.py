"""A catalog's job killed at random moments and resumed: the same catalog, nothing lost, nothing doubled.

python -m bench.catalog_kills [--kills 10] [--seed 0] [--jobs 2] [-o results.json]
python -m bench.catalog_kills --table

The job is run once without a break. Then, into another catalog, it is started and killed (SIGKILL, the whole command
and nothing else) at a random moment, again and again, such that all kills together fall into about that time, and at
last run to its end. Compared are all entries: the problem, the state, S, R/C and status of every point, the intervals;
schedules may differ where a race decides.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import RESULTS, ROOT, keep, markdown, seconds, setting, where
from synth.catalog.store.store import Store
from synth.model.rational import show

FLEET = """\
topologies:
  - dgx1-v100
  - {name: 'ring:8', degraded: [0-1]}
  - {name: dgx1-v100, allocations: [3, 4], collectives: [allgather, alltoall, reduce-scatter]}
collectives: [allgather, reduce-scatter, alltoall, gather, sendrecv, {name: broadcast, roots: [1]}]
options: {max-steps: 3}
"""
GRACE = 10.0  # seconds in which children of a killed job must be gone


def main(arguments: list[str] | None = None) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when the catalogs differ or a process is left
    over."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.catalog_kills", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--jobs", type=int, default=2, metavar="N")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / "catalog_kills.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    if given.table:
        print(table(json.loads(given.output.read_text(encoding="utf-8"))))
        return 0
    with tempfile.TemporaryDirectory(prefix="synth-bench-") as folder:
        document = {"setting": where()} | killed(
            Path(folder), FLEET, given.kills, random.Random(given.seed), given.jobs
        )
    keep(document, table(document), given.output)
    print(table(document))
    return 0 if document["same"] and not document["left_over"] else 1


def killed(folder: Path, fleet: str, kills: int, chance: random.Random, jobs: int = 2) -> dict:
    """One whole run, and one killed `kills` times; what came of them."""
    job = folder / "fleet.yaml"
    job.write_text(fleet)
    began = time.monotonic()
    code = start(job, folder / "whole.db", jobs).wait()
    whole, took = contents(folder / "whole.db"), time.monotonic() - began
    moments, found, left_over = [], [], 0
    for _ in range(kills):
        process = start(job, folder / "killed.db", jobs)
        moment = chance.uniform(0.1, 1.5) * took / kills
        try:
            process.wait(moment)
            moments.append(None)  # it had nothing left to do
        except subprocess.TimeoutExpired:
            moments.append(round(moment, 2))
        family = descendants(process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        left_over += len(survivors(family))
        found.append(len(contents(folder / "killed.db")) if (folder / "killed.db").exists() else 0)
    again = start(job, folder / "killed.db", jobs).wait()
    resumed = contents(folder / "killed.db")
    logs = len(list((folder / "killed.db.tasks").glob("*")))
    return {
        "kills": kills, "moments": moments, "entries_after": found, "entries": len(whole), "seconds": round(took, 2),
        "codes": [code, again], "same": whole == resumed, "lost": len(whole.keys() - resumed.keys()),
        "doubled": len(resumed.keys() - whole.keys()), "left_over": left_over, "logs_left": logs,
    }  # fmt: skip


def start(job: Path, db: Path, jobs: int) -> subprocess.Popen:
    """The command, as a user gives it."""
    command = [
        str(Path(sys.executable).with_name("synth")),
        "catalog",
        "build",
        str(job),
        "--db",
        str(db),
        "--jobs",
        str(jobs),
    ]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, cwd=ROOT, env={**os.environ, "SYNTH_CACHE": str(db.parent / "cache")}
    )


def contents(db: Path) -> dict[str, object]:
    """Return the answers of a catalog by fingerprint."""
    with Store.open(db) as store:
        return {name: answer(store, name) for name in store.fingerprints()}


def answer(store: Store, name: str) -> object:
    """An entry without its seconds, dates and choice of schedules."""
    entry = store.get(name)
    frontier = entry.frontier
    points = (
        [(p.steps, show(p.rounds_per_chunk), getattr(p, "status", "")) for p in frontier.points] if frontier else []
    )
    intervals = [(o.steps, show(o.lower), o.upper and show(o.upper)) for o in getattr(frontier, "open", ())]
    return (
        entry.topology,
        entry.collective,
        entry.roots,
        entry.options,
        entry.state,
        points,
        intervals,
        bool(entry.certificate),
    )


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs, as /proc tells; none where there is no /proc."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    children = [int(word) for word in text.split()]
    return children + [grand for child in children for grand in descendants(child)]


def survivors(pids: list[int]) -> list[int]:
    """Return the processes that still run after `GRACE` seconds."""
    until = time.monotonic() + GRACE
    while (alive := [pid for pid in pids if running(pid)]) and time.monotonic() < until:
        time.sleep(0.05)
    return alive


def running(pid: int) -> bool:
    """Return True if the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def table(document: dict) -> str:
    """The measurement as Markdown."""
    rows = [
        (str(i + 1), "ended before" if moment is None else seconds(moment), str(entries))
        for i, (moment, entries) in enumerate(zip(document["moments"], document["entries_after"], strict=True))
    ]
    verdict = (
        "the same catalog"
        if document["same"]
        else f"NOT the same: {document['lost']} lost, {document['doubled']} doubled"
    )
    lines = [
        f"# A job of {document['entries']} entries, killed {document['kills']} times and resumed: {verdict}\n",
        f"{document['seconds']:.0f} s without a break; {document['left_over']} processes left over. "
        f"{setting(document['setting'])}\n",
        markdown(("kill>", "after s>", "entries then>"), rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
