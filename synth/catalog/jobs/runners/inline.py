"""Calls in this process, one after the other: for looking into a task. Deadlines and memory are the work's own
affair."""

from __future__ import annotations

import time

from synth.catalog.jobs.runners import Answer, Call, Work


class Inline:
    """Runs a call when it is started."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self.work = work
        self.done: list[Answer] = []

    def start(self, call: Call) -> None:
        """Run it to its end."""
        began = time.monotonic()
        try:
            answer = Answer(call.number, self.work(call.text))
        except MemoryError:
            answer = Answer(call.number, None, "memory", "out of memory")
        except Exception as error:
            answer = Answer(call.number, None, "crash", f"{type(error).__name__}: {error}")
        self.done.append(answer._replace(seconds=time.monotonic() - began))

    def wait(self, seconds: float | None) -> list[Answer]:
        """The answers of the calls since the last time."""
        found, self.done = self.done, []
        return found

    def close(self) -> None:
        """Nothing runs."""
