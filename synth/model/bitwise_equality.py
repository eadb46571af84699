"""Do all ranks end with bitwise the same floating-point result?

Floating-point addition commutes but does not associate, so two ranks end with the same bits for certain only if their
results are the same expression up to exchanging the two operands of each addition. In which order an address adds what
arrives in one step is the program's matter (by source, by age, packets before what is there), so a sum of three or more
in one step is like no sum made anywhere else; copies of it are the same.
"""

from __future__ import annotations

from synth.model.schedule import Schedule


def same_bits(schedule: Schedule) -> bool:
    """Whether all ranks that want the same contributions of a chunk get them by the same expression, in whatever order
    programs add.

    True for everything that does not combine. The schedule is taken to be right (`verify.schedule`).
    """
    collective, chunks = schedule.collective, schedule.chunks
    if not collective.combining:
        return True
    nodes: dict[tuple, int] = {}

    def node(*key: object) -> int:
        return nodes.setdefault(key, collective.ranks + len(nodes))

    value = {
        (u * chunks + i, rank): rank for u, pre in enumerate(collective.pre) for i in range(chunks) for rank in pre
    }
    for t, step in enumerate(schedule.steps):
        terms: dict[tuple[int, int], list[int]] = {}
        for send in sorted(step.sends, key=lambda s: s.kind.startswith("reduce")):
            term = send.src if send.kind.endswith("-input") else value[send.chunk, send.src]
            at = (send.chunk, send.dst)
            if send.kind.startswith("copy"):
                terms[at] = [term]
            else:
                terms.setdefault(at, [value[at]] if at in value else []).append(term)
        for at, row in terms.items():
            value[at] = row[0] if len(row) == 1 else node(*sorted(row)) if len(row) == 2 else node("here", t, *at)
    for u, post in enumerate(collective.post):
        for i in range(chunks):
            seen: dict[frozenset[int], int] = {}
            for rank in post:
                result = value[u * chunks + i, rank]
                if seen.setdefault(collective.wanted(u, rank), result) != result:
                    return False
    return True
