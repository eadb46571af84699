"""synth.toml: defaults for options, below the environment and the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from synth.cli.framework.suggestions import suggest
from synth.errors import FormatError, UsageError
from synth.model.documents.text_file import text_of


def defaults(path: Path, root: click.Group) -> dict[str, Any]:
    """Return the settings in `path` as click's default map; {} where there is no such file.

    Top-level keys apply to every command that has the option, those of a table (``[pareto]``, ``[topo.draw]``) to that
    command. Raises UsageError for a file that is no TOML, and for a key that no command has.
    """
    if not path.is_file():
        return {}
    import tomllib

    try:
        doc = tomllib.loads(text_of(path).replace("\r\n", "\n"))
    except FormatError as error:
        raise UsageError(str(error)) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    shared = {key: value for key, value in doc.items() if not isinstance(value, dict)}
    filled, used = _fill(root, shared, {k: v for k, v in doc.items() if k not in shared}, str(path), "")
    strays = [key for key in shared if _name(key) not in used]
    if strays:
        known = sorted(name.replace("_", "-") for name in used)
        raise UsageError(f"{path}:{strays[0]}: {suggest('option', strays[0], known, 'no command has it')}")
    return filled


def _fill(
    group: click.Group, shared: dict[str, Any], own: dict[str, Any], file: str, place: str
) -> tuple[dict[str, Any], set[str]]:
    """The default map of `group`, and the names of all options beneath it. Consumes from `own` the tables of
    commands."""
    filled: dict[str, Any] = {}
    used: set[str] = set()
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        table = own.get(name, {})
        where = f"{place}{name}"
        if isinstance(command, click.Group):
            filled[name], below = _fill(command, shared, table, file, where + ".")
            used |= below
            continue
        parameters = command.params if command else []
        known = [p for p in parameters if isinstance(p, click.Option)]
        options = {p.name for p in known if p.name}
        for key in table:
            if _name(key) not in options:
                hint = f"`synth {where.replace('.', ' ')} -h` shows those it has"
                raise UsageError(f"{file}:{where}: {name} has no option {key!r}; {hint}")
        used |= options
        multiple = {p.name for p in known if p.multiple}
        filled[name] = {}
        for key, value in {**shared, **table}.items():
            option = _name(key)
            if option in options:
                filled[name][option] = [value] if option in multiple and isinstance(value, str) else value
    strays = [key for key in own if key not in filled]
    if strays:
        fault = suggest("command", strays[0], list(filled), f"there are {', '.join(filled)}")
        raise UsageError(f"{file}:{place}{strays[0]}: {fault}")
    return filled, used


def line_of(path: Path, command: str, option: str) -> int | None:
    """Return the line of the file that sets `option` for `command`, such as "topo show"; None where there is none.

    A table of the command stands above keys for all commands.
    """
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if text.startswith("["):
            table = text.strip("[]").strip()
        elif _name(text.partition("=")[0].strip().strip("\"'")) == option:
            found.setdefault(table, number)
    return found.get(command.replace(" ", "."), found.get(""))


def _name(key: str) -> str:
    return key.lower().replace("-", "_")
