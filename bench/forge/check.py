"""The verifier, called as `synth verify` calls it, with a limit on its time; its answers by name."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from bench.forge.seeds import Case
from synth.commands import api
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
            return "accepted", api.verify(case.doc)
    except Slow:
        return "slow", []
    except SynthError as error:
        return "refused", [str(error)]
    except Exception as error:
        return "crashed", [f"{type(error).__name__}: {error}"[:200]]
