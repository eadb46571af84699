"""Types of option values: durations, sizes, costs of messages, lists of ranks, chunk counts; completion of names."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from synth.errors import FormatError
from synth.model.documents.int_ranges import read
from synth.model.documents.text_file import text_of
from synth.model.rational import duration, size_bytes

if TYPE_CHECKING:
    from synth.program.message_cost import MessageCost


class Parsed(click.ParamType):
    """A type whose values are read from text by `parse`, which raises ValueError with a sentence.

    A list, of synth.toml, is text with commas; other values, such as defaults, are taken as they are.
    """

    name = "value"
    parse: Callable[..., Any]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As `parse` returns it."""
        if isinstance(value, list):
            value = ",".join(map(str, value))
        if not isinstance(value, str | int | float):
            return value
        try:
            return self.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(Parsed):
    """Seconds, above 0: ``30s``, ``5m``, ``1h30m``, or a bare number of seconds."""

    name = "duration"
    parse = staticmethod(duration)


class Size(Parsed):
    """Bytes, at least 1: ``64``, ``1KB`` (1024 bytes), ``1.5MB``, ``1GB``."""

    name = "size"
    parse = staticmethod(size_bytes)


class AnySize(Parsed):
    """Bytes, 0 too: a call of no elements is a call."""

    name = "size"

    def parse(self, text: str) -> int:
        """As a whole number of bytes >= 0."""
        return 0 if text.strip() == "0" else size_bytes(text)


class PerSend(Parsed):
    """A cost of messages at either end, such as ``0.3us``."""

    name = "time"

    def parse(self, text: str) -> MessageCost:
        """As the cost of a message."""
        from synth.program.message_cost import MessageCost

        return MessageCost.parse(text)


class Ranks(Parsed):
    """Distinct ranks, or other whole numbers: ``0,1,5`` or ``0-3,7``."""

    name = "ranks"

    def __init__(self, what: str = "ranks") -> None:
        """`what`: what the numbers are, in messages."""
        self.what = what

    def parse(self, text: str) -> tuple[int, ...]:
        """As a tuple, in the order given."""
        try:
            ranks = tuple(read(text))
        except ValueError:
            raise ValueError(f"{text!r} is not a list of {self.what} such as 0,1,5 or 0-3") from None
        for number in ranks:
            if ranks.count(number) > 1:
                raise ValueError(f"{text!r} names {number} twice")
        return ranks


class Places(Parsed):
    """The GPU, by its number, on which each rank runs: ``0,0,1,1`` puts ranks 0 and 1 on GPU 0."""

    name = "devices"

    def parse(self, text: str) -> tuple[int, ...]:
        """As a tuple, by rank."""
        parts = text.split(",")
        if not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"{text!r} does not name a device for each rank, as 0,0,1,1 does for four")
        return tuple(map(int, parts))


class Counts(Parsed):
    """Chunk counts: ``2,1,0,3`` per rank; rows split by ``;`` per pair; or a file with one row a line."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As a list of ints, or a list of lists for several rows."""
        return value if isinstance(value, list) else super().convert(value, param, ctx)

    def parse(self, text: str) -> list[int] | list[list[int]]:
        """As `convert` returns it."""
        # Numbers stand in the text itself, or in a file.
        rows_of = text
        if not re.fullmatch(r"[\d\s,;]*", text):
            try:
                rows_of = text_of(Path(text))
            except FormatError:
                counts = "chunk counts such as 2,1,0,3 (rows split by ';')"
                raise ValueError(f"{text!r} is neither {counts} nor a file that holds them") from None
        rows = [row.replace(",", " ").split() for row in re.split(r"[;\n]", rows_of) if row.strip()]
        if not rows or not all(cell.isdecimal() for row in rows for cell in row):
            raise ValueError(f"{text!r}: chunk counts are whole numbers such as 2,1,0,3")
        found = [list(map(int, row)) for row in rows]
        return found[0] if len(found) == 1 else found


class LogFile(Parsed):
    """``nccl=FILE``, ``nccl/ring/LL=FILE``."""

    name = "log"

    def parse(self, text: str) -> tuple[str, Path]:
        """As (backend, file)."""
        backend, _, file = text.partition("=")
        if not backend or not file:
            raise ValueError(f"{text!r} is not BACKEND=FILE, such as nccl=nccl.txt or rccl=rccl.txt")
        return backend, Path(file)


class LowerCase(Parsed):
    """A name in lower case."""

    name = "name"
    parse = staticmethod(str.lower)


class Positive(Parsed):
    """A whole number >= 1."""

    name = "number"

    def parse(self, text: str) -> int:
        """As an int."""
        if not text.strip().isdecimal() or int(text) < 1:
            raise ValueError(f"{text.strip()!r} is not a whole number >= 1")
        return int(text)


MOST = 64  # sizes at a time


class Sizes(Parsed):
    """``LOW:HIGH:xF`` (each F times the one before; x`factor` unless given), or sizes with commas. Bytes, rising.

    As nccl-tests counts with ``-b LOW -e HIGH -f F``: HIGH itself is in where a step lands on it.
    """

    name = "sizes"

    def __init__(self, factor: int = 4) -> None:
        self.factor = str(factor)

    def parse(self, text: str) -> tuple[int, ...]:
        """As a tuple of whole numbers of bytes >= 1."""
        try:
            sizes = self._range(text) if ":" in text else sorted(set(map(size_bytes, text.split(","))))
        except ValueError as error:
            raise ValueError(f"{error}; sizes are written 1KiB:1GiB:x4 or 1KB,6MB") from None
        if len(sizes) > MOST:
            raise ValueError(f"{text!r} is {len(sizes)} sizes; at most {MOST} at a time")
        return tuple(sizes)

    def _range(self, text: str) -> list[int]:
        # HIGH is in where a step lands on it.
        low, high, *step = text.split(":")
        factor = step[0].lower().removeprefix("x") if step else self.factor
        first, last = size_bytes(low), size_bytes(high)
        if len(step) > 1 or not factor.isdecimal() or int(factor) < 2:
            raise ValueError(f"{text!r}: the step is a whole factor >= 2, such as x4")
        if first > last:
            raise ValueError(f"{text!r} begins above its end")
        sizes = []
        while first <= last:
            sizes.append(first)
            first *= int(factor)
        return sizes


def names_of(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the completion of the names in a table of `synth list`, of the last of several with commas."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from synth.commands.lists import listed

        before, comma, last = incomplete.rpartition(",")
        names = [name for name, *_ in listed(kind) if name.startswith(last.lower())]
        return [CompletionItem(before + comma + name) for name in names] or [CompletionItem(incomplete, type="file")]

    return complete
