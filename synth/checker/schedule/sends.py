"""The sends of one step, read strictly, and what they count against: links, and for those of switches limits and
wires."""

from __future__ import annotations

from collections import Counter
from itertools import chain, pairwise

from synth.checker.fields import need
from synth.checker.schedule.machine import LinkKey, ReplayMachine, Wire, read_path
from synth.errors import VerificationError
from synth.model.documents.json_reader import items, number, one_of, text

KINDS = ("copy", "reduce", "copy-input", "reduce-input")
SWITCH_KINDS = ("multicast", "multicast-reduce", "fetch-reduce")


def count_loads(rows: list, chunks: int, machine: ReplayMachine, place: str) -> Counter[LinkKey]:
    """Return the number of sends of a step over each link, after checking the form of every row.

    `rows`: the sends as the document gives them. `chunks`: number of chunks. Raises VerificationError.
    """
    keys: list[LinkKey] = []
    for i, row in enumerate(rows):
        if type(row) is not list or len(row) not in (4, 5):
            raise VerificationError(
                "expected [chunk, src, dst, kind] or [chunk, src, dst, kind, path]", f"{place}[{i}]"
            )
        chunk, src, dst, kind = row[:4]
        path = read_path(row[4], f"{place}[{i}][4]") if len(row) == 5 else ()
        whole = type(chunk) is int and type(src) is int and type(dst) is int
        if whole and 0 <= chunk < chunks and kind in KINDS:
            if (src, dst, path) in machine.links:
                keys.append((src, dst, path))
                continue
            # a rank that adds its input to what it holds, or puts it there, uses no link
            if src == dst and 0 <= src < machine.ranks and not path and kind.endswith("-input"):
                continue

        # nearly no row comes here: say what is wrong with it
        here = f"{place}[{i}]"
        number(chunk, f"{here}[0]", 0, chunks)
        number(src, f"{here}[1]", 0, machine.ranks)
        number(dst, f"{here}[2]", 0, machine.ranks)
        one_of(kind, KINDS, f"{here}[3]")
        through = f" through {' '.join(path)}" if path else ""
        raise VerificationError(f"there is no link {src} -> {dst}{through}", here)
    return Counter(keys)


def switch_sends(rows: list, chunks: int, machine: ReplayMachine, place: str) -> tuple[list[list], Counter[int | Wire]]:
    """Return the sends from rank to rank with the effect of the switch sends `rows`, and their loads.

    The loads are those of limits, by index, and of wires, where wires end at the switch. Each send ends with the place
    of its row, after an unused path. `chunks`: number of chunks. Raises VerificationError for a row that is wrong.
    """
    moves: list[list] = []
    loads: Counter[int | Wire] = Counter()
    wired = set(chain.from_iterable(machine.wires))
    for i, row in enumerate(rows):
        here = f"{place}[{i}]"
        need(len(items(row, here)) == 5, "expected [chunk, rank, group, kind, switch]", here)
        chunk = number(row[0], f"{here}[0]", 0, chunks)
        rank = number(row[1], f"{here}[1]", 0, machine.ranks)
        group = [number(r, f"{here}[2]", 0, machine.ranks) for r in items(row[2], f"{here}[2]")]
        kind = one_of(row[3], SWITCH_KINDS, f"{here}[3]")
        name = text(row[4], f"{here}[4]")
        need(name in machine.switches, f"there is no switch {name} that multicasts", f"{here}[4]")
        switch = machine.switches[name]
        ascending = all(a < b for a, b in pairwise(group))
        need(
            ascending and rank in group and len(group) > 1, f"expected ascending ranks, {rank} and others", f"{here}[2]"
        )
        for member in group:
            need(member in switch.up, f"rank {member} has no port at {name}", f"{here}[2]")

        # the issuer sends to all others, or fetches from them
        fetches = kind == "fetch-reduce"
        for member in group:
            if member != rank:
                src, dst = (member, rank) if fetches else (rank, member)
                moves.append([chunk, src, dst, "copy" if kind == "multicast" else "reduce", None, here])

        # the issuer's port is used once one way; each member's the other way, its own too where own data pass through
        used: list[tuple[int, bool]] = [(rank, not fetches)]  # a rank, and True for its port into the switch
        used += [(member, fetches) for member in group if member != rank or switch.through]
        for end, upwards in used:
            loads.update(switch.up[end] if upwards else switch.down[end])
            if name in wired:
                wire: Wire = (end, name) if upwards else (name, end)
                need(wire in machine.wires, f"there is no wire {wire[0]} -> {wire[1]}", here)
                loads[wire] += 1
    return moves, loads
