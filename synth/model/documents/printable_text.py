"""Text that a stranger wrote, such as names in files, as it may be shown on a terminal."""

from __future__ import annotations

from unicodedata import category

# Unicode's categories of characters that a terminal obeys, or that cannot be printed.
CONTROLS = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str, keep: str = "") -> str:
    """Return `text` with its control characters escaped, but for those in `keep`: one line that moves no cursor."""
    if text.isprintable():
        return text
    shown = []
    for c in text:
        shown.append(ascii(c)[1:-1] if category(c) in CONTROLS and c not in keep else c)
    return "".join(shown)
