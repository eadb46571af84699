"""Documents of machines of any size: certificates are checked, schedules replayed, and gaps computed again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

from synth.checker.certificates import partition, path_lengths, throughput_cuts, unreachable
from synth.checker.documents import link_columns, scale_schema, schedule_archive
from synth.checker.schedule import compressed_replay
from synth.errors import FormatError, VerificationError
from synth.model import compressed_schedule
from synth.model.documents import json_diff, json_reader
from synth.model.documents.json_reader import Unchecked
from synth.model.link_table import ends
from synth.model.rational import counted, rational, show
from synth.model.scale_collectives import COLLECTIVES, ScaleCollective
from synth.model.topology import Topology

# The collective of certificates that name none.
_COLLECTIVE_OF = {"alltoall-lengths": "alltoall", "allreduce-parts": "allreduce"}
# Maximum of links times ranks from which distances are counted. Beyond it `least_steps` is reported as not checked.
MOST_LOOKED_AT = 4_000_000
# The properties that two machines share where schedules and bounds of one are schedules and bounds of the other.
_SAME: tuple[Callable[[Topology], object], ...] = (
    lambda t: t.ranks, lambda t: len(t.switches), lambda t: t.links, lambda t: t.limits, lambda t: t.unit_bandwidth(),
)  # fmt: skip


def bound(certificate: dict, topology: Topology) -> Fraction:
    """Return the lower bound on R/C that the certificate proves, where a round carries one unit of the topology.

    Raises VerificationError.
    """
    kind = certificate.get("kind")
    check = {"alltoall-lengths": path_lengths.check, "allreduce-parts": partition.check}.get(
        str(kind), throughput_cuts.check
    )
    return check(certificate, topology) * topology.unit_bandwidth()


def schedule(given: compressed_schedule.CompressedSchedule, where: str = "") -> str:
    """Replay a compressed schedule and return a line on it.

    `where`: words for its machine in that line (default: the machine written in the file). Raises VerificationError.
    """
    found = compressed_replay.replay(given)
    sends = counted(found.sends, "send")
    images = f", {found.group} images of each listed one" if found.group > 1 else ""
    return (
        f"{given.collective} on {where or _called(given.topology, 'the file')}{_rooted(given.root)}: S={found.steps},"
        f" R/C={show(found.rounds_per_chunk)}, {sends}{images}: every rank ends with what it must; no link or limit is "
        f"overfull"
    )


def document(doc: dict, folder: Path, named: Callable[[], Topology | None]) -> list[str]:
    """Check a frontier at scale; return a line for each claim.

    `folder`: where the files of its schedules lie. The machine is the one whose links stand in the document; else the
    one that `named` returns; else, where that is None, the one that its schedules are for. Lines of class
    `synth.model.documents.json_reader.Unchecked` name a claim that could not be checked. Raises VerificationError for a
    claim that does not hold, FormatError for another document, or where no machine is known.
    """
    machine, known, files = open_document(doc, folder, named)
    given = doc["topology"]
    stated = _stated(doc, machine)
    gbps = machine.unit_bandwidth() / (stated * ScaleCollective(doc["collective"], machine.ranks).unit_share)

    # The bound, and the least number of steps.
    if known:
        where = machine.name
    else:
        where = _called(machine, "the document" if "links" in given else "its schedules")
    claim = f"{doc['collective']} on {where}{_rooted(doc['root'])}"
    lines = [f"no {claim} takes fewer than {show(stated)} rounds per chunk: {float(gbps):.6g} GB/s at most"]
    unchecked: list[str] = []
    least = counted(doc["least_steps"], "step")
    if _least_steps(doc, machine):
        lines += [f"no {claim} takes fewer than {least}"] if doc["least_steps"] else []
    else:
        unchecked.append(Unchecked(f"that no {claim} takes fewer than {least}: the machine is large"))

    # Points: numbers that go together, none below the bound or no better than the one before, and a replay.
    before: tuple[int, Fraction] | None = None
    for i, row in enumerate(doc["points"]):
        place, rate = f"points[{i}]", rational(row["bandwidth"])
        if rate < stated or (before is not None and rate >= before[1]):
            raise VerificationError(
                f"R/C={show(rate)} lies below the bound or does not improve on the point before", place
            )
        if before is not None and row["steps"] <= before[0]:
            raise VerificationError(f"says {row['steps']}, the point before takes {before[0]}", f"{place}.steps")
        if rational(row["gap"]) != rate / stated - 1:
            raise VerificationError(f"the gap is {show(rate / stated - 1)}, {row['gap']} is claimed", place)
        before = row["steps"], rate
        if rate != Fraction(row["rounds"], row["chunks"]):
            raise VerificationError(
                f"{row['rounds']} rounds for {row['chunks']} chunks are not R/C={show(rate)}", f"{place}.rounds"
            )
        if i in files:
            made = point_schedule(doc, i, folder, machine)
            try:
                lines.append(schedule(made, where))
            except VerificationError as error:
                raise VerificationError(f"{files[i]}: {error}", place) from None
        else:
            point = f"the point of {counted(row['steps'], 'step')}, R/C={show(rate)}"
            where_not = f"its file {row['file']} is not there" if "file" in row else "its schedule is in no file"
            unchecked.append(Unchecked(f"{point}: {where_not}, and was not replayed"))
    assumed = json_reader.assumed(bool(machine.limits), [])
    return [*lines, *unchecked, f"{assumed}; seconds, names of engines and notes"]


def open_document(
    doc: dict, folder: Path, named: Callable[[], Topology | None]
) -> tuple[Topology, bool, dict[int, str]]:
    """Check the shape of a document; return its machine, if that is known by name, and the files of points.

    Only files that are there are returned, by the point's index. Arguments and errors are those of `document`.
    """
    scale_schema.check(doc)
    given = doc["topology"]
    files: dict[int, str] = {}
    for i, row in enumerate(doc["points"]):
        if Path(row.get("file", "")).is_absolute():
            raise VerificationError(f"{row['file']}: expected a file beside the document", f"points[{i}].file")
        if "file" in row and (folder / row["file"]).is_file():
            files[i] = row["file"]

    # The machine: the links in the document, the one of its name, or that of a schedule.
    known = None if "links" in given else named()
    machine = link_columns.read(given) if "links" in given else known
    if machine is None and files:
        machine = _load(folder, *next(iter(files.items()))).topology
    if machine is None:
        raise FormatError(f"holds no links, names no schedule files, and {given['name']!r} is no machine known by name")
    for key, value in (("ranks", machine.ranks), ("unit_gbps", show(machine.unit_bandwidth()))):
        if given[key] != value:
            raise VerificationError(f"says {given[key]!r}, the machine has {value!r}", f"topology.{key}")
    return machine, known is not None, files


def point_schedule(doc: dict, i: int, folder: Path, machine: Topology) -> compressed_schedule.CompressedSchedule:
    """Return the schedule in the file of point `i`, which is not replayed.

    Raises VerificationError where it is not the point's, or not of `machine`.
    """
    row, place = doc["points"][i], f"points[{i}]"
    found = _load(folder, i, row["file"])
    same = (found.collective, found.root, found.step_count, found.rounds_per_chunk, found.chunks)
    if same != (doc["collective"], doc["root"], row["steps"], Fraction(row["rounds"], row["chunks"]), row["chunks"]):
        raise VerificationError("its file holds another schedule", place)
    own = found.topology
    if any(key(own) != key(machine) for key in _SAME):
        differs = json_diff.describe(json_diff.plain(own), json_diff.plain(machine), "in the document")
        raise VerificationError(f"its file is for another machine: {differs}", place)
    return found


def _stated(doc: dict, machine: Topology) -> Fraction:
    """Return the bound that the document states, which its certificate proves. Raises VerificationError."""
    certificate, stated = doc["bound"]["certificate"], rational(doc["bound"]["value"])
    if not isinstance(certificate, dict):
        raise VerificationError("there is no certificate: nothing proves this", "bound.certificate")
    if stated <= 0:
        raise VerificationError(f"{show(stated)} is no bound: it must be above 0", "bound.value")
    try:
        proved = bound(certificate, machine)
    except VerificationError as error:
        raise VerificationError(str(error), "bound.certificate") from None
    if proved < stated:
        raise VerificationError(f"the certificate proves {show(proved)}, {show(stated)} is claimed", "bound")
    if _COLLECTIVE_OF.get(certificate["kind"], certificate.get("collective")) != doc["collective"]:
        raise VerificationError("the certificate is for another collective", "bound")
    if certificate.get("root") != doc["root"]:
        raise VerificationError("the certificate is for another root", "bound")
    return stated


def _load(folder: Path, point: int, name: str) -> compressed_schedule.CompressedSchedule:
    """Return the schedule of a point, from a file that is named by its path from the document."""
    try:
        return schedule_archive.load(folder / name)
    except (VerificationError, FormatError) as error:
        message = str(error) if name in str(error) else f"{name}: {error}"
        raise VerificationError(message, f"points[{point}].file") from None


def _called(machine: Topology, place: str) -> str:
    """Return the words for a machine that is known by its links alone, under the name in the document or file."""
    size = f"{counted(machine.ranks, 'rank')}, {counted(len(machine.links), 'link')}"
    return f"the machine written in {place} ({machine.name!r}, {size})"


def _rooted(root: int | None) -> str:
    return "" if root is None else f" with root {root}"


def infeasible(doc: dict) -> str:
    """Check the proof that no schedule exists, on a machine whose links stand in the document; return a line on it.

    Raises VerificationError.
    """
    json_reader.fields(doc, "$", {"schema", "topology", "collective", "max_steps", "certificate"})
    collective = json_reader.one_of(doc["collective"], COLLECTIVES, "$.collective")
    if doc["max_steps"] is not None:
        raise VerificationError("is null where no number of steps is enough", "$.max_steps")
    machine, certificate = link_columns.read(doc["topology"]), doc["certificate"]
    unit = show(machine.unit_bandwidth())
    if doc["topology"].get("unit_gbps", unit) != unit:
        raise VerificationError(
            f"says {doc['topology']['unit_gbps']!r}, the machine has {unit!r}"[:120], "$.topology.unit_gbps"
        )
    if not isinstance(certificate, dict):
        raise VerificationError("there is no certificate: nothing proves this", "$.certificate")
    start, end = unreachable.check(certificate, machine)
    if certificate["collective"] != collective:
        raise VerificationError("the certificate is for another collective", "$.certificate.collective")
    claim = f"{collective} on {_called(machine, 'the document')}{_rooted(certificate['root'])}"
    return f"{claim}: no schedule, rank {start} cannot reach rank {end}, certificate checked"


def _least_steps(doc: dict, machine: Topology) -> bool:
    """Check that `least_steps` are needed: that a rank is so far from another. False where the machine is too large.

    Raises VerificationError where no rank is so far, or a point takes fewer steps.
    """
    least = doc["least_steps"]
    if any(row["steps"] < least for row in doc["points"]):
        raise VerificationError(f"says {least}, a point takes fewer steps", "least_steps")
    if not least:
        return True
    machine = machine.live()
    starts = range(machine.ranks) if doc["root"] is None else (doc["root"],)
    looked = MOST_LOOKED_AT // max(1, len(machine.links))
    if not looked:
        return False
    out: list[list[int]] = [[] for _ in range(machine.ranks + len(machine.switches))]
    for a, b in zip(*ends(machine.links), strict=True):
        a, b = (b, a) if doc["collective"] == "reduce" else (a, b)
        out[int(a)].append(int(b))

    # The first rank that is far enough from another proves it.
    far = 0
    for start in starts[:looked]:
        far = max(far, _farthest(out, machine.ranks, start))
        if far >= least:
            return True
    if looked < len(starts):
        return False
    raise VerificationError(f"says {least}, no rank is farther than {far} from another", "least_steps")


def _farthest(out: list[list[int]], ranks: int, start: int) -> int:
    """Return the greatest distance of a rank from `start`, in ranks that a path enters; switches count nothing."""
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
