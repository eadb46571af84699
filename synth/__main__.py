"""`python -m synth`: the same as the command `synth`, for an interpreter whose scripts are not on the path."""

from __future__ import annotations

from synth.cli import main

if __name__ == "__main__":
    main()
