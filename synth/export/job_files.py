"""Texts beside an exported plan for the job that runs it: a script with the variables, and a page of commands."""

from __future__ import annotations

from collections.abc import Sequence

from synth.export.folder_notes import ENABLE

# Programs of nccl-tests, by collective.
NCCL_TESTS = {
    "allreduce": "all_reduce_perf", "allgather": "all_gather_perf", "reduce-scatter": "reduce_scatter_perf",
    "alltoall": "alltoall_perf", "broadcast": "broadcast_perf", "reduce": "reduce_perf", "gather": "gather_perf",
    "scatter": "scatter_perf",
}  # fmt: skip


def run_script(runtime: str, folder: str, files: Sequence[str], ranks: int) -> str:
    """Return a shell script that exports the variables of `runtime` and runs its arguments.

    `folder`: the name of the folder of `files`, beside the script. `ranks`: of one machine, for the example.
    """
    match runtime:
        case "msccl":
            paths = ":".join(f"$here/{folder}/{name}" for name in files)
            exports = [f'MSCCL_XML_FILES="{paths}"']
        case "mscclpp":
            exports = [
                f'PYTHONPATH="$here/{folder}${{PYTHONPATH:+:$PYTHONPATH}}"', 'LD_PRELOAD="libmscclpp_nccl.so"',
            ]  # fmt: skip
        case "nccl-tuner":
            exports = [
                f'NCCL_TUNER_CONFIG_FILE="$here/{folder}/tuner.csv"', 'NCCL_TUNER_PLUGIN="libnccl-tuner-example.so"',
            ]  # fmt: skip
        case "ncclx-tuner":
            exports = [f'NCCLX_TUNER_CONFIG_FILE="$here/{folder}/tuner.csv"']
        case _:
            exports = [f'MSCCL_ALGO_DIR="$here/{folder}"']
    lines = [
        "#!/usr/bin/env bash",
        "# Exports the variables with which the runtime loads these algorithms, then runs the command given:",
        f"#   ./run.sh torchrun --nproc-per-node {ranks} train.py     (or: source run.sh)",
        'here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"',
        *(f"export {line}" for line in [*exports, *ENABLE.get(runtime, [])] if files),
        'if [ "$#" -gt 0 ]; then exec "$@"; fi',
    ]
    return "\n".join(lines) + "\n"


def readme(
    title: str, runtime: str, ranks: int, collectives: Sequence[str], screen: str, sizes: tuple[int, int]
) -> str:
    """Return the page of a build: its table `screen`, the files, and the commands that run the algorithms.

    `sizes`: the least and the greatest in bytes.
    """
    lines = [title, "=" * len(title), "", *screen.rstrip().splitlines(), "", "Run", "---", ""]
    lines += ["PyTorch, one process for each GPU:", "", f"    ./run.sh torchrun --nproc-per-node {ranks} train.py", ""]
    if runtime == "mscclpp":
        lines += [
            "Call this in train.py on every rank, before the first communicator is made:",
            "", "    import register", f"    kept = register.register(rank, {ranks}, {ranks})", "",
        ]  # fmt: skip
    lines += ["nccl-tests, with the library of the runtime, and once more without run.sh to compare:", ""]
    for name in collectives:
        if name in NCCL_TESTS:
            command = f"mpirun -np {ranks} build/{NCCL_TESTS[name]} -b {sizes[0]} -e {sizes[1]} -f 2 -g 1"
            lines.append(f"    ./run.sh {command}")
    lines += [
        "",
        "Files",
        "-----",
        "",
        "run.sh            the variables of the runtime, then the command given to it",
        "report.html       a page: each algorithm step by step, times against size",
        "plan.json         the choice for each size (`synth export --plan`, `synth report`)",
        "build.json        the table above, with all sizes",
        "frontiers/        frontiers with certificates (`synth verify frontiers/*.json`)",
    ]
    return "\n".join(lines) + "\n"
