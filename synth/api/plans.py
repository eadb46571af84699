"""Plans: what a tuner chose, written for the runtimes that are to follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from synth.api.inputs import named_topology
from synth.api.programs import placed
from synth.errors import UsageError
from synth.model.topology import Network, Topology
from synth.model.tuning_plan import Plan

if TYPE_CHECKING:
    from synth.export.exported_files import ExportOptions, ExportResult
    from synth.program.program import InPlace

FORMATS = ("msccl-dir", "mscclpp-dir", "nccl-tuner-csv", "json", "mcrdl-csv")
FOLDERS = ("msccl-dir", "mscclpp-dir")


def load_plan(path: str | Path) -> Plan:
    """The plan in a file, its schedules replayed and its ranges checked. Raises FormatError, VerificationError."""
    from synth.export.plans.read import load

    return load(Path(path))


def export_plan(
    source: str | Path | Plan,
    to: str = "msccl-dir",
    *,
    runtime: str = "",
    in_place: InPlace | None = None,
    topology: str | Path | Topology | None = None,
    rank_map: Sequence[int] | None = None,
    assume_root: int | None = None,
    assume_nvlink: bool = False,
    assume_one_node: bool = False,
    min_size: int = 0,
    max_size: int | None = None,
) -> ExportResult:
    """The texts of a plan in the format `to`, one of `FORMATS`, and one remark for each thing that the format cannot
    say.

    The options are those of `export`. Raises SynthError where nothing of the plan can be exported, naming why.
    """
    from synth.export.plans import read

    plan = load_plan(source) if isinstance(source, str | Path) else source
    if isinstance(source, Plan):
        read.check(plan)
    kind = to.lower()
    if kind not in FORMATS:
        raise UsageError(f"a plan is exported to {', '.join(FORMATS)}; {to!r} is none of them")
    if runtime and kind != "msccl-dir":
        raise UsageError(f"--runtime is for msccl-dir; {kind} is for one runtime")
    if kind == "mcrdl-csv":
        from synth.export.plans import mcrdl

        return mcrdl.export(plan)
    if kind == "json":
        return _json(plan)
    wishes = _wishes(
        plan,
        kind,
        runtime,
        topology,
        rank_map,
        (assume_root, assume_nvlink, assume_one_node),
        in_place,
        min_size,
        max_size,
    )
    if kind == "nccl-tuner-csv":
        from synth.export.plans.nccl_tuner_csv import csv

        return csv(plan, _nodes(plan, wishes))
    if kind == "mscclpp-dir":
        from synth.export.plans import mscclpp_folder

        made = mscclpp_folder.folder(plan, wishes)
    else:
        from synth.export.plans import msccl_folder

        made = msccl_folder.folder(plan, wishes, runtime.lower() or "executor")
    return replace(made, remarks=(*_devices(plan, topology), *made.remarks))


def _json(plan: Plan) -> ExportResult:
    import json

    from synth.export.exported_files import ExportResult

    return ExportResult((("", json.dumps(plan.to_json()) + "\n"),), ".json")


def _wishes(
    plan: Plan,
    kind: str,
    runtime: str,
    topology: str | Path | Topology | None,
    rank_map: Sequence[int] | None,
    assumed: tuple,
    in_place: InPlace | None,
    low: int,
    high: int | None,
):
    """Return a function from a network to the export request for schedules on it.

    The machine is the one named by `topology`, or the one whose network it is.
    """
    from synth.export.exported_files import ExportOptions
    from synth.export.request import Machine, Request
    from synth.topologies import rank_placement

    machine = None if topology is None else named_topology(topology)
    target = {"msccl-dir": runtime.lower() or "executor", "mscclpp-dir": "mscclpp"}.get(kind, "")
    if kind == "msccl-dir" and target not in ("msccl", "executor", "rccl"):
        raise UsageError(f"msccl-dir is not for the runtime {runtime!r}; it is for executor, msccl, rccl")

    @cache
    def wish(network: Network) -> ExportOptions:
        labels = plan.labels if plan.topology is not None and plan.topology.ranks == network.ranks else ()
        ranks, facts, _ = placed(network, labels, machine, rank_map)
        if sorted(ranks) != list(range(network.ranks)):
            raise UsageError(f"rank map {','.join(map(str, ranks))}: expected each of 0..{network.ranks - 1} once")
        if machine is None and plan.topology is not None and rank_placement.same(plan.topology, network):
            facts = Machine.of_plan(plan, ranks) or facts
        request = Request(target, facts, None, None, *assumed)
        to = "mscclpp" if kind == "mscclpp-dir" else "msccl-xml"
        links = None if machine is None else machine.network()
        return ExportOptions(to, request, None, None, in_place, tuple(ranks), links, low=low, high=high)

    return wish


def _nodes(plan: Plan, wishes) -> int:
    facts = None if plan.topology is None else wishes(plan.topology).request.machine
    return len(set(facts.nodes)) if facts is not None and facts.nodes else -1


def _devices(plan: Plan, topology: object) -> list[str]:
    """Which devices the ranks of an allocation must be."""
    labels = sorted(plan.labels)
    if topology is not None or not labels or labels == list(range(len(labels))):
        return []
    return [
        f"made for the devices {','.join(map(str, labels))}, which must be ranks 0 to {len(labels) - 1} of the "
        f"communicator"
    ]
