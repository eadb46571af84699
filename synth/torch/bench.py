"""Calls of a job through `synth` and through gloo alone, interleaved on the same processes: a row for each collective
and size. `python -m synth.torch.bench RANK RANKS PORT SIZES PAIRS` is one of its processes; rank 0 prints JSON lines.
"""

from __future__ import annotations

import json
import math
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta

from synth.errors import SynthError
from synth.torch.doctor import facts

COLLECTIVES = ("allreduce", "allgather", "reduce-scatter", "alltoall", "broadcast")


@dataclass(frozen=True)
class TimedCalls:
    """Seconds of one collective at one size: medians over pairs of calls, one through `synth` and one through gloo.

    `bytes`: of the whole data, as nccl-tests counts them. `ratio`: the median of gloo's time over ours, pair by pair;
    `low`: its lower 95% bound. `runs`: the program that ran, or gloo. `right`: every element was.
    """

    collective: str
    ranks: int
    bytes: int
    synth: float
    gloo: float
    ratio: float
    low: float
    runs: str
    right: bool


def measure(ranks: int, sizes: Sequence[int], pairs: int = 30) -> Iterator[TimedCalls]:
    """Yield the rows of `ranks` processes on this machine, as they come.

    Raises SynthError where there is no torch for it, or a process fails.
    """
    for fact in facts():
        if fact.fatal:
            raise SynthError(f"no program runs in a PyTorch job here: {fact.what} {fact.found}; {fact.remark}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(port), ",".join(map(str, sizes)), str(pairs)]
    environment = os.environ | {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
    started = []
    for rank in range(ranks):
        command = [sys.executable, "-W", "ignore", "-m", "synth.torch.bench", str(rank), str(ranks), *arguments]
        out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        started.append(subprocess.Popen(command, stdout=out, text=True, env=environment))
    try:
        assert started[0].stdout is not None
        for line in started[0].stdout:
            yield TimedCalls(**json.loads(line))
        for rank, process in enumerate(started):
            if process.wait():
                raise SynthError(f"rank {rank} of {ranks} ended with exit code {process.returncode}; see above")
    finally:
        for process in started:
            process.kill()


def lower_bound(values: Sequence[float]) -> float:
    """Return a value that the median of what `values` are drawn from exceeds with 95% certainty (of the sign test)."""
    ordered, n, below = sorted(values), len(values), 0.0
    for k in range(n):
        below += math.comb(n, k) / 2**n
        if below > 0.05:
            return ordered[max(0, k - 1)]
    return ordered[0]


def _process(rank: int, ranks: int, port: str, sizes: Sequence[int], pairs: int) -> None:
    import torch
    import torch.distributed as dist

    from synth.torch.register import groups_here, register

    register()
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(ranks))
    dist.init_process_group("cpu:synth", timeout=timedelta(minutes=5))
    library = dist.new_group(backend="gloo")
    ours = groups_here()[0]
    for collective in COLLECTIVES:
        for nbytes in sizes:
            count = max(1, nbytes // 4 // ranks)
            call, result, wanted = _call(collective, rank, ranks, count)
            call(None)
            right = torch.tensor(float(torch.equal(result(), wanted)))
            call(library)
            before = dict(ours.record.carried())
            taken: dict[bool, list[float]] = {True: [], False: []}
            for pair in range(pairs):
                for mine in (pair % 2 == 0, pair % 2 != 0):  # which comes first alternates
                    dist.barrier(library)
                    start = time.perf_counter()
                    call(None if mine else library)
                    taken[mine].append(time.perf_counter() - start)

            # a call takes as long as on its slowest rank
            times = torch.tensor([taken[True], taken[False]], dtype=torch.float64)
            dist.all_reduce(times, dist.ReduceOp.MAX, group=library)
            dist.all_reduce(right, dist.ReduceOp.MIN, group=library)
            ratios = (times[1] / times[0]).tolist()
            ran = max(ours.record.carried().items(), key=lambda item: item[1] - before.get(item[0], 0))[0]
            row = TimedCalls(
                collective, ranks, count * 4 * ranks, times[0].median().item(), times[1].median().item(),
                statistics.median(ratios), lower_bound(ratios), ran, bool(right),
            )  # fmt: skip
            if rank == 0:
                print(json.dumps(asdict(row)), flush=True)
    dist.destroy_process_group()


def _call(collective: str, rank: int, ranks: int, count: int) -> tuple[Callable, Callable, object]:
    """Return what makes a call on a group, its result, and what that must be; `count` elements of each rank's share."""
    import torch
    import torch.distributed as dist

    whole = torch.arange(count * ranks, dtype=torch.float32) % 97 + rank
    total = ranks * (torch.arange(count * ranks, dtype=torch.float32) % 97) + sum(range(ranks))
    mine = slice(count * rank, count * rank + count)
    out = torch.empty(count * ranks if collective in ("allgather", "alltoall") else count)
    if collective == "allreduce":
        data = whole.clone()

        def allreduce(group: object) -> None:
            data.copy_(whole)
            dist.all_reduce(data, group=group)

        return allreduce, lambda: data, total
    if collective == "broadcast":
        data = whole.clone()
        return lambda group: dist.broadcast(data, 0, group=group), lambda: data, whole - rank
    if collective == "allgather":
        wanted = torch.cat([whole[:count] - rank + other for other in range(ranks)])
        share = whole[:count].clone()
        return lambda group: dist.all_gather_into_tensor(out, share, group=group), lambda: out, wanted
    if collective == "reduce-scatter":
        return lambda group: dist.reduce_scatter_tensor(out, whole, group=group), lambda: out, total[mine]
    wanted = torch.cat([whole[mine] - rank + other for other in range(ranks)])
    return lambda group: dist.all_to_all_single(out, whole, group=group), lambda: out, wanted


if __name__ == "__main__":
    own, of, at, listed, times = sys.argv[1:]
    _process(int(own), int(of), at, [int(size) for size in listed.split(",")], int(times))
