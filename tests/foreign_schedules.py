"""Files in the forms of other programs, written from schedules: TE-CCL's and SCCL's JSON, ForestColl's XML."""

from __future__ import annotations

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

    flows, demands, paths = [], {}, {}
    for epoch, step in enumerate(schedule.steps):
        for send in step.sends:
            source, number = name(send.chunk)
            via = (switches or {}).get((send.src, send.dst))
            hop = f"{send.src + 1}->{send.dst + 1} with volume 1.0 in epoch {epoch}"
            hop += "" if via is None else f" via switches {via}"
            flows.append(f"Chunk {number} from {source} traveled over {hop}")
            before = paths.get((send.chunk, send.src), [])
            paths.setdefault((send.chunk, send.dst), [*before, [epoch, hop]])
    for unit, ranks in enumerate(task.post):
        for part in range(chunks):
            source, number = name(unit * chunks + part)
            for rank in sorted(ranks - {source - 1}):
                way = paths[unit * chunks + part, rank]
                demand = f"Demand at {rank + 1} for chunk {number} from {source} met by epoch 9"
                demands[demand] = [hop for _, hop in way] if gathers else [way]
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


def halves(volume: str = "0.5", rest: str = "0.5", together: bool = False) -> dict:
    """Return TE-CCL's document of an alltoall on three nodes; a share of the data of node 1 to node 3 goes by node 2.

    `together`: all of it goes by node 2, in two parts that leave node 1 in one epoch and node 2 in two.
    """
    ways = {}
    for src in (1, 2, 3):
        for dst in (1, 2, 3):
            if src != dst:
                ways[src, dst] = [[(src, dst, "1.0", 0)]]
    ways[1, 3] = [[(1, 3, volume, 0)], [(1, 2, rest, 1), (2, 3, rest, 2)]]
    if together:
        ways[1, 3] = [[(1, 2, share, 1), (2, 3, share, epoch)] for share, epoch in ((volume, 2), (rest, 3))]
    flows, demands = {}, {}
    for (source, dst), paths in ways.items():
        rows = demands.setdefault(f"Demand at {dst} for chunk {dst} from {source} met by epoch 3", [])
        for path in paths:
            hops = [(epoch, f"{src}->{to} with volume {share} in epoch {epoch}") for src, to, share, epoch in path]
            rows.append([list(hop) for hop in hops])
            flows |= {f"Chunk {dst} from {source} traveled over {hop}": epoch for epoch, hop in hops}
    return {"7-Flows": sorted(flows, key=flows.get), "7-chunk paths": demands}
