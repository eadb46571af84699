"""A small XML tree with line numbers, read by expat; document types and entities are refused, sizes are bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from synth.errors import FormatError

MAX_ELEMENTS = 1 << 14
MAX_DEPTH = 48


@dataclass
class Element:
    """An element of an XML file. `line`: where it starts; `parent`: None for the root."""

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
    """Return the root of the XML in `text`, which may have `limit` elements.

    `file` is its path in errors. Raises FormatError with the line.
    """
    root: list[Element] = []
    stack: list[Element] = []

    def start(tag: str, attributes: dict[str, str], line: int) -> None:
        element = Element(tag, attributes, line, stack[-1] if stack else None)
        (stack[-1].children if stack else root).append(element)
        stack.append(element)

    scan(text, file, start, lambda tag: stack.pop(), limit)
    return root[0]


def scan(
    text: str,
    file: str,
    start: Callable[[str, dict[str, str], int], object],
    end: Callable[[str], object],
    limit: int = MAX_ELEMENTS,
) -> None:
    """Call `start(tag, attributes, line)` and `end(tag)` as elements begin and end, in the order of the document.

    For files too large for a tree. What the two raise ends the reading. Raises FormatError as `parse` does.
    """
    parser = expat.ParserCreate()
    count = depth = 0

    def refuse(what: str) -> NoReturn:
        raise FormatError(what, file, parser.CurrentLineNumber)

    def opened(tag: str, attributes: dict[str, str]) -> None:
        nonlocal count, depth
        count += 1
        depth += 1
        if count > limit or depth > MAX_DEPTH:
            refuse(f"has more than {limit} elements, or nests them deeper than {MAX_DEPTH}")
        start(tag, attributes, parser.CurrentLineNumber)

    def closed(tag: str) -> None:
        nonlocal depth
        depth -= 1
        end(tag)

    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.StartDoctypeDeclHandler = lambda *_: refuse(
        "declares a document type; such XML is refused, remove the <!DOCTYPE ...>"
    )
    parser.EntityDeclHandler = lambda *_: refuse("declares an entity; such XML is refused")
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise FormatError(
            f"is not well-formed XML: {expat.ErrorString(error.code)}; is the file complete?", file, error.lineno
        ) from None
