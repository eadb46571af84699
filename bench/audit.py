"""Schedules and plans of other projects against certified optima: the table of docs/audit.md.

python -m bench.audit FOLDER [--time-limit 60]
python -m bench.audit --table              the table again, from the JSON

FOLDER has others' files as `synth audit` reads them: msccl-tools' example programs (microsoft/msccl-tools 030a750),
TE-CCL's shipped results (microsoft/TE-CCL c128bf2), ForestColl's trees (liangyuRain/ForestColl), plans of MSCCL++'s
example programs (microsoft/mscclpp 1f5f065d). A file is judged on the machine it was made for, by `MACHINES`; else on
DGX A100 boxes with as many GPUs as it has ranks.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import measure
from synth import api
from synth.api.interchange import AuditRow
from synth.errors import SynthError
from synth.model.documents.text_file import files_of
from synth.model.rational import factor_text, rational, show
from synth.model.topology import Topology

# A part of a file's name, and the machine it was made for: a name, a file of the examples, or "" for its own links.
MACHINES = (
    ("ndv2x4", "examples/teccl/ndv2-x4.yaml"),
    ("dgx2x2", "examples/teccl/dgx2-x2.yaml"),
    ("amd_32", ""),
    ("_pcie_4_", "fully-connected:4"),
    ("ncv4", "fully-connected:4"),
)
GPUS = 8  # of a box of the other machines
RESULTS, PAGE = measure.RESULTS / "audit.json", measure.ROOT / "docs" / "audit.md"
BEGIN, END = "<!-- table: python -m bench.audit -->", "<!-- end of the table -->"


def machine_of(file: Path) -> Topology | None:
    """Return the machine on which a file is judged; None for the links that it uses itself."""
    for part, name in MACHINES:
        if part in file.name:
            return api.topology(str(measure.ROOT / name) if name.endswith(".yaml") else name) if name else None
    (row,) = api.audit([file], bounds=False)
    ranks = 0 if row.schedule is None else row.schedule.collective.ranks
    if ranks < GPUS or ranks % GPUS:
        return None
    boxes = ranks // GPUS
    return api.topology("dgx-a100" if boxes == 1 else f"dgx-a100*{boxes}")


def measured(folder: Path, time_limit: float) -> list[dict]:
    """Return a row for each file of the folder."""
    rows = []
    for file in files_of([folder], below=True):
        (row,) = api.audit([file], machine_of(file), time_limit=time_limit)
        rows.append(document(row, file.relative_to(folder).as_posix()))
        print(file.name, row.verdict, flush=True)
    return rows


def document(row: AuditRow, name: str) -> dict:
    """Return the JSON row of a file."""
    return row.to_json() | {"file": name}


def table(rows: Sequence[dict]) -> str:
    """Return the Markdown table and the reasons below it."""
    lines = [
        "| file | | collective, machine | steps (at least) | rounds/chunk | factor at its steps | at any steps | "
        "busiest link |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if "steps" not in row:
            lines.append(f"| {row['file']} | {row['verdict']} | | | | | | |")
            continue
        found, rate = row["distance"], rational(row["distance"]["rounds_per_chunk"])
        at_steps, at_any = (rational(found[key]) if found[key] else None for key in ("bound_at_steps", "bound"))
        factors = [factor_text(rate, at_steps), factor_text(rate, at_any)]
        factors.append(factor_text(rational(row["busiest"]), at_any))
        machine = row["topology"].replace("links of the file", f"{row['ranks']} ranks, its own links")
        steps = f"{row['steps']} ({found['least_steps'] or '?'})"
        cells = [row["file"], row["verdict"], f"{row['collective']}, {machine}", steps, show(rate), *factors]
        lines.append(f"| {' | '.join(cells)} |")
    lines.append("")
    for row in rows:
        if row["reason"]:
            lines.append(f"- {row['file']}: {row['reason'].partition('; gpu')[0]}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Audit the folder and write the JSON and the table of the page."""
    parser = argparse.ArgumentParser(prog="bench.audit", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args(arguments)
    if not options.table:
        if options.folder is None or not options.folder.is_dir():
            raise SynthError("name the folder with the files of others")
        found = {"where": measure.where(), "rows": measured(options.folder, options.time_limit)}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    rows = json.loads(RESULTS.read_text())["rows"]
    text = PAGE.read_text(encoding="utf-8")
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{head}{BEGIN}\n\n{table(rows)}\n\n{END}{tail}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
