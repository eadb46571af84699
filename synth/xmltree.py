"""A small XML tree with line numbers, read by expat; document types and entities are refused, sizes are bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from synth.errors import FormatError

MAX_ELEMENTS = 1 << 14
MAX_DEPTH = 48


@dataclass
class Element:
    """`line` is where the element starts; `parent` is None for the root."""

    tag: str
    attributes: dict[str, str]
    line: int
    parent: Element | None = field(default=None, repr=False)
    children: list[Element] = field(default_factory=list)

    def walk(self) -> Iterator[Element]:
        """The element and all beneath it, in the order of the document."""
        yield self
        for child in self.children:
            yield from child.walk()

    def ancestors(self) -> Iterator[Element]:
        """The elements around it, the nearest first."""
        at = self.parent
        while at is not None:
            yield at
            at = at.parent


def parse(text: str, file: str, limit: int = MAX_ELEMENTS) -> Element:
    """The root; at most `limit` elements. Raises FormatError with the line."""
    parser = expat.ParserCreate()
    root: list[Element] = []
    stack: list[Element] = []
    count = 0

    def refuse(what: str) -> NoReturn:
        raise FormatError(what, file, parser.CurrentLineNumber)

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > limit or len(stack) >= MAX_DEPTH:
            refuse(f"has more than {limit} elements, or nests them deeper than {MAX_DEPTH}")
        element = Element(tag, attributes, parser.CurrentLineNumber, stack[-1] if stack else None)
        (stack[-1].children if stack else root).append(element)
        stack.append(element)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda tag: stack.pop()
    parser.StartDoctypeDeclHandler = lambda *_: refuse("declares a document type; such XML is refused, remove the <!DOCTYPE ...>")
    parser.EntityDeclHandler = lambda *_: refuse("declares an entity; such XML is refused")
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise FormatError(f"is not well-formed XML: {expat.ErrorString(error.code)}; is the file complete?", file, error.lineno) from None
    return root[0]
