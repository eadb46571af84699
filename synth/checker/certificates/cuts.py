"""Lower-bound certificates of exact synthesis, checked by sums of integers: no solver, no numpy.

The argument for each kind is in docs/proofs.md. In one line: sends of a chunk must enter every cut between where it is
and where it must be; if the cuts entered by a send weigh no more than its price, and the prices of all bandwidth come
to at most `scale` a step, then R/C ≥ Σ weights / scale. A stated bound is never read: it is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from synth.checker.certificates import single_chunk, switch_operations
from synth.checker.certificates.instance import Instance
from synth.checker.certificates.priced_cuts import TIMED, PricedCuts
from synth.checker.fields import need
from synth.errors import VerificationError, malformed
from synth.model.documents.json_reader import items, number
from synth.model.topology import Network

_CUTS = {"steps", "scale", "prices", "cuts", "generators"}
KEYS = {  # kind: (fields it must have, fields it may have)
    "distance": ({"pair", "distance"}, set()),
    "unreachable": ({"pair", "closed"}, set()),
    "static-cuts": (_CUTS, {"count"}),
    "deadline-cuts": (_CUTS, {"count", "covers", "averaged"}),
    "allreduce-partition": ({"scale", "prices", "parts", "weight", "generators"}, set()),
    "too-few-steps": ({"steps", "unit", "proof"}, set()),
    "switch-operations": ({"ports"}, {"steps"}),
}
MOST_STEPS = 1 << 14  # maximum number of steps of a certificate with prices listed step by step
ALTERED = "a number of it was altered, or one in the links, the limits or the collective here"
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, RecursionError)


def check(
    certificate: dict,
    topology: Network | dict,
    collective_doc: dict,
    *,
    steps: int | None = None,
    chunks: int | None = None,
) -> Fraction:
    """Return the bound that the certificate proves: on R/C of schedules of `steps` steps, or of any number when None.

    With `chunks` it is a bound on R/C at this many chunks per unit only, where R is an integer and each step has at
    least one round. `topology` is a network, whose document is read once, or a document as `Network.to_json()`;
    `collective_doc` is one as `Collective.to_json(1)`. Three kinds prove something else
    and take neither `steps` nor `chunks`: ``distance`` and ``too-few-steps`` return the least number of steps;
    ``unreachable`` proves that there is no schedule at all and returns 0. Raises VerificationError, with the place, for
    anything that does not prove a bound.
    """
    try:
        problem = _problem(certificate, topology, collective_doc)
        kind, stated = certificate["kind"], certificate.get("steps")
        if kind in UNTIMED:
            need(steps is None and chunks is None, f"{kind} says nothing about rounds", "kind")
            return UNTIMED[kind](certificate, problem)

        # a bound is for the number of steps that it states, and for any number where it states none
        if kind == TIMED or (kind == "switch-operations" and "steps" in certificate):
            number(stated, "steps", 1, MOST_STEPS)
            need(stated == steps, f"is for {stated} steps, not {steps or 'any number'}", "steps")
        else:
            need(stated is None, "is null where the bound is for every number of steps", "steps")

        # each chunk of all units together pays `total`; all bandwidth of a round comes to `scale`, less what is spare
        spare = 0
        if kind == "switch-operations":
            total, scale = switch_operations.total_and_scale(problem, certificate["ports"], stated)
        else:
            packing = PricedCuts(certificate, problem)
            total, scale = sum(packing.unit_values(certificate)), packing.scale
            spare = sum(packing.slack) if kind == TIMED else 0
        if chunks is None:
            return Fraction(total, scale)
        rounds = -(-(number(chunks, "chunks", 1) * total + spare) // scale)
        return Fraction(max(rounds, steps or 0), chunks)
    except MALFORMED as error:
        raise VerificationError(malformed(error, "certificate or problem")) from None


def _problem(certificate: dict, topology: Network | dict, collective: dict) -> Instance:
    """Return the problem that a certificate is about, after checking that its fields are those of its kind."""
    need(type(certificate) is dict, "malformed certificate: expected an object", "$")
    kind = certificate["kind"]
    need(isinstance(kind, str) and kind in KEYS, f"unknown kind {str(kind)[:40]!r}", "kind")
    must, may = KEYS[kind]
    wrong = (certificate.keys() ^ (must | {"kind", "problem"})) - may
    need(not wrong, f"{sorted(map(str, wrong))[:1]} is missing or unknown", "$")
    problem = Instance(topology, collective)
    need(certificate["problem"] == problem.digest, f"speaks about another problem than this: {ALTERED}", "problem")
    need(kind != "too-few-steps" or not problem.switches, "does not bound schedules whose switches multicast", "kind")
    return problem


@dataclass(frozen=True)
class BoundPrices:
    """Prices of a checked certificate: those of links and limits, and the price that the sends of chunks need.

    Attributes
    ----------
    links, limits : the price of a unit of each one's bandwidth by step; one price where the bound is for every number
        of steps.
    units : a lower bound on the price of the sends of a chunk of each unit.
    scale : the prices of all bandwidth come to at most this at each step.
    """

    links: tuple[tuple[int, ...], ...]
    limits: tuple[tuple[int, ...], ...]
    units: tuple[int, ...]
    scale: int


def prices(certificate: dict, topology_doc: dict, collective_doc: dict) -> BoundPrices | None:
    """Return the prices of a certificate, in the numbers of the problem; None for a kind that has none.

    The documents are as for `check`. Raises VerificationError for a certificate that proves nothing.
    """
    kind = certificate["kind"]
    if kind not in KEYS or "prices" not in KEYS[kind][0]:
        return None
    check(certificate, topology_doc, collective_doc, steps=certificate["steps"] if kind == TIMED else None)
    packing = PricedCuts(certificate, Instance(topology_doc, collective_doc))
    units = packing.unit_values(certificate)
    return BoundPrices(tuple(packing.prices["link"]), tuple(packing.prices["limit"]), tuple(units), packing.scale)


def _pair(certificate: dict, problem: Instance) -> tuple[int, int]:
    unit, rank = certificate["pair"]
    wanted = problem.post[number(unit, "pair", 0, len(problem.post))]
    need(number(rank, "pair", 0, problem.ranks) in wanted, "is no destination", "pair")
    return unit, rank


def _distance(certificate: dict, problem: Instance) -> Fraction:
    far: float = 0
    if certificate["pair"] == []:
        need(nothing_to_do(problem), "names no pair, but something must move", "pair")
    else:
        unit, rank = _pair(certificate, problem)
        sources = problem.sources(unit, rank)
        far = max((problem.hops(s)[rank] for s in sources), default=0)  # none: a sum of nothing
    stated = number(certificate["distance"], "distance", 0)
    need(stated == far, f"says {stated}, found {far}", "distance")
    return Fraction(stated)


def nothing_to_do(problem: Instance) -> bool:
    """Return True where each rank has all that it wants before the first step."""
    for unit, rows in enumerate(problem.post):
        for rank in rows:
            if not all(rank in source for source in problem.sources(unit, rank)):
                return False
    return True


def _unreachable(certificate: dict, problem: Instance) -> Fraction:
    unit, rank = _pair(certificate, problem)
    closed = {number(n, "closed", 0, problem.ranks) for n in items(certificate["closed"], "closed")}
    need(rank not in closed, "holds the destination", "closed")
    # Nobody holds the data: its one source is empty and inside any set. A sum of nothing has no source, and is not
    # proved here.
    need(any(s <= closed for s in problem.sources(unit, rank)), "leaves a source out", "closed")
    need(all(problem.peers[u] <= closed for u in closed), "is left by a link", "closed")
    return Fraction(0)


def _too_few(certificate: dict, problem: Instance) -> Fraction:
    unit = number(certificate["unit"], "unit", 0, len(problem.pre))
    steps = number(certificate["steps"], "steps", 1, MOST_STEPS)
    single_chunk.check_no_schedule(problem, unit, steps, certificate["proof"])
    return Fraction(steps + 1)


UNTIMED = {"distance": _distance, "unreachable": _unreachable, "too-few-steps": _too_few}
