"""The command line: parse, call the API, print. No logic lives here; see docs/cli.md."""

from __future__ import annotations

import gc

from synth.commands.root import root


def main() -> None:
    """The `synth` command."""
    # Python's own thresholds (700, 10, 10) look through the million values of a large machine again and again.
    gc.set_threshold(50_000, 20, 20)
    root()


__all__ = ["main", "root"]
