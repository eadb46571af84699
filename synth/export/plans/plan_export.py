"""The result of exporting a plan: the files, and the algorithm that serves each size on the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from synth.errors import SynthError
from synth.export.exported_files import ExportResult
from synth.export.plans.notes import ServedShare
from synth.export.plans.size_ranges import SizeShares
from synth.model.plan_registration import PlanRegistration


@dataclass(frozen=True)
class PlanExport(ExportResult):
    """`tables`: the algorithm of each range of sizes, for each table of the plan. `served`: the ranges with files.
    `registrations`: the calls that each MSCCL++ plan serves."""

    tables: tuple[SizeShares, ...] = ()
    served: tuple[ServedShare, ...] = ()
    registrations: tuple[PlanRegistration, ...] = ()


class NoFilesError(SynthError):
    """No range of a plan can be exported. `tables`: the sizes of each table, and why algorithms are refused."""

    def __init__(self, tables: Sequence[SizeShares], lines: Sequence[str]) -> None:
        reasons = "; ".join(lines) or "NCCL's own algorithms are preferred everywhere"
        super().__init__(f"no range of the plan can be exported: {reasons}")
        self.tables = tuple(tables)
        self.reasons = tuple(lines)
