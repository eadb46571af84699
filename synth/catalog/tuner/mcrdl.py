"""A tuning table in MCR-DL's form read as a plan; `synth.export.plans.mcrdl` writes such tables."""

from __future__ import annotations

import re
from pathlib import Path

from synth.errors import FormatError, UsageError
from synth.export.plans.mcrdl import HEADER, IMPORTED
from synth.model.collective import collective as named
from synth.model.documents.text_file import text_of
from synth.model.tuning_plan import Algorithm, Plan, Range, Table

MPI = ("mpi", "mvapich", "openmpi", "ompi", "mpich", "spectrum")  # beginnings of what MPI libraries are called
_TITLE = re.compile(r"([\w-]+)\s+on\s+(\d+)\s+(?:GPUs|ranks)", re.IGNORECASE)
_FILE = re.compile(r"([a-z]+(?:-[a-z]+)*)_(\d+)gpu", re.IGNORECASE)


def load(path: Path, collective: str | None = None, ranks: int | None = None) -> Plan:
    """Return the plan in a file of ``bytes,backend`` rows by growing size, below lines of comment.

    A backend serves from its size up to the next row's. Operation and number of GPUs stand in a comment (``allgather on
    16 GPUs``) or in the file's name (``.._allgather_16gpu.csv``), unless they are given. Raises FormatError with the
    line.
    """
    comments, rows = _rows(path)
    name, count = _about(path, comments, collective, ranks)
    labels = list(dict.fromkeys(label for _, label in rows))
    algorithms = tuple(Algorithm(label, _backend(label)) for label in labels)
    sizes = tuple(size for size, _ in rows)
    ranges: list[Range] = []
    for i, (size, label) in enumerate(rows):
        order = (labels.index(label),)
        high = sizes[i + 1] - 1 if i + 1 < len(rows) else size
        if ranges and ranges[-1].order == order:
            ranges[-1] = ranges[-1]._replace(high=high)
        else:
            ranges.append(Range(size, high, order))
    unknown = (None,) * len(sizes)
    table = Table(
        name, count, tuple(ranges), sizes, unknown, unknown, chosen=tuple(labels.index(label) for _, label in rows)
    )
    return Plan(algorithms, (table,), IMPORTED, "\n".join(comments))


def _rows(path: Path) -> tuple[list[str], list[tuple[int, str]]]:
    comments: list[str] = []
    rows: list[tuple[int, str]] = []
    headed = False
    for number, raw in enumerate(text_of(path).splitlines(), 1):
        line = raw.strip()
        if line.startswith("#") and not rows:
            comments.append(line[1:].strip())
        elif not line or line.startswith("#"):
            continue
        elif not headed:
            if line.replace(" ", "").lower() != HEADER:
                raise FormatError(f"expected the header {HEADER!r}, found {line[:60]!r}", str(path), number)
            headed = True
        else:
            rows.append(_row(line, rows, str(path), number))
    if not rows:
        raise FormatError(f"has no rows below a header {HEADER!r}", str(path))
    return comments, rows


def _row(line: str, before: list[tuple[int, str]], file: str, number: int) -> tuple[int, str]:
    size, _, label = (part.strip() for part in line.partition(","))
    if not size.isdecimal() or not label or "," in label:
        raise FormatError(f"{line[:60]!r} is not a number of bytes and a backend, as in 256,NCCL", file, number)
    if before and int(size) <= before[-1][0]:
        raise FormatError(f"{size} bytes after {before[-1][0]}: sizes grow", file, number)
    return int(size), label


def _about(path: Path, comments: list[str], collective: str | None, ranks: int | None) -> tuple[str, int]:
    """Return the collective and the number of ranks of a table: those of its comments and of the file's name, which
    must agree with the arguments."""
    collective = collective and (_known(collective) or collective)
    for found in (*(_TITLE.search(line) for line in comments), _FILE.search(path.stem)):
        name = _known(found[1]) if found else None
        if found is None or name is None:
            continue
        collective, ranks = collective or name, ranks or int(found[2])
        if (name, int(found[2])) != (collective, ranks):
            raise FormatError(
                f"says {found[0][:60]!r}, but {collective} on {ranks} GPUs is asked for, or said elsewhere", str(path)
            )
    if collective is None or ranks is None:
        raise FormatError(
            "does not say of which operation and how many GPUs it is: no comment such as 'allgather on 16 GPUs', no "
            "file name such as mcrdl_allgather_16gpu.csv",
            str(path),
        )
    return collective, ranks


def _known(name: str) -> str | None:
    try:
        return named(name.replace("_", "-"), 2).name
    except UsageError:
        return None


def _backend(label: str) -> str:
    low = label.lower()
    return "mpi" if low.startswith(MPI) else low
