"""`synth catalog show`: print an entry, its frontier and its provenance."""

from __future__ import annotations

from dataclasses import dataclass

from synth.commands.catalog import open
from synth.commands.catalog.group import Database
from synth.commands.framework.declaration import command, option
from synth.commands.framework.output import emit
from synth.commands.framework.shared import Output


@dataclass(frozen=True, kw_only=True)
class CatalogShow(Output, Database):
    """The options of `synth catalog show`."""

    name: str = option("name", metavar="ID")


@command(CatalogShow, brief="Print an entry: its frontier and its provenance.")
def show_command(options: CatalogShow) -> None:
    """Print the frontier of entry ID (the first digits are enough) as `synth pareto` does, and its provenance.

    \b
    Example:
      synth catalog show 62a441bf
    """
    from synth.view.frontier_text import Report, report

    with open(options.db) as store:
        entry = store.get(options.name)

    def document() -> dict:
        return {"schema": "synth.entry/1"} | entry.to_json() | {"frontier": entry.frontier.to_json()}

    # The frontier as `synth pareto` prints it, then where it comes from.
    def table() -> tuple[Report, ...]:
        lines = [f"entry {entry.id}: {entry.state}, found in {entry.seconds:.1f} s"]
        for key, value in (entry.options | entry.provenance).items():
            if isinstance(value, dict):
                value = ", ".join(f"{name} {version}" for name, version in value.items())
            if value not in (None, ""):
                lines.append(f"{key}: {value}")
        return report(entry.frontier), Report.of("", (), (), lines)

    emit(document, table, options)
