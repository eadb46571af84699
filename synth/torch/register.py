"""The entry point `torch.distributed.backends`: makes the name of the backend known to torch."""

from __future__ import annotations

import atexit
from typing import Any

import torch
import torch.distributed as dist

from synth.errors import SynthError

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

    backend = Synth(group.store, group.group_rank, group.group_size, group.timeout, options, closed=_kept.discard)
    if not _kept:
        atexit.register(_write_logs)
    _kept.add(backend)
    return backend


def _write_logs() -> None:
    for group in _kept:  # those that nobody has destroyed
        group.record.write(group.rank(), group.size())


def groups_here() -> list[Any]:
    """Return the groups of this process that have not been destroyed."""
    return list(_kept)
