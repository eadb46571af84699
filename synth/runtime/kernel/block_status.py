"""The reasons why blocks that were cut short waited, read from the statuses that the kernel leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from synth.runtime.kernel import tables as flat

_WAITS = {flat.WAITS_DATA: "data", flat.WAITS_CREDIT: "credit", flat.WAITS_ENTRY: "entry", flat.WAITS_TURN: "turn"}
_ONE_SIDED = (flat.WAITS_SIGNAL, flat.WAITS_BARRIER, flat.WAITS_PACKETS)


def waits(tables: flat.Tables, status: np.ndarray) -> list[tuple[int, tuple[str, Any] | None] | None]:
    """Return, for each block, the op at which it was cut short and its wait; None for a block that ended.

    A wait is (kind, object) as in the reference executor's `WaitReason`; None where the block was working.
    """
    result: list[tuple[int, tuple[str, Any] | None] | None] = []
    for row in status:
        kind, op, what = int(row["kind"]), int(row["op"]), int(row["what"])
        if kind == flat.ENDED:
            result.append(None)
        elif kind in _ONE_SIDED:
            result.append((op, tables.events[int(tables.terms[what]["flag"])]))
        elif kind == flat.WAITS_DEP:
            result.append((op, ("dep", (int(tables.deps[what]["block"]), int(tables.deps[what]["op"])))))
        else:
            result.append((op, (_WAITS[kind], what) if kind in _WAITS else None))
    return result
