"""Write a folder of files for a runtime, and print what was written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from synth.cli.framework.output import wrote

if TYPE_CHECKING:
    from synth.export.exported_files import ExportResult


def check(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier export. Raises SynthError."""
    from synth.export import export_folder

    export_folder.check(folder)


def write_all(folder: Path, result: ExportResult, env: Callable[[str, Sequence[str]], str]) -> None:
    """Write the files as `export_folder.write_folder` does, and say so. Raises SynthError."""
    from synth.export import export_folder

    folder = folder.absolute()
    export_folder.write_folder(folder, result, env)
    count = "1 file" if len(result.files) == 1 else f"{len(result.files)} files"
    wrote(f"{count} to {folder}, and beside it {folder.name}.env and {folder.name}.md")
