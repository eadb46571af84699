"""What blocks that were cut short waited for, read from the statuses that the kernel leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from synth.runtime.kernel import tables as flat
from synth.runtime.reference.op_tables import Compiled

_WAITS = {flat.WAITS_DATA: "data", flat.WAITS_CREDIT: "credit", flat.WAITS_ENTRY: "entry", flat.WAITS_TURN: "turn"}


def waits(code: Compiled, tables: flat.Tables, status: np.ndarray) -> list[tuple[int, tuple[str, Any] | None] | None]:
    """Of each block that was cut short: its op and what it waited for, as the reference executor says it; None of one
    that ended."""
    found: list[tuple[int, tuple[str, Any] | None] | None] = []
    for row in status:
        kind, op, what = int(row["kind"]), int(row["op"]), int(row["what"])
        if kind == flat.ENDED:
            found.append(None)
        elif kind == flat.WAITS_DEP:
            found.append((op, ("dep", (int(tables.deps[what]["block"]), int(tables.deps[what]["op"])))))
        else:
            found.append((op, (_WAITS[kind], what) if kind in _WAITS else None))
    return found
