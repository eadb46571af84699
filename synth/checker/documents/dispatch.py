"""The one door of `synth verify`: the schema of a document says which function checks it.

synth.schedule/1, synth.frontier/1, synth.bounds/1     `synth.checker.documents.exact_frontier`
synth.infeasible/1                                     the same; of a machine of any size `scale_frontier`
synth.refutation/1                                     `synth.checker.documents.refutation`
synth.large/1                                          `synth.checker.documents.scale_frontier`
synth.groups/1                                         `synth.checker.documents.process_groups`
synth.bulk/1 (.npz)                                    `schedule_archive`, then `scale_frontier`
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from synth.checker.documents import exact_frontier, refutation
from synth.errors import SynthError, UndecidedError, VerificationError, malformed
from synth.model.documents.json_reader import ARCHIVED, MACHINE, Claims
from synth.model.gc_pause import collector_off
from synth.model.rational import counted
from synth.model.topology import Topology


def check_document(
    source: str | Path | dict,
    proof: Path | None,
    named_machine: Callable[[str], Topology | None],
    beside: Path = Path(),
) -> Claims:
    """Check a document; return a line for each claim that holds, for each that is not checked, and for what is assumed,
    and as `Claims.subject` what the document is about.

    `source`: a file, or the JSON object. `proof`: the folder of proof files (None: that of the file). `named_machine`:
    returns the machine of a name, or None, for a frontier at scale that names its machine and does not list its links.
    `beside`: the folder of the files that a JSON object names; those that a file names lie beside it.
    Raises VerificationError with the place of what is wrong, FormatError for a file that is none of these documents,
    UndecidedError where memory runs out.
    """
    folder = beside if isinstance(source, dict) else Path(source).parent
    if not isinstance(source, dict) and Path(source).suffix == ".npz":
        from synth.checker.documents import scale_frontier, schedule_archive  # these load numpy

        found = schedule_archive.load(Path(source))
        subject = _subject(found.collective, found.topology.name, found.topology.ranks)
        return Claims([scale_frontier.schedule(found), ARCHIVED], subject)
    # A document of 10 MB is a million objects without one cycle, and looking for cycles is a third of the time.
    with collector_off():
        doc = source if isinstance(source, dict) else exact_frontier.read(Path(source))
        try:
            return Claims(_check(doc, folder, proof or folder, named_machine), _subject_of(doc))
        except SynthError:
            raise
        except MemoryError:
            raise UndecidedError(
                "this process has no more memory, so the document is neither confirmed nor refuted"
            ) from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise VerificationError(malformed(error)) from None


def _subject_of(doc: dict) -> str:
    """Return the subject of a document that was checked."""
    machine = doc["topology"]
    if "groups" in doc:
        task = counted(len(doc["groups"]), "group")
    elif isinstance(doc["collective"], str):
        task = doc["collective"]
    else:
        task = doc["collective"]["name"]
    rules = " with rules for sends" if "rules" in machine else ""
    return _subject(task, f"{machine['name']}{rules}", machine["ranks"])


def _subject(task: str, machine: str, ranks: int) -> str:
    return f"{task} on {machine}, {counted(ranks, 'rank')}"


def _check(doc: dict, folder: Path, proof: Path, named_machine: Callable[[str], Topology | None]) -> list[str]:
    match doc.get("schema"):
        case "synth.large/1":
            from synth.checker.documents import scale_frontier

            return scale_frontier.document(doc, folder, lambda: named_machine(doc["topology"]["name"]))
        case "synth.infeasible/1" if isinstance(doc.get("collective"), str):
            from synth.checker.documents import scale_frontier

            return [scale_frontier.infeasible(doc), MACHINE]
        case "synth.groups/1":
            from synth.checker.documents import process_groups

            return process_groups.document(doc)
        case "synth.refutation/1":
            return refutation.check(doc, proof)
        case _:
            return exact_frontier.document(doc)
