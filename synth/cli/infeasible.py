"""What is proved to have no schedule is a result too: its certificate goes where the result would have gone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.cli.output import write
from synth.errors import InfeasibleError

if TYPE_CHECKING:
    from synth.collective import Collective
    from synth.topology import Topology


@contextmanager
def witnessed(given: dict[str, Any], topology: Topology, collective: Collective | str) -> Iterator[None]:
    """An InfeasibleError on its way out leaves a document (synth.infeasible/1) where ``-o`` or ``--format json`` ask for one."""
    try:
        yield
    except InfeasibleError as error:
        asked = given["output"] is not None or (given["form"] or "").lower() == "json"
        if isinstance(collective, str) or not asked:
            raise
        whole = (error.certificate or {}).get("kind") in ("unreachable", "distance")
        certificate = error.certificate if whole else _certificate(topology, collective)
        if certificate is None:
            raise
        network = topology.network()
        most = given["max_steps"] if certificate["kind"] == "distance" else None
        document = {
            "schema": "synth.infeasible/1", "topology": network.to_json(), "collective": collective.to_json(1), "max_steps": most,
            "certificate": certificate,
        }  # fmt: skip
        text = json.dumps(document, separators=(", ", ": ")) + "\n"
        if given["output"] in (None, "-"):
            click.echo(text, nl=False)
            raise
        write(Path(given["output"]), text)
        raise InfeasibleError(f"{error}; the proof is in {given['output']}", certificate) from error


def _certificate(topology: Topology, collective: Collective) -> dict | None:
    """The flow methods find that something cannot be reached; the bound on steps says it with a certificate."""
    from synth import api

    try:
        api.bound(topology, collective, max_steps=1)
    except InfeasibleError as error:
        return error.certificate if (error.certificate or {}).get("kind") == "unreachable" else None
    return None
