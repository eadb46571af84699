"""The catalog from notebooks: `synth.api.catalog.open("catalog.db")` is a `Store`; the other functions work on one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from synth.api.inputs import named_topology
from synth.collective import ALIASES
from synth.errors import FormatError, SynthError

if TYPE_CHECKING:
    from synth.catalog.store import Store
    from synth.catalog.store_rows import Row


def open(path: str | Path = "catalog.db", *, create: bool = False) -> Store:
    """The catalog at `path`, a context manager; made where there is none if `create`. Raises FormatError, SynthError."""
    from synth.catalog.store import Store

    return Store.open(path, create=create)


def collective_name(name: str) -> str:
    """The full name of a collective that may be given by an alias, in any case; one from a file has the name it was given there."""
    return ALIASES.get(name.lower(), name.lower())


def machine_name(name: str) -> str:
    """The name under which a catalog keeps a machine: that of the topology that `name` stands for (dgx1: dgx1-v100), else itself."""
    try:
        return named_topology(name).name
    except SynthError:
        return name


def listed(
    store: Store, topology: str | None = None, collective: str | None = None, state: str | None = None, ranks: int | None = None
) -> tuple[list[Row], list[str]]:
    """The entries that `Store.ls` finds, and a line for each that is damaged."""
    found = list(store.ls(topology, collective, state, ranks))
    return [row for row in found if not isinstance(row, FormatError)], [str(row) for row in found if isinstance(row, FormatError)]
