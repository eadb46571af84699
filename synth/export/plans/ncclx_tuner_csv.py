"""Export of the ranges of a plan in which NCCL's own algorithms are preferred, as CSV for the tuner in NCCLX.

Format and matching: meta-pytorch/torchcomms, comms/ncclx, meta/tuner: ten fields, of which sizes, nodes and ranks of a
node are ``*``, a number or an interval such as ``[a,b)``; a comma in brackets separates nothing. The first line that
matches is applied. Sizes are ``bytesPerRank``: NCCL's bytes, which are nccl-tests', divided by the ranks and rounded
down. A line that does not parse ends the creation of communicators.
"""

from __future__ import annotations

from synth.export.exported_files import ExportResult
from synth.export.folder_notes import span
from synth.export.plans.nccl_tuner_csv import TunerRule, file_of, rules
from synth.model.tuning_plan import Plan

HEAD = (
    "collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,numPipeOps,regBuff,chunkSize",
    "For NCCLX: NCCLX_TUNER_CONFIG_FILE=<this file>, and NCCL_TUNER_PLUGIN unset",
    "bytesPerRank is nccl-tests' size divided by the ranks, for allreduce and broadcast, too",
)


def csv(plan: Plan, nodes: int = -1) -> ExportResult:
    """Export the ranges of `plan` that prefer an algorithm of NCCL, as one CSV file.

    `nodes`: the number of boxes that a communicator must span for the lines to match; -1: any, which takes a line for
    each number of boxes that share the ranks evenly.
    """
    found, said = rules(plan)
    rows = []
    for rule in found:
        boxes = _boxes(rule.ranks, nodes)
        first = -(-rule.low // rule.ranks)
        end = None if rule.high is None else -(-(rule.high + 1) // rule.ranks)
        where = f"{rule.collective} on {rule.ranks} ranks, {span(rule.low, rule.high)}"
        if not boxes:
            said.append(f"{where}: left to NCCLX, whose rules name equal boxes; {nodes} share the ranks unevenly")
        elif first == end:
            said.append(f"{where}: left to NCCLX, whose rules tell sizes apart in steps of {rule.ranks} bytes")
        else:
            rows += [_row(rule, (first, end), count) for count in boxes]
    return file_of(plan, HEAD, rows, said)


def _boxes(ranks: int, nodes: int) -> list[int]:
    """Return the numbers of equal boxes that `ranks` may be in."""
    allowed = range(1, ranks + 1) if nodes == -1 else [nodes]
    return [count for count in allowed if ranks % count == 0]


def _row(rule: TunerRule, sizes: tuple[int, int | None], boxes: int) -> str:
    """Return the line of a rule. `sizes`: the first bytes for each rank, and the first beyond (None: no end)."""
    first, end = sizes
    interval = f"[{first},{'' if end is None else end})"
    fields = [
        rule.collective, interval, rule.algorithm, rule.protocol, rule.channels, boxes, rule.ranks // boxes,
        rule.pipe_ops, rule.registered, rule.chunk_size,
    ]  # fmt: skip
    return ",".join(map(str, fields))
