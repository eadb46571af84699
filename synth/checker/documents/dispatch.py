"""The one door of `synth verify`: the schema of a document says which function checks it.

synth.schedule/1, synth.frontier/1, synth.bounds/1     `synth.checker.documents.exact_frontier`
synth.infeasible/1                                     the same; of a machine of any size `scale_frontier`
synth.large/1                                          `synth.checker.documents.scale_frontier`
synth.bulk/1 (.npz)                                    `schedule_archive`, then `scale_frontier`
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from synth.checker.documents import built_in_machines, exact_frontier
from synth.errors import SynthError, UndecidedError, VerificationError, malformed
from synth.model.documents import json_reader
from synth.model.documents.json_reader import Claims
from synth.model.gc_pause import collector_off
from synth.model.rational import counted
from synth.model.topology import Topology


def check_document(
    source: str | Path | dict,
    named_machine: Callable[[str], Topology | None],
    beside: Path = Path(),
) -> Claims:
    """Check a document; return a line for each claim that holds, for each that is not checked, and for what is assumed,
    and as `Claims.subject` what the document is about. A first line says where its machine bears the name of a built-in
    one and is another.

    `source`: a file, or the JSON object. `named_machine`: returns the machine of a name, or None: for that line, and
    for a frontier at scale that does not list its links. `beside`: the folder of the files that a JSON object names;
    those that a file names lie beside it.
    Raises VerificationError with the place of what is wrong, FormatError for a file that is none of these documents,
    UndecidedError where memory runs out.
    """
    folder = beside if isinstance(source, dict) else Path(source).parent
    if not isinstance(source, dict) and Path(source).suffix == ".npz":
        from synth.checker.documents import scale_frontier, schedule_archive  # these load numpy

        found = schedule_archive.load(Path(source))
        machine, named = found.topology, named_machine(found.topology.name)
        what = "" if named is None else built_in_machines.topology_difference(machine, named)
        differs = built_in_machines.line(machine.name, what) if what else ""
        assumed = f"{json_reader.assumed(bool(machine.limits))}, of these kinds, in these boxes"
        subject = _subject(found.collective, machine.name, machine.ranks, differs)
        return Claims([scale_frontier.schedule(found), assumed], subject, differs)
    # A document of 10 MB is a million objects without one cycle, and looking for cycles is a third of the time.
    with collector_off():
        doc = source if isinstance(source, dict) else exact_frontier.read(Path(source))
        try:
            lines = _check(doc, folder, named_machine)
            found = built_in_machines.differences(doc, named_machine)
            differs = next((built_in_machines.line(*row) for row in found), "")
            machine, task = doc["topology"], doc["collective"]
            if not isinstance(task, str):
                task = task["name"]
            return Claims(lines, _subject(task, machine["name"], machine["ranks"], differs), differs)
        except SynthError:
            raise
        except MemoryError:
            raise UndecidedError(
                "this process has no more memory, so the document is neither confirmed nor refuted"
            ) from None
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise VerificationError(malformed(error)) from None


def _subject(task: str, machine: str, ranks: int, differs: str) -> str:
    called = f"a machine called {machine} that is not the built-in one" if differs else machine
    return f"{task} on {called}, {counted(ranks, 'rank')}"


def _check(doc: dict, folder: Path, named_machine: Callable[[str], Topology | None]) -> list[str]:
    match doc.get("schema"):
        case "synth.large/1":
            from synth.checker.documents import scale_frontier

            return scale_frontier.document(doc, folder, lambda: named_machine(doc["topology"]["name"]))
        case "synth.infeasible/1" if isinstance(doc.get("collective"), str):
            from synth.checker.documents import scale_frontier

            return [scale_frontier.infeasible(doc), json_reader.assumed(bool(doc["topology"]["limits"]))]
        case _:
            return exact_frontier.document(doc)
