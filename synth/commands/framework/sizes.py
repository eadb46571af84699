"""A row of sizes as one option value: ``1KiB:1GiB:x4``, or ``1KB,6MB``."""

from __future__ import annotations

from typing import Any

import click

from synth.model.rational import size_bytes

MOST = 64


class Sizes(click.ParamType):
    """``LOW:HIGH:xF`` (each F times the one before; x`factor` unless given), or sizes with commas. Bytes, rising.

    As nccl-tests counts with ``-b LOW -e HIGH -f F``: HIGH itself is in where a step lands on it.
    """

    name = "sizes"

    def __init__(self, factor: int = 4) -> None:
        self.factor = str(factor)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """As a tuple of whole numbers of bytes >= 1."""
        if isinstance(value, tuple):
            return value
        text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
        try:
            sizes = self._range(text) if ":" in text else sorted(set(map(size_bytes, text.split(","))))
        except ValueError as error:
            self.fail(f"{error}; sizes are written 1KiB:1GiB:x4 or 1KB,6MB", param, ctx)
        if len(sizes) > MOST:
            self.fail(f"{text!r} is {len(sizes)} sizes; at most {MOST} at a time", param, ctx)
        return tuple(sizes)

    def _range(self, text: str) -> list[int]:
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
