"""Independent replay of schedules: the root of trust.

Works on the JSON document, not on the values that made it, and shares no code with what it checks: structure, the
meaning of a named collective, holdings, contributions counted once, the load of every link, limit and physical wire
in every step, and the postcondition. Anything wrong raises `VerificationError` with the place in the document.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from synth import strict
from synth.callmodule import make_callable
from synth.errors import VerificationError
from synth.schedule import Schedule, canonical

KINDS = ("copy", "reduce", "copy-input", "reduce-input")

LinkKey = tuple[int, int, tuple[str, ...]]


@dataclass(frozen=True)
class Replay:
    """What a replay established: C, S, R, the number of sends and the greatest number of chunks on one link."""

    chunks: int
    steps: int
    rounds: int
    sends: int

    @property
    def bandwidth(self) -> Fraction:
        """R / C."""
        return Fraction(self.rounds, self.chunks)


def schedule(given: Schedule | dict, place: str = "$") -> Replay:
    """Replay a schedule, or its JSON document, step by step.

    Returns what was established; raises VerificationError at the first thing that is wrong.
    """
    doc = given.to_json() if isinstance(given, Schedule) else given
    fields = strict.fields(doc, place, {"schema", "topology", "collective", "chunks", "steps"}, {"fingerprint"})
    if fields["schema"] != "synth.schedule/1":
        raise VerificationError(f"schema is {fields['schema']!r}, expected 'synth.schedule/1'", f"{place}.schema")
    fabric = Fabric.read(fields["topology"], f"{place}.topology")
    chunks = strict.number(fields["chunks"], f"{place}.chunks", 1)
    task = _Task.read(fields["collective"], chunks, fabric.ranks, f"{place}.collective")
    state = _Combining(task, place) if task.combining else _Holding(task, place)
    rounds = sends = 0
    for t, row in enumerate(strict.items(fields["steps"], f"{place}.steps")):
        here = f"{place}.steps[{t}]"
        step = strict.fields(row, here, {"rounds", "sends"})
        r = strict.number(step["rounds"], f"{here}.rounds", 1)
        moves = strict.items(step["sends"], f"{here}.sends")
        fabric.check_loads(_load(moves, task.chunks, fabric, f"{here}.sends"), r, here)
        state.step(moves, here)
        rounds, sends = rounds + r, sends + sum(row[1] != row[2] for row in moves)
    state.finish()
    if "fingerprint" in fields:
        _check_fingerprint(fields, chunks, rounds, place)
    return Replay(chunks, len(fields["steps"]), rounds, sends)


def problem(topology: object, collective: object, place: str = "$") -> None:
    """Check the two documents that a bound speaks about, one chunk per unit, and that a named collective is what its name says."""
    fabric = Fabric.read(topology, f"{place}.topology")
    _Task.read(collective, 1, fabric.ranks, f"{place}.collective")


def _check_fingerprint(doc: dict, chunks: int, rounds: int, place: str) -> None:
    import hashlib

    net, coll = doc["topology"], doc["collective"]

    def at_one(rows: list) -> list:
        return [[row[0] // chunks, *row[1:]] for row in rows if row[0] % chunks == 0]

    base = {
        "links": net["links"], "limits": net["limits"], "pre": at_one(coll["pre"]), "post": at_one(coll["post"]),
        "combining": coll["combining"],
    }  # fmt: skip
    inner = hashlib.sha256(canonical(base)).hexdigest()
    found = hashlib.sha256(canonical([inner, chunks, len(doc["steps"]), rounds])).hexdigest()
    if doc["fingerprint"] != found:
        raise VerificationError("does not belong to this topology, collective, C, S and R", f"{place}.fingerprint")


# ---------------------------------------------------------------- reading, strictly


def _load(rows: list, chunks: int, fabric: Fabric, place: str) -> dict[LinkKey, int]:
    """How many sends take each link, where every row is a send.

    Rows without paths are counted in one plain loop, as a step may have some ten thousand; where something is amiss, or
    there are paths, each is looked at by `_send`.
    """
    load: dict[int, dict[int, int]] = {}
    try:
        for chunk, src, dst, kind in rows:
            if type(chunk) is not int or type(src) is not int or type(dst) is not int or not 0 <= chunk < chunks or kind not in KINDS:
                break
            try:
                load[src][dst] += 1
            except KeyError:  # the first on its link
                if (src, dst, ()) not in fabric.links:
                    break
                load.setdefault(src, {})[dst] = 1
        else:
            return {(src, dst, ()): n for src, row in load.items() for dst, n in row.items()}
    except (TypeError, ValueError):  # no row of four
        pass
    keys = [_send(row, chunks, fabric, f"{place}[{i}]") for i, row in enumerate(rows)]
    return Counter([key for key in keys if key is not None])


def _send(row: object, chunks: int, fabric: Fabric, place: str) -> LinkKey | None:
    """The link that a row takes; None for a rank that adds its input to what it holds, or puts it there."""
    row = strict.items(row, place)
    if len(row) not in (4, 5):
        raise VerificationError("expected [chunk, src, dst, kind] or [chunk, src, dst, kind, path]", place)
    strict.number(row[0], f"{place}[0]", 0, chunks)
    src, dst = strict.number(row[1], f"{place}[1]", 0, fabric.ranks), strict.number(row[2], f"{place}[2]", 0, fabric.ranks)
    via = _path(row[4], f"{place}[4]") if len(row) == 5 else ()
    if row[3] not in KINDS:
        raise VerificationError(f"kind {row[3]!r} is none of {', '.join(KINDS)}", f"{place}[3]")
    if src == dst and not via and row[3] in ("copy-input", "reduce-input"):
        return None
    if (src, dst, via) not in fabric.links:
        through = f" through {' '.join(via)}" if via else ""
        raise VerificationError(f"there is no link {src} -> {dst}{through}", place)
    return src, dst, via


def _path(value: object, place: str) -> tuple[str, ...]:
    names = strict.items(value, place)
    if not names or not all(isinstance(name, str) for name in names):
        raise VerificationError("expected a list of switch names", place)
    return tuple(names)


# ---------------------------------------------------------------- the machine


@dataclass(frozen=True)
class Fabric:
    """Links, limits and physical wires as the document gives them, checked to be consistent with each other."""

    ranks: int
    links: dict[LinkKey, int]
    limits: tuple[tuple[frozenset[LinkKey], int], ...]
    wires: dict[tuple[int | str, int | str], int]

    @staticmethod
    def read(doc: object, place: str) -> Fabric:
        """Read the `topology` object of a schedule."""
        fields = strict.fields(doc, place, {"name", "ranks", "links", "limits", "unit_gbps"}, {"wires", "latency_us"})
        ranks = strict.number(fields["ranks"], f"{place}.ranks", 1)
        links: dict[LinkKey, int] = {}
        for i, row in enumerate(strict.items(fields["links"], f"{place}.links")):
            here = f"{place}.links[{i}]"
            if len(strict.items(row, here)) not in (3, 4):
                raise VerificationError("expected [src, dst, units] or [src, dst, units, path]", here)
            key = _link_key([row[0], row[1], *row[3:]], ranks, here)
            if key in links:
                raise VerificationError(f"link {key[0]} -> {key[1]} is listed twice", here)
            links[key] = strict.number(row[2], f"{here}[2]", 1)
        limits = []
        for i, row in enumerate(strict.items(fields["limits"], f"{place}.limits")):
            here = f"{place}.limits[{i}]"
            cap = strict.fields(row, here, {"links", "units"})
            keys = [_link_key(key, ranks, f"{here}.links[{j}]") for j, key in enumerate(strict.items(cap["links"], f"{here}.links"))]
            for key in keys:
                if key not in links:
                    raise VerificationError(f"limits a link {key[0]} -> {key[1]} that does not exist", here)
            if len(set(keys)) < len(keys):
                raise VerificationError("lists a link twice", here)
            limits.append((frozenset(keys), strict.number(cap["units"], f"{here}.units", 1)))
        wires = _read_wires(fields.get("wires", []), f"{place}.wires")
        if bool(wires) != any(via for _, _, via in links):
            raise VerificationError("wires are listed exactly when links name the switches on their way", f"{place}.wires")
        fabric = Fabric(ranks, links, tuple(limits), wires)
        for key in links:
            for hop in fabric.hops(key):
                if wires and hop not in wires:
                    raise VerificationError(f"link {key[0]} -> {key[1]} uses a wire {hop[0]} -> {hop[1]} that does not exist", place)
        return fabric

    @staticmethod
    def hops(key: LinkKey) -> list[tuple[int | str, int | str]]:
        """The physical wires of a link."""
        ends = [key[0], *key[2], key[1]]
        return list(pairwise(ends))

    def check_loads(self, load: dict[LinkKey, int], rounds: int, place: str) -> None:
        """No link, limit or wire carries more than its units times the rounds of the step."""
        for (src, dst, via), n in load.items():
            if n > self.links[src, dst, via] * rounds:
                room = self.links[src, dst, via] * rounds
                raise VerificationError(f"link {src} -> {dst} carries {n} chunks, {rounds} rounds allow {room}", place)
        for i, (members, units) in enumerate(self.limits):
            n = sum(load[key] for key in members & load.keys())
            if n > units * rounds:
                raise VerificationError(f"limit {i} carries {n} chunks, {rounds} rounds allow {units * rounds}", place)
        if self.wires:
            physical: Counter = Counter()
            for key, n in load.items():
                for hop in self.hops(key):
                    physical[hop] += n
            for (a, b), n in physical.items():
                if n > self.wires[a, b] * rounds:
                    raise VerificationError(f"wire {a} -> {b} carries {n} chunks, {rounds} rounds allow {self.wires[a, b] * rounds}", place)


def _link_key(row: object, ranks: int, place: str) -> LinkKey:
    row = strict.items(row, place)
    if len(row) not in (2, 3):
        raise VerificationError("expected [src, dst] or [src, dst, path]", place)
    src, dst = strict.number(row[0], f"{place}[0]", 0, ranks), strict.number(row[1], f"{place}[1]", 0, ranks)
    if src == dst:
        raise VerificationError(f"a link from rank {src} to itself", place)
    return src, dst, _path(row[2], place) if len(row) == 3 else ()


def _read_wires(doc: object, place: str) -> dict[tuple[int | str, int | str], int]:
    wires: dict[tuple[int | str, int | str], int] = {}
    for i, row in enumerate(strict.items(doc, place)):
        here = f"{place}[{i}]"
        if len(strict.items(row, here)) != 3 or not all(isinstance(end, str) or type(end) is int for end in row[:2]):
            raise VerificationError("expected [end, end, units]", here)
        wires[row[0], row[1]] = wires.get((row[0], row[1]), 0) + strict.number(row[2], f"{here}[2]", 1)
    return wires


# ---------------------------------------------------------------- the task


@dataclass(frozen=True)
class _Task:
    """`pre` and `post` by address, ``chunk * ranks + rank``; what a post address wants is None where it is everything."""

    name: str
    ranks: int
    chunks: int
    combining: bool
    pre: frozenset[int]
    post: dict[int, frozenset[int] | None]

    @staticmethod
    def read(doc: object, per_unit: int, ranks: int, place: str) -> _Task:
        fields = strict.fields(doc, place, {"name", "ranks", "root", "combining", "chunks", "pre", "post"})
        if fields["ranks"] != ranks:
            raise VerificationError(f"has {fields['ranks']} ranks, the topology has {ranks}", f"{place}.ranks")
        chunks = strict.number(fields["chunks"], f"{place}.chunks", 1)
        if chunks % per_unit:
            raise VerificationError(f"{chunks} chunks are not a multiple of C = {per_unit}", f"{place}.chunks")
        if not isinstance(fields["combining"], bool) or not isinstance(fields["name"], str):
            raise VerificationError("'combining' is true or false, 'name' is text", place)
        pre = _pairs(fields["pre"], chunks, ranks, f"{place}.pre", 2)
        post = _pairs(fields["post"], chunks, ranks, f"{place}.post", 3 if fields["combining"] else 2)
        task = _Task(fields["name"], ranks, chunks, fields["combining"], frozenset(pre), post)
        if not _as_defined(task, fields["root"], per_unit, place):
            raise VerificationError(f"pre and post are not those of {task.name} over {ranks} ranks with C = {per_unit}", place)
        return task


def _pairs(doc: object, chunks: int, ranks: int, place: str, most: int) -> dict[int, frozenset[int] | None]:
    rows = strict.items(doc, place)
    try:
        pairs: set[int] = set()
        for chunk, rank in rows:
            if type(chunk) is not int or type(rank) is not int or not 0 <= chunk < chunks or not 0 <= rank < ranks:
                break
            pairs.add(chunk * ranks + rank)
        else:
            if len(pairs) == len(rows):
                return dict.fromkeys(pairs)
    except (TypeError, ValueError):  # no row of two
        pass
    found: dict[int, frozenset[int] | None] = {}
    for i, row in enumerate(rows):  # one by one, to say what is wrong where
        here = f"{place}[{i}]"
        if not 2 <= len(strict.items(row, here)) <= most:
            raise VerificationError("expected [chunk, rank]", here)
        chunk, rank = strict.number(row[0], f"{here}[0]", 0, chunks), strict.number(row[1], f"{here}[1]", 0, ranks)
        if chunk * ranks + rank in found:
            raise VerificationError(f"chunk {chunk} at rank {rank} is listed twice", here)
        wants = frozenset(strict.number(r, f"{here}[2]", 0, ranks) for r in strict.items(row[2], f"{here}[2]")) if len(row) == 3 else None
        found[chunk * ranks + rank] = wants
    return found


def _as_defined(task: _Task, root: object, c: int, place: str) -> bool:
    """Whether pre and post are what the collective's name says; true for names that do not fix them."""
    n, everyone = task.ranks, range(task.ranks)
    roots = [root] if type(root) is int else root if isinstance(root, list) else []
    if any(type(r) is not int or not 0 <= r < n for r in roots):
        raise VerificationError(f"root {root!r} is not a rank", f"{place}.root")
    name = task.name.removeprefix("multi-")
    rows: list[tuple[list[int], list[int]]]
    if name in ("broadcast", "reduce"):
        rows = [([r], list(everyone)) for r in roots]
    elif name in ("scatter", "gather"):
        rows = [([r], [i]) for r in roots for i in everyone]
    elif name in ("allgather", "reduce-scatter"):
        rows = [([i], list(everyone)) for i in everyone]
    elif name == "alltoall":
        rows = [([i], [j]) for i in everyone for j in everyone]
    elif name in ("allreduce", "scan"):
        rows = [(list(everyone), list(everyone))]
    elif name in ("alltonext", "sendrecv"):
        rows = [([i], [(i + 1) % n]) for i in range(n if name == "sendrecv" else n - 1)]
    else:
        return True
    if name in ("reduce", "gather", "reduce-scatter"):
        rows = [(post, pre) for pre, post in rows]
    if task.combining != (name in ("reduce", "reduce-scatter", "allreduce", "scan")):
        raise VerificationError(f"'combining' is wrong for {name}", f"{place}.combining")
    if task.chunks != len(rows) * c:
        raise VerificationError(f"{name} over {n} ranks has {len(rows) * c} chunks at C = {c}, found {task.chunks}", f"{place}.chunks")
    if any(len(given) != c * sum(len(row[i]) for row in rows) for i, given in enumerate((task.pre, task.post))):
        return False  # before as many are written down
    pre: set[int] = set()
    post: dict[int, frozenset[int] | None] = {}
    for u, (before, after) in enumerate(rows):
        first, end = u * c * n, (u + 1) * c * n
        for r in before:
            pre.update(range(first + r, end, n))
        for r in after:
            post.update(dict.fromkeys(range(first + r, end, n), frozenset(range(r + 1)) if name == "scan" else None))
    return pre == task.pre and post == task.post


# ---------------------------------------------------------------- the replay


class _Holding:
    """Non-combining: which rank holds which chunk, by address."""

    def __init__(self, task: _Task, place: str) -> None:
        self.task, self.place, self.held = task, place, set(task.pre)

    def step(self, moves: list, place: str) -> None:
        ranks = self.task.ranks
        copies = all(row[3] == "copy" for row in moves)
        if not copies or not self.held.issuperset([row[0] * ranks + row[1] for row in moves]):
            self._blame(moves, place)
        self.held.update([row[0] * ranks + row[2] for row in moves])

    def _blame(self, moves: list, place: str) -> None:
        """Says which send of a step is wrong, the first."""
        for i, (chunk, src, dst, kind, *_) in enumerate(moves):
            if kind != "copy":
                raise VerificationError(f"kind {kind!r} in {self.task.name}, which does not combine", f"{place}.sends[{i}]")
            if chunk * self.task.ranks + src not in self.held:
                raise VerificationError(f"rank {src} sends chunk {chunk} to {dst} before it holds it", f"{place}.sends[{i}]")

    def finish(self) -> None:
        if not self.held.issuperset(self.task.post):
            chunk, rank = divmod(min(self.task.post.keys() - self.held), self.task.ranks)
            raise VerificationError(f"rank {rank} ends without chunk {chunk}", f"{self.place}.steps")


class _Combining:
    """Combining: which ranks' contributions each address holds, as a bit set; none may count twice."""

    def __init__(self, task: _Task, place: str) -> None:
        self.task, self.place = task, place
        self.value = {at: 1 << at % task.ranks for at in task.pre}
        self.total: dict[int, int] = {}
        for at in task.pre:
            chunk, rank = divmod(at, task.ranks)
            self.total[chunk] = self.total.get(chunk, 0) | 1 << rank

    def step(self, moves: list, place: str) -> None:
        ranks = self.task.ranks
        copies: dict[int, int] = {}
        adds: list[tuple[int, int, int]] = []
        for i, (chunk, src, dst, kind, *_) in enumerate(moves):
            at, to = chunk * ranks + src, chunk * ranks + dst
            value = (1 << src if at in self.task.pre else 0) if kind.endswith("-input") else self.value.get(at, 0)
            if not value:
                raise VerificationError(f"rank {src} has nothing of chunk {chunk} to send", f"{place}.sends[{i}]")
            if kind.startswith("copy"):
                if to in copies:
                    raise VerificationError(f"a second copy of chunk {chunk} lands on rank {dst} in one step", f"{place}.sends[{i}]")
                copies[to] = value
            else:
                adds.append((to, value, i))
        self.value.update(copies)
        for to, value, i in adds:
            held = self.value.get(to, 0)
            if held & value:
                twice, (chunk, dst) = (held & value).bit_length() - 1, divmod(to, ranks)
                fault = f"the contribution of rank {twice} to chunk {chunk} counts twice on rank {dst}"
                raise VerificationError(fault, f"{place}.sends[{i}]")
            self.value[to] = held | value

    def finish(self) -> None:
        for at, want in sorted(self.task.post.items()):
            chunk, rank = divmod(at, self.task.ranks)
            bits = self.total.get(chunk, 0) if want is None else sum(1 << r for r in want)
            held = self.value.get(at, 0)
            if held != bits:
                wrong = (held ^ bits).bit_length() - 1
                fault = "lacks" if bits >> wrong & 1 else "has too much:"
                raise VerificationError(f"rank {rank} ends: chunk {chunk} {fault} rank {wrong}'s contribution", f"{self.place}.steps")


make_callable(__name__)
