"""synth.toml: defaults for options, below the environment and the command line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import click

from synth.errors import FormatError, UsageError, suggest
from synth.model.documents.text_file import text_of


def defaults(path: Path, root: click.Group) -> dict[str, Any]:
    """Return the settings in `path` as click's default map.

    The keys of a table (``[pareto]``, ``[topo.draw]``) are options of that command. Raises UsageError for a file that
    is no TOML, and for a command or an option that does not exist.
    """
    try:
        return _checked(tomllib.loads(text_of(path).replace("\r\n", "\n")), root, f"{path}:")
    except (FormatError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error


def _checked(tables: dict[str, Any], group: click.Group, place: str) -> dict[str, Any]:
    context = click.Context(group)
    filled: dict[str, Any] = {}
    for name, table in tables.items():
        command = group.get_command(context, name)
        if command is None or not isinstance(table, dict):
            known = group.list_commands(context)
            raise UsageError(f"{place}{name}: {suggest('command', name, known, 'options stand in its table')}")
        if isinstance(command, click.Group):
            filled[name] = _checked(table, command, f"{place}{name}.")
            continue
        # Keys are written as on the command line, with - or with _.
        options = {option.name: option for option in command.params if isinstance(option, click.Option)}
        filled[name] = {}
        for key, value in table.items():
            option = options.get(key.lower().replace("-", "_"))
            if option is None or option.name is None:
                raise UsageError(f"{place}{name}: {name} has no option {key!r}; `synth {name} -h` shows those it has")
            filled[name][option.name] = [value] if option.multiple and isinstance(value, str) else value
    return filled
