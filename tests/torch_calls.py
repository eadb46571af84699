"""One process of a PyTorch job for tests/test_torch_plans.py: python tests/torch_calls.py RANK RANKS PORT.

Calls with plans and logs; rank 1 comes late to each.
"""

import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from synth.torch import counters

RANK, RANKS = int(sys.argv[1]), int(sys.argv[2])


def main():
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[3], RANK=str(RANK), WORLD_SIZE=str(RANKS))
    torch.set_num_threads(1)
    dist.init_process_group("cpu:synth", timeout=timedelta(seconds=100))
    last = dist.new_group([RANKS - 2, RANKS - 1])
    for step in range(6):
        time.sleep(0.02 if RANK == 1 else 0)
        for count in (16, 4096):
            tensor = torch.full((count,), 1.0 + RANK)
            dist.all_reduce(tensor)
            assert (tensor == RANKS * (RANKS + 1) // 2).all()
        for root in (0, 1):
            tensor = torch.full((64,), float(RANK + step))
            dist.broadcast(tensor, root)
            assert (tensor == root + step).all()
        if RANK >= RANKS - 2:
            dist.all_reduce(torch.ones(10), group=last)
    dist.all_reduce(torch.ones(4, dtype=torch.complex64))
    dist.barrier()
    text = counters()
    assert "# TYPE synth_calls_total counter" in text
    assert 'collective="barrier",type="",ran="shared memory"} 1' in text, text
    if os.environ.get("TORCH_FR_BUFFER_SIZE") and RANK == 0:
        from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json

        for name, found in (("dump.json", _dump_fr_trace_json()), ("dump", _dump_fr_trace())):
            with open(f"{os.environ['SYNTH_LOG']}.{name}", "wb") as file:
                file.write(found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
