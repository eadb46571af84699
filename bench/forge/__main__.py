"""Documents that are nearly right, shown to the verifier; each that it accepts is judged by an oracle that shares no
code with it.

python -m bench.forge [--seed 0] [--time-limit 300] [--jobs 2] [--findings DIR]
python -m bench.forge --seed 1 --cases 2000          about so many mutants; what is found goes to fuzz-cases/, no table
                                                     is written
python -m bench.forge --take-back [V1 V5 ...]
python -m bench.forge --table

Mutants are made of valid documents of every schema and every kind of certificate (bench/forge/seeds.py) by the
operators of bench/forge/operators.py. An accepted one is `true` (harmless: it may say something else, that holds),
`false` (a hole of the verifier) or `undecided`; the verifier may also crash, or be kept busy. What is not harmless is
written to
`--findings`, as files that `synth verify` takes. Exit code 1 where anything false, crashed or slow was found. With
`--take-back` each mend is undone alone (bench/forge/takeback.py), and the adversary has five minutes to find the fault.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.forge import campaign, seeds, takeback
from bench.forge.operators import OPERATORS
from bench.measure import RESULTS, keep, markdown, setting, where

BAD = ("false", "crashed", "slow")
WITHIN = 300.0  # seconds in which a fault has to be found


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where the verifier was found wrong, or a mend taken back was not missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.forge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="other mutants for another seed")
    parser.add_argument(
        "--time-limit", type=float, default=WITHIN, metavar="SECONDS", help="of wall time (default: 300)"
    )
    parser.add_argument("--cases", type=int, help="so many mutants, however long they take, and no table")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--findings", type=Path, metavar="DIR", help="where mutants that show a fault are written")
    parser.add_argument(
        "--take-back", nargs="*", metavar="MEND", help=f"undo mends one by one: {', '.join(takeback.MENDS)}"
    )
    parser.add_argument("--table", action="store_true", help="write the table of the results that are there again")
    given = parser.parse_args(arguments)
    path = RESULTS / "forge.json"
    if given.table:
        document = json.loads(path.read_text(encoding="utf-8"))
        keep(document, table(document), path)
        return 0
    if given.cases is not None:
        given.findings, given.time_limit = given.findings or Path("fuzz-cases"), float("inf")
    made = seeds.cases()
    if given.take_back is not None:
        return _taken_back(made, given)
    count, found = _attack(made, given)
    if given.cases is not None:
        return _said(count)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    document = {
        "where": where(), "seed": given.seed, "seconds": given.time_limit, "jobs": given.jobs, "seeds": len(made),
        "rows": [{"cell": list(cell), "answer": answer, "count": n} for (cell, answer), n in sorted(count.items())],
        "findings": [_finding_json(finding) for finding in found],
        "taken_back": kept.get("taken_back", []),
    }  # fmt: skip
    keep(document, table(document), path)
    return _said(count)


def _said(count: Counter) -> int:
    """Prints how many mutants had which answer; the exit code."""
    total: Counter = Counter()
    for (_, answer), n in count.items():
        total[answer] += n
    print(json.dumps(dict(total)))
    return 1 if any(total[answer] for answer in BAD) else 0


def _attack(
    made: Sequence[seeds.Case], given: argparse.Namespace, stop: bool = False
) -> tuple[Counter, list[campaign.Finding]]:
    count: Counter = Counter()
    found: list[campaign.Finding] = []
    began = shown = time.monotonic()
    for some, more in campaign.run(
        made, given.seed, seconds=given.time_limit, jobs=given.jobs, stop=_shows if stop else None, cases=given.cases
    ):
        count += some
        for finding in more:
            found.append(finding)
            at = campaign.save(finding, given.findings) if given.findings else ""
            print(
                f"{finding.verdict}: {finding.seed}, {finding.cell.mutation} ({finding.number}): "
                f"{finding.reason[:160]} {at}",
                file=sys.stderr,
            )
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(f"{shown - began:.0f} s: {count.total()} mutants, {len(found)} findings", file=sys.stderr)
    return count, found


def _finding_json(finding: campaign.Finding) -> dict:
    message = {key: getattr(finding, key) for key in ("number", "seed", "verdict")}
    return message | {"cell": list(finding.cell), "reason": finding.reason[:200]}


def _shows(found: list[campaign.Finding]) -> bool:
    return any(finding.verdict == "false" for finding in found)


def _taken_back(made: Sequence[seeds.Case], given: argparse.Namespace) -> int:
    rows = []
    for name in given.take_back or takeback.MENDS:
        began = time.monotonic()
        with takeback.without(name):
            given.time_limit = min(given.time_limit, WITHIN)
            count, found = _attack(made, given, stop=True)
        first = next((f for f in found if f.verdict == "false"), None)
        seconds = round(time.monotonic() - began, 1)
        rows.append(
            {"mend": name, "mutants": count.total(), "seconds": seconds, "found": first.reason[:160] if first else None}
        )
        print(json.dumps(rows[-1]))
    path = RESULTS / "forge.json"
    if path.exists():  # beside the campaign's own results, and those of other mends
        document = json.loads(path.read_text(encoding="utf-8"))
        done = {row["mend"]: row for row in [*document["taken_back"], *rows]}
        document["taken_back"] = [done[name] for name in takeback.MENDS if name in done]
        keep(document, table(document), path)
    return 0 if all(row["found"] for row in rows) else 1


def table(document: dict) -> str:
    """The results by schema, kind of certificate and mutation."""
    answers: dict[tuple[str, str], dict[str, Counter]] = {}
    for row in document["rows"]:
        schema, kind, mutation = row["cell"]
        answers.setdefault((schema, kind), {}).setdefault(mutation, Counter())[row["answer"]] += row["count"]
    lines = [[*key, *(_cell(row.get(m, Counter())) for m in OPERATORS)] for key, row in sorted(answers.items())]
    totals = []
    for mutation in [*OPERATORS, "all"]:
        total = sum((c for row in answers.values() for m, c in row.items() if mutation in (m, "all")), Counter())
        totals.append(
            [
                mutation,
                str(total.total()),
                str(total.total() - sum(total[a] for a in ("refused", "crashed", "slow"))),
                *(str(total[a]) for a in ("true", "false", "undecided", "crashed", "slow")),
            ]
        )
    findings = [
        [f["verdict"], f["seed"], f["cell"][2], f["reason"].replace("|", "/")] for f in document["findings"][:40]
    ]
    back = [
        [row["mend"], str(row["mutants"]), str(row["seconds"]), row["found"] or "not found"]
        for row in document["taken_back"]
    ]
    return (
        f"# Forged documents\n\n{sum(row['count'] for row in document['rows'])} mutants of {document['seeds']} "
        f"valid documents, seed "
        f"{document['seed']}, {document['seconds']:g} s with {document['jobs']} jobs. Each that `synth verify` "
        f"accepted was judged by an "
        "oracle that shares no code with it (bench/forge/oracle.py): true, false or undecided.\n\n"
        + markdown(["mutation", "tried>", "accepted>", "true>", "false>", "undecided>", "crashed>", "slow>"], totals)
        + "\nBy schema and kind of certificate: tried / accepted; `!` false, `?` undecided, `x` crashed or slow, "
        "where there are any.\n\n"
        + markdown(["schema", "certificate", *(f"{m}>" for m in OPERATORS)], lines)
        + (
            ("\nFindings, the first:\n\n" + markdown(["verdict", "document", "mutation", "what is wrong"], findings))
            if findings
            else ""
        )
        + (
            ("\nMends taken back, one at a time:\n\n" + markdown(["mend", "mutants>", "seconds>", "found"], back))
            if back
            else ""
        )
        + "\n"
        + setting(document["where"])
        + "\n"
    )


def _cell(count: Counter) -> str:
    accepted = sum(count[a] for a in ("true", "false", "undecided"))
    marks = [
        f"{mark}{n}"
        for mark, n in (("!", count["false"]), ("?", count["undecided"]), ("x", count["crashed"] + count["slow"]))
        if n
    ]
    return " ".join([f"{count.total()}/{accepted}", *marks])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
