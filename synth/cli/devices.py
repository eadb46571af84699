"""`synth devices`: GPUs, the executors that run here, and missing libraries."""

from __future__ import annotations

import click

from synth.cli.framework.options import output_options
from synth.cli.framework.output import emit
from synth.cli.root import CONTEXT


@click.command(context_settings=CONTEXT, short_help="List GPUs, the executors that run here, and missing libraries.")
@output_options
def devices(output: str | None, form: str | None) -> None:
    """List the GPUs with the peers whose memory they access, the devices of each executor, and the command that
    installs a missing library.

    \b
    Example:
      synth devices
    """
    from synth.runtime.devices import devices as look
    from synth.view.devices import executors, gpus
    from synth.view.tables import print_reports

    document = look().to_json()
    emit(lambda: document, lambda: print_reports([*gpus(document), executors(document)]), output, form)
