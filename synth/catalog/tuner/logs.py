"""Text that other benchmarks print: which one it is, and its times as `Measurement`s."""

from __future__ import annotations

from pathlib import Path

from synth.catalog.tuner import nccl_tests_log, osu_log
from synth.catalog.tuner.measurements import Measurement
from synth.errors import FormatError, UsageError
from synth.model.documents.text_file import text_of

MOST = 64 << 20


def backend(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """``nccl``, or with its own algorithm and protocol ``nccl/ring/LL``: the backend and its options. Raises
    UsageError."""
    name, *more = (part.strip() for part in text.split("/"))
    if not name or len(more) > 2 or not all(more):
        raise UsageError(f"{text!r} is no backend such as nccl, mpi or nccl/ring/LL (its algorithm and protocol)")
    return name.lower(), tuple(zip(("algorithm", "protocol"), more, strict=False))


def load(
    path: Path, name: str, collective: str, ranks: int | None, root: int | None = None, in_place: bool = False
) -> list[Measurement]:
    """The times of the backend `name` (see `backend`) for `collective` in a log of nccl-tests or of OSU's
    micro-benchmarks.

    `ranks`: how many there are; None where the log is to say. `root`: of a rooted collective. Raises FormatError with
    the line, also where the log is of another collective, of another number of ranks, or holds wrong results.
    """
    text = text_of(path, MOST)
    kind, options = backend(name)
    rows = [(i, _untagged(line)) for i, line in enumerate(text.splitlines(), 1)]
    reader = next((module for module in (nccl_tests_log, osu_log) if any(module.heads(line) for _, line in rows)), None)
    if reader is None:
        raise FormatError(
            "is no output of nccl-tests or of OSU's micro-benchmarks: no header line of either was found", str(path)
        )
    found = reader.read(rows, str(path), collective, ranks, in_place)
    return [
        one._replace(label="/".join((kind, *(value for _, value in options))), backend=kind, options=options, root=root)
        for one in found
    ]


def _untagged(line: str) -> str:
    """Without what ``mpirun --tag-output`` puts in front, such as ``[1,0]<stdout>:``."""
    head, found, rest = line.partition("<stdout>:")
    return rest if found and head.startswith("[") else line
