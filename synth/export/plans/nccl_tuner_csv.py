"""Export of the ranges of a plan in which NCCL's own algorithms are preferred, as CSV for NCCL's example tuner plugin.

Format and matching: NVIDIA/nccl 2.28, plugins/tuner/example (ext-tuner/example before): ten fields, the first line that
matches is applied, sizes are nccl-tests', unknown names silently become allreduce, ring and simple, and lines above 255
characters are cut. So only known names are written, and comments are short.
"""

from __future__ import annotations

from synth.export.exported_files import ExportResult
from synth.export.folder_notes import span
from synth.export.plans.programs import NCCL
from synth.export.plans.size_ranges import Offer, SizeShare, shares
from synth.model.tuning_plan import Algorithm, Plan, Table

COLLECTIVES = {name: name for name in ("broadcast", "reduce", "allgather", "allreduce")} | {
    "reduce-scatter": "reducescatter"
}
# as NCCL_ALGO, NCCL's log and the plugin spell them, without case and separators
ALGORITHMS = {
    name.replace("_", ""): name
    for name in ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat")
}
PROTOCOLS = ("ll", "ll128", "simple")
# Options of an algorithm that are numbers: their texts where the plan does not say them, and what is allowed.
NUMBERS = {
    "channels": ("-1", range(-1, 65)), "pipeops": ("-1", range(-1, 1 << 20)), "regbuff": ("-1", range(-1, 2)),
}  # fmt: skip
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
    rows: list[str] = []
    said: list[str] = []
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
    known = [i for row in table.ranges for i in row.order]
    offers = {
        i: Offer(0, None, plan.algorithms[i].divisor * table.element)
        for i in known
        if plan.algorithms[i].backend in (NCCL, "synth")
    }
    refused = {i: f"{plan.algorithms[i].backend} is none of NCCL's" for i in known if i not in offers}
    found, said = [], []
    for share in shares(table, offers, refused).shares:
        where = f"{table.collective} on {table.ranks} ranks, {span(share.low, share.high)}"
        if share.choice is None:
            said.append(f"{where}: neither NCCL nor a schedule is in the plan")
            continue
        algorithm = plan.algorithms[share.choice]
        if algorithm.backend != NCCL:
            continue
        lack = _lack(algorithm, table)
        if lack:
            said.append(f"{where}: left to NCCL, as {lack}")
        else:
            found.append(_line(algorithm, table, share, nodes))
    for row in table.ranges:
        first = plan.algorithms[row.order[0]]
        if first.backend not in (NCCL, "synth"):
            said.append(
                f"{table.collective} on {table.ranks} ranks, {span(*row[:2])}: {first.label} is preferred, which no "
                f"tuner can name"
            )
    return found, said


def _line(algorithm: Algorithm, table: Table, share: SizeShare, nodes: int) -> str:
    options = _options(algorithm)
    channels, pipe_ops, registered = (options.get(key, default) for key, (default, _) in NUMBERS.items())
    high = ENDLESS if share.high is None else share.high
    fields = [
        COLLECTIVES[table.collective], share.low, high, ALGORITHMS[options["algorithm"]], options["protocol"], channels,
        nodes, table.ranks, pipe_ops, registered,
    ]  # fmt: skip
    return ",".join(map(str, fields))


def _lack(algorithm: Algorithm, table: Table) -> str:
    """Return the reason why no line can name the algorithm; "" if one can."""
    options = _options(algorithm)
    if table.collective not in COLLECTIVES:
        return f"the plugin has no {table.collective}"
    if options.get("algorithm") not in ALGORITHMS:
        return f"the plan does not say which algorithm of NCCL's {algorithm.label} is ({' '.join(ALGORITHMS.values())})"
    if options.get("protocol") not in PROTOCOLS:
        return f"the plan does not say which protocol of NCCL's {algorithm.label} is ({' '.join(PROTOCOLS)})"
    for key, (default, allowed) in NUMBERS.items():
        text = options.get(key, default)
        if not text.lstrip("-").isdigit() or int(text) not in allowed or (key == "channels" and text == "0"):
            return f"{key} of {algorithm.label} is {text!r}"
    return ""


def _options(algorithm: Algorithm) -> dict[str, str]:
    def plain(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "") if not text.lstrip("-").isdigit() else text

    return {plain(key): plain(str(value)) for key, value in algorithm.options}
