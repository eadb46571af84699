"""The oracle: is an accepted document true? Judged from its JSON alone. Nothing of `synth` is imported here or by
`search`.

A verdict is ``true`` (what the document says holds), ``false`` (a hole) or ``undecided``, with the reason:

- a schedule is replayed by sets, link by link, a limit's links as often as it lists them;
- a lower bound is false where a schedule below it is found (any number of chunks: C ≤ 4 are tried), true where a linear
  program proves it or the search ends without one;
- a frontier is complete where no schedule with C ≤ 4 lies below it; what is impossible is looked for, too;
- bounds on rates (large) are compared with the optimum: trees and ways packed by a linear program.

Not judged: names of constructions, seconds of a search, notes, labels, whether sums have the same bits, and what `synth
verify` says that it did not check (points without a file).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import gcd, inf, lcm
from typing import Any

from bench.forge import search
from bench.forge.search import Machine, Task

MANY = 10_000  # links; of more those that are alike are one of their bandwidth together
Verdict = tuple[str, str]


class False_(Exception):
    """A claim of the document is false."""


class Unknown(Exception):
    """The effort was spent."""


def judge(doc: dict, lines: list[str]) -> Verdict:
    """The verdict on an accepted document, and the lines that were printed about it.

    That its machine differs from the built-in one of its name, which comes first where it is said, is not judged.
    """
    lines = [line for line in lines if not line.startswith("differs: ")]
    try:
        JUDGES[doc["schema"]](doc, lines)
    except False_ as error:
        return "false", str(error)
    except Unknown as error:
        return "undecided", str(error)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        return "false", f"makes no sense: {type(error).__name__} {error}"[:200]
    return "true", ""


def _say(truth: object, message: str) -> None:
    if not truth:
        raise False_(message)


def _int(value: Any, low: int, what: str, below: float = inf) -> int:
    _say(type(value) is int and low <= value < below, f"{what} is {value!r}"[:80])
    return value


# ---------------------------------------------------------------- machines and tasks as documents hold them


def network(doc: dict) -> Machine:
    """The machine of a schedule: links are routes; each link, limit and wire carries so much in a round."""
    ranks = _int(doc["ranks"], 1, "ranks")
    routes: dict[tuple, int] = {}
    carries: list[tuple[Fraction, Counter[int]]] = []
    for u, v, units, *via in doc["links"]:
        _say(_int(u, 0, "a link's end", ranks) != _int(v, 0, "a link's end", ranks), "a link joins no two ranks")
        key = (u, v, tuple(via[0]) if via else ())
        _say(key not in routes, f"link {key} is there twice")
        routes[key] = len(routes)
        carries.append((Fraction(_int(units, 1, "units of a link")), Counter([routes[key]])))
    for limit in doc["limits"]:
        members = Counter(routes[row[0], row[1], tuple(row[2]) if len(row) > 2 else ()] for row in limit["links"])
        carries.append((Fraction(_int(limit["units"], 1, "units of a limit")), members))
    wires: dict[tuple, int] = {}
    for a, b, units in doc.get("wires", []):
        wires[a, b] = wires.get((a, b), 0) + _int(units, 1, "units of a wire")
    riders: dict[tuple, Counter[int]] = {}
    for (u, v, via), i in routes.items() if wires else ():
        for hop in pairwise((u, *via, v)):
            _say(hop in wires, f"wire {hop} does not exist")
            riders.setdefault(hop, Counter())[i] += 1
    carries += [(Fraction(wires[hop]), who) for hop, who in riders.items()]
    return Machine(ranks, tuple(routes), tuple((cap, tuple(sorted(who.items()))) for cap, who in carries))


def task(doc: dict, chunks: int) -> Task:
    """Who has each chunk before, and who wants it (which contributions) after; a named collective has to be what its
    name says."""
    count, ranks = _int(doc["chunks"], 1, "chunks"), _int(doc["ranks"], 1, "ranks")
    _say(type(doc["combining"]) is bool, "combining is no truth value")
    pre: list[set[int]] = [set() for _ in range(count)]
    post: list[dict[int, frozenset[int]]] = [{} for _ in range(count)]
    for c, r in doc["pre"]:
        _say(_int(r, 0, "a rank", ranks) not in pre[_int(c, 0, "a chunk")], "pre names a rank twice")
        pre[c].add(r)
    for c, r, *want in doc["post"]:
        _say(_int(r, 0, "a rank", ranks) not in post[_int(c, 0, "a chunk")], "post names a rank twice")
        post[c][r] = frozenset(want[0]) if want else frozenset(pre[c])
    made = Task(ranks, doc["combining"], tuple(map(frozenset, pre)), tuple(frozenset(row.items()) for row in post))
    _say(count % chunks == 0, f"{count} chunks are no multiple of {chunks}")
    defined = _defined(str(doc["name"]), ranks, doc["root"])
    if defined is not None:
        _say(made == _split(defined, chunks), f"is not what {doc['name']} means")
    return made


def _defined(name: str, n: int, root: Any) -> Task | None:
    every = frozenset(range(n))
    one = [frozenset([r]) for r in range(n)]
    roots = [one[r] for r in ([root] if type(root) is int else root or [])]
    plain = name.removeprefix("multi-")
    if plain == "scan":
        wants = frozenset((r, frozenset(range(r + 1))) for r in range(n))
        return Task(n, True, (every,), (wants,))
    pairs = {
        "broadcast": [(r, every) for r in roots],
        "reduce": [(every, r) for r in roots],
        "scatter": [(r, i) for r in roots for i in one],
        "gather": [(i, r) for r in roots for i in one],
        "allgather": [(i, every) for i in one],
        "reduce-scatter": [(every, i) for i in one],
        "alltoall": [(i, j) for i in one for j in one],
        "allreduce": [(every, every)],
        "alltonext": [(one[i], one[i + 1]) for i in range(n - 1)],
        "sendrecv": [(one[i], one[(i + 1) % n]) for i in range(n)],
    }.get(plain)
    if pairs is None:
        return None
    combining = plain in ("reduce", "reduce-scatter", "allreduce")
    return Task(n, combining, tuple(a for a, _ in pairs), tuple(frozenset((d, a) for d in b) for a, b in pairs))


def _split(given: Task, chunks: int) -> Task:
    """Each unit in so many chunks."""
    pre = tuple(held for held in given.pre for _ in range(chunks))
    return Task(given.ranks, given.combining, pre, tuple(want for want in given.post for _ in range(chunks)))


# ---------------------------------------------------------------- replay


def replay(machine: Machine, given: Task, steps: Sequence[tuple[int, list[tuple]]]) -> int:
    """R of a schedule of ``(rounds, [(chunk, src, dst, kind, via)])``, or False_ where it is none for the task."""
    route = {key: i for i, key in enumerate(machine.routes)}
    held: dict[tuple[int, int], frozenset[int]] = {}
    for c, ranks in enumerate(given.pre):
        for r in ranks:
            held[c, r] = frozenset([r]) if given.combining else frozenset(ranks)
    total = 0
    for rounds, sends in steps:
        total += _int(rounds, 1, "rounds")
        load: Counter[int] = Counter()
        copies: dict[tuple[int, int], frozenset[int]] = {}
        adds: list[tuple[tuple[int, int], frozenset[int]]] = []
        for c, u, v, kind, via in sends:
            named = 0 <= c < len(given.pre) and 0 <= u < given.ranks and 0 <= v < given.ranks
            _say(named, "a send names no chunk or no rank")
            kinds = ("copy", "reduce", "copy-input", "reduce-input") if given.combining else ("copy",)
            _say(kind in kinds, f"{kind} makes no sense")
            how, _, own = kind.partition("-")
            _say(not own or u in given.pre[c], f"rank {u} has no input of chunk {c}")
            value = frozenset([u]) if own else held.get((c, u), frozenset())
            _say(value, f"rank {u} sends chunk {c} before it holds it")
            if u != v or not own:
                _say((u, v, via) in route, f"there is no link {u} to {v}")
                load[route[u, v, via]] += 1
            if how == "reduce":
                adds.append(((c, v), value))
            else:
                _say(not given.combining or (c, v) not in copies, "two copies land on one")
                copies[c, v] = value
        for cap, members in machine.carries:
            crossing = sum(load[i] * times for i, times in members)
            _say(crossing <= cap * rounds, f"{crossing} sends where {cap} x {rounds} fit")
        held.update(copies)
        for at, value in adds:
            before = held.get(at, frozenset())
            _say(not before & value, "a contribution counts twice")
            held[at] = before | value
    for c, row in enumerate(given.post):
        for r, want in row:
            have = held.get((c, r), frozenset())
            _say(have == want if given.combining else have, f"rank {r} ends without chunk {c}")
    return total


def _replayed(doc: dict, place: str = "") -> tuple[Machine, Task, int, int, int]:
    """The machine, the task, C, S and R of a schedule's document."""
    machine, chunks = network(doc["topology"]), _int(doc["chunks"], 1, "C")
    given = task(doc["collective"], chunks)
    _say(machine.ranks == given.ranks, f"{place} ranks differ")
    steps = []
    for step in doc["steps"]:
        sends = [(c, u, v, kind, tuple(via[0]) if via else ()) for c, u, v, kind, *via in step["sends"]]
        steps.append((step["rounds"], sends))
    return machine, given, chunks, len(steps), replay(machine, given, steps)


def _schedule(doc: dict, lines: list[str]) -> None:
    *_, chunks, steps, rounds = _replayed(doc)
    _say(f"C={chunks} S={steps} R={rounds}," in lines[0], f"is C={chunks} S={steps} R={rounds}, said is: {lines[0]}")


# ---------------------------------------------------------------- bounds, frontiers, what is impossible


def at_least(machine: Machine, given: Task, steps: int | None, value: Fraction, chunks: int | None = None) -> None:
    """False_ where a schedule of `steps` steps (None: any) has fewer rounds per chunk than `value`, for any C or at
    `chunks`."""
    what = f"R/C ≥ {value} at S={steps} C={chunks}"
    try:
        found = search.below(machine, given, steps, value, chunks)
    except TimeoutError:
        raise Unknown(f"{what}: the search took too long") from None
    _say(not found, f"{what}: a schedule has {found}")


def steps_at_least(machine: Machine, given: Task, least: Fraction | int) -> None:
    """False_ where fewer steps do."""
    found = search.fewest_steps(machine, given, least)
    if found is None:
        raise Unknown(f"S ≥ {least}: the search took too long")
    _say(found >= least, f"S ≥ {least}: {found} are enough")


def _fraction(value: Any) -> Fraction:
    _say(type(value) is str, f"{value!r} is no fraction")
    return Fraction(value)


def _problem(doc: dict) -> tuple[Machine, Task]:
    machine, given = network(doc["topology"]), task(doc["collective"], 1)
    _say(machine.ranks == given.ranks, "ranks differ")
    return machine, given


def _bounds(doc: dict, _: Any = None) -> None:
    machine, given = _problem(doc)
    for row in doc.get("bounds", []):
        value = _fraction(row["value"])
        if row["steps"] == 0:
            steps_at_least(machine, given, value)
        else:
            at_least(machine, given, row["steps"], value)


def _frontier(doc: dict, lines: list[str]) -> None:
    machine, given = _problem(doc)
    points: list[tuple[int, Fraction]] = []
    for i, row in enumerate(doc["points"]):
        on, of, chunks, steps, rounds = _replayed(row["schedule"], f"points[{i}]")
        _say(on == machine, f"points[{i}] runs on another machine")
        _say(of == _split(given, chunks), f"points[{i}] answers another collective")
        said = (row["steps"], row["rounds"], row["chunks"])
        _say(said == (steps, rounds, chunks), f"points[{i}] says other numbers than its schedule has")
        rate = Fraction(rounds, chunks)
        _say(_fraction(row["bandwidth"]) == rate, f"points[{i}] has R/C {rate}")
        _say(not points or (steps > points[-1][0] and rate < points[-1][1]), f"points[{i}] is dominated")
        points.append((steps, rate))
        bound = _fraction(row["bound"]["value"])
        whole = row["bound"]["scope"] == "any-chunks"
        at_least(machine, given, steps, bound, None if whole else chunks)
        _say(row["status"] != "optimal" or (bound == rate and whole), f"points[{i}] is not proved optimal")
    _bounds(doc)
    for i, row in enumerate(doc["open"]):
        lower, upper = _fraction(row["lower"]), None if row["upper"] is None else _fraction(row["upper"])
        best = min((rate for steps, rate in points if steps <= row["steps"]), default=None)
        _say(upper == best, f"open[{i}]: the points reach {best}")
        _say(upper is None or lower <= upper, f"open[{i}]: lower {lower} is above {upper}")
        at_least(machine, given, _int(row["steps"], 1, "steps"), lower)
    if doc["complete"]:
        _complete(machine, given, points, doc, lines)


def _complete(machine: Machine, given: Task, points: list[tuple[int, Fraction]], doc: dict, lines: list[str]) -> None:
    _say(not doc["open"], "complete, with open intervals")
    if not points:
        _say(search.fewest_steps(machine, given, 1) == 0, "says that nothing is to be done")
        return
    steps_at_least(machine, given, points[0][0])
    for (_, rate), (end, _) in pairwise(points):
        at_least(machine, given, end - 1, rate)
    until = re.search(r"complete: .* up to (\d+) steps", "\n".join(lines))
    last, rate = points[-1]
    if until is None or int(until[1]) > last:
        at_least(machine, given, int(until[1]) if until else None, rate)


def _infeasible(doc: dict, _: list[str]) -> None:
    most = doc["max_steps"]
    if type(doc["collective"]) is str:
        _say(most is None, "max_steps is a number")
        start, end = doc["certificate"]["pair"]
        machine = Physical(doc["topology"]).machine()
        collective, root = doc["collective"], doc["certificate"]["root"]
        _say(_int(start, 0, "a rank", machine.ranks) != _int(end, 0, "a rank", machine.ranks), "no two ranks")
        _say(root == {"broadcast": start, "reduce": end}.get(collective, root), "not between these")
        _say(collective in SCALE, f"{collective} is no collective")
        _say(end not in search.distances(machine, [start]), f"rank {end} can be reached from {start}")
        return
    machine, given = _problem(doc)
    if most is not None:
        steps_at_least(machine, given, _int(most, 0, "max_steps") + 1)
        return
    unit, rank = doc["certificate"]["pair"]
    wanted = dict(given.post[_int(unit, 0, "a unit")])
    _say(rank in wanted, "the rank does not want the unit")
    sources = [{s} for s in wanted[rank] & given.pre[unit]] if given.combining else [given.pre[unit]]
    apart = [rank not in search.distances(machine, source) for source in sources]
    _say(any(apart), f"unit {unit} can reach rank {rank}")


# ---------------------------------------------------------------- machines with switches, of flow methods

SCALE = ("allgather", "reduce-scatter", "broadcast", "reduce", "allreduce", "alltoall")


class Physical:
    """Links with ends that are ranks or, from `ranks` on, switches; bandwidths in GB/s."""

    def __init__(self, doc: dict) -> None:
        """The `topology` of a large document."""
        self.ranks = _int(doc["ranks"], 1, "ranks")
        self.nodes = self.ranks + len(doc["switches"])
        src, dst, sort = (_unpacked(doc["links"][key]) for key in ("src", "dst", "sort"))
        _say(len(src) == len(dst) == len(sort), "columns of unlike length")
        widths = [Fraction(row[0]) for row in doc["sorts"]]
        rows = list(zip(src, dst, sort, strict=True))
        self.links = [(a, b, widths[s]) for a, b, s in rows]
        if len(rows) > MANY and not doc["limits"]:
            self.links = [(a, b, widths[s] * times) for (a, b, s), times in Counter(rows).items()]
        self.limits = [(_unpacked(row[2]), Fraction(row[1])) for row in doc["limits"]]
        for a, b, width in self.links:
            joined = a < self.nodes and b < self.nodes and a != b
            _say(joined and width >= 0, f"link {a} to {b} of {width} GB/s")
        for members, width in self.limits:
            _say(width >= 0 and all(i < len(self.links) for i in members), "a limit of no links")
        every = [w for *_, w in self.links if w] + [w for _, w in self.limits if w] or [Fraction(1)]
        common = lcm(*(w.denominator for w in every))
        self.unit = Fraction(gcd(*(int(w * common) for w in every)), common)

    def machine(self) -> Machine:
        """Ways from rank to rank through switches as routes, in units."""
        ways: list[tuple[int, ...]] = []
        out: dict[int, list[int]] = {}
        for i, (a, _, width) in enumerate(self.links):
            if width:
                out.setdefault(a, []).append(i)

        def walk(at: int, path: tuple[int, ...], seen: frozenset[int]) -> None:
            for i in out.get(at, ()):
                end = self.links[i][1]
                if end < self.ranks and end not in seen:
                    ways.append((*path, i))
                elif end not in seen:
                    walk(end, (*path, i), seen | {end})

        for r in range(self.ranks):
            walk(r, (), frozenset([r]))
        routes = tuple((self.links[way[0]][0], self.links[way[-1]][1], tuple(map(str, way))) for way in ways)
        carries = []
        for members, width in [*(([i], width) for i, (_, _, width) in enumerate(self.links)), *self.limits]:
            times = Counter(members)
            users = {k: sum(map(times.__getitem__, way)) for k, way in enumerate(ways)}
            carries.append((width / self.unit, tuple((k, n) for k, n in users.items() if n)))
        return Machine(self.ranks, routes, tuple(carries))


def _unpacked(rows: list) -> list[int]:
    found: list[int] = []
    for row in rows:
        if type(row) is list:
            first, step, count = row
            found += range(first, first + step * count, step) if step else [first] * count
        else:
            found.append(row)
    return [_int(value, 0, "a number") for value in found]


def _parts(collective: str, ranks: int, root: int | None) -> tuple[search.Part, ...]:
    _say(collective in SCALE, f"{collective} is no collective")
    if collective == "allreduce":
        every = frozenset(range(ranks))
        return (("allreduce", every, every, Fraction(1)),)
    if collective in ("broadcast", "reduce"):
        _int(root, 0, "the root", ranks)
    of = _defined(collective, ranks, root)
    assert of is not None
    kind = "sum" if of.combining else "copy"
    pairs = [(have, frozenset(dict(row))) for have, row in zip(of.pre, of.post, strict=True)]
    return tuple((kind, have, want, Fraction(1)) for have, want in pairs if have != want)


def _large(doc: dict, _: list[str]) -> None:
    if "links" not in doc["topology"]:
        raise Unknown("a machine known by its name alone")
    physical = Physical(doc["topology"])
    machine = physical.machine()
    _say(Fraction(doc["topology"]["unit_gbps"]) == physical.unit, "the unit is another")
    value = _fraction(doc["bound"]["value"])
    best = search.rate(machine, _parts(doc["collective"], machine.ranks, doc["root"]))
    _say(best is None or value <= best, f"R/C ≥ {value}, {float(best or 0)} can be reached")
    turned = machine.reversed() if doc["collective"] == "reduce" else machine
    starts = range(machine.ranks) if doc["root"] is None else [doc["root"]]
    far = max(max(search.distances(turned, [start]).values()) for start in starts)
    _say(doc["least_steps"] <= far, f"needs {doc['least_steps']} steps, no rank is farther than {far}")
    for i, row in enumerate(doc["points"]):  # `synth verify` says that their schedules were not replayed
        rate = Fraction(row["rounds"], row["chunks"])
        _say(_fraction(row["bandwidth"]) == rate, f"points[{i}] has R/C {rate}")
        _say(_fraction(row["gap"]) == rate / value - 1, f"points[{i}]: the gap is another")


JUDGES = {
    "synth.schedule/1": _schedule,
    "synth.frontier/1": _frontier,
    "synth.bounds/1": _bounds,
    "synth.infeasible/1": _infeasible,
    "synth.large/1": _large,
}
