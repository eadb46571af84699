"""A set of MSCCL++ plans for one machine in several sizes, and its index.

PlanSetPart  name ranks key plans tables notes refused
PlanSet      machine version folder parts
"""

from __future__ import annotations

from dataclasses import dataclass

from synth.model.build_result import BuiltTable
from synth.model.plan_registration import PlanRegistration
from synth.model.rational import counted

SCHEMA = "synth.plans/1"


@dataclass(frozen=True)
class PlanSetPart:
    """The plans for one number of boxes or GPUs.

    `name`: such as ``dgx-a100x2`` or ``dgx-a100-6gpus``; the folder of this name has a build of each collective. `key`:
    a digest of the options that it was made with. `plans`: the calls that each file serves; their names are paths in
    the set. `tables`: for each collective and size what runs, with its predicted time and the library's. `refused`:
    the collectives without an answer, each with the reason.
    """

    name: str
    ranks: int
    key: str
    plans: tuple[PlanRegistration, ...] = ()
    tables: tuple[BuiltTable, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict:
        """Return the part's entry of the index."""
        return {
            "name": self.name, "ranks": self.ranks, "key": self.key,
            "plans": [plan._asdict() for plan in self.plans],
            "tables": [table.to_json() for table in self.tables],
            "notes": list(self.notes), "refused": dict(self.refused),
        }  # fmt: skip

    @staticmethod
    def from_json(document: dict) -> PlanSetPart:
        """Return the part that `to_json` wrote."""
        return PlanSetPart(
            document["name"], document["ranks"], document["key"],
            tuple(PlanRegistration(**plan) for plan in document["plans"]),
            tuple(BuiltTable.from_json(table) for table in document["tables"]),
            tuple(document["notes"]), tuple(document["refused"].items()),
        )  # fmt: skip


@dataclass(frozen=True)
class PlanSet:
    """The plans of a folder. `machine`: one box of it. `version`: of MSCCL++, whose plan format they have."""

    machine: str
    version: str
    folder: str
    parts: tuple[PlanSetPart, ...]

    @property
    def plans(self) -> tuple[PlanRegistration, ...]:
        """The calls that each file serves."""
        return tuple(plan for part in self.parts for plan in part.plans)

    def __repr__(self) -> str:
        plans, parts = counted(len(self.plans), "plan"), counted(len(self.parts), "number") + " of ranks"
        return f"<PlanSet of {plans} for {self.machine}, {parts}, MSCCL++ {self.version}>"

    def to_json(self) -> dict:
        """Return the index of the set (schema: docs/formats.md)."""
        parts = [part.to_json() for part in self.parts]
        return {"schema": SCHEMA, "machine": self.machine, "mscclpp": self.version, "parts": parts}

    @staticmethod
    def from_json(document: dict, folder: str) -> PlanSet:
        """Return the set that `to_json` wrote. Raises KeyError, TypeError or ValueError for another document."""
        if document["schema"] != SCHEMA:
            raise ValueError(document["schema"])
        parts = tuple(PlanSetPart.from_json(part) for part in document["parts"])
        return PlanSet(document["machine"], document["mscclpp"], folder, parts)
