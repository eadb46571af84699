"""Answers of finished searches of builds, kept in the cache directory for builds of the same machine in any folder.

A search that a time limit ends finds other schedules each time. The answer of the first one is kept, so that the same
machine, under whatever name of a file, has the same algorithms.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

import synth
from synth.errors import FormatError, SynthError, VerificationError
from synth.model.documents.own_file import is_own
from synth.model.documents.whole_file import write
from synth.model.topology import Topology
from synth.model.tuning_plan import Plan
from synth.pareto.log import default_directory

PLAN = "plan.json"


@cache
def program_digest() -> str:
    """Return a digest of this program's own files: another program may find other answers."""
    digest = hashlib.sha256()
    root = Path(synth.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def machine_digest(machine: Topology) -> str:
    """Return a digest of all fields of a machine: whatever an answer says of it depends on these."""
    from synth.model.documents.link_columns import columns  # loads NumPy

    said: dict = columns(machine)
    for each in fields(machine):
        if each.name not in ("links", "limits"):  # `columns` has them, in a short form
            said[each.name] = repr(getattr(machine, each.name))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class KeptSearch:
    """The plan and the frontier of one collective, in the folder `builds/KEY` of the cache directory.

    `key`: a digest of the machine, the collective, the options and the program.
    """

    key: str

    @classmethod
    def of(cls, *question: object) -> KeptSearch:
        """Return the place of the answer to a question, given as JSON values."""
        text = json.dumps([program_digest(), *question], sort_keys=True)
        return cls(hashlib.sha256(text.encode()).hexdigest()[:24])

    @property
    def folder(self) -> Path:
        """The folder of the answer; it is there whole or not at all."""
        return default_directory() / "builds" / self.key

    def load(self, frontiers: Path) -> Plan | None:
        """Return the plan, its schedules replayed, and copy the frontier into the folder `frontiers`.

        None where no answer is kept, or one that is damaged.
        """
        from synth.commands.programs.sources import load_plan

        try:
            if not is_own(self.folder) or not is_own(self.folder.parent):
                return None  # others may have written it
            plan = load_plan(self.folder / PLAN)
            shutil.copytree(self.folder / "frontiers", frontiers, dirs_exist_ok=True)
        except (FormatError, VerificationError, OSError):
            return None
        return plan

    def save(self, plan: Plan, frontier: Iterable[Path]) -> None:
        """Keep a plan and the files and folders of its frontier, in place of an earlier answer.

        Without effect where the cache directory cannot be written: the next build searches again.
        """
        with suppress(OSError, SynthError):
            # Written beside its place and then moved there: a reader sees all of it or nothing.
            self.folder.parent.mkdir(0o700, parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder.parent) as temporary:
                made = Path(temporary) / self.key
                (made / "frontiers").mkdir(parents=True)
                for path in frontier:
                    copy = shutil.copytree if path.is_dir() else shutil.copyfile
                    copy(path, made / "frontiers" / path.name)
                write(made / PLAN, json.dumps(plan.to_json()) + "\n")
                shutil.rmtree(self.folder, ignore_errors=True)
                made.rename(self.folder)
