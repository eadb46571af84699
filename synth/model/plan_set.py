"""A set of MSCCL++ plans for one machine in several sizes, and its index.

PlanSetPart  name ranks key plans tables notes refused seconds
PlanSet      machine version folder parts kept
"""

from __future__ import annotations

from dataclasses import dataclass, field

from synth.model.build_result import BuiltTable
from synth.model.plan_registration import PlanRegistration
from synth.model.rational import counted

SCHEMA = "synth.plans/1"


@dataclass(frozen=True)
class PlanSetPart:
    """The plans for one number of boxes or GPUs, made with one set of options.

    `name`: such as ``dgx-a100x2`` or ``dgx-a100-6gpus``; the folder of this name has a build of each collective. `key`:
    a digest of the links, the sizes, the type and the root that it was made with; where collectives differ in them,
    there are several parts of one name. `plans`: the calls that each file serves; their names are paths in the set.
    `tables`: for each collective and size what runs, with its predicted time and the library's. `refused`:
    the collectives without an answer, each with the reason. `seconds`: the time limit of the search for each
    collective.
    """

    name: str
    ranks: int
    key: str
    plans: tuple[PlanRegistration, ...] = ()
    tables: tuple[BuiltTable, ...] = ()
    notes: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    seconds: tuple[tuple[str, float], ...] = ()

    def to_json(self) -> dict:
        """Return the part's entry of the index."""
        return {
            "name": self.name, "ranks": self.ranks, "key": self.key,
            "plans": [plan._asdict() for plan in self.plans],
            "tables": [table.to_json() for table in self.tables],
            "notes": list(self.notes), "refused": dict(self.refused),
            "seconds": dict(self.seconds),
        }  # fmt: skip

    @staticmethod
    def from_json(document: dict) -> PlanSetPart:
        """Return the part that `to_json` wrote."""
        return PlanSetPart(
            document["name"], document["ranks"], document["key"],
            tuple(PlanRegistration(**plan) for plan in document["plans"]),
            tuple(BuiltTable.from_json(table) for table in document["tables"]),
            tuple(document["notes"]), tuple(document["refused"].items()),
            tuple(document.get("seconds", {}).items()),  # an older index has none
        )  # fmt: skip


@dataclass(frozen=True)
class PlanSet:
    """The plans of a folder.

    `machine`: one box of it. `version`: of MSCCL++, whose plan format they have. `kept`: those of
    its `builds` that an earlier call made and the latest one left as they were; not in the index.
    """

    machine: str
    version: str
    folder: str
    parts: tuple[PlanSetPart, ...]
    kept: tuple[str, ...] = field(default=(), compare=False)

    @property
    def plans(self) -> tuple[PlanRegistration, ...]:
        """The calls that each file serves."""
        return tuple(plan for part in self.parts for plan in part.plans)

    @property
    def builds(self) -> tuple[str, ...]:
        """The folders of the builds, one for each part and collective, such as ``dgx-a100x2/allreduce``."""
        names = []
        for part in self.parts:
            names += [f"{part.name}/{table.collective}" for table in part.tables]
            names += [f"{part.name}/{collective}" for collective, _ in part.refused]
        return tuple(names)

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
