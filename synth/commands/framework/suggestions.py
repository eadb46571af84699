"""One line for a word that means nothing here, with the nearest that do."""

from __future__ import annotations

from collections.abc import Sequence

from synth.errors import unknown


def suggest(kind: str, name: str, known: Sequence[str], otherwise: str) -> str:
    """``unknown command 'paretto'; did you mean pareto?``, or `otherwise` as the hint where nothing is near."""
    line, _, hint = unknown(kind, name, known, kind).partition("; ")
    return f"{line}; {hint if hint.startswith('did you mean') else otherwise}"
