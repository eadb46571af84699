"""Executors: what runs a Program. Each is a class; see `execution.Executor` for what it promises."""

from __future__ import annotations

from collections.abc import Mapping

EXECUTORS: Mapping[str, str] = {"reference": "synth.runtime.reference:Reference"}
SUMMARIES: Mapping[str, str] = {"reference": "NumPy: the result, checked, and the time under the cost model"}

__all__ = ["EXECUTORS", "SUMMARIES"]
