"""How the messages of a program travel in the kernel: through FIFOs, as packets, or straight into the receiver's
buffer."""

from __future__ import annotations

from synth.program.direct_writes import ordered_alone, puts
from synth.runtime.kernel import sources
from synth.runtime.kernel import tables as arrays
from synth.runtime.reference.op_tables import Compiled
from synth.runtime.slicing import Cut


def tables(
    code: Compiled, cut: Cut, *, protocol: str | None, in_place: bool, direct: bool = True, clock: bool = False
) -> tuple[str, arrays.Tables]:
    """The feature (`kernels.FEATURES`) to run a compiled program with, and its tables.

    Logical time goes with FIFOs. Packets are for LL (`protocol`, or the program's own), unless the program relies on
    messages for the order of a rank's memory. `direct`: put what is proved safe, if anything is. Raises as
    `arrays.tables` does.
    """
    program = code.program
    if clock:
        return sources.CLOCK, arrays.tables(code, cut)
    if (protocol or program.protocol) == "LL":
        return (sources.LL if ordered_alone(program, in_place) else sources.PLAIN), arrays.tables(code, cut)
    found = puts(program, in_place, cut.part) if direct else {}
    return (sources.DIRECT if found else sources.PLAIN), arrays.tables(code, cut, found)
