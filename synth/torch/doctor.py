"""The facts about a machine that PyTorch jobs depend on."""

from __future__ import annotations

import os
import shutil
from importlib.metadata import entry_points
from typing import NamedTuple

from synth.errors import SynthError
from synth.runtime.kernel import build_host
from synth.runtime.shared.lane import SEGMENT_BYTES


class Fact(NamedTuple):
    """One fact: what was looked at, what was found, what to do where it is not right. `fatal`: no program can run."""

    what: str
    found: str
    remark: str = ""
    fatal: bool = False


def facts() -> list[Fact]:
    """Return the facts, in the order in which to mend them."""
    found = [_torch()]
    named = [entry.value for entry in entry_points(group="torch.distributed.backends") if entry.name == "synth"]
    if named:
        found.append(Fact("entry point", named[0]))
    else:
        found.append(Fact("entry point", "none", "pip install . again", True))
    compiler = build_host.compiler()
    if compiler is None:
        found.append(Fact("compiler", "none", f"the kernel {build_host.MISSING}", True))
    else:
        found.append(Fact("compiler", compiler))
    free = shutil.disk_usage("/dev/shm").free if os.path.isdir("/dev/shm") else 0
    room = free > SEGMENT_BYTES
    remark = "" if room else f"a group takes {SEGMENT_BYTES >> 20} MiB; containers take --shm-size"
    found.append(Fact("/dev/shm", f"{free >> 20} MiB free", remark, not room))
    if not found[0].fatal:
        found.append(_plan())
    return found


def _torch() -> Fact:
    try:
        import torch
    except ImportError:
        return Fact("torch", "not installed", "pip install 'ccl-synth[torch]'", True)
    from synth.torch.register import register

    try:
        register()
    except SynthError as error:
        return Fact("torch", torch.__version__, str(error), True)
    return Fact("torch", torch.__version__, "takes backends written in Python")


def _plan() -> Fact:
    from synth.torch.choice import plan_of

    given = os.environ.get("SYNTH_PLAN")
    plan = plan_of(given)
    if plan is None:
        return Fact("plan", "none", "SYNTH_PLAN is not set: programs of the library are raced")
    return Fact("plan", str(given), f"for {plan.topology.name if plan.topology else 'libraries alone'}")
