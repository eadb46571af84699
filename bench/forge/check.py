"""The verifier, called as `synth verify` calls it, with a limit on its time; its answers by name."""

from __future__ import annotations

import io
import json
import signal
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.forge.seeds import Case
from synth import api
from synth.errors import SynthError

SECONDS = 20.0  # beyond which a checker of documents so small is kept busy


class Slow(Exception):
    """The checker did not end in time."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Slow is raised in the main thread after so many seconds of CPU."""

    def stop(*_: object) -> None:
        raise Slow

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def verified(case: Case) -> tuple[str, list[str]]:
    """("accepted", the lines that are printed), ("refused", why), ("crashed", how) or ("slow", [])."""
    try:
        with limited(SECONDS):
            return "accepted", _verified(case)
    except Slow:
        return "slow", []
    except SynthError as error:
        return "refused", [str(error)]
    except Exception as error:
        return "crashed", [f"{type(error).__name__}: {error}"[:200]]


def _verified(case: Case) -> list[str]:
    if not case.files and case.schema != "bulk/1":
        return api.verify(case.doc)
    with tempfile.TemporaryDirectory(prefix="synth-forge-") as folder:
        return api.verify(write(case, Path(folder)))


def write(case: Case, folder: Path) -> Path:
    """The document and the files beside it; the path of the document. Raises SynthError for numbers that no archive
    holds."""
    for name, content in case.files.items():
        (folder / Path(name).name).write_bytes(packed(content))
    if case.schema == "bulk/1":
        path = folder / "document.npz"
        path.write_bytes(packed(case.doc))
    else:
        path = folder / "document.json"
        path.write_text(json.dumps(case.doc), encoding="utf-8")
    return path


def packed(doc: dict) -> bytes:
    """The archive of a ``synth.bulk/1`` document."""
    arrays: dict[str, Any] = {}
    if not isinstance(doc.get("arrays"), dict):
        raise SynthError("holds no arrays")
    for name, values in doc["arrays"].items():
        try:
            arrays[name] = (
                np.array(values, _type(values))
                if values != []
                else np.zeros((0, 0) if name == "generators" else 0, np.int64)
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise SynthError(f"{name} is no array: {error}") from None
    text = np.frombuffer(json.dumps(doc["header"]).encode(), np.uint8)
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as file:
        for name, values in {**arrays, "header": text}.items():
            with file.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, values, allow_pickle=False)
    return data.getvalue()


def _type(values: Any) -> type:
    flat = [x for row in values for x in (row if isinstance(row, list) else [row])]
    if any(type(x) is float for x in flat):
        return np.float64
    return np.uint64 if max(flat) >= 1 << 63 and min(flat) >= 0 else np.int64
