"""The count of operations of an allreduce through one switch that multicasts, whose own data use its ports.

Every chunk uses at least 2n + 2 ports of n ≥ 3 ranks in all, and 4 of two ranks. In S ≥ 2 steps it pays at least
(n + 1)L + (n − 1)(n − 3), where L = (n − 1)(S − 1), if a port of any of n ≥ 3 ranks upwards costs
S − 1 + (S − t)(n − 3) in step t, and L less that downwards. The proofs are below.
"""

from __future__ import annotations

from synth.checker.certificates.instance import Instance
from synth.checker.fields import need
from synth.model.documents.json_reader import items, number

# Why a chunk uses at least 2n + 2 ports if n ≥ 3, without `steps`.
#
# The 2n limits are distinct, and every link counts against that of its source upwards and that of its destination
# downwards, which the checker looks up. Then every send of a chunk uses ports: a link one upwards and one downwards, a
# multicast to k members (its issuer among them) one and k, a fetched sum of k members k and one. *Each chunk uses at
# least 2n + 2 ports if n ≥ 3.* Each rank sends something that others get, and gets something from others: that is one
# use upwards and one downwards of each rank. A rank that multicasts uses its port downwards for its own data, too, and
# one that fetches uses its port upwards. So with one use each a rank does neither. Suppose that at most 2n + 1 ports
# are used. Then all ranks but one, x, have one use each, and x has at most three.
#
# - No switch sends: links use as many ports upwards as downwards, so n each. These are n sends.
# - x multicasts: it uses one port upwards and two downwards, so it does so once and fetches nothing. n ports are used
#   upwards, n + 1 downwards. The other n − 1 uses upwards are links, which leave n + 1 − (n − 1) = 2 uses downwards
#   for the multicast: x itself and one other. So it is worth a link, and there are n sends.
# - x fetches: the same with directions exchanged.
#
# But an allreduce of n ranks takes 2(n − 1) sends (docs/proofs.md, Count), and n < 2n − 2 for n ≥ 3, or n = 2(n − 1)
# only for n = 2. Two ranks use four ports, one each.
#
# Why a chunk pays at least V = (n + 1)L + (n − 1)(n − 3) in S steps. Let e = S − 1, L = (n − 1)e, and a port upwards
# costs U(t) = e + (S − t)(n − 3) in step t, a port downwards D(t) = L − U(t) = e + (t − 1)(n − 3).
#
# A link costs L, a fetch from m others L + m U(t), a multicast to m others L + m D(t). U falls by n − 3 from step to
# step, D rises by n − 3, neither is less than e. A rank *leaves* when it is the source of a link or of a multicast, or
# another's fetch has it as a member. It *arrives* when a link, its own fetch or another's multicast brings it
# something. Let T be the first step after which a rank holds the contributions of all others, and Q the k ranks that
# do. Every rank of Q arrives at step T, every other one later. By step T every rank has left, or, if k = 1, every rank
# but that of Q. Take one leave, at the price U, and one arrival, at the price D, of each rank from what it pays: the
# first leave, an arrival at T or the last one after T. What sends pay beyond them is a surplus. Before T a fetch has a
# surplus of at least L (all but its members' leaves), a link or a multicast of at least D ≥ e. After T a multicast has
# a surplus of at least L, a link or a fetch of at least U ≥ e.
#
# - k = 1. So T < S. Count all sends of step T to those up to T. Up to T n − 1 ranks leave at U(T) or more, with a
#   surplus of L, or of (n − 1)e = L. After T n − 1 ranks arrive at D(T + 1) or more, with the same surplus. The sum is
#   (n − 1)(U(T) + D(T + 1)) + 2L = V, as U(T) + D(T + 1) = L + n − 3.
# - k ≥ 2. Let A be the a ranks that do not leave before T. The others' leaves and the later arrivals pay n − 3 more
#   than at T, so the leaves and arrivals come to at least nL + (2n − a − k)(n − 3). Let x be the surplus at T. It
#   remains to show x + before + after ≥ L + (a + k − n − 1)(n − 3), where the surplus before T is at least (n − a)e
#   and, if a < n, that after T at least (n − k)e.
#   - a ≤ 1: the surplus before T is at least (n − 1)e = L, and a + k − n − 1 ≤ 0.
#   - a ≥ 2: what a rank of A contributes must go to each other rank of Q directly, at step T. These are P ≥ ak −
#     min(a, k) pairs. Write U, D for U(T), D(T).
#     - No fetch at T: a rank of A that sends to d others pays at least L + (d − 1)D. So x ≥ gD with g = P − k. If a <
#       n, then T ≥ 2 and D ≥ e + n − 3, and both sides differ by at least (e + n − 3)(n + 1 − a − k + g) ≥ 0. If a =
#       n, then x ≥ ek(n − 2) ≥ L + (k − 1)(n − 3).
#     - No multicast at T: the same with directions exchanged, a for k and U for D. If k = n, then x ≥ ea(n − 2) ≥ L +
#       (a − 1)(n − 3).
#     - Both: with K links, f fetches from X members in all, and m multicasts to W, x = U p + D r, where p = K + f + X
#       + m − a ≥ 1 and r = K + f + m + W − k ≥ 1. As K + X + W ≥ P, p + r ≥ P − a − k + 4. So x ≥ L + U (p − 1) + D (r
#       − 1), and p + r − 2 ≥ (a − 2)(k − 1) if a ≥ k, or (a − 1)(k − 2) if not, which is at least a + k − n − 1. For 1
#       < T < S, U and D are at least e + n − 3. For T = 1, a = n, and p + r − 2 ≥ (n − 2)(k − 1). For T = S, k = n,
#       and p + r − 2 ≥ (n − 2)(a − 1). In each case x ≥ L + (a + k − n − 1)(n − 3).
#
# The refutations of cheaper chunks by CaDiCaL for four ranks in two and three steps agree (V = 18 and 33).


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
        uses = i in members[up[u]] and i in members[down[v]]
        need(uses, f"link {u} to {v} does not use the ports", "ports")
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
