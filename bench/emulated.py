"""The DGX-1's allgather and allreduce, 1 KiB .. 1 GiB: predicted beside emulated, the regret of the prediction,
negative controls.

python -m bench.emulated [--sizes 1KiB:1GiB:x4] [--host-sizes 1KiB:256KiB:x4]

Every point of the two frontiers in bench/frontiers, and the ring beside, at every size: what the synchronous model S α
+ (R/C) bytes/β predicts and what the reference executor makes of the lowered programs on the same links. At the smaller
sizes the CUDA kernel's source keeps the time by itself on CPU threads while it moves and compares the data; it must
agree to the picosecond. All of it is an execution-driven model: nothing here was measured on a DGX-1. Writes
bench/results/emulated.json and a table.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from bench.gpu_common import RESULTS, frontier
from synth import api
from synth.cli.framework.sizes import Sizes
from synth.model.number_text import size_text
from synth.runtime.benchmark.emulation import EmulationResult
from synth.runtime.host.executor import Host

COLLECTIVES = ("allgather", "allreduce")


def table(found: EmulationResult, name: str) -> list[str]:
    """The rows of one collective, µs: predicted / emulated."""
    labels = [entry.label for entry in found.entries]
    lines = [
        f"## {name}", "", f"µs, predicted / emulated; {found.to_json()['says']}.", "",
        f"| size | {' | '.join(labels)} | chosen | best | regret |", f"|---|{'--:|' * len(labels)}---|---|--:|",
    ]  # fmt: skip
    for at in found.sizes:
        pairs = [f"{float(p) / 1e6:.2f} / {e / 1e6:.2f}" for p, e in zip(at.predicted, at.emulated, strict=True)]
        cells = [size_text(at.size), *pairs, labels[at.chosen], labels[at.best], f"{100 * float(at.regret):.2f}%"]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| control | size | before | after | winner | heard |", "|---|--:|--:|--:|---|---|"]
    for c in found.controls:
        winner = (
            labels[c.best_before]
            if c.best_before == c.best_after
            else f"{labels[c.best_after]} instead of {labels[c.best_before]}"
        )
        lines.append(
            f"| {c.change} | {size_text(c.size)} | {c.before / 1e6:.2f} | {c.after / 1e6:.2f} | {winner} | "
            f"{'yes' if c.heard else 'NO'} |"
        )
    return [*lines, ""]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1KiB:1GiB:x4")
    parser.add_argument("--host-sizes", default="1KiB:256KiB:x4")
    given = parser.parse_args(arguments)
    sizes, few = (Sizes().convert(text, None, None) for text in (given.sizes, given.host_sizes))
    lines, docs, wrong = ["# Emulated: DGX-1, allgather and allreduce", ""], [], 0
    for name in COLLECTIVES:
        start = time.process_time()
        found = api.emulate(frontier(name), sizes, overheads=False)
        lines += table(found, name)
        wrong += sum(not control.heard for control in found.controls)
        doc = {"collective": name, "cpu_seconds": round(time.process_time() - start, 1), "reference": found.to_json()}
        if Host().available() is None:
            kernel = api.emulate(frontier(name), few, "host", threads=1, timeout=60, overheads=False)
            model = api.emulate(frontier(name), few, overheads=False)
            same = sum(
                a == b
                for k, m in zip(kernel.sizes, model.sizes, strict=True)
                for a, b in zip(k.emulated, m.emulated, strict=True)
            )
            total = len(kernel.sizes) * len(kernel.entries)
            wrong += (same != total) + (kernel.controls != model.controls)
            lines += [
                f"The kernel's clock on CPU threads: {same} of {total} times are the reference's to the picosecond, "
                f"and its controls.",
                "",
            ]
            doc |= {"kernel_same": same, "kernel_times": total, "kernel": kernel.to_json()}
        docs.append(doc)
        print("\n".join(lines[-(len(found.sizes) + 12) :]), flush=True)
    (RESULTS / "emulated.json").write_text(
        json.dumps({"schema": "synth.bench_emulated/1", "wrong": wrong, "runs": docs}, indent=1) + "\n"
    )
    (RESULTS / "emulated.md").write_text("\n".join(lines))
    print(f"{wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
