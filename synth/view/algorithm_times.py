"""The table of algorithms by their times at one size, the fastest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synth.model.number_text import number, size_text
from synth.model.rational import counted
from synth.view.frontier_text import Report

SHOWN = 10  # algorithms in the table, the fastest first; the document has all


class AlgorithmTime(NamedTuple):
    """An algorithm in one protocol and number of instances, its predicted seconds, and the clock's name (`model`)."""

    label: str
    protocol: str
    instances: int
    seconds: float
    model: str = ""


def report(rows: Sequence[AlgorithmTime], size: int) -> Report:
    """Return the table of the fastest variant of each algorithm at `size` bytes; `rows` by rising time."""
    columns = ("algorithm", "protocol", f">µs at {size_text(size)}", ">GB/s",
               ">slower by")  # fmt: skip
    fastest: dict[str, AlgorithmTime] = {}
    for row in rows:
        fastest.setdefault(row.label, row)
    best, table = rows[0], []
    for row in list(fastest.values())[:SHOWN]:
        slower = f"{100 * (row.seconds / best.seconds - 1):.1f}%"
        time, rate = number(row.seconds * 1e6), number(size / row.seconds / 1e9)
        table.append((row.label, row.protocol, time, rate, slower if row is not best else ""))
    taken = f"at {size_text(size)} take {best.label} in {best.protocol}"
    lines = [f"{taken}: {number(best.seconds * 1e6)} µs {best.model}"]
    if len(fastest) > SHOWN:
        lines.append(f"{counted(len(fastest) - SHOWN, 'slower algorithm')} left out (--format json has all)")
    lines.append(
        f"times of programs, by the clock of `synth tune` and `run` (here: --protocol {best.protocol}); "
        f"`synth tune -o plan.json`, then `synth export --plan plan.json` write the fastest"
    )
    return Report.of("", columns, table, lines)
