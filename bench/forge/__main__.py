"""Documents that are nearly right, shown to the verifier; each that it accepts is judged by an oracle that shares no
code with it.

python -m bench.forge [--seed 0] [--cases 2000] [--jobs 2] [--findings DIR]

Mutants are made of valid documents of every schema but archives, and every kind of certificate (seeds.py), by the
operators of bench/forge/operators.py. An accepted one is `true` (harmless: it may say something else, that holds),
`false` (a hole of the verifier) or `undecided`; the verifier may also crash, or be kept busy. What is not harmless is
written to `--findings`, as files that `synth verify` takes. Exit code 1 where anything false, crashed or slow was
found.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from bench.forge import campaign, seeds
from bench.measure import markdown

BAD = ("false", "crashed", "slow")
ANSWERS = ("refused", "true", "undecided", *BAD)


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where the verifier was found wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.forge", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="other mutants for another seed")
    parser.add_argument("--cases", type=int, default=2000, help="how many mutants (default: 2000)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-cases"), help="where faults are written")
    given = parser.parse_args(arguments)
    count: Counter = Counter()
    for some, findings in campaign.run(seeds.cases(), given.seed, given.cases, given.jobs):
        count += some
        for finding in findings:
            at = campaign.save(finding, given.findings)
            what = f"{finding.verdict}: {finding.seed}, {finding.mutation} ({finding.number})"
            print(f"{what}: {finding.reason[:160]} {at}", file=sys.stderr)
    print(table(count))
    return int(any(answer in BAD for *_, answer in count))


def table(count: Counter) -> str:
    """The answers by schema and kind of certificate, and all together."""
    rows: dict[tuple[str, str], Counter] = {}
    for (schema, kind, answer), n in sorted(count.items()):
        rows.setdefault((schema, kind), Counter())[answer] += n
        rows.setdefault(("all", ""), Counter())[answer] += n
    lines = [[*key, *(str(row[answer]) for answer in ANSWERS)] for key, row in sorted(rows.items())]
    return markdown(["schema", "certificate", *(f"{answer}>" for answer in ANSWERS)], lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
