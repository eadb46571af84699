"""Reading files that strangers wrote: bounded in size, nesting and expansion, with numbers kept as their text.

A document is a tree of dict, list, str, bool, None and `Plain`: the text of a number (or, in YAML, of any unquoted
scalar), from which `Fields` reads exact values. Nothing is ever constructed from a tag, and nothing is expanded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NoReturn

from synth.errors import FormatError
from synth.model.documents import json_reader
from synth.model.rational import rational

MAX_DEPTH = 32
_LARGEST, _SMALLEST = Fraction(10**9), Fraction(1, 10**9)
_INTEGER = re.compile(r"-?\d{1,9}")


class Plain(str):
    """The text of an unquoted scalar."""

    __slots__ = ()


def parse_json(text: str, file: str) -> Any:
    """The document in JSON `text`. Raises FormatError with line and column; repeated keys are refused."""

    with json_reader.faults_of(file):
        return json.loads(
            text, parse_int=Plain, parse_float=Plain, parse_constant=Plain, object_pairs_hook=json_reader.once
        )


def parse_yaml(text: str, file: str) -> Any:
    """The document in YAML `text`. Raises FormatError with the line; aliases, tags and repeated keys are refused."""
    import yaml

    # Events, not objects: nothing is built from a tag or expanded. The last item of `stack` is the container that is
    # being read, and that of `keys` the key that waits for its value.
    loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    holder: list[Any] = []
    stack: list[list[Any] | dict[str, Any]] = [holder]
    keys: list[str | None] = [None]

    def put(value: Any, line: int) -> None:
        top = stack[-1]
        if isinstance(top, list):
            top.append(value)
        elif keys[-1] is None:
            if not isinstance(value, str):
                raise FormatError("a key must be text", file, line)
            if value in top:
                raise FormatError(f"the key {value[:40]!r} is given twice", file, line)
            keys[-1] = str(value)
        else:
            top[keys[-1]] = value
            keys[-1] = None

    try:
        for event in yaml.parse(text, Loader=loader):
            line = event.start_mark.line + 1
            if isinstance(event, yaml.AliasEvent):
                raise FormatError(f"the alias *{event.anchor[:40]} is refused; write the value out", file, line)
            if getattr(event, "tag", None) is not None:
                raise FormatError(f"the tag {event.tag[:40]} is refused; write the plain value", file, line)
            if isinstance(event, yaml.ScalarEvent):
                if not event.implicit[0]:  # it is quoted
                    put(event.value, line)
                else:
                    put(None if event.value in ("", "~", "null") else Plain(event.value), line)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                if len(stack) > MAX_DEPTH:
                    raise FormatError("is nested too deeply", file, line)
                if isinstance(stack[-1], dict) and keys[-1] is None:
                    raise FormatError("a key must be text", file, line)
                stack.append({} if isinstance(event, yaml.MappingStartEvent) else [])
                keys.append(None)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                keys.pop()
                put(stack.pop(), line)
            elif isinstance(event, yaml.DocumentStartEvent) and holder:
                raise FormatError("holds a second document", file, line)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        said = "is nested too deeply" if "nesting" in what else f"is not YAML: {what}"
        raise FormatError(said, file, mark.line + 1 if mark else None) from None
    return holder[0] if holder else None


def plain(value: Any) -> Any:
    """Return a value in memory as a parsed document has it: numbers as their exact text, sets and tuples as lists."""
    match value:
        case None | bool() | str():
            return value
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case set() | frozenset():
            return [plain(item) for item in sorted(value)]
        case list() | tuple() | range():
            return [plain(item) for item in value]
    try:
        return Plain(rational(value))
    except ValueError:
        return value  # refused, with its place, by the reader of the document


class Fields:
    """Checked values out of a document; every failure names `file` and the path inside it."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, message: str, place: str | None) -> NoReturn:
        """Raises FormatError at `place`."""
        raise FormatError(message, self.file, place)

    def mapping(
        self, value: Any, place: str | None, allowed: Iterable[str], needed: Iterable[str] = ()
    ) -> dict[str, Any]:
        """A mapping with no key but the `allowed` and all of the `needed`."""
        if not isinstance(value, dict):
            self.fail(f"expected a mapping, found {_shown(value)}", place)
        allowed = list(allowed)
        for key in value:
            if key not in allowed:
                self.fail(f"unknown key {key[:40]!r}; the keys here are {', '.join(allowed)}", place)
        for key in needed:
            if value.get(key) is None:
                self.fail(f"the key {key!r} is missing", place)
        return value

    def sequence(self, value: Any, place: str, most: int, length: int | None = None) -> list[Any]:
        """A list of at most `most` items, or of exactly `length`."""
        if not isinstance(value, list):
            self.fail(f"expected a list, found {_shown(value)}", place)
        if length is not None and len(value) != length:
            self.fail(f"expected {length} items, found {len(value)}", place)
        if len(value) > most:
            self.fail(f"has {len(value)} items, at most {most} are supported", place)
        return value

    def integer(self, value: Any, place: str, low: int, high: int) -> int:
        """A whole number from `low` to `high`."""
        if not isinstance(value, Plain) or not _INTEGER.fullmatch(value) or not low <= int(value) <= high:
            self.fail(f"expected a whole number from {low} to {high}, found {_shown(value)}", place)
        return int(value)

    def number(self, value: Any, place: str, zero: bool = False) -> Fraction:
        """A positive number (or zero, if `zero`), exactly as written: 25, 12.5 or "7/2"."""
        try:
            found = rational(value if isinstance(value, str) else _shown(value))
        except ValueError:
            self.fail(f"expected a number such as 25, 12.5 or 7/2, found {_shown(value)}", place)
        if found < 0 or (found == 0 and not zero):
            self.fail(f"must be {'at least 0' if zero else 'positive'}, found {_shown(value)}", place)
        if found and not _SMALLEST <= found <= _LARGEST:
            self.fail(f"{_shown(value)} is out of range (1e-9 to 1e9)", place)
        return found

    def boolean(self, value: Any, place: str) -> bool:
        """True or false."""
        if isinstance(value, Plain) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            self.fail(f"expected true or false, found {_shown(value)}", place)
        return value

    def string(self, value: Any, place: str, most: int = 200) -> str:
        """A text of 1 to `most` printable characters."""
        if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
            self.fail(f"expected a text of 1 to {most} printable characters, found {_shown(value)}", place)
        return str(value)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if isinstance(value, Plain):
        return " ".join(str(value)[:40].split())
    return {None: "nothing", True: "true", False: "false"}.get(value) or repr(value[:40])
