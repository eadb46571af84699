"""Export of the ranges of a plan in which NCCL's own algorithms are preferred, as CSV for NCCL's example tuner plugin.

Format and matching: NVIDIA/nccl 2.28, plugins/tuner/example (ext-tuner/example before): ten fields, the first line that
matches is applied, sizes are nccl-tests', unknown names silently become allreduce, ring and simple, and lines above 255
characters are cut. So only known names are written, and comments are short.
"""

from __future__ import annotations

from synth.export.exported_files import ExportResult
from synth.export.folder_notes import span
from synth.export.plans.programs import NCCL
from synth.export.plans.size_ranges import Offer, shares
from synth.model.tuning_plan import OURS, Plan, Table

COLLECTIVES = {name: name for name in ("broadcast", "reduce", "allgather", "allreduce")} | {
    "reduce-scatter": "reducescatter"
}
# as NCCL_ALGO, NCCL's log and the plugin spell them, without case and separators
ALGORITHMS = {
    name.replace("_", ""): name
    for name in ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
}
PROTOCOLS = ("ll", "ll128", "simple")
# Options of an algorithm that are numbers, -1 where the plan does not say them, and what is allowed.
NUMBERS = {"channels": (-1, *range(1, 65)), "pipeops": range(-1, 1 << 20), "regbuff": range(-1, 2)}
ENDLESS = (1 << 64) - 1  # the largest size in bytes of a range without an end
LINE = 255  # characters of a line that the plugin reads
HEAD = (
    "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff",
    "For NCCL's example tuner plugin: NCCL_TUNER_PLUGIN=libnccl-tuner-example.so NCCL_TUNER_CONFIG_FILE=<this file>",
    "The published plugin asks for 1 channel where a line says -1 or no line matches: let it set nChannels to 0 there.",
    "RCCL of ROCm 7.13 and later reads this file without a plugin: NCCL_TUNER_CONFIG_FILE=<this file>",
)


def csv(plan: Plan, nodes: int = -1) -> ExportResult:
    """Export the ranges of `plan` that prefer an algorithm of NCCL, as one CSV file.

    `nodes`: the number of boxes that a communicator must span for the lines to match (-1: any).
    """
    rows = []
    said = []
    for table in plan.tables:
        lines, why = _table(plan, table, nodes)
        rows += lines
        said += why
    if not rows:
        said.append("no range of the plan prefers an algorithm of NCCL's that a tuner can name: the file has no line")
    notes = [f"# {line}"[: LINE - 1] for line in (*HEAD, f"times: {plan.source}", *said)]
    return ExportResult((("", "\n".join([*notes, *rows]) + "\n"),), ".csv", tuple(said))


def _table(plan: Plan, table: Table, nodes: int) -> tuple[list[str], list[str]]:
    """Return the lines of the ranges that prefer an algorithm of NCCL, and a remark on each that no line can name."""
    # Sizes at which a schedule is preferred stay free, as if it had a file here.
    offers = {}
    refused = {}
    for i in [i for row in table.ranges for i in row.order]:
        algorithm = plan.algorithms[i]
        if algorithm.backend in (NCCL, OURS):
            offers[i] = Offer(0, None, algorithm.divisor * table.element)
        else:
            refused[i] = f"{algorithm.label} is {algorithm.backend}'s, which no tuner can name"
    name = f"{table.collective} on {table.ranks} ranks"
    found, said = [], [f"{name}: {reason}" for reason in refused.values()]
    for share in shares(table, offers, refused).shares:
        if share.choice is None or plan.algorithms[share.choice].backend != NCCL:
            continue
        algorithm = plan.algorithms[share.choice]
        # What a line must name, as the plan says it.
        options = {_plain(key): _plain(str(value)) for key, value in algorithm.options}
        fields = [ALGORITHMS.get(options.get("algorithm", "")), options.get("protocol")]
        lack = ""
        if table.collective not in COLLECTIVES:
            lack = f"the plugin has no {table.collective}"
        elif fields[0] is None:
            known = " ".join(ALGORITHMS.values())
            lack = f"the plan does not say which algorithm of NCCL's {algorithm.label} is ({known})"
        elif fields[1] not in PROTOCOLS:
            lack = f"the plan does not say which protocol of NCCL's {algorithm.label} is ({' '.join(PROTOCOLS)})"
        numbers = []
        for key, allowed in NUMBERS.items():
            numbers.append(options.get(key, "-1"))
            if not numbers[-1].lstrip("-").isdigit() or int(numbers[-1]) not in allowed:
                lack = lack or f"{key} of {algorithm.label} is {numbers[-1]!r}"
        if lack:
            said.append(f"{name}, {span(share.low, share.high)}: left to NCCL, as {lack}")
            continue
        high = ENDLESS if share.high is None else share.high
        line = [COLLECTIVES[table.collective], share.low, high, *fields, numbers[0], nodes, table.ranks, *numbers[1:]]
        found.append(",".join(map(str, line)))
    return found, said


def _plain(text: str) -> str:
    """Return a name without case and separators; a number as it is."""
    return text if text.lstrip("-").isdigit() else text.lower().replace("_", "").replace("-", "")
