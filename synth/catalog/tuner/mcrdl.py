"""A tuning table in MCR-DL's form read as a plan; `synth.export.plans.mcrdl` writes such tables."""

from __future__ import annotations

import re
from pathlib import Path

from synth.errors import FormatError
from synth.export.plans.mcrdl import HEADER, IMPORTED
from synth.model.collective import COLLECTIVES, canonical_name
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
    file = str(path)
    comments, rows = _rows(text_of(path), file)

    # the operation and the ranks: those that are asked for, and all that the file says of them agree
    if collective is not None:
        collective = canonical_name(collective)
    said = [match for line in comments if (match := _TITLE.search(line))]
    if in_name := _FILE.search(path.stem):
        said.append(in_name)
    for match in said:
        name, count = canonical_name(match[1]), int(match[2])
        if name in COLLECTIVES:
            collective, ranks = collective or name, ranks or count
            if (name, count) != (collective, ranks):
                asked = f"{collective} on {ranks} GPUs is asked for, or said elsewhere"
                raise FormatError(f"says {match[0][:60]!r}, but {asked}", file)
    if collective is None or ranks is None:
        raise FormatError(
            "does not say of which operation and how many GPUs it is: no comment such as 'allgather on 16 GPUs', no "
            "file name such as mcrdl_allgather_16gpu.csv",
            file,
        )

    # a range for each run of rows with one backend; it ends below the next one's size, the last at its last row
    labels = list(dict.fromkeys(label for _, label in rows))
    sizes = [size for size, _ in rows]
    ranges: list[Range] = []
    for (size, label), above in zip(rows, [*sizes[1:], sizes[-1] + 1], strict=True):
        order = (labels.index(label),)
        if ranges and ranges[-1].order == order:
            ranges[-1] = ranges[-1]._replace(high=above - 1)
        else:
            ranges.append(Range(size, above - 1, order))
    algorithms = []
    for label in labels:
        low = label.lower()
        algorithms.append(Algorithm(label, "mpi" if low.startswith(MPI) else low))
    unknown = (None,) * len(sizes)
    chosen = tuple(labels.index(label) for _, label in rows)
    table = Table(collective, ranks, tuple(ranges), tuple(sizes), unknown, unknown, chosen=chosen)
    return Plan(tuple(algorithms), (table,), IMPORTED, "\n".join(comments))


def _rows(text: str, file: str) -> tuple[list[str], list[tuple[int, str]]]:
    """Return the comments above the first row, and the (size, backend) rows below the header."""
    comments: list[str] = []
    rows: list[tuple[int, str]] = []
    headed = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if not line or line.startswith("#"):
            if line and not rows:
                comments.append(line[1:].strip())
        elif not headed:
            headed = line.replace(" ", "").lower() == HEADER
            if not headed:
                raise FormatError(f"expected the header {HEADER!r}, found {line[:60]!r}", file, number)
        else:
            size, _, label = (part.strip() for part in line.partition(","))
            if not size.isdecimal() or not label or "," in label:
                raise FormatError(f"{line[:60]!r} is not a number of bytes and a backend, as in 256,NCCL", file, number)
            if rows and int(size) <= rows[-1][0]:
                raise FormatError(f"{size} bytes after {rows[-1][0]}: sizes grow", file, number)
            rows.append((int(size), label))
    if not rows:
        raise FormatError(f"has no rows below a header {HEADER!r}", file)
    return comments, rows
