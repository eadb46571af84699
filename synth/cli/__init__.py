"""The command line: parse, call the API, print. No logic lives here; see docs/cli.md."""

from __future__ import annotations

from synth.cli.root import root


def main() -> None:
    """The `synth` command."""
    root()


__all__ = ["main", "root"]
