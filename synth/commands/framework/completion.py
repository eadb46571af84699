"""Names that the shell completes: those that `synth list` lists, and files where no name begins so."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem


def names_of(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the completion of the names in a table of `synth list`, of the last of several with commas."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from synth.commands.lists import listed

        before, comma, last = incomplete.rpartition(",")
        names = [name for name, *_ in listed(kind) if name.startswith(last.lower())]
        return [CompletionItem(before + comma + name) for name in names] or [CompletionItem(incomplete, type="file")]

    return complete
