"""`synth list`: the names that options take, and the command that installs a missing library."""

from __future__ import annotations

from dataclasses import dataclass

from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.shared import Output
from synth.errors import UsageError, suggest
from synth.model.collective import COLLECTIVES
from synth.model.registry import TABLES, installed, table

Row = tuple[str, str, str]


@dataclass(frozen=True, kw_only=True)
class Names(Output):
    """The options of `synth list`."""

    kind: str | None = option("kind", default=None, metavar="|".join(TABLES), required=False)


@command(Names)
def list_command(options: Names) -> None:
    """List all topologies, collectives, encodings, solvers, exporters, executors or algorithms. For one that needs a
    missing library, print the command that installs it.

    \b
    Example:
      synth list solvers
    """
    if options.kind is None:
        raise UsageError(f"name what to list: {', '.join(TABLES)}")
    name = options.kind.lower()
    if name not in TABLES:
        raise UsageError(suggest("list", options.kind, list(TABLES), f"there are {', '.join(TABLES)}"))
    print_names(name, options)


def print_names(kind: str, options: Output) -> None:
    """Print the entries of a table."""
    from synth.view.frontier_text import Report

    # "no: COMMAND" installs what is missing.
    rows = listed(kind)
    columns = ("name", "description", "available")
    document = []
    for item, summary, available in rows:
        missing = None if available == "yes" else available.removeprefix("no: ")
        document.append({"name": item, "what": summary, "missing": missing})
    emit(lambda: document, lambda: Report.of("", columns, rows), options)


def listed(kind: str) -> list[Row]:
    """Return (name, summary, "yes" or "no: " and the command to install) of each entry of the table `kind`.

    Raises SynthError on a plug-in's name clash.
    """
    rows: list[Row] = []
    match kind:
        case "topologies":
            from synth import topologies

            rows = [(name, summary, "yes") for name, summary in topologies.summaries()]
        case "collectives":
            takes = {"root": "--root", "sizes": "--counts"}
            for name, (summary, options) in COLLECTIVES.items():
                flags = ", ".join(takes[option] for option in options)
                rows.append((name, f"{summary} ({flags})" if options else summary, "yes"))
        case "encodings" | "solvers":
            from synth import encodings

            names = encodings.ENCODINGS if kind == "encodings" else encodings.SOLVERS
            suit = "encodings that suit the problem" if kind == "encodings" else "solvers that suit the encoding"
            rows = [("auto", f"a portfolio of the {suit}", "yes")]
            for name in names:
                module, install = encodings.REQUIRES.get(name, ("", ""))
                there = not module or installed(module)
                rows.append((name, encodings.SUMMARIES[name], "yes" if there else f"no: {install}"))
        case "exporters":
            from synth.export import EXPORTERS, OF_SCHEDULES, SUMMARIES

            summaries = {name: SUMMARIES[name] for name in EXPORTERS} | dict(OF_SCHEDULES)
            rows = [(name, summary, "yes") for name, summary in summaries.items()]
        case "executors":
            from synth.model.registry import load
            from synth.runtime import EXECUTORS, SUMMARIES

            for name, target in EXECUTORS.items():
                missing = load(target)().available()
                rows.append((name, SUMMARIES[name], "yes" if missing is None else f"no: {missing}"))
        case "algorithms":
            from synth.language.library import LIBRARY

            rows = [(one.name, f"{one.collective}: {one.formula}", "yes") for one in LIBRARY]
    # Installed packages add names at the end.
    added = table(kind, [row[0] for row in rows])
    return rows + [(name, f"plug-in {target}", "yes") for name, target in sorted(added.items())]
