"""The command line of a bench that measures rows one by one, each in processes of its own."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.measure import RESULTS, keep, where


def drive(
    bench: str,
    doc: str | None,
    arguments: Sequence[str] | None,
    rows: Sequence[Any],  # each has a name
    measure: Callable[[Any, int], dict],
    inside: Callable[[str, str], dict],
    table: Callable[[dict], str],
    runs: int,
) -> int:
    """Measures, or prints the table of what was measured. Returns 1 when a row is wrong (not when it is slow).

    `bench` is the module's name in this package; `runs`: processes a row, unless the user says otherwise. `inside` is
    what such a process does, with the two words of a row's name; its document is printed.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m bench.{bench}", description=doc, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="rows that hold this text; others are kept")
    parser.add_argument("--runs", type=int, default=runs, metavar="N", help="processes a row")
    parser.add_argument("--table", action="store_true", help="print the table of an earlier run")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS / f"{bench}.json", metavar="FILE.json")
    given = parser.parse_args(arguments)
    if given.inside:
        print(json.dumps(inside(*given.inside.split(" ", 1))))
        return 0
    if given.table:
        document = json.loads(given.output.read_text(encoding="utf-8"))
        print(table(document) + _of_commits(document["rows"]))
        return 0
    document: dict = {"setting": where(), "runs": given.runs, "rows": []}
    measured: dict[str, dict] = {}
    if given.only and given.output.exists():
        before = json.loads(given.output.read_text(encoding="utf-8"))
        measured = {row["name"]: row for row in before["rows"]}
        document = before | {"runs": given.runs} if measured else document
    of = where()
    for row in rows:
        if given.only in row.name:
            measured[row.name] = measure(row, given.runs)
            if document["setting"]["commit"] != of["commit"]:
                measured[row.name]["commit"] = of["commit"]
            print(json.dumps(measured[row.name]), file=sys.stderr)
            document["rows"] = [measured[one.name] for one in rows if one.name in measured]
            keep(document, table(document) + _of_commits(document["rows"]), given.output)  # a run may be ended any time
    print(table(document) + _of_commits(document["rows"]))
    return int(any(row["wrong"] for row in document["rows"]))


def _of_commits(rows: Sequence[dict]) -> str:
    """Return lines on the rows that were measured later than the others, with --only."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if "commit" in row:
            names.setdefault(row["commit"], []).append(row["name"])
    return "".join(f"\nOf commit {commit}: {', '.join(names[commit])}.\n" for commit in names)
