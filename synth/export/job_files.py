"""Texts beside an exported plan for the job that runs it: a script with the variables, and a page of commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.export.folder_notes import ENABLE
from synth.export.request import Machine

# Programs of nccl-tests, by collective.
NCCL_TESTS = {
    "allreduce": "all_reduce_perf", "allgather": "all_gather_perf", "reduce-scatter": "reduce_scatter_perf",
    "alltoall": "alltoall_perf", "broadcast": "broadcast_perf", "reduce": "reduce_perf", "gather": "gather_perf",
    "scatter": "scatter_perf",
}  # fmt: skip

SCRIPT = """\
#!/usr/bin/env bash
# Exports the variables with which the runtime loads these algorithms, then runs the command given:
#   ./run.sh {torchrun}     (or: source run.sh)
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
{exports}
if [ "$#" -gt 0 ]; then exec "$@"; fi
"""
EXPORTS = {
    "mscclpp": """\
export PYTHONPATH="$here/mscclpp${PYTHONPATH:+:$PYTHONPATH}"
export LD_PRELOAD="libmscclpp_nccl.so"
export MSCCLPP_NCCL_LIB_PATH="${MSCCLPP_NCCL_LIB_PATH:-LIBRARY}"  # to fall back to""",
    "nccl-tuner": """\
export NCCL_TUNER_CONFIG_FILE="$here/nccl-tuner/tuner.csv"
export NCCL_TUNER_PLUGIN="libnccl-tuner-example.so\"""",
    "msccl-executor": 'export MSCCL_ALGO_DIR="$here/msccl-executor"',
    "rccl": 'export MSCCL_ALGO_DIR="$here/rccl"',
    "torch": 'export SYNTH_PLAN="$here"',
}
README = """\
{title}
{line}

{screen}

{run}
Files
-----

{script}report.html       a page: each algorithm step by step, times against size
plan.json         the choice for each size (`synth export --plan`, `synth report`)
build.json        the table above, with all sizes
frontiers/        frontiers with certificates (`synth verify frontiers/*.json`)
"""
RUN = """\
Run
---

PyTorch, one process for each {rank}{on_each}:

    ./run.sh {torchrun}

{how}

{tests}
"""
WITH_TESTS = "nccl-tests, with the library of the runtime, and once more without run.sh to compare:"
WITH_REGISTER = """\
Call this in train.py on every rank, before the first communicator is made:

    import register
    kept = register.register(rank, {ranks}, {per_host})

nccl-tests does not call it, so it runs none of these plans: with run.sh it measures MSCCL++'s own algorithms
and its fallback, without run.sh the library behind it. Measure the plans in a job that calls register()."""

WITH_TORCH = """\
It needs torch 2.14 or newer, pip install 'ccl-synth[torch]' and a C++ compiler; train.py says
init_process_group("cpu:synth"). At the first call of each collective, size and type the plan's best schedules
and gloo are timed in turn, and the fastest stays. The plan is for groups of {ranks} ranks; others take programs
of the library. What ran, how often and why:

    SYNTH_LOG=log ./run.sh {torchrun}
    synth torch log log

What this machine lacks for it, and a call of each collective beside gloo's:

    ./run.sh synth torch doctor"""


@dataclass(frozen=True)
class JobShape:
    """The hosts of a job of `ranks` processes. `per_host`: the processes of each; 0 where it is not known, or differs.

    `amd`: its GPUs are AMD's, so that the library behind MSCCL++ is RCCL.
    """

    ranks: int
    per_host: int
    amd: bool = False

    @staticmethod
    def of(machine: Machine) -> JobShape:
        """Return the job with one process for each GPU of `machine`."""
        amd = any("xgmi" in kinds for kinds in machine.kinds.values())
        return JobShape(len(machine.nodes), machine.ranks_per_host, amd)

    @property
    def torchrun(self) -> str:
        """The command that starts the processes of one host with PyTorch."""
        if self.per_host == self.ranks:
            return f"torchrun --nproc-per-node {self.ranks} train.py"
        # What is not known of the hosts stays a word for the reader to fill in.
        hosts, per_host = ("HOSTS", "RANKS_PER_HOST")
        if self.per_host:
            hosts, per_host = (str(self.ranks // self.per_host), str(self.per_host))
        meeting = "--rdzv-backend c10d --rdzv-endpoint HOST:29400"
        return f"torchrun --nnodes {hosts} --nproc-per-node {per_host} {meeting} train.py"

    @property
    def mpirun(self) -> str:
        """The command that starts all processes with Open MPI; the program follows."""
        if self.per_host in (0, self.ranks):
            return f"mpirun -np {self.ranks}"
        return f"mpirun -np {self.ranks} --map-by ppr:{self.per_host}:node"


def run_script(runtime: str, files: Sequence[str], job: JobShape) -> str:
    """Return a shell script that exports the variables of `runtime` and runs its arguments.

    `files`: their names, in the folder beside the script that is called as the runtime. `job`: that of the example.
    """
    paths = ":".join(f"$here/msccl/{name}" for name in files)
    exports = EXPORTS.get(runtime, f'export MSCCL_XML_FILES="{paths}"')
    exports = exports.replace("LIBRARY", "librccl.so.1" if job.amd else "libnccl.so.2")
    lines = [exports, *(f"export {line}" for line in ENABLE.get(runtime, []))]
    return SCRIPT.format(torchrun=job.torchrun, exports="\n".join(lines))


def readme(
    title: str, runtime: str, job: JobShape | None, collectives: Sequence[str], screen: str, sizes: tuple[int, int]
) -> str:
    """Return the page of a build: its table `screen`, the files, and the commands that run the algorithms.

    `job`: None where all sizes are left to the library, so that nothing is to be run. `sizes`: the least and the
    greatest in bytes.
    """
    # Without files there is nothing to run but the library.
    script, run = "", f"No size has a file for {runtime}: run the library as it is.\n"
    if job is not None:
        script = "run.sh            the variables of the runtime, then the command given to it\n"
        how = WITH_TESTS
        if runtime == "mscclpp":
            how = WITH_REGISTER.format(ranks=job.ranks, per_host=job.per_host or "RANKS_PER_HOST")
        if runtime == "torch":
            how, collectives = WITH_TORCH.format(ranks=job.ranks, torchrun=job.torchrun), ()
        tests = []
        for name in collectives:
            if name in NCCL_TESTS:
                command = f"build/{NCCL_TESTS[name]} -b {sizes[0]} -e {sizes[1]} -f 2 -g 1"
                tests.append(f"    {job.mpirun} ./run.sh {command}")
        on_each = "" if job.per_host == job.ranks else ", this command on each host"
        rank = "rank" if runtime == "torch" else "GPU"
        run = RUN.format(rank=rank, on_each=on_each, torchrun=job.torchrun, how=how, tests="\n".join(tests))
    return README.format(
        title=title, line="=" * len(title), screen=screen.rstrip(), run=run, script=script
    )  # fmt: skip
