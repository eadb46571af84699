"""One process of a PyTorch job: python tests/torch_job.py RANK RANKS PORT BACKEND. It prints the cases that fail.

Needs torch alone beside the package, so that it runs in an environment that has no pytest.
"""

import os
import sys
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

RANK, RANKS = int(sys.argv[1]), int(sys.argv[2])


def own(count=4, kind=torch.float32):
    return torch.arange(count, dtype=kind) + 10 * RANK


def of(rank, count=4):
    return torch.arange(count, dtype=torch.float32) + 10 * rank


def total(count=4):
    return sum(of(rank, count) for rank in range(RANKS))


def allreduce():
    for kind, op, wanted in (
        (torch.float32, dist.ReduceOp.SUM, total()),
        (torch.float64, dist.ReduceOp.AVG, total() / RANKS),
        (torch.int64, dist.ReduceOp.MAX, of(RANKS - 1)),
        (torch.bfloat16, dist.ReduceOp.MIN, of(0)),
        (torch.int32, dist.ReduceOp.PRODUCT, torch.stack([of(rank) for rank in range(RANKS)]).prod(0)),
    ):
        tensor = own(kind=kind)
        dist.all_reduce(tensor, op)
        assert torch.equal(tensor.double(), wanted.double()), (kind, op, tensor)


def sizes():
    for count in (0, 1, 3, 1000, 65537, 300_000):
        tensor = own(count)
        dist.all_reduce(tensor)
        assert torch.equal(tensor, total(count)), count
    sparse = torch.sparse_coo_tensor([[RANK]], [1.0], [RANKS])
    dist.all_reduce(sparse)
    assert torch.equal(sparse.to_dense(), torch.ones(RANKS))
    if os.environ.get("SYNTH_DISABLE") != "1":  # gloo takes none
        strided = own(12)[::3]
        dist.all_reduce(strided)
        assert torch.equal(strided, total(12)[::3])


def works():
    first, second = own(), own(5000)
    waiting = [dist.all_reduce(tensor, async_op=True) for tensor in (first, second)]
    future = waiting[0].get_future().then(lambda done: done.value()[0] * 2)
    assert torch.equal(future.wait(), 2 * total())
    waiting[1].wait()
    assert torch.equal(second, total(5000))
    with dist._coalescing_manager():
        dist.all_reduce(first)
        dist.all_reduce(second)
    assert torch.equal(first, RANKS * total())


def gathers():
    out = torch.empty(4 * RANKS)
    dist.all_gather_into_tensor(out, own())
    assert torch.equal(out, torch.cat([of(rank) for rank in range(RANKS)]))
    dist.all_gather_into_tensor(out, out[4 * RANK : 4 * RANK + 4])
    assert torch.equal(out, torch.cat([of(rank) for rank in range(RANKS)]))
    parts = [torch.empty(4) for _ in range(RANKS)]
    dist.all_gather(parts, own())
    assert all(torch.equal(parts[rank], of(rank)) for rank in range(RANKS))
    found = [None] * RANKS
    dist.all_gather_object(found, {"rank": RANK})
    assert [one["rank"] for one in found] == list(range(RANKS))


def scatters():
    wanted = total(2 * RANKS)[2 * RANK : 2 * RANK + 2]
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, own(2 * RANKS))
    assert torch.equal(out, wanted)
    dist.reduce_scatter(out, list(own(2 * RANKS).split(2)))
    assert torch.equal(out, wanted)
    whole = own(2 * RANKS)
    dist.reduce_scatter_tensor(whole[2 * RANK : 2 * RANK + 2], whole)
    assert torch.equal(whole[2 * RANK : 2 * RANK + 2], wanted)


def alltoall():
    out = torch.empty(2 * RANKS)
    dist.all_to_all_single(out, own(2 * RANKS))
    assert torch.equal(out, torch.cat([of(rank, 2 * RANKS)[2 * RANK : 2 * RANK + 2] for rank in range(RANKS)]))
    ins, outs = [RANK + other + 1 for other in range(RANKS)], [other + RANK + 1 for other in range(RANKS)]
    out = torch.empty(sum(outs))
    dist.all_to_all_single(out, torch.full((sum(ins),), float(RANK)), outs, ins)
    assert torch.equal(out, torch.cat([torch.full((size,), float(other)) for other, size in enumerate(outs)]))


def strange_tensors():
    """Types that no program takes, where one rank has nothing to send; strides; sizes that do not fit."""
    ins = [0 if RANK == 1 else other + 1 for other in range(RANKS)]
    outs = [0 if other == 1 else RANK + 1 for other in range(RANKS)]
    out = torch.zeros(sum(outs), dtype=torch.bool)
    dist.all_to_all_single(out, torch.ones(sum(ins), dtype=torch.bool), outs, ins)
    assert out.all()
    if os.environ.get("SYNTH_DISABLE") == "1":
        return  # gloo takes no strides
    table = own(4 * RANKS).view(2, 2 * RANKS).t()  # a row of two for each half of a rank
    out = torch.empty(2 * RANKS, 2).t().contiguous().t()
    dist.all_to_all_single(out, table, [2] * RANKS, [2] * RANKS)
    wanted = [of(rank, 4 * RANKS).view(2, 2 * RANKS).t()[2 * RANK : 2 * RANK + 2] for rank in range(RANKS)]
    assert torch.equal(out, torch.cat(wanted))
    for out, source in ((torch.empty(4), torch.ones(4)), (torch.empty(4 * RANKS, dtype=torch.float16), torch.ones(4))):
        try:
            dist.all_gather_into_tensor(out, source)
        except ValueError as error:
            assert "do not fit" in str(error), error
        else:
            raise AssertionError("an output that does not fit was written")


def rooted():
    tensor = own()
    dist.broadcast(tensor, 1)
    assert torch.equal(tensor, of(1))
    dist.reduce(tensor, 0)
    assert RANK or torch.equal(tensor, RANKS * of(1))
    last = RANKS - 1
    for op, wanted in ((dist.ReduceOp.AVG, total() / RANKS), (dist.ReduceOp.MAX, of(last))):
        if os.environ.get("SYNTH_DISABLE") == "1":
            break  # gloo knows no average here
        tensor = own()
        dist.reduce(tensor, last, op)
        assert last != RANK or torch.equal(tensor, wanted)  # gloo writes into the tensors of the others, too
    if RANK == 0:
        dist.send(own(), 1)
    if RANK == 1:
        dist.recv(tensor, 0)
        assert torch.equal(tensor, of(0))
    dist.barrier()


def groups():
    for _ in range(3):
        pair = dist.new_group([0, 1])
        tensor = own()
        if RANK < 2:
            dist.all_reduce(tensor, group=pair)
            assert torch.equal(tensor, of(0) + of(1))
            dist.destroy_process_group(pair)


def functions():
    assert torch.equal(functional.all_reduce(own(), "sum", dist.group.WORLD) + 0, total())

    @torch.compile(backend="aot_eager", fullgraph=True)
    def compiled(values):
        return functional.all_reduce(values * 2, "sum", dist.group.WORLD) + 1

    assert torch.equal(compiled(own()), 2 * total() + 1)
    mesh = init_device_mesh("cpu", (RANKS,))
    shards = distribute_tensor(torch.arange(4.0 * RANKS), mesh, [Shard(0)])
    assert torch.equal(shards.redistribute(mesh, [Replicate()]).to_local(), torch.arange(4.0 * RANKS))


def train(wrap):
    """Return the parameters after a few steps, the same on all ranks."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    wrapped = wrap(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.05)
    for step in range(8):
        data = torch.randn(8, 16, generator=torch.Generator().manual_seed(100 * step + RANK))
        optimizer.zero_grad()
        wrapped(data).square().mean().backward()
        optimizer.step()
    values = [
        parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter for parameter in model.parameters()
    ]
    return torch.cat([value.detach().flatten() for value in values])


def training():
    library = dist.new_group(backend="gloo")
    mine = train(lambda model: DistributedDataParallel(model, bucket_cap_mb=0.001))
    theirs = train(lambda model: DistributedDataParallel(model, bucket_cap_mb=0.001, process_group=library))
    assert torch.equal(mine, theirs) if RANKS == 2 else torch.allclose(mine, theirs)
    everywhere = [torch.empty_like(mine) for _ in range(RANKS)]
    dist.all_gather(everywhere, mine)
    assert all(torch.equal(one, mine) for one in everywhere)
    assert torch.allclose(train(fully_shard), theirs, atol=1e-6)


def compression():
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def compressed(model):
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return wrapped

    def of_low_rank(model):
        wrapped = DistributedDataParallel(model)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return wrapped

    for wrap in (compressed, of_low_rank):
        assert train(wrap).isfinite().all()


def every_program():
    """Each program, at sizes that its chunks do not divide; an allgather's input is a part of its output."""
    from synth.torch.choice import Chosen, Key
    from synth.torch.register import groups_here

    (group,) = (group for group in groups_here() if group.size() == RANKS)
    if group.chooser is None:
        return
    race, count = group.chooser.choose, 431
    for collective in ("allgather", "reduce-scatter", "allreduce", "alltoall"):
        key = Key(collective, (4 * count).bit_length(), "torch.float32", "sum", collective == "allreduce")
        for chosen in group.chooser.candidates(key)[0].values():
            group.chooser.choose = lambda *_, chosen=chosen: Chosen(chosen, "forced")
            count += 2  # a size has one choice
            whole, name = own(count * RANKS), chosen.program.name
            if collective == "allreduce":
                dist.all_reduce(whole)
                assert torch.equal(whole, total(count * RANKS)), name
            elif collective == "allgather":
                part = whole[RANK * count : (RANK + 1) * count]
                wanted = torch.cat(
                    [of(rank, count * RANKS)[rank * count : (rank + 1) * count] for rank in range(RANKS)]
                )
                dist.all_gather_into_tensor(whole, part)
                assert torch.equal(whole, wanted), name
            elif collective == "reduce-scatter":
                out = torch.empty(count)
                dist.reduce_scatter_tensor(out, whole)
                assert torch.equal(out, total(count * RANKS)[RANK * count : (RANK + 1) * count]), name
            else:
                out = torch.empty(count * RANKS)
                dist.all_to_all_single(out, whole)
                wanted = [of(rank, count * RANKS)[RANK * count : (RANK + 1) * count] for rank in range(RANKS)]
                assert torch.equal(out, torch.cat(wanted)), name
    group.chooser.choose = race


def ours():
    """The backend of the world, or None where no program runs."""
    from synth.torch.register import groups_here

    (group,) = (group for group in groups_here() if group.size() == RANKS)
    return group if group.lane else None


def switches():
    """SYNTH_DISABLE at any time; a limit for all that waits; a barrier after calls that nobody has waited for."""
    if not ours():
        return
    os.environ["SYNTH_DISABLE"] = "1"
    tensors = [own(300_000) for _ in range(4)]
    works = [dist.all_reduce(tensors[0], async_op=True)]
    del os.environ["SYNTH_DISABLE"]
    works += [dist.all_reduce(tensor, async_op=True) for tensor in tensors[1:]]
    dist.barrier()
    assert all(torch.equal(tensor, total(300_000)) for tensor in tensors)
    rows = [row for row in ours().record.rows.values() if row.why == "SYNTH_DISABLE=1"]
    assert [(row.collective, row.ran, row.calls) for row in rows] == [("allreduce", "gloo", 1)]
    works[0].wait()
    dist.set_timeout(timedelta(seconds=99))
    from synth.torch import backend

    lane = ours().lane
    assert lane.timeout == 99 and {int(one.prog["timeout"]) for one in lane._programs} == {99 * 10**9}
    backend.MOST_KINDS = 8
    for count in range(1, 50):
        dist.all_reduce(own(count))
    assert len(ours()._kinds) <= 8


def faults():
    """Ranks that differ are named at once, each time by a new error."""
    if not ours():
        return

    def disabled(group):
        if RANK == 1:
            os.environ["SYNTH_DISABLE"] = "1"
        dist.all_reduce(own(), group=group)

    def sized(group):
        out = torch.empty(RANKS)
        sizes = [1] * RANKS if RANK == 1 else None
        dist.all_to_all_single(out, own(RANKS), sizes, sizes, group=group)

    def barrier(group):
        dist.barrier(group) if RANK == 1 else dist.all_reduce(own(), group=group)

    for case, one, other in (
        (disabled, "allreduce sum float32 4", "allreduce sum float32 4 with SYNTH_DISABLE"),
        (sized, f"alltoall sum float32 {RANKS}", "alltoall float32 with sizes"),
        (barrier, "allreduce sum float32 4", "barrier"),
    ):
        group, errors = dist.new_group(), []
        started = time.monotonic()
        for _ in range(2):
            try:
                case(group)
            except Exception as error:
                errors.append(error)
            os.environ.pop("SYNTH_DISABLE", None)
        first, again = errors
        said = f"call 1, {one}, is {other} on rank 1: all ranks must", f"call 1, {other}, is {one} on rank "
        assert said[RANK == 1] in str(first) or "another rank gave up before" in str(first), first
        assert again is not first and str(again) == str(first) and time.monotonic() - started < 50
        dist.barrier()
        dist.destroy_process_group(group)


def programs():
    """Programs have carried something out, unless they are switched off."""
    from synth.torch.register import groups_here

    names = {name for group in groups_here() for name in group.record.carried()}
    assert ("gloo" in names and len(names) > 1) != (os.environ.get("SYNTH_DISABLE") == "1"), names


CASES = (
    allreduce, sizes, works, gathers, scatters, alltoall, strange_tensors, rooted, groups, functions, training,
    compression, every_program, switches, faults, programs,
)  # fmt: skip


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3], RANK=str(RANK), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group(sys.argv[4], timeout=timedelta(seconds=100))
    for case in CASES:
        if os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL" and case in (training, compression, faults):
            continue  # torch 2.14.1 ends with a segmentation fault there, with gloo too, and finds faults by itself
        try:
            case()
        except Exception:
            print(f"rank {RANK}: {case.__name__}: {traceback.format_exc(limit=2)}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
