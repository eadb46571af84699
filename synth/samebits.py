"""Do all ranks end with bitwise the same floating-point result?

Floating-point addition commutes but does not associate, so two ranks end with the same bits for certain only if their
results are the same expression up to exchanging the two operands of each addition. The order of additions within one
step is fixed: an address first takes the copy that lands on it, if any, then adds what it receives by ascending
source rank (what a source has accumulated before its raw input), then its own input where that is added again.
"""

from __future__ import annotations

from synth.schedule import Schedule


def same_bits(schedule: Schedule) -> bool:
    """Whether all ranks that want the same contributions of a chunk compute them by the same expression.

    True for everything that does not combine. The schedule is taken to be right (`verify.schedule`).
    """
    collective, chunks = schedule.collective, schedule.chunks
    if not collective.combining:
        return True
    nodes: dict[tuple[int, int], int] = {}

    def add(a: int, b: int) -> int:
        return nodes.setdefault((min(a, b), max(a, b)), collective.ranks + len(nodes))

    value = {(u * chunks + i, rank): rank for u, pre in enumerate(collective.pre) for i in range(chunks) for rank in pre}
    for step in schedule.steps:
        before = dict(value)
        for send in sorted(step.sends, key=lambda s: (s.kind.startswith("reduce"), s.local, s.src, s.kind)):
            term = send.src if send.kind.endswith("-input") else before[send.chunk, send.src]
            at = (send.chunk, send.dst)
            value[at] = term if send.kind.startswith("copy") or at not in value else add(value[at], term)
    for u, post in enumerate(collective.post):
        for i in range(chunks):
            seen: dict[frozenset[int], int] = {}
            for rank in post:
                result = value[u * chunks + i, rank]
                if seen.setdefault(collective.wanted(u, rank), result) != result:
                    return False
    return True
