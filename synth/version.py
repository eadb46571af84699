"""The version of synth, that of ``pyproject.toml``, which is known also in a clone that is not installed."""

__version__ = "0.1.0"
