"""The operations of MSCCL++ plans that move data, by what they read and write.

A form has a letter for each operand, the last of which may come once or more (+)::

    h  a chunk of the rank here          p  packets of the rank, in its scratch
    t  a chunk of another rank           q  packets of another rank, in its scratch

Sources and destinations of a put belong together one by one. The first operand of a sum is plain; the kernel adds
packets up first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from synth.program.program import Op, Span


class Form(NamedTuple):
    """An operation of a plan: the code of the program's op, and the letters of its sources and destinations."""

    code: str
    src: str
    dst: str


FORMS = {
    "put": Form("put", "h+", "t+"),
    "ppkt": Form("put", "h+", "q+"),
    "rppkt": Form("put", "p", "q+"),
    "get": Form("get", "t", "h"),
    "copy": Form("cpy", "h", "h"),
    "cpkt": Form("cpy", "h", "p"),
    "upkt": Form("cpy", "p", "h"),
    "re": Form("reduce", "hh+", "h"),
    "res": Form("reduce", "hh+", "ht+"),
    "rre": Form("reduce", "ht+", "h"),
    "rres": Form("reduce", "ht+", "ht+"),
    "repkt": Form("reduce", "hp+", "h"),
    "respkt": Form("reduce", "hp+", "hq+"),
    "recpkt": Form("reduce", "hp+", "hp"),
    "recspkt": Form("reduce", "hp+", "hpq+"),
}
# The letter of a span by (on another rank, of packets).
_LETTERS = {(False, False): "h", (False, True): "p", (True, False): "t", (True, True): "q"}


def letters(form: str, count: int) -> str:
    """Return the letters of `count` operands of a form; "" where it does not have so many."""
    if not form.endswith("+"):
        return form if len(form) == count else ""
    form = form[:-1]
    return form.ljust(count, form[-1]) if count >= len(form) else ""


def shape(spans: Sequence[Span]) -> str:
    """Return the letters of spans."""
    return "".join(_LETTERS[span.rank is not None, span.packet] for span in spans)


def name_of(op: Op) -> str:
    """Return the name of the operation of a put, copy or sum; "" where MSCCL++ has none."""
    src, dst = shape(operands(op)), shape(op.dst)
    for name, form in FORMS.items():
        if form.code == op.code and (src, dst) == (letters(form.src, len(src)), letters(form.dst, len(dst))):
            return name
    return ""


def operands(op: Op) -> tuple[Span, ...]:
    """Return the sources of an op in the order of a plan: the plain one of a sum of packets, its last, comes first."""
    if op.code == "reduce" and op.src[0].packet:
        return (op.src[-1], *op.src[:-1])
    return op.src
