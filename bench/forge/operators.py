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
WRAPS = (1 << 23) + 1  # links of length 2^40 that come to more than 2^63


# ---------------------------------------------------------------- places


def _parts(case: Case) -> list[Any]:
    """The document and the files beside it that can be looked into."""
    return [case.doc, *(content for content in case.files.values() if isinstance(content, dict))]


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
    rows = [case.doc, case.doc.get("schedule"), *(p.get("schedule") for p in _dicts(case.doc.get("points")))]
    return [row for row in rows if isinstance(row, dict) and "steps" in row and isinstance(row["steps"], list)]


def archives(case: Case) -> list[dict]:
    """Every archive."""
    return [part for part in _parts(case) if isinstance(part.get("arrays"), dict)]


def _dicts(rows: Any) -> list[dict]:
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def topologies(case: Case) -> list[dict]:
    """Every machine of the document and its schedules."""
    return [doc["topology"] for doc in [case.doc, *schedules(case)] if isinstance(doc.get("topology"), dict)]


def _start(case: Case, random: Random) -> Any:
    """Where to look for a place: anywhere, or in a certificate."""
    found = list(certificates(case.doc))
    return (
        random.choice(found) if found and random.random() < 0.5 else random.choice([case.doc, case.doc, *_parts(case)])
    )


def place(case: Case, random: Random, wanted: Callable[[Any], bool]) -> tuple[Any, Any] | None:
    """(container, key) of a value that is `wanted`, found by going down at random."""
    for _ in range(60):
        at = _start(case, random)
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


def _text(value: Fraction) -> str:
    return str(value)


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
        factor = random.choice((1, 1, 1, 2, Fraction(1, 2), 0))
        if not _edit(case, random, _number, lambda old: _counted(old, lambda x: x * factor + by)):  # noqa: B023 - at once
            return False
    return True


def sign(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A number with the other sign."""
    return _edit(case, random, lambda v: _number(v) and v not in (0, "0"), lambda old: _counted(old, lambda x: -x))


def huge(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A number near a power of two at which integers wrap; or all numbers of a list."""

    def far() -> int:
        return random.choice((1, 1, 1, -1)) * ((1 << random.choice(POWERS)) + random.choice((-1, 0, 0, 1)))

    if random.random() < 0.5:
        return _edit(
            case, random, _number, lambda old: _counted(old, lambda x: far() if random.random() < 0.7 else x + far())
        )
    value = far()
    rows = place(case, random, lambda v: isinstance(v, list) and bool(v) and all(type(x) is int for x in v))
    if rows is None:
        return huge(case, random, _)
    at, key = rows
    at[key] = [value if random.random() < 0.9 else x for x in at[key]]
    return True


def _rows(case: Case, random: Random, least: int = 1) -> list | None:
    found = place(case, random, lambda v: isinstance(v, list) and len(v) >= least)
    return None if found is None else found[0][found[1]]


def drop(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A row less."""
    rows = _rows(case, random)
    if rows is not None:
        rows.pop(random.randrange(len(rows)))
    return rows is not None


def double(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A row once more, or very often."""
    rows = _rows(case, random)
    if rows is not None:
        i = random.randrange(len(rows))
        rows[i:i] = [copy.deepcopy(rows[i]) for _times in range(random.choice((1, 1, 1, 2, 300)))]
    return rows is not None


def swap(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Two rows, or two numbers of a row, in each other's place."""
    rows = _rows(case, random, 2)
    if rows is None:
        return False
    i, j = random.sample(range(len(rows)), 2)
    rows[i], rows[j] = rows[j], rows[i]
    return True


def empty(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A list or an object without anything in it, or null."""
    return _edit(
        case, random, lambda v: isinstance(v, list | dict), lambda v: type(v)() if random.random() < 0.8 else None
    )


def retype(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A value of another type that looks alike."""

    def other(old: Any) -> Any:
        return random.choice(
            [
                float(old) if type(old) is int and abs(old) < 1 << 60 else 1.0,
                str(old),
                [old],
                True,
                False,
                None,
                f"{old}/1",
            ]
        )

    return _edit(case, random, lambda v: not isinstance(v, dict | list), other)


FIELDS: tuple[tuple[str, Any], ...] = (
    ("reversed", True),
    ("reversed", False),
    ("count", 1),
    ("covers", {"0": [[1, "in", 1, 0, 1]]}),
    ("entering", True),
    ("scope", "any-chunks"),
    ("numbering", {"ranks": [1, 0], "links": [], "limits": [], "units": [0], "switches": {}}),
    ("wires", []),
    ("open", []),
    ("root", 0),
    ("steps", None),
    ("generators", []),
    ("fingerprint", ""),
    ("limits", []),
    ("file", "0.npz"),
    ("bounds", []),
)


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
    docs = [part for part in (case.doc, case.doc.get("header")) if isinstance(part, dict) and key in part]
    source = [part for part in (other.doc, other.doc.get("header")) if isinstance(part, dict) and key in part]
    if not docs or not source:
        case.doc["topology"] = other.doc.get("topology")
        return True
    docs[0][key] = source[0][key]
    if key == "topology":
        for inner in schedules(case):
            inner[key] = copy.deepcopy(source[0][key])
    return True


def generators(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A permutation that may be no automorphism among the generators, in their place, or where there are none."""
    machine = case.doc.get("topology") or case.doc.get("header", {}).get("topology", {})
    ranks = machine.get("ranks", 4) if isinstance(machine, dict) else 4
    nodes = ranks + len(machine.get("switches", []) if isinstance(machine, dict) else [])
    units = case.doc["collective"].get("chunks", 1) if isinstance(case.doc.get("collective"), dict) else 1

    def mixed(n: int) -> list[int]:
        made = list(range(min(n, 1000)))
        if random.random() < 0.7:
            random.shuffle(made)
        elif n > 1:
            i, j = random.sample(range(n), 2)
            made[i], made[j] = made[j], made[i]
        return made

    owners = [a["arrays"] for a in archives(case)] or list(certificates(case.doc)) or [case.doc]
    owner = random.choice(owners)
    key: Any = "generators"
    if owner.get("averaged") and random.random() < 0.5:
        owner = owner["averaged"]
        key = random.choice(list(owner))
    old = owner.get(key) or []
    flat = "arrays" in case.doc or owner.get("kind") == "alltoall-lengths"
    new: Any = mixed(nodes) if flat else [mixed(ranks), mixed(units)]
    owner[key] = random.choice(([new], [*old, new], [new, *old[1:]]))
    return True


def degenerate(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Empty the set that a certificate is about, or make it the whole."""
    found = list(certificates(case.doc)) or archives(case) or [case.doc]
    for at in found if random.random() < 0.3 else [random.choice(found)]:
        lists = [key for key, value in at.items() if isinstance(value, list | dict)]
        if lists:
            key = random.choice(lists)
            at[key] = type(at[key])()
    return True


WEIGHED = (
    "scale",
    "distance",
    "steps",
    "cuts",
    "covers",
    "chunk",
    "roots",
    "count",
    "links",
    "routes",
    "caps",
    "packings",
    "prices",
    "limits",
    "potentials",
    "inside",
    "regions",
    "lemmas",
    "closed",
    "pair",
)


def weigh(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A certificate that says more: weights, lengths or the distance times something, scale, prices or limits by
    something."""
    found = list(certificates(case.doc))
    if not found:  # more chunks in the same rounds
        for doc in [*schedules(case), *(a["header"] for a in archives(case))]:
            doc["chunks"] = doc["chunks"] * 2 if type(doc.get("chunks")) is int else 2
        return True
    at, factor = random.choice(found), random.choice((2, 3, 7, 1 << 32, 1 << 62))

    def times(value: Any, deep: bool = True) -> Any:
        if isinstance(value, dict):
            return {k: times(v, deep) for k, v in value.items()}
        if isinstance(value, list):
            if value and type(value[0]) is int and not any(isinstance(x, list) for x in value):
                return (
                    [value[0] * factor, *value[1:]]
                    if random.random() < 0.9
                    else [x * factor if type(x) is int else x for x in value]
                )
            return [times(x, deep) for x in value]
        return _counted(value, lambda x: x * factor) if _number(value) else value

    keys = [key for key in WEIGHED if key in at]
    key = random.choice(keys) if keys else None
    if key == "scale" and type(at[key]) is int:
        at[key] = max(1, at[key] // random.choice((2, 3, 4)))
    elif key is not None:
        at[key] = times(at[key])
    return key is not None


def overflow(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Sums that leave 64 bits: very many links of great length, one row very often, or numbers of which a few come to
    2^64."""
    machine = case.doc.get("topology")
    lengths = [c for c in certificates(case.doc) if c.get("kind") == "alltoall-lengths"]
    if not (lengths and isinstance(machine, dict) and isinstance(machine.get("links"), dict)) or random.random() < 0.5:
        for columns in [a["arrays"] for a in archives(case)] if random.random() < 0.5 else []:
            columns["rounds"] = [random.choice((1 << 61, 1 << 62, (1 << 63) - 1))] * len(columns["rounds"])
            return True
        rows = place(case, random, lambda v: isinstance(v, list) and bool(v) and all(type(x) is int for x in v))
        if rows is None:
            return double(case, random, _)
        at, key = rows
        count = max(1, len(at[key]))
        at[key] = [((1 << 64) + random.choice((0, 1, count))) // count for _x in at[key]]
        return True
    # links of width w and length 2^40 - 1 that come to a little above 2^63, and so to about -2^63; one wide link makes
    # up for that
    links, sorts, wide, long, own = (
        machine["links"],
        machine.get("sorts"),
        1 << 23,
        (1 << 40) - 1,
        1 << random.randrange(30, 36),
    )
    if not all(isinstance(links.get(key), list) and links[key] for key in ("src", "dst", "sort")) or not sorts:
        return False
    w, runs = Fraction(sorts[0][0]), lengths[0]["links"]
    count = sum(n for n, _length in runs)
    most = own * count * max(Fraction(row[0]) for row in sorts)  # what the links that were there pay at most
    length = int((w * ((1 << 64) - WRAPS * long) - random.choice((0, most / 2, most))) / (w * wide)) + 1
    machine["sorts"] = [*sorts, [str(w * wide), "1", "net"]]
    for key, many, one in (("src", 0, 0), ("dst", 1, 1), ("sort", 0, len(sorts))):
        links[key] = [*links[key], [many, 0, WRAPS], one]
    lengths[0] |= {"links": [[count, own], [WRAPS, long], [1, length]], "generators": []}
    return True


# ---------------------------------------------------------------- the problem


def condition(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Other data before, or wanted after, said alike wherever it stands in the document."""
    task = case.doc.get("collective")
    if not isinstance(task, dict):
        names = ("allgather", "reduce-scatter", "allreduce", "alltoall", "broadcast", "reduce")
        name, root = random.choice(names), random.choice((None, 0, 1))
        for doc in [case.doc, *certificates(case.doc), *(a["header"] for a in archives(case))]:
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
        rows.append([random.randrange(units), random.randrange(ranks)])
        rows = [list(row) for row in dict.fromkeys(map(_frozen, rows))] if side == "pre" else rows
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
            inner["collective"] = task | {"chunks": units * c} | {
                key: [[row[0] * c + k, *row[1:]] for row in task[key] for k in range(c)] for key in ("pre", "post")
            }  # fmt: skip
    return True


def _frozen(row: list) -> tuple:
    return tuple(tuple(x) if isinstance(x, list) else x for x in row)


def machine(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Another machine, said alike wherever it stands: a link or limit of other capacity, one more or less, a limit's
    links."""
    for header in [a["header"] for a in archives(case)]:
        widths = header["topology"]["widths"]
        widths[random.randrange(len(widths))] = random.choice(("2", "1/2", "-1", "0", str(1 << 63)))
    found = topologies(case)
    if not found:
        return bool(archives(case))
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
            members = (
                [[*row[:2], *row[3:]] for row in random.choices(links, k=random.choice((1, 2, 3)))] if links else []
            )
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
        if isinstance(topo.get("latency_us"), list):
            topo["latency_us"] = (topo["latency_us"] * 2 + ["1"])[: len(topo["links"])] if topo["latency_us"] else []
    for old in found:
        old.clear()
        old.update(copy.deepcopy(topo))
    return True


def moved(case: Case, random: Random, seeds: Sequence[Case]) -> bool:
    """A field of another valid document of the schema in the place of its own; or two fields of this one exchanged."""
    rows = [row for key in ("points", "bounds", "open") for row in _dicts(case.doc.get(key))]
    if len(rows) > 1 and random.random() < 0.5:
        a, b = random.sample(rows, 2)
        keys = sorted(a.keys() & b.keys())
        if keys:
            key = random.choice(keys)
            a[key], b[key] = b[key], a[key]
            return True
    others = [other for other in seeds if other.schema == case.schema and other.name != case.name]
    other = random.choice(others or list(seeds)).copy()
    mine, theirs = case.doc, other.doc
    while True:
        keys = [key for key in mine if key in theirs] if isinstance(mine, dict) and isinstance(theirs, dict) else []
        if not keys:
            return False
        key = random.choice(keys)
        inner = mine[key]
        if isinstance(inner, dict) and inner and isinstance(theirs[key], dict) and random.random() < 0.7:
            mine, theirs = inner, theirs[key]
            continue
        if (
            isinstance(inner, list)
            and inner
            and isinstance(theirs[key], list)
            and theirs[key]
            and random.random() < 0.5
        ):
            inner[random.randrange(len(inner))] = random.choice(theirs[key])
        else:
            mine[key] = theirs[key]
        return True


# ---------------------------------------------------------------- claims


def chunks(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Of each unit some chunks are not moved, and not asked for where the schedule stands."""
    found = [
        doc for doc in schedules(case) if type(doc.get("chunks")) is int and isinstance(doc.get("collective"), dict)
    ]
    for doc in found:
        c, task = doc["chunks"], doc["collective"]
        if c == 1 or random.random() < 0.2:  # the first unit alone; elsewhere the first chunk of each
            kept = {0} if c == 1 else set(range(c))
        else:
            some = set(range(random.randrange(1, c)))
            kept = {u * c + k for u in range(task["chunks"] // c) for k in some}
        task["post"] = [row for row in task["post"] if row[0] in kept]
        for step in doc["steps"]:
            step["sends"] = [row for row in step["sends"] if row[0] in kept]
            step["rounds"] = random.choice((1, 1, step["rounds"]))
    for a in archives(case):
        columns = a["arrays"]
        keep = [i for i, c in enumerate(columns["chunk"]) if type(c) is int and c % 2 == 0]
        for key in ("step", "chunk", "path", "kind"):
            columns[key] = [columns[key][i] for i in keep if i < len(columns[key])]
    if not found and not archives(case):
        task = case.doc.get("collective")
        if isinstance(task, dict):
            task["post"] = [row for row in task["post"] if row[0] == 0]
        else:
            for row in _dicts(case.doc.get("points")) or [case.doc]:
                row["chunks"] = 2 * row["chunks"] if type(row.get("chunks")) is int else 2
    return True


def sends(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A schedule that does something else: sends, rounds, kinds, steps; a document without one gets one."""
    found: list[dict] = [*schedules(case), *archives(case)]
    if not found:
        case.doc["schedule"] = next((s.copy().doc for s in _ if s.schema == "schedule/1"), None)
        return True
    doc = random.choice(found)
    if "arrays" in doc:
        columns = doc["arrays"]
        key = random.choice(("rounds", "step", "chunk", "path", "kind", "path_links"))
        rows = columns[key]
        if rows:
            i = random.randrange(len(rows))
            rows[i] = random.choice((0, 1, rows[i] + 1, rows[i] - 1, random.choice(rows), 1 << 62))
        return True
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
    """The document says more than it shows: complete, for every number of steps, impossible at all, fewer chunks, more
    steps."""
    doc = case.doc
    if "points" in doc and "complete" in doc:
        doc["complete"], doc["open"] = True, []
        left = random.choice((0, 0, 1, len(doc["points"]) - 1, len(doc["points"])))
        doc["points"] = doc["points"][:left] if random.random() < 0.7 else doc["points"][len(doc["points"]) - left :]
        doc["max_steps"] = random.choice((None, None, 0, 1, doc["max_steps"], 100))
        if random.random() < 0.5:
            degenerate(case, random, _)
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
            doc["bound"]["value"] = _counted(
                doc["bound"]["value"], lambda x: x + random.choice((1, -1, Fraction(1, 2)))
            )
    elif schedules(case):
        schedules(case)[0]["steps"].pop()
    else:
        for a in archives(case):
            a["arrays"]["rounds"] = a["arrays"]["rounds"][:-1]
    return True


def raised(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """The bound is greater in all places at once, or the schedule better."""
    factor = random.choice((2, Fraction(3, 2), 10))
    keys = {"value", "lower", "distance", "seconds", "bandwidth", "rounds", "least_steps", "time_us"}
    more = random.random() < 0.7

    def edit(at: Any) -> None:
        if isinstance(at, dict):
            for key, inner in at.items():
                if key in keys and _number(inner):
                    at[key] = _counted(inner, lambda x: x * factor if more else x / factor)
                else:
                    edit(inner)
        elif isinstance(at, list):
            for inner in at:
                edit(inner)

    for part in _parts(case):
        edit(part)
    for a in archives(case):
        a["arrays"]["rounds"] = [max(1, r // 2) for r in a["arrays"]["rounds"]]
    return True


def entries(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """A point, bound, step or open interval less, once more, or elsewhere."""
    lists = [
        case.doc[key] for key in ("points", "bounds", "open", "steps", "notes") if isinstance(case.doc.get(key), list)
    ]
    lists = (
        [rows for rows in lists if rows]
        or [a["arrays"]["rounds"] for a in archives(case)]
        or [_rows(case, random) or [0]]
    )
    rows = random.choice(lists)
    i = random.randrange(len(rows))
    what = random.choice(("less", "more", "other"))
    if what == "less":
        rows.pop(i)
    elif what == "more":
        rows.insert(random.randrange(len(rows) + 1), copy.deepcopy(rows[i]))
    else:
        rows.reverse()
    return True


def status(case: Case, random: Random, _: Sequence[Case]) -> bool:
    """Change the claims of a point or open interval: its status, its scope, its bounds."""
    doc = case.doc
    rows = _dicts(doc.get("points")) + _dicts(doc.get("open")) + _dicts(doc.get("bounds"))
    if isinstance(doc.get("open"), list) and "complete" in doc and random.random() < 0.6:
        row = (
            copy.deepcopy(random.choice(doc["open"]))
            if doc["open"]
            else {"steps": random.choice((1, 2, 3)), "reason": "the time limit"}
        )
        row |= {"lower": random.choice(("0", "1/2", "1", "2", "1000")), "upper": None}
        row["steps"] = random.choice((1, 2, 3, 4))
        if random.random() < 0.5:
            row.pop("certificate", None)
        doc["open"], doc["complete"] = [*doc["open"], row], False
        return True
    if not rows:
        rows = [doc]
    row = random.choice(rows)
    key = random.choice(("status", "scope", "lower", "upper", "complete", "gap", "engine", "same_bits", "slowdown"))
    value = {
        "status": random.choice(("optimal", "best-known")),
        "scope": random.choice(("any-chunks", "this-chunks")),
        "complete": True,
        "lower": "1000",
        "upper": random.choice((None, "1", "2")),
        "gap": "0",
        "engine": "any",
        "same_bits": random.random() < 0.5,
        "slowdown": "1",
    }[key]
    at = row["bound"] if key == "scope" and isinstance(row.get("bound"), dict) else row
    at[key] = value
    return True


OPERATORS: dict[str, Change] = {
    "number": number,
    "sign": sign,
    "huge": huge,
    "overflow": overflow,
    "drop": drop,
    "double": double,
    "swap": swap,
    "empty": empty,
    "retype": retype,
    "fields": fields,
    "foreign": foreign,
    "moved": moved,
    "generators": generators,
    "degenerate": degenerate,
    "weigh": weigh,
    "condition": condition,
    "machine": machine,
    "chunks": chunks,
    "sends": sends,
    "claim": claim,
    "raised": raised,
    "entries": entries,
    "status": status,
}
