"""Proofs that a problem has no schedule, as documents that `synth verify` re-checks."""

from __future__ import annotations

from collections.abc import Sequence

from synth.commands.api.inputs import CollectiveLike, TopologyLike, named_topology
from synth.commands.api.inputs import collective as task_of
from synth.commands.api.scale import unreachable
from synth.errors import InfeasibleError, SynthError
from synth.model.collective import Collective
from synth.model.rational import show

SCHEMA = "synth.infeasible/1"
# Ranks up to which every unit of a collective is written out beside the proof.
LISTED = 256


def infeasible_document(
    topology: TopologyLike,
    collective: CollectiveLike,
    error: InfeasibleError,
    *,
    roots: Sequence[int] = (),
    sizes: Sequence | None = None,
    max_steps: int | None = None,
) -> dict | None:
    """The document (docs/formats.md) of an InfeasibleError that `pareto` or `bound` raised with these arguments.

    None where the error has no certificate. `max_steps`: what was allowed, where that is the reason.
    """
    machine, certificate = named_topology(topology), error.certificate or {}
    kind = certificate.get("kind")
    if "problem" in certificate and kind in ("unreachable", "distance", "too-few-steps"):
        task = task_of(collective, machine.ranks, roots, sizes)
        return _document(
            machine.network().to_json(), task.to_json(1), None if kind == "unreachable" else max_steps, certificate
        )
    if isinstance(collective, Collective) or machine.ranks <= LISTED:
        task = task_of(collective, machine.ranks, roots, sizes)
        found = unreachable(machine, task)
        if found is not None:
            return _document(found[0].to_json(), task.to_json(1), None, found[1])
    if kind != "unreachable":
        return None
    try:
        live = machine.live()
    except SynthError:
        return None
    from synth.model.documents import link_columns  # loads NumPy

    head = {"name": live.name, "ranks": live.ranks, "unit_gbps": show(live.unit_bandwidth())}
    return _document(head | link_columns.columns(live), certificate["collective"], None, certificate)


def _document(topology: dict, collective: dict | str, most: int | None, certificate: dict) -> dict:
    return {
        "schema": SCHEMA,
        "topology": topology,
        "collective": collective,
        "max_steps": most,
        "certificate": certificate,
    }
