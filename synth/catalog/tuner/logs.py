"""Reader of the output of other benchmarks: nccl-tests and rccl-tests."""

from __future__ import annotations

from pathlib import Path

from synth.catalog.tuner import nccl_tests_json, nccl_tests_log
from synth.catalog.tuner.measurements import Measurement
from synth.catalog.tuner.nccl_tests import measurement
from synth.errors import FormatError, UsageError
from synth.model.documents.foreign_forms import form_of
from synth.model.documents.text_file import text_of

MOST = 64 << 20  # bytes of a log


def backend(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the backend and its options of a text such as ``nccl``, or ``nccl/ring/LL`` with NCCL's algorithm and
    protocol. Raises UsageError."""
    name, *more = (part.strip() for part in text.split("/"))
    if not name or len(more) > 2 or not all(more):
        raise UsageError(f"{text!r} is no backend such as nccl, rccl or nccl/ring/LL (its algorithm and protocol)")
    return name.lower(), tuple(zip(("algorithm", "protocol"), more, strict=False))


def log_text(path: Path) -> str:
    """Return the text of a log of at most `MOST` bytes. Raises FormatError."""
    return text_of(path, MOST)


def load(
    path: Path, name: str, collective: str, ranks: int | None, root: int | None = None, in_place: bool = False
) -> list[Measurement]:
    """Return the times of the backend `name` (see `backend`) for `collective` in a log or JSON of nccl-tests.

    `ranks`: the number of ranks, None to take it from the log. `root`: of a rooted collective. Raises FormatError with
    the line, also where the log is of another collective, of another number of ranks, or holds wrong results.
    """
    text = log_text(path)
    kind, options = backend(name)
    if nccl_tests_json.is_document(text):
        tables, says = [nccl_tests_json.table(text, str(path), in_place)], "times as nccl-tests wrote them"
    else:
        tables, says = nccl_tests_log.tables(text.splitlines(), str(path), in_place), "times as nccl-tests printed them"
    if not tables:
        expected = "is no output of nccl-tests: no line `# size count type .. algbw busbw`"
        raise FormatError(form_of(text) or expected, str(path))
    found = measurement(tables, str(path), collective, ranks, root, says)
    label = "/".join((kind, *(value for _, value in options)))
    return [found._replace(label=label, backend=kind, options=options, root=root)]
