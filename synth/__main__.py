"""`python -m synth`: the same as the command `synth`, for an interpreter whose scripts are not on the path."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Python puts the working folder first on the path. Plug-ins and modules that lie there are not installed, and the
# command `synth` does not load them. A checkout of this package, in its own folder, stays importable.
if sys.path and sys.path[0] in ("", os.getcwd()) and Path(__file__).parents[1] != Path.cwd():
    del sys.path[0]

from synth.commands import main

if __name__ == "__main__":
    main()
