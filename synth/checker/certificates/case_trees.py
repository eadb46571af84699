"""Certificates that argue by cases: a tree on who holds a chunk when, and the rank or part that completes first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from synth.checker.fields import need
from synth.model.documents.json_reader import items, number

if TYPE_CHECKING:
    from synth.checker.certificates.cuts import PricedCuts

# Maximum number of branchings on one path of a case tree, which is read by recursion.
MOST_DEPTH = 100


def least_value(packing: PricedCuts, tree: dict, unit: int, place: str) -> int:
    """Return the least value Σ weights over the leaves of a case tree, after checking that each is proved.

    The tree branches on "does rank n hold a chunk of `unit` after step t?". `place` is where it stands in the
    certificate. Raises VerificationError.
    """
    need(not packing.problem.combining, "cases are for data that is held or not, not for sums", place)
    value = _least(packing, tree, unit, place, (), ())
    need(value is not None, "has no case that is possible", place)
    return value or 0


def _least(packing: PricedCuts, tree: dict, unit: int, place: str, has: tuple, lacks: tuple) -> int | None:
    need(type(tree) is dict and len(has) + len(lacks) < MOST_DEPTH, "expected a case tree", place)
    if tree.keys() == {"cuts"}:
        return packing.cuts(tree["cuts"], unit, f"{place}.cuts", has=has, lacks=lacks)
    if tree.keys() == {"dead"}:
        theta = packing.cut([0, *items(tree["dead"], f"{place}.dead")], f"{place}.dead")[1]
        need(packing.separates(theta, unit, has), "does not part a source from a destination", f"{place}.dead")
        for i, t in packing.entering_sends(theta):
            need(
                packing.rules_out(i, t, lacks),
                f"is entered by link {packing.problem.links[i][:2]} at step {t}",
                f"{place}.dead",
            )
        return None
    need(tree.keys() == {"node", "has", "not"}, "expected node, has and not, or cuts, or dead", place)
    n, t = items(tree["node"], f"{place}.node")
    node = number(n, f"{place}.node", 0, packing.problem.ranks), number(t, f"{place}.node", 0, packing.layers + 1)
    cases = (
        _least(packing, tree["has"], unit, f"{place}.has", (*has, node), lacks),
        _least(packing, tree["not"], unit, f"{place}.not", has, (*lacks, node)),
    )
    return min((v for v in cases if v is not None), default=None)


def crossings(packing: PricedCuts, parts: list, weight: int) -> int:
    """Return the least price of the sends of a chunk between the parts of a partition, for one allreduce.

    The parts hold each rank once. A send between parts is a message of one way. The first part to hold all
    contributions needs one out of every other part, and afterwards every other part must still be entered. `weight`:
    the least price of a send between parts. The ranks of a switch that multicasts are in one part, so that no switch
    send is between parts. Raises VerificationError.
    """
    p, home = packing.problem, dict[int, int]()
    need(len(p.pre) == 1 and p.symmetric(0) and len(p.pre[0]) > 1, "is for one allreduce", "kind")
    for k, part in enumerate(items(parts, "parts")):
        place = f"parts[{k}]"
        for rank in items(part, place):
            need(number(rank, place, 0, p.ranks) not in home, f"names rank {rank} again", place)
            home[rank] = k
        need(any(rank in p.pre[0] for rank in part), "holds no rank of the allreduce", place)
    need(len(home) == p.ranks, f"hold {len(home)} of {p.ranks} ranks", "parts")
    for switch in p.switches:
        need(len({home[rank] for rank in switch.up}) == 1, "divide the ranks of a switch that multicasts", "parts")
    number(weight, "weight", 1)
    for i, (u, v, _) in enumerate(p.links):
        need(home[u] == home[v] or weight <= packing.send_prices[i][0], f"overload link {u} to {v}", "weight")
    return 2 * (len(parts) - 1) * weight
