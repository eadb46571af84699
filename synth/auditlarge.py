"""Verification of large frontiers and bulk schedules: certificates re-checked, schedules replayed, gaps recomputed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import chain
from pathlib import Path

from synth import bulk, difference, largedoc, lengthcheck, linkread, verifybulk
from synth.bounds import check_closed, check_parts, check_scale
from synth.errors import FormatError, VerificationError
from synth.rational import counted, rational, show
from synth.topology import Topology

_SPEAKS = {"alltoall-lengths": "alltoall", "allreduce-parts": "allreduce"}  # certificates of others name their collective
MOST_LOOKED_AT = 4_000_000  # links, counted for each rank that distances are counted from


def bound(certificate: dict, topology: Topology) -> Fraction:
    """R / C, in units of the topology, below which the certificate proves no schedule. Raises VerificationError."""
    kind = certificate.get("kind")
    check = {"alltoall-lengths": lengthcheck.check, "allreduce-parts": check_parts.check}.get(str(kind), check_scale.check)
    return check(certificate, topology) * topology.unit_bandwidth()


def _bound(certificate: dict, machine: Topology, others: Iterable[tuple[str, Topology | None]]) -> Fraction:
    """As `bound`; of a certificate about another machine the error says how one of `others` differs, if it is about that."""
    place = "bound.certificate"
    try:
        return bound(certificate, machine)
    except VerificationError as error:
        if error.place == "topology":
            for what, other in others:
                digest = lengthcheck.digest_runs if certificate["kind"] == "alltoall-lengths" else check_scale.digest
                if other is not None and certificate["topology"] == digest(other):
                    differs = difference.told(difference.plain(machine), difference.plain(other), f"in {what}")
                    told = f"speaks about {what}, not about the machine written in the document: {differs}"
                    raise VerificationError(told, f"{place}.topology") from None
        raise VerificationError(str(error), place) from None


def schedule(given: bulk.Bulk) -> str:
    """One line on a bulk schedule that is right. Raises VerificationError."""
    found = verifybulk.bulk(given)
    sends = counted(found.sends, "send")
    images = f", {found.group} images of each listed one" if found.group > 1 else ""
    return (
        f"{given.collective} on {given.topology.name}: S={found.steps}, R/C={show(found.bandwidth)}, {sends}{images}:"
        f" every rank ends with what it must; no link or limit is overfull"
    )


def document(doc: dict, folder: Path, named: Callable[[], Topology | None]) -> list[str]:
    """What is established about a large frontier, a line each; its files lie in `folder`. Raises VerificationError, FormatError.

    The machine is the one whose links stand in the document, whatever it is called; else what `named` makes of its name, or where
    that is None the one that its schedules are for.
    """
    largedoc.check(doc)
    files = {i: bulk.load(folder / Path(row["file"]).name) for i, row in enumerate(doc["points"]) if "file" in row}
    given = doc["topology"]
    machine = linkread.read(given) if "links" in given else named() or next((made.topology for made in files.values()), None)
    if machine is None:
        raise FormatError(f"holds no links, names no schedule files, and {given['name']!r} is no machine known by name")
    for key, value in (("ranks", machine.ranks), ("unit_gbps", show(machine.unit_bandwidth()))):
        if given[key] != value:
            raise VerificationError(f"says {given[key]!r}, the machine has {value!r}", f"topology.{key}")
    if not isinstance(doc["bound"]["certificate"], dict):
        raise VerificationError("there is no certificate: nothing proves this", "bound.certificate")
    stated = rational(doc["bound"]["value"])
    others = ((f"the machine of {doc['points'][i]['file']}", made.topology) for i, made in files.items())
    by_name = ((given["name"], make()) for make in (named,) if "links" in given)
    proved = _bound(doc["bound"]["certificate"], machine, chain(by_name, others))
    if proved < stated:
        raise VerificationError(f"the certificate proves {show(proved)}, {show(stated)} is claimed", "bound")
    certificate = doc["bound"]["certificate"]
    if _SPEAKS.get(certificate["kind"], certificate.get("collective")) != doc["collective"]:
        raise VerificationError("the certificate is for another collective", "bound")
    if certificate.get("root") != doc["root"]:
        raise VerificationError("the certificate is for another root", "bound")
    gbps = machine.unit_bandwidth() / (proved * rational(_share(doc["collective"], machine.ranks)))
    where = _called(machine) if "links" in given else machine.name
    lines = [f"no {doc['collective']} on {where} takes fewer than {show(proved)} rounds per chunk: {float(gbps):.6g} GB/s at most"]
    lines += _least_steps(doc, machine)
    before: Fraction | None = None
    for i, row in enumerate(doc["points"]):
        place, rate = f"points[{i}]", rational(row["bandwidth"])
        if rate < proved or (before is not None and rate >= before):
            raise VerificationError(f"R/C={show(rate)} lies below the bound or does not improve on the point before", place)
        if rational(row["gap"]) != rate / stated - 1:
            raise VerificationError(f"the gap is {show(rate / stated - 1)}, {row['gap']} is claimed", place)
        before = rate
        if rate != Fraction(row["rounds"], row["chunks"]):
            raise VerificationError(f"{row['rounds']} rounds for {row['chunks']} chunks are not R/C={show(rate)}", f"{place}.rounds")
        if i in files:
            made = files[i]
            same = (made.collective, made.root, made.steps, made.bandwidth, made.chunks)
            if same != (doc["collective"], doc["root"], row["steps"], rate, row["chunks"]):
                raise VerificationError("its file holds another schedule", place)
            own = made.topology
            if (own.links, own.limits, own.unit_bandwidth()) != (machine.links, machine.limits, machine.unit_bandwidth()):
                differs = difference.told(difference.plain(own), difference.plain(machine), "in the document")
                raise VerificationError(f"its file is for another machine: {differs}", place)
            lines.append(schedule(made))
    if len(files) < len(doc["points"]):
        without = len(doc["points"]) - len(files)
        lines.append(f"{counted(without, 'point')} listed without a schedule: not replayed, but not below the bound")
    return lines


def _called(machine: Topology) -> str:
    """A machine that is known by its links alone: its name is what the document says."""
    size = f"{counted(machine.ranks, 'rank')}, {counted(len(machine.links), 'link')}"
    return f"the machine written in the document ({machine.name!r}, {size})"


def infeasible(doc: dict) -> str:
    """One line on a proof that no schedule exists, of a machine whose links stand in the document. Raises VerificationError."""
    wrong = sorted(doc.keys() ^ {"schema", "topology", "collective", "max_steps", "certificate"})
    if wrong:
        raise VerificationError(f"{wrong[0]!r} is missing or not a known field", "$")
    if doc["max_steps"] is not None:
        raise VerificationError("is null where no number of steps is enough", "$.max_steps")
    machine, certificate = linkread.read(doc["topology"]), doc["certificate"]
    if not isinstance(certificate, dict):
        raise VerificationError("there is no certificate: nothing proves this", "$.certificate")
    start, end = check_closed.check(certificate, machine)
    if doc["collective"] not in bulk.COLLECTIVES or certificate["collective"] != doc["collective"]:
        raise VerificationError("the certificate is for another collective", "$.certificate.collective")
    return f"{doc['collective']} on {_called(machine)}: no schedule, rank {start} cannot reach rank {end}, certificate checked"


def _share(collective: str, ranks: int) -> str:
    return f"1/{ranks}" if collective in ("allgather", "reduce-scatter", "alltoall") else "1"


def _least_steps(doc: dict, machine: Topology) -> list[str]:
    """Whether so many steps are needed: the farthest that data go, in ranks entered. A line where the machine is too large to look."""
    least = doc["least_steps"]
    if any(row["steps"] < least for row in doc["points"]):
        raise VerificationError(f"says {least}, a point takes fewer steps", "least_steps")
    machine = machine.live()
    root = doc["root"] if doc["collective"] in ("broadcast", "reduce") else None
    starts = range(machine.ranks) if root is None else (root,)
    if len(starts) * len(machine.links) > MOST_LOOKED_AT:
        return [f"the least number of steps ({least}) was not checked: the machine is large"]
    out: list[list[int]] = [[] for _ in range(machine.ranks + len(machine.switches))]
    for link in machine.links:
        a, b = (link.dst, link.src) if doc["collective"] == "reduce" else (link.src, link.dst)
        out[a].append(b)
    far = max(_farthest(out, machine.ranks, start) for start in starts)
    if least > far:
        raise VerificationError(f"says {least}, no rank is farther than {far} from another", "least_steps")
    return []


def _farthest(out: list[list[int]], ranks: int, start: int) -> int:
    """The most ranks that are entered on the shortest ways from `start`; switches count nothing."""
    far, queue = {start: 0}, deque([start])
    done: set[int] = set()
    while queue:
        u = queue.popleft()
        if u in done:
            continue
        done.add(u)
        for v in out[u]:
            d = far[u] + (v < ranks)
            if d < far.get(v, 1 << 60):
                far[v] = d
                (queue.append if v < ranks else queue.appendleft)(v)
    return max(d for v, d in far.items() if v < ranks)
