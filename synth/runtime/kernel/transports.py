"""Transports of a program's messages in the kernel: FIFOs, packets, or direct puts into the receiver's buffer.

One-sided programs have no messages: their ops write the memory of other ranks."""

from __future__ import annotations

from typing import NamedTuple

from synth.program.direct_writes import direct_sends, ordered_without_messages
from synth.program.program import TWO_SIDED
from synth.runtime.kernel import sources
from synth.runtime.kernel import tables as arrays
from synth.runtime.kernel.onesided_tables import onesided_tables
from synth.runtime.reference.op_tables import CompiledProgram
from synth.runtime.slicing import Slicing


class KernelProgram(NamedTuple):
    """A compiled program for elements of `size` bytes, with the kernel's feature and tables (`choose_transport`)."""

    code: CompiledProgram
    cut: Slicing
    feature: str
    tables: arrays.Tables
    size: int

    def slot(self, elements: int) -> int:
        """Return the bytes of a FIFO slot for `elements` elements of each chunk."""
        return arrays.slot_bytes(self.tables, elements, self.size, self.feature)


def choose_transport(
    code: CompiledProgram,
    cut: Slicing,
    *,
    protocol: str | None,
    in_place: bool,
    direct: bool = True,
    clock: bool = False,
) -> tuple[str, arrays.Tables]:
    """Return the transport of a compiled program, as the kernel's feature (of `sources.FEATURES`), and its tables.

    Logical time (`clock`) uses FIFOs. Protocol LL (`protocol`, by default the program's) uses packets, unless the
    program relies on messages for the order of accesses to a rank's memory. `direct`: put messages directly into the
    receiver's buffer where that is proved safe. Raises as `arrays.tables` and `onesided_tables` do.
    """
    program = code.program
    if program.one_sided or any(step.code not in TWO_SIDED for steps in code.steps for step in steps):
        return sources.PORTS, onesided_tables(code)
    if clock:
        return sources.CLOCK, arrays.tables(code, cut)
    if (protocol or program.protocol) == "LL":
        return (sources.LL if ordered_without_messages(program, in_place) else sources.PLAIN), arrays.tables(code, cut)
    direct_puts = direct_sends(program, in_place, cut.part) if direct else {}
    return (sources.DIRECT if direct_puts else sources.PLAIN), arrays.tables(code, cut, direct_puts)
