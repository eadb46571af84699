"""Certificates that argue by cases: a tree on who holds a chunk when, and the rank or part that completes first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from synth.checker.fields import mapping, need
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


def first_to_complete(packing: PricedCuts, roots: dict) -> int:
    """Return the least value over the ranks that may be the first to hold the whole sum, after checking each.

    `roots` has the cuts of one rank of each orbit. Sends up to the moment of completion must enter the cuts `before`
    (around that rank), later sends every other rank (`after`: a weight for each rank), and all sends together the cuts
    `overall`. The value is the sum of the weights. Raises VerificationError.
    """
    p, values = packing.problem, {}
    need(len(p.pre) == 1 and p.symmetric(0) and len(p.pre[0]) > 1, "is for one allreduce", "kind")
    for name, fields in mapping(roots, "roots").items():
        rank, place = packing.index(name, p.ranks), f"roots.{name}"
        part = mapping(fields, place)
        need(
            rank in p.pre[0] and part.keys() == {"before", "after", "overall"}, "expected before, after, overall", place
        )
        early: Counter[int] = Counter()
        late: Counter[int] = Counter()
        total = 0
        for where in ("before", "overall"):
            for row in items(part[where], f"{place}.{where}"):
                weight, theta = packing.cut(row, f"{place}.{where}")
                ends = [rank] if where == "before" else p.pre[0]
                outside = any(theta[i] < 0 for i in p.pre[0])
                inside = any(theta[d] > 0 for d in ends)
                need(outside and inside, "does not part a contributor from a destination", f"{place}.{where}")
                total += weight
                for i, _ in packing.entering_sends(theta):
                    early[i] += weight
                    late[i] += weight if where == "overall" else 0
        need(len(items(part["after"], f"{place}.after")) == p.ranks, f"expected {p.ranks} weights", f"{place}.after")
        for n, weight in enumerate(part["after"]):
            total += number(weight, f"{place}.after[{n}]", 0)
            need(
                weight == 0 or (n in p.pre[0] and n != rank),
                "is not a rank that completes later",
                f"{place}.after[{n}]",
            )
        for i, (u, v, _) in enumerate(p.links):
            load = max(early[i], late[i] + part["after"][v])
            need(load <= packing.send_prices[i][0], f"overload link {u} to {v}", place)
        orbit = packing.orbits["rank"].of(rank)
        need(orbit not in values, "is in the orbit of another", place)
        values[orbit] = total
    need(all(packing.orbits["rank"].of(r) in values for r in p.pre[0]), "leave out a rank", "roots")
    return min(values.values())


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
