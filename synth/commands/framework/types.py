"""Types of option values: durations, sizes, costs of messages, lists of ranks, chunk counts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from synth.errors import FormatError
from synth.model.documents.int_ranges import read
from synth.model.documents.text_file import text_of
from synth.model.rational import duration, size_bytes
from synth.program.message_cost import MessageCost


class Duration(click.ParamType):
    """Seconds: ``30s``, ``5m``, ``1h30m``, or a bare number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As a number of seconds > 0."""
        if isinstance(value, float):
            return value
        try:
            return duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Size(click.ParamType):
    """Bytes: ``64``, ``1KB`` (1024 bytes), ``1.5MB``, ``1GB``."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As a whole number of bytes >= 1."""
        try:
            return size_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class AnySize(Size):
    """Bytes, 0 too: a call of no elements is a call."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As a whole number of bytes >= 0."""
        return 0 if str(value).strip() == "0" else super().convert(value, param, ctx)


class PerSend(click.ParamType):
    """A cost of messages at either end: ``0.3us`` in every protocol, or ``Simple=1us,LL=300ns``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> MessageCost:
        """As a MessageCost."""
        if isinstance(value, MessageCost):
            return value
        try:
            return MessageCost.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Ranks(click.ParamType):
    """Distinct ranks, or other whole numbers: ``0,1,5`` or ``0-3,7``."""

    name = "ranks"

    def __init__(self, what: str = "ranks") -> None:
        """`what`: what the numbers are, in messages."""
        self.what = what

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """As a tuple, in the order given."""
        if isinstance(value, tuple):
            return value
        try:
            ranks = tuple(read(",".join(map(str, value)) if isinstance(value, list) else str(value)))
        except ValueError:
            self.fail(f"{value!r} is not a list of {self.what} such as 0,1,5 or 0-3", param, ctx)
        if len(set(ranks)) != len(ranks):
            twice = next(number for number in ranks if ranks.count(number) > 1)
            self.fail(f"{value!r} names {twice} twice", param, ctx)
        return ranks


class Places(click.ParamType):
    """The GPU, by its number, on which each rank runs: ``0,0,1,1`` puts ranks 0 and 1 on GPU 0."""

    name = "devices"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """As a tuple, by rank."""
        if isinstance(value, tuple):
            return value
        parts = list(map(str, value)) if isinstance(value, list) else str(value).split(",")
        if not all(part.strip().isdecimal() for part in parts):
            self.fail(f"{value!r} does not name a device for each rank, as 0,0,1,1 does for four", param, ctx)
        return tuple(int(part) for part in parts)


class Counts(click.ParamType):
    """Chunk counts: ``2,1,0,3`` per rank; rows split by ``;`` per pair; or a file with one row a line."""

    name = "counts"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[int] | list[list[int]]:
        """As a list of ints, or a list of lists for several rows."""
        if not isinstance(value, str):
            return value
        text = value
        if not re.fullmatch(r"[\d\s,;]*", value):
            try:
                text = text_of(Path(value))
            except FormatError:
                self.fail(
                    f"{value!r} is neither chunk counts such as 2,1,0,3 (rows split by ';') nor a file that holds them",
                    param,
                    ctx,
                )
        rows = [row.replace(",", " ").split() for row in re.split(r"[;\n]", text) if row.strip()]
        if not rows or not all(cell.isdecimal() for row in rows for cell in row):
            self.fail(f"{value!r}: chunk counts are whole numbers such as 2,1,0,3", param, ctx)
        counts = [list(map(int, row)) for row in rows]
        return counts[0] if len(counts) == 1 else counts


class LogFile(click.ParamType):
    """``nccl=FILE``, ``nccl/ring/LL=FILE``."""

    name = "log"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        """As (backend, file)."""
        if isinstance(value, tuple):
            return value
        backend, separator, file = str(value).partition("=")
        if not separator or not backend or not file:
            self.fail(f"{value!r} is not BACKEND=FILE, such as nccl=nccl.txt or rccl=rccl.txt", param, ctx)
        return backend, Path(file)


class LowerCase(click.ParamType):
    """A name in lower case."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """As a text."""
        return str(value).lower()


class Positive(click.ParamType):
    """A whole number >= 1."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """As an int."""
        text = str(value).strip()
        if not text.isdecimal() or int(text) < 1:
            self.fail(f"{text!r} is not a whole number >= 1", param, ctx)
        return int(text)
