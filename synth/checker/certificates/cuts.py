"""Lower-bound certificates of exact synthesis, checked by sums of integers: no solver, no numpy.

The argument for each kind is in docs/proofs.md. In one line: sends of a chunk must enter every cut between where it is
and where it must be; if the cuts entered by a send weigh no more than its price, and the prices of all bandwidth come
to at most `scale` a step, then R/C ≥ Σ weights / scale. A stated bound is never read: it is computed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from synth.checker.certificates import single_chunk, switch_operations
from synth.checker.certificates.instance import Instance, InstanceSwitch
from synth.checker.fields import mapping, need, permutation
from synth.checker.orbits import Orbits
from synth.errors import VerificationError, malformed
from synth.model.documents.json_reader import items, number
from synth.model.gc_pause import collector_off
from synth.model.topology import Network

_CUTS = {"steps", "scale", "prices", "cuts", "generators"}
KEYS = {  # kind: (fields it must have, fields it may have)
    "distance": ({"pair", "distance"}, set()),
    "unreachable": ({"pair", "closed"}, set()),
    "static-cuts": (_CUTS, {"count", "reversed"}),
    "deadline-cuts": (_CUTS, {"count", "covers", "averaged", "reversed"}),
    "allreduce-partition": ({"scale", "prices", "parts", "weight", "generators"}, set()),
    "too-few-steps": ({"steps", "unit", "proof"}, set()),
    "switch-operations": ({"ports"}, {"steps"}),
}
# Kinds that hold for schedules with switch sends, too.
WITH_SWITCHES = (
    "distance", "unreachable", "static-cuts", "deadline-cuts", "allreduce-partition", "switch-operations",
)  # fmt: skip
MOST_STEPS = 1 << 14  # maximum number of steps of a certificate with prices listed step by step
TIMED = "deadline-cuts"  # the kind for one number of steps, where links have a price at each of them
ALTERED = "a number of it was altered, or one in the links, the limits or the collective here"


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
        return _check(certificate, topology, collective_doc, steps, chunks)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VerificationError(malformed(error, "certificate or problem")) from None


def _check(
    certificate: dict, topology: Network | dict, collective: dict, steps: int | None, chunks: int | None
) -> Fraction:
    need(type(certificate) is dict, "malformed certificate: expected an object", "$")
    kind = certificate["kind"]
    need(isinstance(kind, str) and kind in KEYS, f"unknown kind {str(kind)[:40]!r}", "kind")
    must, may = KEYS[kind]
    wrong = (certificate.keys() ^ (must | {"kind", "problem"})) - may
    need(not wrong, f"{sorted(map(str, wrong))[:1]} is missing or unknown", "$")
    problem = Instance(topology, collective, certificate.get("reversed", False))
    need(certificate["problem"] == problem.digest, f"speaks about another problem than this: {ALTERED}", "problem")
    if problem.switches:
        need(kind in WITH_SWITCHES, f"{kind} does not bound schedules whose switches multicast", "kind")
    if kind in UNTIMED:
        need(steps is None and chunks is None, f"{kind} says nothing about rounds", "kind")
        return UNTIMED[kind](certificate, problem)
    layers = 1
    if kind == TIMED:
        layers = number(certificate["steps"], "steps", 1, MOST_STEPS)
        need(layers == steps, f"is for {layers} steps, not {steps or 'any number'}", "steps")
    elif "steps" in must:
        need(certificate["steps"] is None, "is null where the bound is for every number of steps", "steps")
    if kind == "switch-operations":
        timed = None
        if "steps" in certificate:
            timed = number(certificate["steps"], "steps", 2, MOST_STEPS)
            need(timed == steps, f"is for {timed} steps, not {steps or 'any number'}", "steps")
        total, scale = switch_operations.total_and_scale(problem, certificate["ports"], timed)
        rounds = -(-(number(chunks, "chunks", 1) * total) // scale) if chunks else 0
        return Fraction(max(rounds, steps or 0), chunks) if chunks else Fraction(total, scale)
    packing = PricedCuts(certificate, problem, layers)
    total = sum(packing.unit_values(certificate))
    if chunks is None:
        return Fraction(total, packing.scale)
    spare = sum(packing.slack) if kind == TIMED else 0
    rounds = -(-(number(chunks, "chunks", 1) * total + spare) // packing.scale)
    return Fraction(max(rounds, steps or 0), chunks)


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
    layers = certificate["steps"] if kind == TIMED else None
    check(certificate, topology_doc, collective_doc, steps=layers)
    turned = certificate.get("reversed", False)
    packing = PricedCuts(certificate, Instance(topology_doc, collective_doc, turned), layers or 1)
    links, limits = packing.prices["link"], packing.prices["limit"]
    units = packing.unit_values(certificate)
    if turned:
        links = [row[::-1] for row in links]
        limits = [row[::-1] for row in limits]
    return BoundPrices(tuple(links), tuple(limits), tuple(units), packing.scale)


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


def _switch_key(switch: InstanceSwitch, ranks: Sequence[int], limits: Sequence[int]) -> tuple:
    """Return what a switch is with its ranks and limits renumbered: equal for switches that are the same."""
    ports = []
    for rank, up in switch.up.items():
        sides = (frozenset(map(limits.__getitem__, side)) for side in (up, switch.down[rank]))
        ports.append((ranks[rank], *sides))
    return switch.through, frozenset(ports)


def _paid_by_issuer(cuts: Sequence[tuple[int, list[int], list[int]]], member_prices: dict[int, int]) -> Counter[int]:
    """Return the weight that each issuer of a switch send has to pay at its own port, at most.

    `cuts`: (weight, issuers, members) of each cut that a send between any of these enters. A part of the weight is paid
    by every member. A send to a group enters a cut with a member in it, so it suffices that the parts of the cuts of
    each member come to at most its price, and that the issuer pays the rest. Cuts of few members come first.
    """
    rest: Counter[int] = Counter()
    left: dict[tuple[int, int], int] = {}
    for weight, issuers, members in sorted(cuts, key=lambda cut: len(cut[2])):
        for issuer in issuers:
            part = min(weight, min(left.get((issuer, member), member_prices[member]) for member in members))
            for member in members:
                left[issuer, member] = left.get((issuer, member), member_prices[member]) - part
            rest[issuer] += weight - part
    return rest


def _paid_by_pairs(cuts: Sequence[tuple[int, list[int], list[int]]], up: dict[int, int]) -> Counter[int]:
    """Return the weight that each destination has to pay at its own port where a fetch is of use to one member alone.

    `cuts`: (weight, ranks outside, ranks inside). It is the weight of the cuts that the send from one member enters,
    less the price `up` of its port, or of all cuts, if that is less.
    """
    pairs: Counter[tuple[int, int]] = Counter()
    received: Counter[int] = Counter()
    for weight, outside, inside in cuts:
        for d in inside:
            received[d] += weight
            for s in outside:
                pairs[s, d] += weight
    beyond: Counter[int] = Counter()
    for (s, d), weight in pairs.items():
        beyond[d] = max(beyond[d], weight - up[s])
    return Counter({d: min(weight, received[d]) for d, weight in beyond.items()})


class PricedCuts:
    """The prices of a certificate, checked, and the checks that cuts are paid for by them.

    A cut is a list theta of times: rank n is inside it from time 0 through theta[n], or never where that is -1.

    Attributes:
        layers: number of steps with prices of their own; 1 where the bound is for every number of steps, and times of
            cuts are then 1 (inside for ever) or -1.
        prices: for "link" and "limit" the prices of each one, by step.
        send_prices: for each link and step the price of a send: that of the link and of its limits, less `count`.
        slack: for each step `scale` less Σ units · price.
        orbits: orbits of units, ranks, links and limits under the generators of the certificate.
    """

    @collector_off()
    def __init__(self, certificate: dict, problem: Instance, layers: int) -> None:
        self.problem, self.layers, self.kind = problem, layers, certificate["kind"]
        self._entering: dict[tuple[int, ...], list[tuple[int, int]]] = {}  # by cut
        self._paid: set[tuple] = set()  # cuts with their weights, together paid by the prices alone
        self.scale = number(certificate["scale"], "scale", 1)
        self.count = number(certificate.get("count", 0), "count", 0)
        need(not problem.switches or not self.count, "does not hold where switches multicast", "count")
        problem.spend(
            layers * (len(problem.links) + len(problem.limits) + sum(len(links) for links, _ in problem.limits))
        )
        sizes = {
            "unit": len(problem.pre),
            "rank": problem.ranks,
            "link": len(problem.links),
            "limit": len(problem.limits),
        }
        self.orbits = {what: Orbits(size) for what, size in sizes.items()}
        for g, generator in enumerate(items(certificate["generators"], "generators")):
            self._generator(generator, f"generators[{g}]")
        prices_of: dict[str, dict[int, tuple[int, ...]]] = {"link": {}, "limit": {}}  # by kind and orbit
        for p, row in enumerate(items(certificate["prices"], "prices")):
            what, orbit, prices = self._price(row, f"prices[{p}]")
            need(
                prices_of[what].setdefault(orbit, prices) == prices,
                "differs from the price of a link or limit like it",
                f"prices[{p}]",
            )
        free = (0,) * layers
        self.prices: dict[str, list[tuple[int, ...]]] = {}
        for what, by_orbit in prices_of.items():
            same = map(self.orbits[what].of, range(sizes[what])) if certificate["generators"] else range(sizes[what])
            self.prices[what] = [by_orbit.get(orbit, free) for orbit in same]
        self.send_prices = list(self.prices["link"])
        for (links, _), row in zip(problem.limits, self.prices["limit"], strict=True):
            for i in links if any(row) else ():
                self.send_prices[i] = tuple([a + b for a, b in zip(self.send_prices[i], row, strict=True)])
        self.slack = [self.scale] * layers  # by step: the scale less the price of all bandwidth
        for part, row in zip(
            (*problem.links, *problem.limits), [*self.prices["link"], *self.prices["limit"]], strict=True
        ):
            if row is not free:
                self.slack = [rest - part[-1] * price for rest, price in zip(self.slack, row, strict=True)]
        need(min(self.slack) >= 0, "come to more than the scale", "prices")
        if self.count:
            for i, row in enumerate(self.send_prices):
                self.send_prices[i] = tuple([price - self.count for price in row])
            need(min(map(min, self.send_prices), default=0) >= 0, "is more than the price of a link", "count")

    def _price(self, row: list, place: str) -> tuple[str, int, tuple[int, ...]]:
        """Return the kind, the orbit of links or limits, and its price at each step."""
        what, key, *rest = items(row, place)
        need(what in ("link", "limit"), "expected link or limit", place)
        if what == "link":
            ends = number(key, place, 0, self.problem.ranks), number(rest.pop(0), place, 0, self.problem.ranks)
            name = (*ends, tuple(rest.pop(0)) if rest and type(rest[0]) is list else ())
            need(name in self.problem.names, f"no link {ends}", place)
            key = self.problem.names[name]
        orbits = self.orbits[what]
        number(key, place, 0, len(orbits.parent))
        need(len(rest) == self.layers, f"expected {self.layers} prices", place)
        return what, orbits.of(key), tuple(number(y, place, 0) for y in rest)

    def _generator(self, generator: list, place: str) -> None:
        """Check a symmetry, and join the orbits of what it maps to each other."""
        for what, image in self._images(generator, place).items():
            self.orbits[what].join(image)

    def _images(self, generator: list, place: str) -> dict[str, list[int]]:
        """Return how a generator permutes units, ranks, links and limits.

        Raises VerificationError where that is no symmetry of the links, the limits and the collective.
        """
        p = self.problem
        p.spend(
            p.ranks
            + sum(len(a) + len(b) for a, b in zip(p.pre, p.post, strict=True))
            + sum(len(a) for a, _ in p.limits)
        )
        need(len(items(generator, place)) in (2, 3), "expected ranks, units and perhaps links", place)
        ranks, units = permutation(generator[0], p.ranks, place), permutation(generator[1], len(p.pre), place)
        if len(generator) == 3:
            links = permutation(generator[2], len(p.links), place)
        else:
            ends = {(u, v): i for i, (u, v, _) in enumerate(p.links)}
            need(len(ends) == len(p.links), "parallel links need a permutation of links", place)
            links = [ends.get((ranks[u], ranks[v]), -1) for u, v, _ in p.links]
        for i, j in enumerate(links):
            u, v, b = p.links[i]
            need(j >= 0 and p.links[j] == (ranks[u], ranks[v], b), f"link {u} to {v} has no such image", place)
        places: dict[tuple, list[int]] = {}
        for k, (inside, b) in enumerate(p.limits):
            places.setdefault((tuple(sorted(inside)), b), []).append(k)
        images = []
        for inside, b in p.limits:
            image = tuple(sorted(links[i] for i in inside))
            images.append(places.get((image, b), []))
        need(all(images), "limits are not kept", place)
        limits = [image.pop(0) for image in images]  # equal limits in their order
        places_of_switches = Counter(_switch_key(s, range(p.ranks), range(len(p.limits))) for s in p.switches)
        images_of_switches = Counter(_switch_key(s, ranks, limits) for s in p.switches)
        need(places_of_switches == images_of_switches, "switches that multicast are not kept", place)
        for u, w in enumerate(units):
            post: dict[int, frozenset[int] | None] = {}
            for r, want in p.post[u].items():
                post[ranks[r]] = None if want is None else frozenset(map(ranks.__getitem__, want))
            need({ranks[r] for r in p.pre[u]} == p.pre[w] and post == p.post[w], f"unit {u} is not kept", place)
        return {"unit": units, "rank": ranks, "link": links, "limit": limits}

    def unit_values(self, certificate: dict) -> list[int]:
        """Return the value of each unit, after checking the cuts of one unit of each orbit.

        The value of a unit is a lower bound on the price of each of its chunks, the same for all units of an orbit.
        """
        p = self.problem
        if self.kind == "allreduce-partition":
            return [self.crossings(certificate["parts"], certificate["weight"])]
        values: dict[int, int] = {}  # by orbit
        if self.count:
            need(
                all(map(p.symmetric, range(len(p.pre)))),
                "is known only where those who contribute want it all",
                "count",
            )
        orbits = [self.orbits["unit"].of(u) for u in range(len(p.pre))]
        cuts, covers = mapping(certificate["cuts"], "cuts"), mapping(certificate.get("covers", {}), "covers")
        averaged = mapping(certificate.get("averaged", {}), "averaged")
        need(averaged.keys() <= cuts.keys() - covers.keys(), "names a unit without cuts, or with covers", "averaged")
        for name in cuts | covers:
            unit = self.index(name, len(p.pre))
            orbit = orbits[unit]
            need(orbit not in values, "is in the orbit of another unit", f"cuts.{name}")
            part, place = cuts.get(name, []), f"cuts.{name}"
            if name in averaged:
                values[orbit] = self.averaged_cuts(part, unit, place, averaged[name])
            else:
                values[orbit] = self.cuts(part, unit, place, covers=covers.get(name, []))
        found = []
        for held, orbit in zip(p.pre, orbits, strict=True):
            sends = 2 * (len(held) - 1) if held else 0
            found.append(self.count * sends + values.get(orbit, 0))
        return found

    def index(self, name: str, size: int) -> int:
        """Return the number of a unit or rank, below `size`, from the key `name`: its decimal digits, no leading
        zero."""
        need(
            type(name) is str and name.isascii() and name.isdecimal() and len(name) < 9 and str(int(name)) == name,
            f"{name!r}",
            "cuts",
        )
        return number(int(name), "cuts", 0, size)

    def cut(self, row: list, place: str) -> tuple[int, list[int]]:
        """Return the weight of a cut and its times theta, read from [weight, theta of each rank]."""
        need(
            type(row) is list and len(row) == 1 + self.problem.ranks,
            f"expected a weight and {self.problem.ranks} times",
            place,
        )
        theta = [number(x, place, -1, self.layers + 1) for x in row[1:]]
        need(self.kind == TIMED or 0 not in theta, "is -1 or 1 in a bound for every number of steps", place)
        return number(row[0], place, 0), theta

    def entering_sends(self, theta: list[int]) -> list[tuple[int, int]]:
        """Return each (link, step) that enters the cut: tail outside before the step, head inside after it.

        Links are looked through from the side with fewer ranks, once for each cut: many units may share one.
        """
        key = tuple(theta)
        p = self.problem
        if key in self._entering:
            p.spend(p.ranks + len(self._entering[key]))
            return self._entering[key]
        heads = [v for v, time in enumerate(theta) if time > 0]
        tails = [u for u, time in enumerate(theta) if time + 2 <= self.layers]
        sides = p.links_into if len(heads) <= len(tails) else p.links_out
        crossing, seen = [], p.ranks
        for rank in min(heads, tails, key=len):
            seen += len(sides[rank])
            for i in sides[rank]:
                u, v, _ = p.links[i]
                crossing += [(i, t) for t in range(max(1, theta[u] + 2), min(self.layers, theta[v]) + 1)]
        p.spend(seen + len(crossing))
        self._entering[key] = crossing
        return crossing

    def separates(self, theta: list[int], unit: int) -> bool:
        """Return True where some send of each chunk of `unit` must enter the cut `theta`.

        So it is where all ranks of a source are outside, and a destination that must have its data is inside at the
        end. No holder at all leaves no schedule, which is for `unreachable` to prove: an empty source is parted from
        nothing.
        """
        p = self.problem
        for destination in p.post[unit]:
            if theta[destination] >= self.layers:
                for source in p.sources(unit, destination):
                    if source and all(theta[s] < 0 for s in source):
                        return True
        return False

    def cuts(self, rows: list, unit: int, place: str, covers: list) -> int:
        """Return the value of `unit`: the sum of the weights of the cuts `rows`, and of `covers` times their sends.

        Checks that each is a cut or cover, and that the price of every send is at least the weight of those that it
        enters. Raises VerificationError.
        """
        load: Counter[tuple[int, int]] = Counter()
        total, weights = self._weighted(rows, unit, place)
        paid = tuple((weight, tuple(theta)) for weight, theta in weights)
        if not covers and paid in self._paid:
            return total
        for switch in self.problem.switches:
            need(not covers, "do not hold where switches multicast", "covers")
            for step in range(1, self.layers + 1):
                self._switch_sends_pay(switch, weights, step, place)
        for weight, theta in weights:
            for entry in self.entering_sends(theta):
                load[entry] += weight
        for c, row in enumerate(items(covers, "covers")):
            gain, entries = self.cover(row, unit, f"covers[{c}]")
            total += gain
            for entry in entries:
                load[entry] += row[0]
        for (i, t), weight in load.items():
            fits = weight <= self.send_prices[i][t - 1]
            need(fits, f"overload link {self.problem.links[i][:2]} at step {t}", place)
        if not covers:
            self._paid.add(paid)
        return total

    def _weighted(self, rows: list, unit: int, place: str) -> tuple[int, list[tuple[int, list[int]]]]:
        """Return the sum of the weights of the cuts, and (weight, times) of each.

        The times are those that `cut` reads, one for each rank.
        """
        total, weights = 0, []
        for c, row in enumerate(items(rows, place)):
            weight, theta = self.cut(row, f"{place}[{c}]")
            need(self.separates(theta, unit), "does not part a source from a destination", f"{place}[{c}]")
            total += weight
            weights.append((weight, theta))
        return total, weights

    def averaged_cuts(self, rows: list, unit: int, place: str, generators: list) -> int:
        """Return the value of `unit` as `cuts` does, where each cut stands for the mean of its images.

        The images are those under the group of `generators`, symmetries that keep the unit. They are cuts of it, too.
        So the sends over the links of an orbit share their load, and pay for it together.
        """
        p = self.problem
        need(not p.switches, "do not hold where switches multicast", "averaged")
        p.spend(len(p.links) * self.layers)
        orbits = Orbits(len(p.links))
        for g, generator in enumerate(items(generators, "averaged")):
            images = self._images(generator, f"averaged.{unit}[{g}]")
            need(images["unit"][unit] == unit, f"does not keep unit {unit}", f"averaged.{unit}[{g}]")
            orbits.join(images["link"])
        same = list(map(orbits.of, range(len(p.links))))
        total, weights = self._weighted(rows, unit, place)
        load: Counter[tuple[int, int]] = Counter()
        for weight, theta in weights:
            for i, t in self.entering_sends(theta):
                load[same[i], t] += weight
        size = Counter(same)
        for i, representative in enumerate(same):
            for t in range(1, self.layers + 1):
                fits = load[representative, t] <= size[representative] * self.send_prices[i][t - 1]
                need(fits, f"overload link {p.links[i][:2]} at step {t}", place)
        return total

    def _switch_sends_pay(
        self, switch: InstanceSwitch, weights: list[tuple[int, list[int]]], step: int, place: str
    ) -> None:
        """Check that no send of the switch at `step` enters cuts of more weight than the prices of its ports.

        A multicast from s enters a cut if s is outside and a member inside. A part of the weight of each cut is paid at
        the ports of all ranks inside, as far as the price of each one lasts, and the rest at the port of s. A fetched
        sum is the same with the directions exchanged. Data that do not combine are not fetched. Where they are sums
        turned round, a fetch stands for a multicast that is of use to one member alone.
        """
        limit_prices = self.prices["limit"]
        self.problem.spend(switch.listed_limits)

        def price(limits: tuple[int, ...]) -> int:
            return sum(limit_prices[k][step - 1] for k in limits)

        up = {rank: price(limits) for rank, limits in switch.up.items()}
        down = {rank: price(limits) for rank, limits in switch.down.items()}
        sent: list[tuple[int, list[int], list[int]]] = []  # weight, ranks outside, ranks inside
        for weight, theta in weights:
            outside = [rank for rank in switch.up if step - 1 > theta[rank]]
            inside = [rank for rank in switch.up if step <= theta[rank]]
            self.problem.spend(len(switch.up) + 2 * len(outside) * len(inside))
            if outside and inside:
                sent.append((weight, outside, inside))
        at_issuer = _paid_by_issuer(sent, down)
        for s, weight in at_issuer.items():
            paid = up[s] + (down[s] if switch.through else 0)
            need(weight <= paid, f"overload multicasts of rank {s} at step {step}", place)
        if self.problem.combining:
            at_issuer = _paid_by_issuer([(weight, inside, outside) for weight, outside, inside in sent], up)
        elif self.problem.turned:
            at_issuer = _paid_by_pairs(sent, up)
        else:
            at_issuer = Counter()
        for d, weight in at_issuer.items():
            paid = down[d] + (up[d] if switch.through else 0)
            need(weight <= paid, f"overload fetches of rank {d} at step {step}", place)

    def cover(self, row: list, unit: int, place: str) -> tuple[int, list[tuple[int, int]]]:
        """Return weight × sends, which a cover adds to a bound, and each (link, step) whose sends it counts.

        A cover says that a unit needs at least `sends` sends on the links of one rank: into it in the steps after
        `time` ("in"), or out of it in the steps up to `time` ("out"). `row`: [weight, "in" or "out", rank, time,
        sends]. Raises VerificationError where fewer sends are enough.
        """
        weight, side, rank, time, sends = items(row, place)
        need(side in ("in", "out"), "expected in or out", place)
        number(weight, place, 0)
        number(time, place, 0, self.layers + 1)
        is_needed = self.problem.needs(
            unit, side, number(rank, place, 0, self.problem.ranks), time, number(sends, place, 1, 9), self.layers
        )
        need(is_needed, f"rank {rank} does not need {sends} sends", place)
        window = range(time + 1, self.layers + 1) if side == "in" else range(1, time + 1)
        end = 1 if side == "in" else 0
        counted = [i for i, link in enumerate(self.problem.links) if link[end] == rank]
        return weight * sends, [(i, t) for i in counted for t in window]

    def crossings(self, parts: list, weight: int) -> int:
        """Return the least price of the sends of a chunk between the parts of a partition, for one allreduce.

        The parts hold each rank once. A send between parts is a message of one way. The first part to hold all
        contributions needs one out of every other part, and afterwards every other part must still be entered.
        `weight`: the least price of a send between parts. The ranks of a switch that multicasts are in one part, so
        that no switch send is between parts. Raises VerificationError.
        """
        p, home = self.problem, dict[int, int]()
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
            need(home[u] == home[v] or weight <= self.send_prices[i][0], f"overload link {u} to {v}", "weight")
        return 2 * (len(parts) - 1) * weight
