"""`synth list`: the names that options take, and the command that installs a missing library."""

from __future__ import annotations

from typing import Any

import click

from synth.commands.framework.options import output_options
from synth.commands.framework.output import emit
from synth.commands.framework.suggestions import suggest
from synth.commands.root import CONTEXT
from synth.errors import UsageError
from synth.model.collective import COLLECTIVES
from synth.model.registry import TABLES, installed, table

Row = tuple[str, str, str]


@click.command("list", context_settings=CONTEXT, short_help="List the names that options take, and missing libraries.")
@click.argument("kind", metavar="|".join(TABLES), required=False)
@output_options
def lists(kind: str | None, output: str | None, form: str | None) -> None:
    """List all topologies, collectives, encodings, solvers, exporters, executors or algorithms. For one that needs a
    missing library, print the command that installs it.

    \b
    Example:
      synth list solvers
    """
    from synth.view.frontier_text import Report
    from synth.view.tables import print_report

    if kind is None:
        raise UsageError(f"name what to list: {', '.join(TABLES)}")
    name = kind.lower()
    if name not in TABLES:
        raise UsageError(suggest("list", kind, list(TABLES), f"there are {', '.join(TABLES)}"))
    rows = listed(name)
    columns = ("name", "description", "available")
    document: Any = []
    for item, summary, available in rows:
        missing = None if available == "yes" else available.removeprefix("no: ")
        document.append({"name": item, "what": summary, "missing": missing})
    emit(lambda: document, lambda: print_report(Report.of("", columns, rows)), output, form)


def listed(kind: str) -> list[Row]:
    """Return (name, summary, "yes" or "no: " and the command to install) of each entry of the table `kind`.

    Raises SynthError on a plug-in's name clash.
    """
    rows = {
        "topologies": _topologies,
        "collectives": _collectives,
        "encodings": _encodings,
        "solvers": _solvers,
        "exporters": _exporters,
        "executors": _executors,
        "algorithms": _algorithms,
    }[kind]()
    added = table(kind, [row[0] for row in rows])
    return rows + [(name, f"plug-in {target}", "yes") for name, target in sorted(added.items())]


def _topologies() -> list[Row]:
    from synth import topologies

    return [(name, summary, "yes") for name, summary in topologies.summaries()]


def _collectives() -> list[Row]:
    takes = {"root": "--root", "sizes": "--counts"}
    rows = []
    for name, (summary, options) in COLLECTIVES.items():
        flags = ", ".join(takes[option] for option in options)
        rows.append((name, f"{summary} ({flags})" if options else summary, "yes"))
    return rows


def _encodings() -> list[Row]:
    from synth.encodings import ENCODINGS, SUMMARIES

    return [
        ("auto", "a portfolio of the encodings that suit the problem", "yes"),
        *((name, SUMMARIES[name], _missing(name)) for name in ENCODINGS),
    ]


def _solvers() -> list[Row]:
    from synth.encodings import SOLVERS, SUMMARIES

    return [
        ("auto", "a portfolio of the solvers that suit the encoding", "yes"),
        *((name, SUMMARIES[name], _missing(name)) for name in SOLVERS),
    ]


def _exporters() -> list[Row]:
    from synth.export import EXPORTERS, OF_SCHEDULES, SUMMARIES

    rows = [(name, SUMMARIES[name]) for name in EXPORTERS]
    return [(*row, "yes") for row in (*rows, *OF_SCHEDULES.items())]


def _executors() -> list[Row]:
    from synth.model.registry import load
    from synth.runtime import EXECUTORS, SUMMARIES

    rows = []
    for name, target in EXECUTORS.items():
        missing = load(target)().available()
        rows.append((name, SUMMARIES[name], "yes" if missing is None else f"no: {missing}"))
    return rows


def _algorithms() -> list[Row]:
    from synth.language.library import LIBRARY

    return [(one.name, f"{one.collective}: {one.formula}", "yes") for one in LIBRARY]


def _missing(name: str) -> str:
    from synth.encodings import REQUIRES

    module, install = REQUIRES.get(name, ("", ""))
    return "yes" if not module or installed(module) else f"no: {install}"
