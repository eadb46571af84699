"""The notebooks of examples/: run, and stored with what they show.

    python -m bench.notebooks                    all of them
    python -m bench.notebooks examples/a.ipynb   this one

Frames with the page of `synth report` are not stored: pages of code hosts show none, and they are large.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

FOLDER = Path(__file__).parent.parent / "examples"
FRAME = re.compile(r"<iframe.*?</iframe>", re.DOTALL)
STAND_IN = "<div><i>a frame with the drawn machine and the step player: run the cell to see it</i></div>"


def executed(path: Path, folder: Path) -> Any:
    """Return the notebook `path` with the outputs of a run in `folder`, which holds its files and its cache."""
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    with patch.dict(os.environ, SYNTH_CACHE=str(folder)):
        nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook


def tidied(notebook: Any) -> Any:
    """Return the notebook without metadata of cells and without frames."""
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "text/html" in data:
                data["text/html"] = FRAME.sub(STAND_IN, data["text/html"])
    return notebook


def main(paths: list[str]) -> int:
    """Run and store the notebooks."""
    import nbformat

    for path in [Path(name) for name in paths] or sorted(FOLDER.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(tidied(executed(path, Path(folder))), path)
        print(path, path.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
