"""How one problem becomes another by renumbering: ranks, routes, units of data and switches."""

from __future__ import annotations

from typing import NamedTuple


class Relabelling(NamedTuple):
    """Where each rank, route (by index), unit of data and switch of the problem that is kept is in the problem that is asked."""

    ranks: tuple[int, ...]
    routes: tuple[int, ...]
    units: tuple[int, ...]
    switches: tuple[tuple[str, str], ...] = ()
