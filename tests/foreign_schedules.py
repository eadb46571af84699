"""Files in the forms of other programs, written from schedules: TE-CCL's JSON and ForestColl's XML."""

from __future__ import annotations

from fractions import Fraction

from synth.model.schedule import Schedule


def teccl(schedule: Schedule, switches: dict[tuple[int, int], int] | None = None) -> dict:
    """Return TE-CCL's document of an allgather or alltoall; nodes are ranks + 1, as node 0 is a switch there.

    `switches`: the switch that a pair of ranks uses.
    """
    task, chunks = schedule.collective, schedule.chunks
    gathers = task.name == "allgather"

    def name(chunk: int) -> tuple[int, int]:
        """Return the source of a chunk as a node, and the number of the chunk there."""
        unit, part = divmod(chunk, chunks)
        source, dst = (unit, 0) if gathers else divmod(unit, task.ranks)
        return source + 1, dst * chunks + part

    flows, demands = [], {}
    for epoch, step in enumerate(schedule.steps):
        for send in step.sends:
            source, number = name(send.chunk)
            via = (switches or {}).get((send.src, send.dst))
            flow = f"Chunk {number} from {source} traveled over {send.src + 1}->{send.dst + 1} with volume 1.0 in epoch"
            flows.append(f"{flow} {epoch}" + ("" if via is None else f" via switches {via}"))
    for unit, ranks in enumerate(task.post):
        for part in range(chunks):
            source, number = name(unit * chunks + part)
            for rank in sorted(ranks - {source - 1}):
                demands[f"Demand at {rank + 1} for chunk {number} from {source} met by epoch 9"] = []
    return {"1-Epoch_Duration": 4e-8, "7-Flows": flows, "8-Chunk paths": demands}


def forest(parents: list[dict[int, int]], chunks: int = 1, boxes: int = 1) -> str:
    """Return ForestColl's XML of a tree for each root: `parents[root][rank]` is where a rank gets the data."""
    size = len(parents) // boxes

    def node(rank: int) -> str:
        return f"({rank // size}, 'GPU', {rank % size})"

    lines = [f'<Algo nchunkspernode="{chunks}">']
    for root, parent in enumerate(parents):
        lines.append(f'  <tree root="{node(root)}" index="0" nchunks="{chunks}" height="1">')
        reached, left = {root}, dict(parent)
        while left:
            for rank in [rank for rank in left if left[rank] in reached]:
                src = left.pop(rank)
                reached.add(rank)
                ends = f'src="{node(src)}" dst="{node(rank)}"'
                lines.append(f"    <send {ends} path=\"{node(src)},(-1, 'IB', 0),{node(rank)}\"/>")
        lines.append("  </tree>")
    return "\n".join([*lines, "</Algo>"]) + "\n"


def halves(volume: str = "0.5") -> dict:
    """Return TE-CCL's document of an alltoall on three nodes; half of the data of node 1 to node 3 goes by node 2."""
    flows, demands = [], {}
    for src in (1, 2, 3):
        for dst in (1, 2, 3):
            if src == dst:
                continue
            demands[f"Demand at {dst} for chunk {dst} from {src} met by epoch 3"] = []
            share = volume if (src, dst) == (1, 3) else "1.0"
            flows.append(f"Chunk {dst} from {src} traveled over {src}->{dst} with volume {share} in epoch 0")
    rest = str(float(1 - Fraction(volume)))
    flows.append(f"Chunk 3 from 1 traveled over 1->2 with volume {rest} in epoch 1")
    flows.append(f"Chunk 3 from 1 traveled over 2->3 with volume {rest} in epoch 2")
    return {"7-Flows": flows, "7-chunk paths": demands}
