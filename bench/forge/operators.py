"""Changes of a valid document: of one value anywhere, or of what it claims. What follows from a change
`bench.forge.settle` computes anew.

An operator is a function of a `Case` (its own copy, to be changed in place), a `Random` and all seeds; it returns False
where it changes nothing. Every operator does something to every schema: where a document lacks what an operator is
about, it is put in.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any

from bench.forge.seeds import Case

Change = Callable[[Case, Random, Sequence[Case]], Any]

POWERS = (31, 32, 40, 53, 62, 63, 64, 65, 127, 199, 200)


# ---------------------------------------------------------------- places


def certificates(value: Any) -> Iterator[dict]:
    """Every certificate in a document."""
    if isinstance(value, dict):
        if "kind" in value and value.keys() & {"problem", "topology", "proof", "pair", "inside", "rate"}:
            yield value
        for inner in value.values():
            yield from certificates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from certificates(inner)


def schedules(case: Case) -> list[dict]:
    """Every schedule in the document, itself if it is one."""
    points = case.doc.get("points")
    holders = [case.doc, *(points if isinstance(points, list) else ())]
    rows = [case.doc, *(row.get("schedule") for row in holders if isinstance(row, dict))]
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("steps"), list)]


def topologies(case: Case) -> list[dict]:
    """Every machine of the document and its schedules."""
    return [doc["topology"] for doc in [case.doc, *schedules(case)] if isinstance(doc.get("topology"), dict)]


def place(case: Case, random: Random, wanted: Callable[[Any], bool]) -> tuple[Any, Any] | None:
    """(container, key) of a value that is `wanted`, found by going down at random from the top or a certificate."""
    held = list(certificates(case.doc))
    for _ in range(60):
        at: Any = random.choice(held) if held and random.random() < 0.5 else case.doc
        while isinstance(at, dict | list) and at:
            key = random.choice(list(at)) if isinstance(at, dict) else random.randrange(len(at))
            inner = at[key]
            if wanted(inner) and (not isinstance(inner, dict | list) or not inner or random.random() < 0.5):
                return at, key
            at = inner
    return None


def _number(value: Any) -> bool:
    return type(value) is int or (
        isinstance(value, str) and value.replace("/", "", 1).lstrip("-").isdigit() and len(value) < 40
    )


def _edit(case: Case, random: Random, wanted: Callable[[Any], bool], edit: Callable[[Any], Any]) -> bool:
    found = place(case, random, wanted)
    if found is None:
        return False
    at, key = found
    at[key] = edit(at[key])
    return True


def _counted(value: Any, edit: Callable[[Fraction], Fraction | int]) -> Any:
    """A number, or the text of a fraction, edited."""
    if type(value) is int:
        return int(edit(Fraction(value)))
    try:
        return str(Fraction(edit(Fraction(value))))
    except ZeroDivisionError:
        return value


# ---------------------------------------------------------------- values


def number(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """One number, or two, a little more or less, or another small one."""
    for _times in range(random.choice((1, 1, 2))):
        by = random.choice((-2, -1, 1, 2, 3, 0))
        factor = random.choice((1, 1, 1, 2, -1, Fraction(1, 2), 0))
        if not _edit(case, random, _number, lambda old: _counted(old, lambda x: x * factor + by)):  # noqa: B023 - at once
            return False
    return True


def huge(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A number near a power of two at which integers wrap; or all numbers of a list."""

    def far() -> int:
        return random.choice((1, 1, 1, -1)) * ((1 << random.choice(POWERS)) + random.choice((-1, 0, 0, 1)))

    def moved(old: Any) -> Any:
        return _counted(old, lambda x: far() if random.random() < 0.7 else x + far())

    def alike(old: list) -> list:
        value = far()
        return [value if random.random() < 0.9 else x for x in old]

    def integers(value: Any) -> bool:
        return isinstance(value, list) and bool(value) and all(type(x) is int for x in value)

    return (random.random() < 0.5 and _edit(case, random, integers, alike)) or _edit(case, random, _number, moved)


def rows(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A row less, once more, very often, or in another's place."""
    at = place(case, random, lambda v: isinstance(v, list) and bool(v))
    if at is None:
        return False
    found = at[0][at[1]]
    i, j = random.randrange(len(found)), random.randrange(len(found))
    what = random.choice(("less", "more", "other"))
    if what == "less":
        found.pop(i)
    elif what == "more":
        found[i:i] = [copy.deepcopy(found[i]) for _times in range(random.choice((1, 1, 1, 2, 300)))]
    else:
        found[i], found[j] = found[j], found[i]
    return True


def empty(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A list or an object without anything in it, or null."""
    edit = lambda v: type(v)() if random.random() < 0.8 else None  # noqa: E731
    return _edit(case, random, lambda v: isinstance(v, list | dict), edit)


def retype(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A value of another type that looks alike."""

    def other(old: Any) -> Any:
        near = float(old) if type(old) is int and abs(old) < 1 << 60 else 1.0
        return random.choice((near, str(old), [old], True, False, None, f"{old}/1"))

    return _edit(case, random, lambda v: not isinstance(v, dict | list), other)


FIELDS: tuple[tuple[str, Any], ...] = (
    ("reversed", True), ("averaged", {"0": []}), ("count", 1), ("covers", {"0": [[1, "in", 1, 0, 1]]}),
    ("entering", True), ("scope", "any-chunks"), ("wires", []), ("open", []), ("root", 0), ("steps", None),
    ("generators", []), ("fingerprint", ""), ("limits", []), ("file", "0.npz"), ("bounds", []),
)  # fmt: skip


def fields(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A field less, a field more, or one under another's name."""
    found = place(case, random, lambda v: isinstance(v, dict) and bool(v))
    at = found[0][found[1]] if found else case.doc
    key, value = random.choice(FIELDS)
    if random.random() < 0.5:
        at[key] = copy.deepcopy(value)
    else:
        gone = random.choice(list(at))
        left = at.pop(gone)
        if random.random() < 0.3:
            at[key] = left
    return True


# ---------------------------------------------------------------- what a certificate rests on


def foreign(case: Case, random: Random, seeds: Sequence[Case]) -> bool:
    """Another document's certificate, machine or collective; its digest is made to fit by what follows, or is left."""
    other = random.choice(seeds).copy()
    mine, theirs = list(certificates(case.doc)), list(certificates(other.doc))
    if mine and theirs and random.random() < 0.7:
        at, given = random.choice(mine), random.choice(theirs)
        problem = {key: at[key] for key in ("problem", "topology") if key in at}
        at.clear()
        at.update(given)
        if random.random() < 0.7:
            at.update(problem)
        return True
    key = random.choice(("topology", "collective"))
    if key not in other.doc:
        return False
    case.doc[key] = other.doc[key]
    if key == "topology":
        for inner in schedules(case):
            inner[key] = copy.deepcopy(other.doc[key])
    return True


def generators(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A permutation that may be no automorphism among the generators, in their place, or where there are none."""
    # A built-in machine or collective stands there by its name.
    parts = {key: value for key, value in case.doc.items() if isinstance(value, dict)}
    topo, task = parts.get("topology", {}), parts.get("collective", {})
    ranks, units = topo.get("ranks", 4), task.get("chunks", 1)
    nodes = ranks + len(topo.get("switches", []))

    def mixed(n: int) -> list[int]:
        made = list(range(min(n, 1000)))
        if random.random() < 0.7:
            random.shuffle(made)
        elif n > 1:
            i, j = random.sample(range(n), 2)
            made[i], made[j] = made[j], made[i]
        return made

    owner = random.choice(list(certificates(case.doc)) or [case.doc])
    key: Any = "generators"
    if owner.get("averaged") and random.random() < 0.5:
        owner = owner["averaged"]
        key = random.choice(list(owner))
    old = owner.get(key) or []
    new: Any = mixed(nodes) if owner.get("kind") == "alltoall-lengths" else [mixed(ranks), mixed(units)]
    owner[key] = random.choice(([new], [*old, new], [new, *old[1:]]))
    return True


WEIGHED = (
    "scale", "distance", "steps", "cuts", "covers", "count", "links", "prices", "limits", "potentials", "inside",
    "regions", "closed", "pair",
)  # fmt: skip


def weigh(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A certificate that says more: weights, lengths or the distance times something, scale by something."""
    found = list(certificates(case.doc))
    if not found:  # more chunks in the same rounds
        for doc in schedules(case):
            doc["chunks"] = doc["chunks"] * 2 if type(doc.get("chunks")) is int else 2
        return True
    at, factor = random.choice(found), random.choice((2, 3, 7, 1 << 32, 1 << 62))

    def times(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: times(v) for k, v in value.items()}
        if isinstance(value, list):
            if value and type(value[0]) is int and not any(isinstance(x, list) for x in value):
                count = 1 if random.random() < 0.9 else len(value)
                return [x * factor if type(x) is int else x for x in value[:count]] + value[count:]
            return [times(x) for x in value]
        return _counted(value, lambda x: x * factor) if _number(value) else value

    keys = [key for key in WEIGHED if key in at]
    if not keys:
        return False
    key = random.choice(keys)
    if key == "scale" and type(at[key]) is int:
        at[key] = max(1, at[key] // random.choice((2, 3, 4)))
    else:
        at[key] = times(at[key])
    return True


# ---------------------------------------------------------------- the problem


def condition(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Other data before, or wanted after, said alike wherever it stands in the document."""
    task = case.doc.get("collective")
    if not isinstance(task, dict):
        names = ("allgather", "reduce-scatter", "allreduce", "alltoall", "broadcast", "reduce")
        name, root = random.choice(names), random.choice((None, 0, 1))
        for doc in [case.doc, *certificates(case.doc)]:
            if "collective" in doc:
                doc["collective"] = name
            if "root" in doc:
                doc["root"] = root
        return True
    if random.random() < 0.7:
        task["name"] = "mine"  # a name that does not say what it asks for
    what = random.choice(("drop", "add", "move", "units", "combining", "want", "nothing"))
    units, ranks = max(1, int(task.get("chunks") or 1)), max(1, int(task.get("ranks") or 1))
    side = random.choice(("pre", "post", "post"))
    rows = [list(row) for row in task.get(side) or []]
    if what == "nothing":
        unit = random.randrange(units)
        rows = [row for row in rows if row[0] != unit]
    elif what == "drop" and rows:
        rows.pop(random.randrange(len(rows)))
    elif what == "add":
        row = [random.randrange(units), random.randrange(ranks)]
        rows += [row] if side == "post" or row not in rows else []
    elif what == "move" and rows:
        random.choice(rows)[1] = random.randrange(ranks)
    elif what == "want" and rows and side == "post" and task.get("combining"):
        row = random.choice(rows)
        row[2:] = [random.sample(range(ranks), random.randrange(ranks + 1))]
    elif what == "units":
        units += 1
        task["chunks"] = units
        rows.append([units - 1, random.randrange(ranks)])
    elif what == "combining":
        task["combining"] = not task.get("combining")
    task[side] = rows
    for inner in schedules(case):
        if inner is not case.doc:
            c = inner.get("chunks", 1)
            inner["collective"] = task | {"chunks": units * c}
            for key in ("pre", "post"):
                inner["collective"][key] = [[row[0] * c + k, *row[1:]] for row in task[key] for k in range(c)]
    return True


def machine(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Another machine, said alike wherever it stands: links and limits of other capacity, one more or less."""
    found = topologies(case)
    if not found:
        return False
    topo = copy.deepcopy(found[0])
    packed = isinstance(topo.get("links"), dict)
    ranks = max(2, int(topo.get("ranks") or 2))
    what = random.choice(("links", "links", "limits", "more", "less", "unit", "ranks"))
    capacity = random.choice((1, 2, 3, 5, 0, -1, -7, 1 << 63, 1 << 64))
    if packed:
        sorts, limits = topo.get("sorts") or [], topo.get("limits") or []
        if what in ("links", "more") and sorts:
            random.choice(sorts)[0] = str(capacity)
        elif what == "limits" and limits:
            random.choice(limits)[1] = str(capacity)
        elif what == "less":
            column = random.choice(list(topo["links"].values()))
            if column:
                column.pop()
        else:
            topo["ranks"] = ranks + random.choice((-1, 1))
    else:
        links, limits = topo.get("links") or [], topo.get("limits") or []
        if what == "links" and links:
            random.choice(links)[2] = capacity
        elif what == "limits":
            chosen = random.choices(links, k=random.choice((1, 2, 3))) if links else []
            members = [[*row[:2], *row[3:]] for row in chosen]
            if limits and random.random() < 0.6:
                row = random.choice(limits)
                row[random.choice(("units", "links"))] = capacity
                if not isinstance(row["links"], list):
                    row |= {"links": members, "units": 1}
            else:
                topo["limits"] = [*limits, {"links": members, "units": capacity}]
        elif what == "more":
            u, v = random.sample(range(ranks), 2)
            topo["links"] = [*links, [u, v, capacity]]
        elif what == "less" and links:
            links.pop(random.randrange(len(links)))
        elif what == "unit":
            topo["unit_gbps"] = random.choice(("2", "1/2", "-1", "0"))
        else:
            topo["ranks"] = ranks + random.choice((-1, 1))
        if topo.get("latency_us"):
            topo["latency_us"] = (topo["latency_us"] * 2 + ["1"])[: len(topo["links"])]
    for old in found:
        old.clear()
        old.update(copy.deepcopy(topo))
    return True


# ---------------------------------------------------------------- claims


def sends(case: Case, random: Random, seeds: Sequence[Case]) -> bool:
    """A schedule that does something else: sends, rounds, kinds, steps; a document without one gets one."""
    found = schedules(case)
    if not found:
        case.doc["schedule"] = next((s.copy().doc for s in seeds if s.schema == "schedule/1"), None)
        return True
    doc = random.choice(found)
    steps = doc["steps"]
    step = random.choice(steps) if steps else {"rounds": 1, "sends": []}
    what = random.choice(("rounds", "send", "kind", "order", "merge"))
    if what == "rounds" and type(step["rounds"]) is int:
        step["rounds"] = random.choice((0, 1, step["rounds"] - 1, step["rounds"] + 1))
    elif what == "send" and step["sends"]:
        row = random.choice(step["sends"])
        row[random.randrange(3)] = random.randrange(4)
    elif what == "kind" and step["sends"]:
        random.choice(step["sends"])[3] = random.choice(("copy", "reduce", "copy-input", "reduce-input"))
    elif what == "order":
        random.shuffle(steps)
    elif len(steps) > 1:
        last = steps.pop()
        steps[-1]["sends"] += last["sends"]
    return True


def claim(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """The document says more than it shows: complete, for any steps, impossible at all, fewer chunks, more steps."""
    doc = case.doc
    if "points" in doc and "complete" in doc:
        doc["complete"], doc["open"] = True, []
        count = len(doc["points"])
        left = random.choice((0, 0, 1, count - 1, count))
        doc["points"] = doc["points"][:left] if random.random() < 0.7 else doc["points"][count - left :]
        doc["max_steps"] = random.choice((None, None, 0, 1, doc["max_steps"], 100))
    elif isinstance(doc.get("bounds"), list) and doc["bounds"]:
        random.choice(doc["bounds"])["steps"] = random.choice((None, 0, 1, 2, 3, 10))
    elif "max_steps" in doc:
        doc["max_steps"] = random.choice((None, 0, 1, 2, 3, 10, -1))
    elif "rounds" in doc:
        key = random.choice(("chunks", "steps", "rounds"))
        doc[key] = random.choice((doc[key] + 1, doc[key] - 1, 1, 4))
        for at in certificates(doc):
            if key in at and type(at[key]) is int:
                at[key] = doc[key]
    elif "least_steps" in doc:
        doc["least_steps"] += random.choice((-1, 1, 2))
        if random.random() < 0.5:
            more = random.choice((1, -1, Fraction(1, 2)))
            doc["bound"]["value"] = _counted(doc["bound"]["value"], lambda x: x + more)
    elif schedules(case):
        schedules(case)[0]["steps"].pop()
    return True


CHANGES: tuple[Change, ...] = (
    number, huge, rows, empty, retype, fields, foreign, generators, weigh, condition, machine, sends, claim,
)  # fmt: skip
OPERATORS = {change.__name__: change for change in CHANGES}
