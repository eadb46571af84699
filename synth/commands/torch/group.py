"""`synth torch`: the group of commands around PyTorch jobs."""

from __future__ import annotations

import click

from synth.commands.root import CONTEXT, Commands


@click.command(
    cls=Commands, name="torch", context_settings=CONTEXT,
    lazy={name: f"synth.commands.torch.{name}:{name}_command" for name in ("doctor", "bench", "log", "profile")},
)  # fmt: skip
def torch_command() -> None:
    """The backend `synth` of torch.distributed on this machine.

    \b
    Example:
      synth torch doctor
    """
