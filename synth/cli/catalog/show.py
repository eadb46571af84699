"""`synth catalog show`: print an entry, its frontier and its provenance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from synth.cli.catalog.group import db_option
from synth.cli.framework.options import output_options
from synth.cli.framework.output import emit, printable
from synth.cli.root import CONTEXT

if TYPE_CHECKING:
    from synth.catalog.entry import Entry
    from synth.catalog.store.programs import StoredProgram


@click.command(context_settings=CONTEXT, short_help="Print an entry: its frontier and its provenance.")
@click.argument("name", metavar="ID")
@db_option
@output_options
def show(name: str, db: Path, output: str | None, form: str | None) -> None:
    """Print the frontier of entry ID (the first digits are enough) as `synth pareto` does, and its provenance.

    \b
    Example:
      synth catalog show 62a441bf
    """
    from synth.api import catalog

    with catalog.open(db) as store:
        entry, programs = store.get(name), store.programs(name)
    emit(lambda: catalog.document(entry), lambda: _print(entry, programs), output, form)


def _print(entry: Entry, programs: list[StoredProgram]) -> None:
    from synth.view import tables

    if entry.frontier is not None:
        tables.print_frontier(entry.frontier)
    for line in _lines(entry, programs):
        click.echo(printable(line))


def _lines(entry: Entry, programs: list[StoredProgram]) -> list[str]:
    provenance = entry.provenance
    options = ", ".join(f"{key} {value}" for key, value in entry.options) or "none"
    lines = [f"entry {entry.id}: {entry.state}{f' ({entry.reason})' if entry.reason else ''}; options: {options}"]
    if entry.certificate:
        lines.append(f"certificate: {entry.certificate.get('kind')}")
    versions = ", ".join(f"{name} {version}" for name, version in provenance.versions)
    engine = f"solver {provenance.solver}, encoding {provenance.encoding}, seed {provenance.seed}"
    who = f"found in {entry.seconds:.1f} s by {engine}"
    if provenance.machine:
        who += f", on {provenance.machine}"
    if provenance.created:
        who += f", {provenance.created}"
    lines.append(who)
    if versions:
        lines.append(f"versions: {versions}")
    if programs:
        lines.append(f"programs kept: {', '.join(f'point {p.point} {p.protocol} x {p.instances}' for p in programs)}")
    for doc in entry.measurements:
        lines.append(f"measured: {len(doc['rows'])} rows on {doc['executor']}: {doc.get('says', '')}")
    return lines
