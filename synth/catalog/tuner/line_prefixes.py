"""Prefixes of lines: what launchers, containers and log collectors put before each line of a program.

Such as ``0: `` (srun --label), ``[1,0]<stdout>:`` (mpirun --tag-output), ``[0] `` (mpiexec -prepend-rank), a pod's name
(kubectl logs --prefix), ``nccl-1  | `` (docker compose), ``[default0]:`` (torchrun), and a time of day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

# Times of day differ from line to line; all else of a prefix is the same in all lines of one source.
_TIME = re.compile(
    r"\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {1,2}\d{1,2} "
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?(?: \d{4})?"
    r"|(?<![\d:])\d\d:\d\d:\d\d(?:[.,]\d+)?(?![\d:])"
    r"|(?<![\d.])\d+\.\d{6,}(?![\d.])"
)
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # colors of terminals
LONGEST = 300  # characters of a prefix

Line = tuple[int, str]


def sources(lines: Iterable[str], start: Callable[[str], int | None]) -> tuple[list[list[Line]], list[Line]]:
    """Return, for each source of tables, its numbered lines without their prefix, and the lines of no source.

    `start`: the index at which a header begins in a line; None for other lines. What stands before a header, up to
    times of day, is the prefix of the lines of its source.
    """
    numbered = [(number, _ESCAPES.sub("", line)) for number, line in enumerate(lines, 1)]
    forms: dict[str, re.Pattern[str]] = {}
    for _, line in numbered:
        begin = start(line)
        if begin is not None and begin <= LONGEST:
            form = _form(line[:begin])
            forms.setdefault(form, re.compile(form))
    # A line is of the source with the longest prefix that it has.
    order = sorted(forms, key=len, reverse=True)
    found: dict[str, list[Line]] = {form: [] for form in forms}
    others: list[Line] = []
    for number, line in numbered:
        for form in order:
            match = forms[form].match(line)
            if match:
                found[form].append((number, line[match.end() :]))
                break
        else:
            others.append((number, line))
    return list(found.values()), others


def _form(prefix: str) -> str:
    """Return the regular expression of a prefix: its characters, any time for a time, any blanks for blanks."""
    if not prefix.strip():
        return r"\s*"
    parts: Sequence[str] = _TIME.split(prefix.strip())
    texts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in parts]
    end = r"(?=[\s#]|$)" if prefix.rstrip()[-1:].isalnum() else ""
    return r"\s*" + f"(?:{_TIME.pattern})".join(texts) + end
