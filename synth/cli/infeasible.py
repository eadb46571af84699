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
        if (error.certificate or {}).get("kind") in ("unreachable", "distance"):
            network, certificate = topology.network(), error.certificate or {}
        else:  # the flow methods say it without a certificate
            from synth import api

            found = api.unreachable(topology, collective)
            if found is None:
                raise
            network, certificate = found
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
