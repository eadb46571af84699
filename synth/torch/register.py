"""The entry point `torch.distributed.backends`: makes the name of the backend known to torch."""

from __future__ import annotations

import atexit
import os
import re
import secrets
from datetime import datetime
from typing import Any

import torch
import torch.distributed as dist

from synth.errors import SynthError
from synth.torch.record import Record, write_order

LEAST = "2.14"
_kept: set[Any] = (
    set()
)  # torch's DETAIL wrapper keeps the C++ half of a backend alone; without this the Python half dies


def register() -> None:
    """Make the backend `synth` known to torch.distributed, for tensors on the CPU.

    Raises SynthError for a torch that takes no backends written in Python.
    """
    if hasattr(dist.Backend, "SYNTH"):
        return
    try:
        from torch._C._distributed_c10d import Backend

        Backend(0, 1)
    except (ImportError, TypeError):
        raise SynthError(
            f"torch {torch.__version__} takes no backends written in Python; install torch {LEAST} or newer"
        ) from None
    dist.Backend.register_backend("synth", create, extended_api=True, devices=["cpu"])


def create(group: Any, options: Any = None) -> Any:
    """Return the backend of one process group, as torch asks for it."""
    from synth.torch.backend import Synth

    members = list(group.global_ranks_in_group) or list(range(group.group_size))
    rank = members[group.group_rank]
    log = Record(_job(group.store), str(group.group_id or members), rank, group.group_size)
    backend = Synth(group, options, log, closed=_kept.discard)
    _kept.add(backend)
    return backend


def _job(store: Any) -> str:
    """Return the name of the job, the same on all ranks and in all groups: when the first process came, and what its
    launcher calls it."""
    launched = os.environ.get("TORCHELASTIC_RUN_ID") or os.environ.get("SLURM_JOB_ID") or "none"
    name = f"{datetime.now():%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
    if launched != "none":
        name += "-" + re.sub(r"[^\w.]", "_", launched)[:40]
    common = getattr(store, "_underlying_non_prefix_store", store)
    return common.compare_set(f"synth/job/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", "", name).decode()


@atexit.register
def _write_logs() -> None:
    for group in _kept:  # those that nobody has destroyed
        group.record.write()
    write_order()


def groups_here() -> list[Any]:
    """Return the groups of this process that have not been destroyed."""
    return list(_kept)
