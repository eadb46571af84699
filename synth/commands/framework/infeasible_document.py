"""Documents of infeasible problems: the certificate is written to the file that the result would have been written
to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.output import write
from synth.errors import InfeasibleError

if TYPE_CHECKING:
    from synth.model.collective import Collective
    from synth.model.topology import Topology


@contextmanager
def write_infeasible_document(
    flags: dict[str, Any], topology: Topology, collective: Collective | str
) -> Iterator[None]:
    """An InfeasibleError on its way out leaves a document (synth.infeasible/1) where ``-o`` or ``--format json`` ask
    for one."""
    try:
        yield
    except InfeasibleError as error:
        if flags["output"] is None and (flags["form"] or "").lower() != "json":
            raise
        from synth.commands import api

        document = api.infeasible_document(topology, collective, error, max_steps=flags.get("max_steps"))
        if document is None:
            raise
        text = json.dumps(document, separators=(", ", ": ")) + "\n"
        if flags["output"] in (None, "-"):
            click.echo(text, nl=False)
            raise
        write(Path(flags["output"]), text)
        raise InfeasibleError(f"{error}; the proof is in {flags['output']}", error.certificate) from error
