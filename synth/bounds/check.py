"""Re-checks any lower-bound certificate by sums of integers: no solver, no numpy, nothing of what made it.

The argument for each kind is in docs/proofs.md. In one line: sends of a chunk must enter every cut between where it is
and where it must be; if the cuts entered by a send weigh no more than its price, and the prices of all bandwidth come to
at most `scale` a step, then R/C ≥ Σ weights / scale. A stated bound is never read: it is computed here.
"""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from fractions import Fraction

from synth.errors import VerificationError
from synth.schedule import canonical

KEYS = {
    "distance": {"pair", "distance"},
    "unreachable": {"pair", "closed"},
    "static-cuts": {"steps", "scale", "prices", "cuts", "generators"},
    "deadline-cuts": {"steps", "scale", "prices", "cuts", "generators"},
    "deadline-cut-trees": {"steps", "scale", "prices", "cuts", "generators"},
    "allreduce-cuts": {"scale", "prices", "roots", "generators"},
}
BIG, MOST_STEPS, MOST_WORK, MOST_DEPTH = 1 << 200, 1 << 14, 20_000_000, 100


def check(certificate: dict, topology_doc: dict, collective_doc: dict, *, steps: int | None = None, chunks: int | None = None) -> Fraction:
    """The bound that the certificate proves: on R/C for every schedule of `steps` steps, or of any number when None.

    `chunks`: on R/C at this many chunks per unit only (R is whole, and each step has a round). The documents are
    `Network.to_json()` and `Collective.to_json(1)`. Two kinds speak of something else and are taken with neither
    `steps` nor `chunks`: ``distance`` returns the least number of steps; ``unreachable`` proves that there is no
    schedule at all and returns 0. Raises VerificationError, with the place, for anything that does not prove a bound.
    """
    try:
        return _check(certificate, topology_doc, collective_doc, steps, chunks)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise VerificationError(f"malformed certificate or problem: {error!r}"[:200]) from None


def _check(certificate: dict, topology_doc: dict, collective_doc: dict, steps: int | None, chunks: int | None) -> Fraction:
    kind = certificate.get("kind")
    _need(isinstance(kind, str) and kind in KEYS, f"unknown kind {kind!r}", "kind")
    extra = (
        certificate.keys()
        - KEYS[kind]
        - {"kind", "problem", "reversed"}
        - ({"count"} if kind in ("static-cuts", "deadline-cuts") else set())
    )
    _need(not extra, f"unknown field {sorted(map(str, extra))[:1]}", "$")
    task = {key: topology_doc[key] for key in ("links", "limits")} | {key: collective_doc[key] for key in ("pre", "post", "combining")}
    _need(certificate["problem"] == hashlib.sha256(canonical(task)).hexdigest(), "speaks about another problem", "problem")
    problem = _Problem(topology_doc, collective_doc, certificate.get("reversed", False))
    _need(chunks is None or _whole(chunks, 1, BIG, "chunks") > 0, "", "")
    if kind in ("distance", "unreachable"):
        _need(steps is None and chunks is None, f"{kind} says nothing about rounds", "kind")
        return _reach(certificate, problem, kind)
    layers = 1
    if kind.startswith("deadline"):
        layers = _whole(certificate["steps"], 1, MOST_STEPS, "steps")
        _need(layers == steps, f"is for {layers} steps, not {steps}", "steps")
    elif "steps" in KEYS[kind]:
        _need(certificate["steps"] is None, "is null where the bound is for every number of steps", "steps")
    total, slack, scale = _Packing(certificate, problem, layers).value()
    if chunks is None:
        return Fraction(total, scale)
    spare = sum(slack) if kind.startswith("deadline") else 0
    return Fraction(max(-(-(chunks * total + spare) // scale), steps or 0), chunks)


def _need(truth: bool, message: str, place: str) -> None:
    if not truth:
        raise VerificationError(message, place)


def _whole(x: object, low: int, high: int, place: str) -> int:
    if type(x) is not int or not low <= x < high:
        raise VerificationError(f"expected a whole number from {low} to below {high:.3g}, found {str(x)[:40]}", place)
    return x


def _permutation(x: object, size: int, place: str) -> list[int]:
    _need(type(x) is list and len(x) == size and all(type(i) is int for i in x), f"expected {size} numbers", place)
    _need(sorted(x) == list(range(size)), f"is no permutation of 0..{size - 1}", place)  # type: ignore[type-var]
    return x  # type: ignore[return-value]


class _Problem:
    """Links, limits and what must get where, read from the documents; `reversed` turns all of it round in time."""

    def __init__(self, topology: dict, collective: dict, turned: object) -> None:
        self.ranks = n = _whole(topology["ranks"], 1, 1 << 16, "topology.ranks")
        _need(collective["ranks"] == n, "has another number of ranks than the topology", "collective.ranks")
        _need(type(turned) is bool and type(collective["combining"]) is bool, "expected true or false", "reversed")
        self.names, self.links = {}, []
        for i, (u, v, units, *via) in enumerate(topology["links"]):
            place = f"topology.links[{i}]"
            ends = _whole(u, 0, n, place), _whole(v, 0, n, place)
            _need(self.names.setdefault((*ends, *map(tuple, via)), i) == i, "appears twice", place)
            self.links.append((*(ends[::-1] if turned else ends), _whole(units, 1, BIG, place)))
        self.limits = []
        for k, limit in enumerate(topology["limits"]):
            inside = frozenset(self.names[row[0], row[1], *map(tuple, row[2:])] for row in limit["links"])
            self.limits.append((inside, _whole(limit["units"], 1, BIG, f"topology.limits[{k}]")))
        units = _whole(collective["chunks"], 0, 1 << 21, "collective.chunks")
        self.pre: list[frozenset[int]] = [frozenset()] * units
        self.post: list[dict[int, frozenset[int] | None]] = [{} for _ in range(units)]
        held: list[set[int]] = [set() for _ in range(units)]
        for c, r in collective["pre"]:
            held[_whole(c, 0, units, "collective.pre")].add(_whole(r, 0, n, "collective.pre"))
        self.pre = list(map(frozenset, held))
        for c, r, *want in collective["post"]:
            rows = self.post[_whole(c, 0, units, "collective.post")]
            _need(_whole(r, 0, n, "collective.post") not in rows, f"rank {r} appears twice for {c}", "collective.post")
            rows[r] = frozenset(_whole(i, 0, n, "collective.post") for i in want[0]) if want else None
        self.combining = collective["combining"]
        self.special = any(want is not None for rows in self.post for want in rows.values())
        if turned:
            _need(self.combining and not self.special, "only sums of all contributions can be turned round", "reversed")
            self.pre, self.post = [frozenset(rows) for rows in self.post], [dict.fromkeys(held) for held in self.pre]
            self.combining = any(len(held) > 1 for held in self.pre)

    def sources(self, unit: int, dst: int) -> list[frozenset[int]]:
        """Sets of ranks from each of which data must reach `dst`: the holders, or every wanted contributor by itself."""
        if not self.combining:
            return [self.pre[unit]]
        want = self.post[unit][dst]
        return [frozenset((i,)) for i in (self.pre[unit] if want is None else want & self.pre[unit])]

    def symmetric(self, unit: int) -> bool:
        """Whether the ranks that contribute are those that want it all: an allreduce among them."""
        return self.combining and not self.special and self.pre[unit] == frozenset(self.post[unit])


def _reach(certificate: dict, problem: _Problem, kind: str) -> Fraction:
    if certificate["pair"] == [] and kind == "distance":
        return Fraction(0)
    unit, rank = certificate["pair"]
    _need(_whole(rank, 0, problem.ranks, "pair") in problem.post[_whole(unit, 0, len(problem.post), "pair")], "is no destination", "pair")
    if kind == "unreachable":
        closed = {_whole(n, 0, problem.ranks, "closed") for n in certificate["closed"]}
        _need(rank not in closed, "holds the destination", "closed")
        _need(any(s <= closed for s in problem.sources(unit, rank)), "leaves a source out", "closed")
        _need(not any(u in closed and v not in closed for u, v, _ in problem.links), "is left by a link", "closed")
        return Fraction(0)
    hops = [_hops(problem, s).get(rank) for s in problem.sources(unit, rank)]
    far = max((d for d in hops if d is not None), default=0)
    _need(type(certificate["distance"]) is int and certificate["distance"] == far, f"says otherwise than {far}", "distance")
    return Fraction(far)


def _hops(problem: _Problem, start: frozenset[int]) -> dict[int, int]:
    far, queue = dict.fromkeys(start, 0), deque(start)
    while queue:
        u = queue.popleft()
        for v in (b for a, b, _ in problem.links if a == u and b not in far):
            far[v] = far[u] + 1
            queue.append(v)
    return far


class _Packing:
    """Prices, and cuts (or case trees of cuts) that the prices pay for."""

    def __init__(self, certificate: dict, problem: _Problem, layers: int) -> None:
        self.problem, self.layers, self.kind, self.work = problem, layers, certificate["kind"], MOST_WORK
        self.static = not self.kind.startswith("deadline")
        self.scale = _whole(certificate["scale"], 1, BIG, "scale")
        self.count = _whole(certificate.get("count", 0), 0, BIG, "count")
        self.parts = certificate["roots"] if self.kind == "allreduce-cuts" else certificate["cuts"]
        _need(type(self.parts) is dict, "expected an object", "cuts")
        nothing = (0,) * layers
        self._spend(layers * (len(problem.links) + len(problem.limits)))
        self.of_link, self.of_limit = [nothing] * len(problem.links), [nothing] * len(problem.limits)
        for row in certificate["prices"]:
            self._price(row)
        self.room = [list(row) for row in self.of_link]
        for (links, _), row in zip(problem.limits, self.of_limit, strict=True):
            for i in links:
                self.room[i] = [a + b for a, b in zip(self.room[i], row, strict=True)]
        capacity = [units for _, _, units in problem.links] + [units for _, units in problem.limits]
        rows = [*self.of_link, *self.of_limit]
        self.slack = [self.scale - sum(units * row[t] for units, row in zip(capacity, rows, strict=True)) for t in range(layers)]
        _need(min(self.slack) >= 0, "come to more than the scale", "prices")
        self.room = [[w - self.count for w in row] for row in self.room]
        _need(min((w for row in self.room for w in row), default=0) >= 0, "is more than a link's price", "count")
        self.unit_of, self.rank_of = list(range(len(problem.pre))), list(range(problem.ranks))
        for g, generator in enumerate(certificate["generators"]):
            self._generator(generator, f"generators[{g}]")

    def _spend(self, work: int) -> None:
        self.work -= work
        _need(self.work >= 0, "is too large to check", "$")

    def _price(self, row: list) -> None:
        what, k, *rest = row
        _need(what in ("link", "limit"), f"expected link or limit, found {what!r}", "prices")
        if what == "link":
            u, v = _whole(k, 0, self.problem.ranks, "prices"), _whole(rest.pop(0), 0, self.problem.ranks, "prices")
            via = (tuple(rest.pop(0)),) if rest and type(rest[0]) is list else ()
            _need((u, v, *via) in self.problem.names, f"no link {u} to {v}", "prices")
            k, table = self.problem.names[u, v, *via], self.of_link
        else:
            k, table = _whole(k, 0, len(self.problem.limits), "prices"), self.of_limit
        _need(len(rest) == self.layers, f"expected {self.layers} prices", "prices")
        _need(not any(table[k]), f"{what} {row[1:3]} appears twice", "prices")
        table[k] = tuple(_whole(y, 0, BIG, "prices") for y in rest)

    def _generator(self, generator: list, place: str) -> None:
        """A symmetry of links, limits, prices, before and after; it joins the orbits of units and of ranks."""
        p = self.problem
        self._spend(p.ranks + sum(len(a) + len(b) for a, b in zip(p.pre, p.post, strict=True)) + sum(len(a) for a, _ in p.limits))
        _need(len(generator) in (2, 3), "expected ranks, units and perhaps links", place)
        ranks, units = _permutation(generator[0], p.ranks, place), _permutation(generator[1], len(p.pre), place)
        ends: dict[tuple[int, int], list[int]] = {}
        for i, (u, v, _) in enumerate(p.links):
            ends.setdefault((u, v), []).append(i)
        if len(generator) == 3:
            links = _permutation(generator[2], len(p.links), place)
        else:
            _need(all(len(same) == 1 for same in ends.values()), "parallel links need a permutation of links", place)
            links = [ends.get((ranks[u], ranks[v]), [-1])[0] for u, v, _ in p.links]
        for i, j in enumerate(links):
            (u, v, b), image = p.links[i], p.links[j]
            _need(j >= 0 and image == (ranks[u], ranks[v], b), f"link {u} to {v} has no such image", place)
            _need(self.of_link[i] == self.of_link[j], f"prices differ on link {u} to {v}", place)
        limits = [(inside, b, y) for (inside, b), y in zip(p.limits, self.of_limit, strict=True)]
        image = [(frozenset(links[i] for i in inside), b, y) for inside, b, y in limits]
        _need(Counter(limits) == Counter(image), "limits or their prices are not kept", place)
        for u, w in enumerate(units):
            moved = {ranks[r]: want and frozenset(ranks[i] for i in want) for r, want in p.post[u].items()}
            _need({ranks[r] for r in p.pre[u]} == p.pre[w] and moved == p.post[w], f"unit {u} is not kept", place)
        _join(self.unit_of, units)
        _join(self.rank_of, ranks)

    def value(self) -> tuple[int, list[int], int]:
        """(Σ V over all units, slack per step, scale)."""
        if self.kind == "allreduce-cuts":
            return self._roots(), self.slack, self.scale
        sizes, total, seen = Counter(_root(self.unit_of, u) for u in range(len(self.unit_of))), 0, set()
        if self.count:
            _need(all(map(self.problem.symmetric, range(len(sizes)))), "is only known where those who contribute want it all", "count")
            total = self.count * sum(max(0, 2 * (len(held) - 1)) for held in self.problem.pre)
        for name, part in self.parts.items():
            unit = self._index(name, len(self.unit_of))
            orbit = _root(self.unit_of, unit)
            _need(orbit not in seen, "is in the orbit of another unit", f"cuts.{name}")
            seen.add(orbit)
            if type(part) is list:
                total += sizes[orbit] * self._cuts(part, unit, (), (), f"cuts.{name}")
            else:
                _need(self.kind == "deadline-cut-trees" and not self.problem.combining, "expected rows of cuts", f"cuts.{name}")
                least = self._tree(part, unit, (), (), f"cuts.{name}")
                _need(least is not None, "has no case that is possible", f"cuts.{name}")
                total += sizes[orbit] * (least or 0)
        return total, self.slack, self.scale

    def _index(self, name: str, size: int) -> int:
        _need(type(name) is str and name.isdecimal() and name.isascii() and len(name) < 9 and str(int(name)) == name, f"{name!r}", "cuts")
        return _whole(int(name), 0, size, "cuts")

    def _cut(self, row: list, place: str) -> tuple[int, list[int]]:
        _need(type(row) is list and len(row) == 1 + self.problem.ranks, f"expected a weight and {self.problem.ranks} times", place)
        theta = [_whole(x, -1, self.layers + 1, place) for x in row[1:]]
        _need(not self.static or 0 not in theta, "is -1 (outside) or 1 (inside) in a bound for every number of steps", place)
        return _whole(row[0], 0, BIG, place), theta

    def _enter(self, theta: list[int]) -> list[tuple[int, int]]:
        """The (link, step) that enter the cut: its tail outside before the step, its head inside after it."""
        found = []
        for i, (u, v, _) in enumerate(self.problem.links):
            found += [(i, t) for t in range(max(1, theta[u] + 2), min(self.layers, theta[v]) + 1)]
        self._spend(len(found) + len(self.problem.links))
        return found

    def _valid(self, theta: list[int], unit: int, has: tuple, place: str) -> None:
        ends = [d for d in self.problem.post[unit] if theta[d] >= self.layers]
        inside = any(all(theta[s] < 0 for s in source) for d in ends for source in self.problem.sources(unit, d))
        held = any(theta[n] >= t for n, t in has) and all(theta[s] < 0 for s in self.problem.pre[unit])
        _need(inside or held, "does not part a source from a destination", place)

    def _cuts(self, rows: object, unit: int, has: tuple, hasnot: tuple, place: str) -> int:
        """Σ weights of the cuts, after checking that they are cuts and that every send pays for those it enters."""
        _need(type(rows) is list, "expected rows of cuts", place)
        load: Counter[tuple[int, int]] = Counter()
        total = 0
        for c, row in enumerate(rows):  # type: ignore[arg-type]
            weight, theta = self._cut(row, f"{place}[{c}]")
            self._valid(theta, unit, has, f"{place}[{c}]")
            total += weight
            for entry in self._enter(theta):
                load[entry] += weight
        for (i, t), weight in load.items():
            absent = any(self.problem.links[i][1] == n and t <= until for n, until in hasnot)
            _need(absent or weight <= self.room[i][t - 1], f"overload link {self.problem.links[i][:2]} at step {t}", place)
        return total

    def _tree(self, tree: dict, unit: int, has: tuple, hasnot: tuple, place: str) -> int | None:
        """The least Σ weights over the cases; None when no case is possible."""
        _need(type(tree) is dict and len(has) + len(hasnot) < MOST_DEPTH, "expected a case tree", place)
        if tree.keys() == {"cuts"}:
            return self._cuts(tree["cuts"], unit, has, hasnot, f"{place}.cuts")
        if tree.keys() == {"dead"}:
            theta = self._cut([0, *tree["dead"]], f"{place}.dead")[1]
            self._valid(theta, unit, has, f"{place}.dead")
            for i, t in self._enter(theta):
                absent = any(self.problem.links[i][1] == n and t <= until for n, until in hasnot)
                _need(absent, f"is entered by link {self.problem.links[i][:2]} at step {t}", f"{place}.dead")
            return None
        _need(tree.keys() == {"node", "has", "not"}, "expected node, has and not, or cuts, or dead", place)
        n, t = tree["node"]
        node = _whole(n, 0, self.problem.ranks, f"{place}.node"), _whole(t, 0, self.layers + 1, f"{place}.node")
        cases = (
            self._tree(tree["has"], unit, (*has, node), hasnot, f"{place}.has"),
            self._tree(tree["not"], unit, has, (*hasnot, node), f"{place}.not"),
        )
        return min((v for v in cases if v is not None), default=None)

    def _roots(self) -> int:
        """The least V over the ranks that may complete first, each with cuts before, receipts after, and cuts overall."""
        _need(len(self.problem.pre) == 1 and self.problem.symmetric(0), "is only for one allreduce", "kind")
        members, seen, least = self.problem.pre[0], {}, 0
        for name, part in self.parts.items():
            place, rank = f"roots.{name}", self._index(name, self.problem.ranks)
            _need(rank in members and type(part) is dict and part.keys() == {"before", "after", "overall"}, "is not as expected", place)
            early: Counter[tuple[int, int]] = Counter()
            late: Counter[tuple[int, int]] = Counter()
            total = 0
            for where in ("before", "overall"):
                for row in part[where]:
                    weight, theta = self._cut(row, f"{place}.{where}")
                    ends = [rank] if where == "before" else members
                    parts = any(theta[i] < 0 for i in members) and any(theta[d] > 0 for d in ends)
                    _need(parts, "does not part a contributor from a destination", f"{place}.{where}")
                    total += weight
                    for entry in self._enter(theta):
                        early[entry] += weight
                        late[entry] += weight if where == "overall" else 0
            for p, weight in enumerate(part["after"]):
                _need(
                    _whole(weight, 0, BIG, f"{place}.after") == 0 or (p != rank and p in members), "is no receiver", f"{place}.after[{p}]"
                )
                total += weight
                for i, (_, v, _) in enumerate(self.problem.links):
                    late[i, 1] += weight if v == p else 0
            for i, row in enumerate(self.room):
                _need(max(early[i, 1], late[i, 1]) <= row[0], f"overload link {self.problem.links[i][:2]}", place)
            least = min(least, total) if seen else total
            seen[_root(self.rank_of, rank)] = True
        _need(len(members) > 1 and all(_root(self.rank_of, r) in seen for r in members), "leave out a rank", "roots")
        return least


def _root(parent: list[int], x: int) -> int:
    while parent[x] != x:
        parent[x] = parent[parent[x]]
        x = parent[x]
    return x


def _join(parent: list[int], permutation: list[int]) -> None:
    for x, y in enumerate(permutation):
        parent[_root(parent, x)] = _root(parent, y)
