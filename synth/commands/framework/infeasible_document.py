"""Documents of infeasible problems, which `synth verify` re-checks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from synth.commands.framework.output import write
from synth.commands.framework.shared import LISTED
from synth.commands.inputs import collective as task_of
from synth.commands.inputs import named_topology
from synth.errors import InfeasibleError, SynthError
from synth.model.collective import Collective
from synth.model.rational import show

if TYPE_CHECKING:
    from synth.commands.inputs import CollectiveLike, TopologyLike
    from synth.model.topology import Network, Topology

SCHEMA = "synth.infeasible/1"


def infeasible_document(
    topology: TopologyLike,
    collective: CollectiveLike,
    error: InfeasibleError,
    *,
    roots: Sequence[int] = (),
    max_steps: int | None = None,
) -> dict | None:
    """The document (docs/formats.md) of an InfeasibleError that `pareto` or `bound` raised with these arguments.

    None where the error has no certificate. `max_steps`: what was allowed, where that is the reason.
    """
    machine, certificate = named_topology(topology), error.certificate or {}
    kind = certificate.get("kind")

    def document(where: dict, task: Any, proof: dict, most: int | None = None) -> dict:
        return {"schema": SCHEMA, "topology": where, "collective": task, "max_steps": most, "certificate": proof}

    # The certificate as it is; that of a rank out of reach; or, of many ranks, with the collective by its name.
    if "problem" in certificate and kind in ("unreachable", "distance", "too-few-steps"):
        task = task_of(collective, machine.ranks, roots).to_json(1)
        most = None if kind == "unreachable" else max_steps
        return document(machine.network().to_json(), task, certificate, most)
    if isinstance(collective, Collective) or machine.ranks <= LISTED:
        task = task_of(collective, machine.ranks, roots)
        found = unreachable(machine, task)
        if found is not None:
            return document(found[0].to_json(), task.to_json(1), found[1])
    if kind != "unreachable":
        return None
    try:
        live = machine.live()
    except SynthError:
        return None
    from synth.model.documents import link_columns  # loads NumPy

    head = {"name": live.name, "ranks": live.ranks, "unit_gbps": show(live.unit_bandwidth())}
    return document(head | link_columns.columns(live), certificate["collective"], certificate)


def unreachable(topology: TopologyLike, collective: Collective) -> tuple[Network, dict] | None:
    """Return the network of the links that carry anything, and the certificate that data cannot reach a rank over them.

    None where every rank can be reached."""
    from synth.encodings import bounds

    try:
        network = named_topology(topology).live().network()
    except SynthError:
        return None
    try:
        bounds.steps(network, collective)
    except InfeasibleError as error:
        return None if error.certificate is None else (network, error.certificate)
    return None


@contextmanager
def write_infeasible_document(
    options: Any, topology: Topology, collective: Collective | str, max_steps: int | None = None
) -> Iterator[None]:
    """An InfeasibleError on its way out leaves a document (synth.infeasible/1) where ``-o`` or ``--format json`` ask
    for one."""
    try:
        yield
    except InfeasibleError as error:
        if options.output is None and options.form != "json":
            raise
        document = infeasible_document(topology, collective, error, max_steps=max_steps)
        if document is None:
            raise
        # As the document of a result: on stdout, or in the file of -o, which the error then names.
        text = json.dumps(document, separators=(", ", ": ")) + "\n"
        if options.output in (None, "-"):
            click.echo(text, nl=False)
            raise
        write(Path(options.output), text)
        raise InfeasibleError(f"{error}; the proof is in {options.output}", error.certificate) from error
