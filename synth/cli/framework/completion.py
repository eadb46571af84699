"""Names that the shell completes: topologies, collectives, baselines, formats, and all that `synth list` lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def names_of(kind: str, files: bool = False) -> Complete:
    """Return the completion of names of `kind`: a table of `synth list`, "baselines", "formats" or "runtimes".

    The last of several names with commas is completed. `files`: the value may be a file, too.
    """

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = []
        for name, summary in _names(kind):
            if name.startswith(last.lower()):
                found.append(CompletionItem(before + comma + name, help=summary))
        if files and not found:
            found.append(CompletionItem(incomplete, type="file"))
        return found

    return complete


def _names(kind: str) -> Iterable[tuple[str, str]]:
    if kind == "baselines":
        from synth.api.baselines import baseline_summaries

        return baseline_summaries().items()
    if kind == "runtimes":
        from synth.program.runtimes import RUNTIMES

        return [(name, "") for name in RUNTIMES]
    if kind == "formats":
        from synth.api.plan_export import FORMATS

        return [*_listed("exporters"), *((name, "of a tuner's plan") for name in FORMATS)]
    return _listed(kind)


def _listed(kind: str) -> list[tuple[str, str]]:
    from synth.cli.lists import listed

    return [(name, summary) for name, summary, _ in listed(kind)]
