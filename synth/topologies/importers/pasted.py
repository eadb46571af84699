"""Text that people paste: tables and documents found among prompts, quotes, log prefixes and wrapped lines.

    clean(text)         without terminal escapes, no-break spaces and Windows line ends
    tables(lines, ...)  the matrices of GPUs in a text, each row with as many cells as its header has columns
    xml_of, json_of     the document within a text

A table is read whole or refused: rows and columns name the same GPUs, and wrapped lines are joined only if all ways to
join them that fit give the same cells.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from itertools import pairwise

from synth.errors import FormatError

MOST_GPUS = 256
MOST_TABLES = 64
# GPU0 of nvidia-smi and rocm-smi, the PCI address of amd-smi.
GPU = r"(?:GPU(?:0|[1-9]\d{0,3})|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])"
# nvidia-smi's words between two devices, those of `topo -p2p`, and AMD's. Longer words stand before their beginnings.
LINK_CELL = r"(?>NV[1-9]\d?|PIX|PXB|PHB|NODE|SYS|SOC|X)"
P2P_CELL = r"(?>OK|CNS|GNS|TNS|NS|DR|X|U)"
ROCM_CELL = r"(?>XGMI|PCIE|SELF|UNKNOWN|N/A|ENABLED|DISABLED|True|False|NC|64,32|C|T|F)"
# Weights, hops, and <BW from>-<BW to> in MB/s. Nothing tells where numbers that ran together begin.
NUMBER = r"\d{1,9}(?:-\d{1,9})?"
# A word of one or more cells, of which none is matched in two ways.
CELLS = rf"(?:{LINK_CELL}++|{P2P_CELL}++|{ROCM_CELL}++|{NUMBER})"

# Keys of the JSON of rocm-smi and amd-smi.
AMD_JSON = re.compile(r'"(?:\(Topology\) [^"\n]*|link_type|link_status|num_hops|numa_bandwidth)"\s*:')
# Control sequences (ECMA-48) and those that set a window's title.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\^_]")
_SPACES = re.compile(r"[\xa0\u2000-\u200a\u202f\u205f\u3000]")
_INVISIBLE = re.compile(r"[\u200b-\u200f\u2060\ufeff]")
# What stands before a table in its lines has at most 200 characters.
_HEADER = re.compile(rf"(?P<prefix>.{{0,200}}?)(?<![^\s>:|\]]){GPU}(?=\s|GPU|NIC|CPU|mlx|$)(?!\s*:)")
# Words of the header that end the columns of the matrix: CPU Affinity, NUMA Affinity, GPU NUMA ID.
_AFFINITY = re.compile(r"(?:CPU|NUMA|GPU)(?![0-9A-Za-z])")
_NAMES = re.compile(rf"{GPU}|NIC\d{{1,4}}|mlx\d+_\d+|CPU|NUMA")
_TITLE = re.compile(r"={3}|\bTABLE:|^\s*(?:NIC )?Legend:")


@dataclass(frozen=True)
class GpuTable:
    """A matrix: the GPUs among its columns in their order, `cells[row]` to these, and what follows the cells of a row.

    `line` is the header's; `above` has the last two lines of text before it; `others` are the other columns.
    """

    line: int
    above: tuple[str, ...]
    head: str
    gpus: tuple[str, ...]
    others: tuple[str, ...]
    cells: dict[str, tuple[str, ...]]
    rest: dict[str, str]
    lines: dict[str, int]


def clean(text: str) -> str:
    """Return `text` without terminal escapes and HTML's entities, with plain spaces and line ends."""
    if re.search(r"&(?:lt|quot);", text) and not re.search(r"<\w", text):
        text = html.unescape(text)
    text = _INVISIBLE.sub("", _ESCAPES.sub("", text.replace("&nbsp;", " ")))
    return _SPACES.sub(" ", text).replace("\r\n", "\n").replace("\r", "\n")


def is_table(text: str) -> bool:
    """True if a line of `text` looks like the header of a matrix of GPUs."""
    return any(_is_header(line) for line in text.split("\n"))


def tables(lines: list[str], file: str) -> list[GpuTable]:
    """Return the matrices of GPUs in the text. Raises FormatError for one that is torn, with its line."""
    heads: list[int] = []
    names: set[str] = set()
    for number, line in enumerate(lines):
        if not _is_header(line):
            names = set()
            continue
        # A header that is wrapped goes on in lines that look like headers, with other names.
        more = set(re.findall(GPU, line))
        if not names or names & more:
            heads.append(number)
            names = set()
        names |= more
        if len(heads) > MOST_TABLES:
            raise FormatError(f"holds more than {MOST_TABLES} tables of GPUs", file, number + 1)
    return [_table(lines, head, heads, file) for head in heads]


def _is_header(line: str) -> bool:
    """True if the line names columns: GPU0 GPU1, or GPU0 alone before the columns of NICs and CPUs."""
    match = _HEADER.match(line)
    if not match:
        return False
    second = line[len(match["prefix"]) :].split()[1:2]
    return not second or bool(re.match(rf"{GPU}|NIC\d|mlx\d|CPU\b|NUMA\b", second[0]))


def _prefix(line: str) -> str:
    """The text before the table in the line of its header: a quote's mark, a tag of mpirun, a time."""
    match = _HEADER.match(line)
    return match["prefix"].rstrip() if match else ""


def _shape(prefix: str) -> re.Pattern[str]:
    """A pattern of prefixes that differ in numbers alone, such as times."""
    return re.compile(re.sub(r"\d+", lambda _: r"\d+", re.escape(prefix)))


def _table(lines: list[str], head: int, heads: list[int], file: str) -> GpuTable:
    """The table whose header begins in line `head`, up to the next one of the same stream of output."""
    prefix = _prefix(lines[head])
    above = [line.strip() for line in lines[:head] if line.strip()][-2:]
    read: list[GpuTable] = []
    fault: FormatError | None = None
    # Lines with the very prefix of the header are its table. If these are none, those that differ in numbers alone are.
    for pattern in (re.compile(re.escape(prefix)), _shape(prefix)) if prefix else (re.compile(""),):
        end = next((i for i in heads if i > head and pattern.fullmatch(_prefix(lines[i]))), len(lines))
        raw = lines[head:end]
        bare = []
        for line in raw:
            match = pattern.match(line)
            if match:
                bare.append(line[match.end() :])
            else:
                bare.append("" if _shape(prefix).match(line) else line)
        # The ways to join wrapped lines: each gives the header and the rows, each by its first line.
        parts: list[list[int]] = [[0]]
        names: set[str] = set()
        blank = False
        for i, line in enumerate(bare[1:], 1):
            words = line.split()
            if _TITLE.search(line):
                break
            # A row is a name and cells. Names are those of GPUs and of the header, which is whole where the rows begin.
            row = len(words) > 1 and bool(re.fullmatch(CELLS, words[1]))
            if row and not names and re.fullmatch(GPU, words[0]):
                header = [bare[j] for j in parts[0]]
                names = {"", *_columns("".join(header)), *_columns(" ".join(header))}
            if not words:
                blank = True
            elif (re.fullmatch(GPU, words[0]) and (row or (names and not blank))) or (row and words[0] in names):
                parts.append([i])
                blank = False
            elif not blank:
                parts[-1].append(i)
        # Terminals cut lines at one width: a line of that width goes on within a word, a shorter one after it.
        width = max(len(raw[i]) for members in parts for i in members)
        wrapped = any(len(members) > 1 for members in parts)
        ways = []
        for cut in (True, False) if wrapped else (False,):
            joined = {}
            for members in parts:
                pieces = [bare[members[0]]]
                for before, i in pairwise(members):
                    pieces += ["" if cut and len(raw[before]) == width else " ", bare[i]]
                joined[members[0]] = "".join(pieces)
            ways.append(joined)
        for joined in ways:
            try:
                # The table of a header and rows, each in one line.
                columns = _columns(joined[0])
                gpus = [name for name in columns if re.fullmatch(GPU, name)]
                if len(set(columns)) < len(columns):
                    raise FormatError("names a column twice", file, head + 1)
                if not gpus:
                    raise FormatError("names no GPU in the header of a table; words of it ran together", file, head + 1)
                if len(gpus) > MOST_GPUS:
                    raise FormatError(f"has {len(gpus)} GPUs, at most {MOST_GPUS} are supported", file, head + 1)
                cells: dict[str, tuple[str, ...]] = {}
                rest: dict[str, str] = {}
                numbers: dict[str, int] = {}
                for first, text in joined.items():
                    name = text.split()[0]
                    if first == 0 or not re.fullmatch(GPU, name):
                        continue
                    if name in numbers:
                        raise FormatError(f"gives the row {name} twice", file, head + first + 1)
                    numbers[name] = head + first + 1
                missing = [name for name in gpus if name not in numbers]
                if missing:
                    raise FormatError(f"has no row for {_listed(missing)}; the text is cut off", file, head + 1)
                extra = [name for name in numbers if name not in gpus]
                if extra:
                    raise FormatError(
                        f"has rows for {_listed(extra)} and no columns of these names; the text is cut off, or words "
                        f"ran together",
                        file,
                        head + 1,
                    )
                for name, number in numbers.items():
                    row, rest[name] = _cells(joined[number - head - 1], columns, file, number)
                    cells[name] = tuple(cell for column, cell in zip(columns, row, strict=True) if column in gpus)
                others = [name for name in columns if name not in gpus]
                read.append(
                    GpuTable(head + 1, tuple(above), joined[0], tuple(gpus), tuple(others), cells, rest, numbers)
                )
            except FormatError as error:
                fault = fault or error
    if not read:
        raise fault or FormatError("holds no table", file, head + 1)
    if any((table.gpus, table.cells) != (read[0].gpus, read[0].cells) for table in read):
        raise FormatError("has lines of a table that can be joined in two ways; print it to a file", file, head + 1)
    return read[0]


def _listed(names: list[str]) -> str:
    return ", ".join(names[:16]) + (f" and {len(names) - 16} more" if len(names) > 16 else "")


def _columns(text: str) -> list[str]:
    """The names of the columns in a header, those that ran together apart."""
    columns: list[str] = []
    for word in text.split():
        names = [word]
        if re.fullmatch(rf"(?>{_NAMES.pattern})++", word):
            names = _NAMES.findall(word)
        for name in names:
            if _AFFINITY.fullmatch(name):
                return columns
            columns.append(name)
    return columns


def _cells(text: str, columns: list[str], file: str, line: int) -> tuple[list[str], str]:
    """The cells of a row, cells that ran together apart, and the text after them."""
    name, *words = text.split()
    cells: list[str] = []
    while words and len(cells) < len(columns):
        kind = next((cell for cell in (LINK_CELL, P2P_CELL, ROCM_CELL) if re.fullmatch(f"{cell}++", words[0])), None)
        if kind is None and not re.fullmatch(NUMBER, words[0]):
            break
        cells += re.findall(kind or NUMBER, words.pop(0))
    if len(cells) < len(columns) and words:
        raise FormatError(
            f"{name} to {columns[len(cells)]}: {words[0][:20]!r} is not one of NV#, PIX, PXB, PHB, NODE, SYS (X: "
            f"itself), nor a number, XGMI or PCIE of AMD's tools",
            file,
            line,
        )
    if len(cells) != len(columns):
        most = "the text is cut off" if len(cells) < len(columns) else "words of the header ran together or are missing"
        raise FormatError(f"the row {name} has {len(cells)} of {len(columns)} columns; {most}", file, line)
    if words and re.fullmatch(rf"{LINK_CELL}++|XGMI|PCIE", words[0]):
        raise FormatError(
            f"the row {name} has more than the {len(columns)} columns of the header; words of it ran together or are "
            f"missing",
            file,
            line,
        )
    return cells, " ".join(words)


def xml_of(text: str, file: str) -> str:
    """Return the <system> element in a text, without what stands around it; lines keep their numbers.

    Raises FormatError for a second one, for another dump around it, and for a value that runs over a line's end.
    """
    if not re.search(r"<system\b", text) or re.search(r"<!\s*(DOCTYPE|ENTITY)", text):
        return text
    if text.count("</system>") > 1:
        raise FormatError("holds two <system> elements; each is a machine, split the file", file)
    lines = text.split("\n")
    first = next(i for i, line in enumerate(lines) if re.search(r"<system\b", line))
    last = next((i for i, line in enumerate(lines) if i >= first and "</system>" in line), len(lines) - 1)
    body = lines[first : last + 1]
    prefix = body[0].partition("<system")[0]
    if prefix.strip() and all(_shape(prefix.rstrip()).match(line) for line in body if line.strip()):
        body = [_shape(prefix.rstrip()).sub("", line, count=1) for line in body]
    joined = "\n".join(body)
    joined = joined[joined.index("<system") :].partition("</system>")
    found = "".join(joined[:2])
    beside = html.unescape("\n".join(lines[:first] + lines[last + 1 :]))
    if is_table(beside) or AMD_JSON.search(beside) or re.search(r"<system\b", beside):
        raise FormatError("holds another dump beside the <system>; take one of the two", file, first + 1)
    split = re.search(r'="[^"<>\n]*\n', found)
    if split:
        line = first + 1 + found[: split.start()].count("\n")
        raise FormatError("a value runs over the end of a line: the text is wrapped, take the file itself", file, line)
    return "\n" * first + found


def json_of(text: str, file: str) -> str:
    """Return the JSON of amd-smi or rocm-smi in a text, without what stands around it.

    Raises FormatError for a table of GPUs around it.
    """
    if is_table(text):
        raise FormatError("holds a table of GPUs beside the JSON; take one of the two", file)
    lines = text.split("\n")
    for first, line in enumerate(lines):
        start = re.match(r'(.*?)(?:[\[{]\s*$|(?:\[\s*)?\{\s*"(?:system|gpu|gpu_data|card\d+)")', line)
        if start:
            pattern = _shape(start[1].rstrip())
            bare = []
            for row in lines[first:]:
                match = pattern.match(row)
                bare.append(row[match.end() :] if match else row)
            inner = "\n".join(bare)
            end = max(inner.rfind("}"), inner.rfind("]"))
            return "\n" * first + inner[: end + 1]
    return text
