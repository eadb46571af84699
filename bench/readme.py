"""The figures of the README, written from the JSON of the last measurements: python -m bench.readme."""

from __future__ import annotations

import json
import sys

from bench.measure import RESULTS, ROOT, markdown, seconds

README = ROOT / "README.md"
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
    """Sentences and a table; only what was measured."""
    said = [part for part in (_encodings(), _sweeps(), _peers()) if part]
    return "\n".join(said) if said else "Nothing has been measured at this version; `make bench` does.\n"


def _read(name: str) -> dict | None:
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def _encodings() -> str:
    found = _read("encodings")
    if found is None:
        return ""
    total = found["summary"]
    return (
        f"- Against SCCL's encoding in z3, over the {total['both']} of {total['instances']} instances that both decide:"
        f" **{total['geomean_cpu']:.0f}×** less CPU (geometric mean of medians over {found['seeds']} renumberings;"
        f" encode + solve of the engine that answers), {total['geomean_all']:.0f}× with the time of all other portfolio"
        f" members added;"
        f" {total['path_only_undecided']} more only the default decides in {found['timeout']:g} s"
        " ([table](bench/results/encodings.md)).\n"
    )


def _sweeps() -> str:
    found = _read("sweeps")
    if found is None:
        return ""
    total = found["summary"]
    return (
        "- Against SCCL's own sweep on that encoding, the allgather frontier of a DGX-1:"
        f" **{total['synthesis_cpu_ratio']:.0f}×** less CPU for the synthesis, {total['process_cpu_ratio']:.0f}× "
        f"for the whole process"
        " ([table](bench/results/sweeps.md)).\n"
    )


def _peers() -> str:
    found = _read("goals")
    if found is None:
        return ""
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
