"""Reader of the output of other benchmarks: nccl-tests, rccl-tests and OSU's micro-benchmarks."""

from __future__ import annotations

from pathlib import Path

from synth.catalog.tuner import nccl_tests_json, nccl_tests_log, osu_log
from synth.catalog.tuner.measurements import Measurement
from synth.errors import FormatError, UsageError
from synth.model.documents.text_file import text_of

MOST = 64 << 20  # bytes of a log


def backend(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the backend and its options of a text such as ``nccl``, or ``nccl/ring/LL`` with NCCL's algorithm and
    protocol. Raises UsageError."""
    name, *more = (part.strip() for part in text.split("/"))
    if not name or len(more) > 2 or not all(more):
        raise UsageError(f"{text!r} is no backend such as nccl, mpi or nccl/ring/LL (its algorithm and protocol)")
    return name.lower(), tuple(zip(("algorithm", "protocol"), more, strict=False))


def log_text(path: Path) -> str:
    """Return the text of a log of at most `MOST` bytes. Raises FormatError."""
    return text_of(path, MOST)


def load(
    path: Path, name: str, collective: str, ranks: int | None, root: int | None = None, in_place: bool = False
) -> list[Measurement]:
    """Return the times of the backend `name` (see `backend`) for `collective` in a log or JSON of nccl-tests, or in a
    log of OSU's micro-benchmarks.

    `ranks`: the number of ranks, None to take it from the log. `root`: of a rooted collective. Raises FormatError with
    the line, also where the log is of another collective, of another number of ranks, or holds wrong results.
    """
    text = log_text(path)
    kind, options = backend(name)
    rows = [(i, _untagged(line)) for i, line in enumerate(text.splitlines(), 1)]
    if nccl_tests_json.is_document(text):
        measurements = nccl_tests_json.read(text, str(path), collective, ranks, in_place)
    elif any(nccl_tests_log.is_header(line) for _, line in rows):
        measurements = nccl_tests_log.read(rows, str(path), collective, ranks, in_place)
    elif any(osu_log.is_header(line) for _, line in rows):
        measurements = osu_log.read(rows, str(path), collective, ranks, in_place)
    else:
        raise FormatError(
            "is no output of nccl-tests or of OSU's micro-benchmarks: no header line of either was found", str(path)
        )
    label = "/".join((kind, *(value for _, value in options)))
    return [m._replace(label=label, backend=kind, options=options, root=root) for m in measurements]


def _untagged(line: str) -> str:
    """Return the line without the prefix of ``mpirun --tag-output``, such as ``[1,0]<stdout>:``."""
    head, found, rest = line.partition("<stdout>:")
    return rest if found and head.startswith("[") else line
