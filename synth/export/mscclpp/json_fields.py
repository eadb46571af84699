"""Reader of the fields of a JSON document that is not trusted: sizes are bounded, and every fault has its place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NoReturn, TypeVar

from synth.errors import FormatError
from synth.model.documents import json_reader

MAX_BYTES = 64 << 20  # characters of a document that is read
NO_DEFAULTS: Mapping[str, object] = {}

Value = TypeVar("Value")


class Node:
    """A value of the document and its place, such as ``$.gpus[0].threadblocks[3]``.

    Each method that returns a value raises FormatError with the place if the value is not as stated.
    """

    __slots__ = ("file", "place", "value")

    def __init__(self, value: object, place: str, file: str | None) -> None:
        self.value, self.place, self.file = value, place, file

    @staticmethod
    def parse(text: str, file: str | None) -> Node:
        """Return the document of `text`. Raises FormatError if it is not JSON, too large or too deep."""
        if len(text) > MAX_BYTES:
            raise FormatError(f"has {len(text)} characters; at most {MAX_BYTES} are read", file)
        return Node(json_reader.document(text, file), "$", file)

    def fail(self, what: str) -> NoReturn:
        """Raise FormatError at this place."""
        raise FormatError(what, self.file, self.place)

    def expected(self, what: str) -> NoReturn:
        """Raise FormatError: the value is not `what`."""
        self.fail(f"expected {what}, found {self._short()}")

    def fields(
        self, needed: Collection[str], allowed: Collection[str] = (), defaults: Mapping[str, object] = NO_DEFAULTS
    ) -> dict[str, Node]:
        """Return the fields of an object by name: `needed`, those of `allowed` that are there, and `defaults`."""
        if not isinstance(self.value, dict):
            self.expected("an object")
        self.needs(self.value, *needed)
        for key in self.value:
            if key not in needed and key not in allowed and key not in defaults:
                self.fail(f"{key[:40]!r} is not a field that MSCCL++ plans have here")
        return {key: Node(value, f"{self.place}.{key}", self.file) for key, value in {**defaults, **self.value}.items()}

    def items(self, maximum: int) -> list[Node]:
        """Return the entries of a list of at most `maximum` values."""
        if not isinstance(self.value, list):
            self.expected("a list")
        if len(self.value) > maximum:
            self.fail(f"has {len(self.value)} entries; at most {maximum} are taken")
        return [Node(value, f"{self.place}[{i}]", self.file) for i, value in enumerate(self.value)]

    def single(self) -> Node:
        """Return the entry of a list of one value."""
        entries = self.items(2)
        if len(entries) != 1:
            self.fail(f"expected one entry, found {len(entries)}")
        return entries[0]

    def needs(self, fields: Collection[str], *names: str) -> None:
        """Raise FormatError if one of `names` is not among the fields of this object."""
        for name in names:
            if name not in fields:
                self.fail(f"{name!r} is missing")

    def place_in_list(self, number: int) -> None:
        """Raise FormatError unless the value is the place of its object in a list."""
        if self.value != number or type(self.value) is not int:
            self.fail(f"is {self._short()}; ids are places in the list, here {number}")

    def one_of(self, known: Sequence[Value], what: str) -> Value:
        """Return the value of `known` whose number this is."""
        if not known:
            self.fail(f"there is no {what} here")
        return known[self.whole(0, len(known) - 1)]

    def whole(self, low: int, high: int) -> int:
        """Return the value as a whole number from `low` to `high`, both included."""
        if type(self.value) is not int or not low <= self.value <= high:
            self.expected(f"a whole number in {low}..{high}")
        return self.value

    def text(self, choices: Collection[str] = ()) -> str:
        """Return the value as a text, one of `choices` if there are any."""
        if not isinstance(self.value, str) or (choices and self.value not in choices):
            self.expected("one of " + ", ".join(choices) if choices else "a text")
        return self.value

    def flag(self) -> bool:
        """Return the value as true or false."""
        if not isinstance(self.value, bool):
            self.expected("true or false")
        return self.value

    def _short(self) -> str:
        names = {dict: "an object", list: "a list", type(None): "null"}
        return names.get(type(self.value)) or repr(self.value)[:40]
