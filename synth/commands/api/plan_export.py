"""Plans: what a tuner chose, written for the runtimes that are to follow it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from synth.commands.api.inputs import TopologyLike, named_topology
from synth.commands.api.programs import placed
from synth.errors import UsageError
from synth.export.request import ExportRequest
from synth.model.topology import Network
from synth.model.tuning_plan import Plan

if TYPE_CHECKING:
    from synth.export.exported_files import ExportResult
    from synth.export.request import Target

FORMATS = ("msccl-dir", "mscclpp-dir", "nccl-tuner-csv", "mcrdl-csv")
FOLDERS = ("msccl-dir", "mscclpp-dir")


def load_plan(path: str | Path) -> Plan:
    """The plan in a file, its schedules replayed and its ranges checked. Raises FormatError, VerificationError."""
    from synth.export.plans.read import load

    return load(Path(path))


def export_plan(
    source: str | Path | Plan, to: str = "msccl-dir", *, topology: TopologyLike | None = None, **options: Any
) -> ExportResult:
    """Return the files of a plan in the format `to`, one of `FORMATS`, with a remark on each thing that it cannot say.

    The options are those of `synth.export.request.ExportRequest`. Raises SynthError, with the reasons, where no part
    of the plan can be exported, and UsageError for another format.
    """
    machine = None if topology is None else named_topology(topology)
    return export_request(source, ExportRequest(to, topology=machine, **options))


def export_request(source: str | Path | Plan, request: ExportRequest) -> ExportResult:
    """Export a plan as `export_plan` does, with all options as one value."""
    from synth.export.plans import read

    plan = load_plan(source) if isinstance(source, str | Path) else source
    if isinstance(source, Plan):
        read.check(plan)
    kind = request.to.lower()
    if kind not in FORMATS:
        raise UsageError(f"a plan is exported to {', '.join(FORMATS)}; {request.to!r} is none of them")
    if request.runtime and kind != "msccl-dir":
        raise UsageError(f"--runtime is for msccl-dir; {kind} is for one runtime")
    if kind == "mcrdl-csv":
        from synth.export.plans import mcrdl

        return mcrdl.export(plan)
    runtime = "mscclpp" if kind == "mscclpp-dir" else request.runtime.lower() or "msccl-executor"
    if kind == "msccl-dir" and runtime not in ("msccl", "msccl-executor", "rccl"):
        raise UsageError(f"msccl-dir is not for the runtime {request.runtime!r}; it is for msccl-executor, msccl, rccl")
    targets = _targets(plan, replace(request, to="mscclpp" if runtime == "mscclpp" else "msccl-xml", runtime=runtime))
    if kind == "nccl-tuner-csv":
        from synth.export.plans.nccl_tuner_csv import csv

        facts = None if plan.topology is None else targets(plan.topology).machine
        return csv(plan, len(set(facts.nodes)) if facts is not None and facts.nodes else -1)
    from synth.export.plans.folder import folder

    made, labels = folder(plan, targets, runtime, request.plan_version), sorted(plan.labels)
    if request.topology is not None or labels == list(range(len(labels))):
        return made
    devices = f"made for the devices {','.join(map(str, labels))}, which must be ranks 0 to {len(labels) - 1} of the"
    return replace(made, remarks=(f"{devices} communicator", *made.remarks))


def _targets(plan: Plan, request: ExportRequest) -> Callable[[Network], Target]:
    """Return a function from a network to the target of schedules on it.

    The machine is the one of the request, or the one whose network it is.
    """
    from synth.export.request import Machine, Target
    from synth.topologies import rank_placement

    machine = None if request.topology is None else named_topology(request.topology)

    @cache
    def target(network: Network) -> Target:
        labels = plan.labels if plan.topology is not None and plan.topology.ranks == network.ranks else ()
        ranks, facts, _ = placed(network, labels, machine, request.rank_map)
        if sorted(ranks) != list(range(network.ranks)):
            raise UsageError(f"rank map {','.join(map(str, ranks))}: expected each of 0..{network.ranks - 1} once")
        if machine is None and plan.topology is not None and rank_placement.same(plan.topology, network):
            facts = Machine.of_plan(plan, ranks) or facts
        return Target(request, tuple(ranks), None if machine is None else machine.network(), facts)

    return target
