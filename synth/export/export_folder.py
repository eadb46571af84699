"""Write a folder of files for a runtime: completely or not at all, with no file that the runtime must not read."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from synth.errors import SynthError
from synth.export.exported_files import ExportResult
from synth.model.documents.whole_file import write


def check(folder: Path) -> None:
    """Refuse a folder that holds anything but an earlier export, which is replaced. Raises SynthError."""
    if folder.exists() and not folder.is_dir():
        raise SynthError(f"cannot write {folder}: it is a file, and this writes a folder")
    paths = folder.iterdir() if folder.is_dir() else ()
    ours = re.compile(r"\d+-.*\.(xml|json)|register\.py")
    strange = sorted(path.name for path in paths if not path.is_file() or not ours.fullmatch(path.name))
    if strange:
        raise SynthError(f"{folder} holds {strange[0]}; a runtime would read that too, so give a new or empty folder")


def write_folder(folder: Path, result: ExportResult, env: str) -> None:
    """Write the files into `folder` in one move, the variables `env` and the notes beside it.

    Raises SynthError.
    """
    check(folder)
    folder = folder.absolute()
    try:
        # All is written beside the folder and moved in place at once; the old one goes last.
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            fresh.chmod(0o755)
            for name, text in result.files:
                (fresh / name).write_text(text)
            old = fresh.with_name(fresh.name + ".old")
            if folder.exists():
                folder.rename(old)
            fresh.rename(folder)
            shutil.rmtree(old, ignore_errors=True)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    except OSError as error:
        raise SynthError(f"cannot write {folder}: {error.strerror or error}") from error
    write(folder.with_name(folder.name + ".env"), env)
    write(folder.with_name(folder.name + ".md"), result.notes)
