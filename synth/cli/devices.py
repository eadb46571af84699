"""`synth devices`: GPUs, which executors run here and where, what is missing."""

from __future__ import annotations

import click

from synth.cli.framework.options import output_options
from synth.cli.framework.output import emit
from synth.cli.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="GPUs, what runs here and where, what is missing.")
@output_options
def devices(output: str | None, form: str | None) -> None:
    """Show the GPUs and which reach each other's memory, what each executor would run on, and what it lacks with the
    command that installs it.

    \b
    Example:
      synth devices
    """
    from synth.runtime.devices import devices as look
    from synth.view.devices import executors, gpus
    from synth.view.tables import print_reports

    found = look().to_json()
    emit(lambda: found, lambda: print_reports([*gpus(found), executors(found)]), output, form)
