"""Bounds without multicasts that hold with them, too."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def holds_with_multicast(ranks: int, groups: Iterable[Collection[int]], certificate: dict) -> bool:
    """Return True if the certificate counts what crosses a cut, or leaves regions, that no switch multicasts across.

    Sends of such a switch stay on one side, so that as many others cross. `groups`: the ranks of each switch; one of no
    ranks joins all that its links lead to.
    """
    groups = list(groups)
    if not groups:
        return True
    if certificate["kind"] == "throughput-cut":
        regions = [set[int]()]
        for first, last in certificate["inside"]:
            regions[0].update(range(first, last + 1))
    elif certificate["kind"] == "allreduce-parts":
        regions = [set(region) for region in certificate["regions"]]
    else:
        return False
    part = [0] * ranks
    for number, region in enumerate(regions, 1):
        for rank in region.intersection(range(ranks)):
            part[rank] = number
    for group in groups:
        parts = {part[rank] for rank in group}
        if len(parts) != 1:
            return False
    return True
