"""The count of operations of an allreduce through one switch that multicasts, whose own data use its ports.

Every chunk uses at least 2n + 2 ports of n ≥ 3 ranks in all, and 4 of two ranks. In S ≥ 2 steps it pays at least
(n + 1)L + (n − 1)(n − 3), where L = (n − 1)(S − 1), if a port of any of n ≥ 3 ranks upwards costs
S − 1 + (S − t)(n − 3) in step t, and L less that downwards. The proofs are in docs/proofs.md.
"""

from __future__ import annotations

from synth.checker.certificates.instance import Instance
from synth.checker.fields import need
from synth.model.documents.json_reader import items, number


def total_and_scale(problem: Instance, ports: object, steps: int | None) -> tuple[int, int]:
    """Return the least total price of the sends of one chunk of each unit, and the greatest price of a full round.

    Without `steps` each use of a port costs 1: the result is the number of ports that the chunks use at least, and the
    number of chunks that all ports carry in a round. With `steps` the prices are those above, for schedules of so many
    steps. `ports`: for each rank [limit upwards, limit downwards] of its port. Raises VerificationError where the
    machine is not one such switch, or the collective no allreduce of all ranks.
    """
    n = problem.ranks
    need(len(problem.switches) == 1 and n > 1, "holds for one switch alone", "kind")
    switch = problem.switches[0]
    need(switch.through and len(switch.up) == n, "holds where the own data of all ranks use the switch", "kind")
    for unit, held in enumerate(problem.pre):
        need(problem.symmetric(unit) and len(held) == n, "holds for an allreduce of all ranks", "kind")
    rows = items(ports, "ports")
    need(len(rows) == n, f"expected {n} pairs of limits", "ports")
    sides: tuple[list[int], list[int]] = ([], [])
    for rank, row in enumerate(rows):
        need(len(items(row, "ports")) == 2, "expected a limit upwards and one downwards", f"ports[{rank}]")
        for side, limit, own in zip(sides, row, (switch.up[rank], switch.down[rank]), strict=True):
            need(number(limit, f"ports[{rank}]", 0, len(problem.limits)) in own, "is no limit of the port", "ports")
            side.append(limit)
    up, down = sides
    need(len({*up, *down}) == 2 * n, "names a limit twice", "ports")
    members = [frozenset(links) for links, _ in problem.limits]
    for i, (u, v, _) in enumerate(problem.links):
        need(i in members[up[u]] and i in members[down[v]], f"link {u} to {v} does not use the ports", "ports")
    upwards = sum(problem.limits[k][1] for k in up)
    downwards = sum(problem.limits[k][1] for k in down)
    if steps is None:
        return len(problem.pre) * (4 if n == 2 else 2 * n + 2), upwards + downwards
    need(steps > 1 and n > 2, "holds for three ranks and two steps at least", "steps")
    link = (n - 1) * (steps - 1)
    capacity = 0
    for t in range(1, steps + 1):
        price = steps - 1 + (steps - t) * (n - 3)
        capacity = max(capacity, upwards * price + downwards * (link - price))
    return len(problem.pre) * ((n + 1) * link + (n - 1) * (n - 3)), capacity
