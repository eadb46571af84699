"""Programs in files of the user's: the only code of strangers that this package runs, and only when asked to."""

from __future__ import annotations

import runpy
import sys
import traceback
from pathlib import Path

from synth.errors import FormatError, SynthError, UsageError
from synth.language.algorithm import ChunkAlgorithm


def algorithms_in(path: Path) -> dict[str, ChunkAlgorithm]:
    """Run a Python file and return the algorithms that it defines, by the names of their variables.

    Raises UsageError, with the line, for a file that cannot be run or defines none.
    """
    if not path.is_file():
        raise FormatError("does not exist", str(path))
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        # Imports of files beside the program work while it runs.
        values = runpy.run_path(str(path), run_name="synth_program")
    except SyntaxError as error:
        line = "" if error.lineno is None else f":{error.lineno}"
        raise UsageError(f"{error.filename or path}{line}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = f":{inside[-1].lineno}" if inside else ""
        kind = "" if isinstance(error, SynthError) else f"{type(error).__name__}: "
        raise UsageError(f"{path}{line}: {kind}{error}") from error
    finally:
        sys.path.remove(folder)
    # Algorithms that the file only imports are not its own.
    found = {name: value for name, value in values.items() if isinstance(value, ChunkAlgorithm)}
    own = {name: value for name, value in found.items() if value.function.__globals__.get("__file__") == str(path)}
    if not own:
        raise UsageError(f'{path} defines no algorithm; decorate its function with @algorithm("allgather")')
    return own
