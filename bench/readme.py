"""The figures of the README, written from the JSON of the last measurements: python -m bench.readme."""

from __future__ import annotations

import json
import sys

from bench.measure import RESULTS, ROOT, markdown, seconds

README, GOALS = ROOT / "README.md", RESULTS / "goals.json"
BEGIN, END = "<!-- figures: written by python -m bench.readme -->\n", "<!-- end of figures -->"
SIXTEEN = (
    "hypercube of 16 allgather",
    "torus 4×4 allgather",
    "DGX-2 allgather",
    "DGX-A100×2 allgather",
    "MI250 allgather",
)


def main() -> int:
    """Rewrites what stands between the marks."""
    before, rest = README.read_text(encoding="utf-8").split(BEGIN)
    README.write_text(before + BEGIN + figures() + END + rest.split(END)[1], encoding="utf-8")
    return 0


def figures() -> str:
    """A sentence and a table; only what was measured."""
    if not GOALS.exists():
        return "Nothing has been measured at this version; `make bench` does.\n"
    found = json.loads(GOALS.read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in found["rows"] if not row["error"]}
    peers = (
        (
            "DGX-1 allgather, the frontier",
            "msccl-tools: 24.6 CPU s (measured), 111 s (its SYNTHESIS.md)",
            ("DGX-1 allgather",),
        ),
        (
            "DGX-1 alltoall (24, 8, 8), here C=3",
            "SCCL: 133.7 s (paper), a failure (msccl-tools issue 52)",
            ("DGX-1 alltoall (3,8,8)",),
        ),
        ("allgather on 16 GPUs", "SCCL: > 24 h (as quoted by SyCCL)", SIXTEEN),
    )
    lines = []
    for what, others, names in peers:
        if all(name in rows for name in names):
            wall = max(rows[name]["wall"] for name in names)
            here = (
                f"{seconds(wall)} s"
                if len(names) == 1
                else f"at most {seconds(wall)} s on each of {len(names)} machines"
            )
            lines.append((what, others, here))
    setting = found["setting"]
    return (
        f"- Beside published and measured times of others (here: wall time of the command, start to exit; "
        f"{setting['cpu']},"
        f" {setting['cores']} cores; [all rows](bench/results/goals.md)):\n\n"
        + markdown(("what", "others", "here"), lines)
    )


if __name__ == "__main__":
    sys.exit(main())
