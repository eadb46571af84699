"""Do all ranks end with bitwise the same floating-point result?

Floating-point addition commutes but does not associate. So two ranks end with the same bits for certain only if their
results are the same expression up to exchanging the two operands of each addition. The program, not the schedule,
decides in which order an address adds the values that arrive in one step (by source, by age, packets first). So a sum
of three or more values in one step equals no other sum for certain; copies of it equal it.
"""

from __future__ import annotations

from synth.model.collective import Collective
from synth.model.schedule import Schedule


def same_bits(schedule: Schedule) -> bool:
    """True if ranks that want the same contributions of a chunk get the same expression, however programs add.

    True for every collective that does not combine. The schedule is assumed to be right
    (`synth.checker.schedule.replay`).
    """
    collective, chunks = schedule.collective, schedule.chunks
    if not collective.combining or not _wanted_twice(collective):
        return True

    # Expressions are numbered: inputs by their rank, and a sum by its two terms in order, so that equal ones are equal.
    nodes: dict[tuple, int] = {}

    def node(*key: object) -> int:
        return nodes.setdefault(key, collective.ranks + len(nodes))

    value: dict[tuple[int, int], int] = {}  # (chunk, rank) -> expression; those below `ranks` are inputs
    for unit, pre in enumerate(collective.pre):
        for chunk in range(unit * chunks, (unit + 1) * chunks):
            value.update({(chunk, rank): rank for rank in pre})

    # All sends of a step read the state before it; a copy replaces what is there, reductions add to it.
    for t, step in enumerate(schedule.steps):
        terms: dict[tuple[int, int], list[int]] = {}
        for send in sorted(step.unicast_sends, key=lambda s: s.kind.startswith("reduce")):
            term = send.src if send.kind.endswith("-input") else value[send.chunk, send.src]
            at = (send.chunk, send.dst)
            if send.kind.startswith("copy"):
                terms[at] = [term]
            else:
                terms.setdefault(at, [value[at]] if at in value else []).append(term)
        for at, row in terms.items():
            if len(row) == 1:
                value[at] = row[0]
            else:
                value[at] = node(*sorted(row)) if len(row) == 2 else node("here", t, *at)

    # Ranks that want the same contributions must hold the same expression.
    for u, post in enumerate(collective.post):
        for i in range(chunks):
            seen: dict[frozenset[int], int] = {}
            for rank in post:
                result = value[u * chunks + i, rank]
                if seen.setdefault(collective.wanted(u, rank), result) != result:
                    return False
    return True


def _wanted_twice(collective: Collective) -> bool:
    """Return True if two ranks want the same contributions of a unit."""
    for unit, ranks in enumerate(collective.post):
        if len({collective.wanted(unit, rank) for rank in ranks}) < len(ranks):
            return True
    return False
