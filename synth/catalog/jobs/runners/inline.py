"""Calls in this process, one after the other, to debug a task. Deadlines and memory limits are not enforced."""

from __future__ import annotations

import time

from synth.catalog.jobs.runners import Work, WorkAnswer, WorkCall


class Inline:
    """A runner that carries out a call when it is started."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self.work = work
        self.done: list[WorkAnswer] = []

    def start(self, call: WorkCall) -> None:
        """Carry out the call to its end."""
        began = time.monotonic()
        try:
            answer = WorkAnswer(call.number, self.work(call.text))
        except MemoryError:
            answer = WorkAnswer(call.number, None, "memory", "out of memory")
        except Exception as error:
            answer = WorkAnswer(call.number, None, "crash", f"{type(error).__name__}: {error}")
        self.done.append(answer._replace(seconds=time.monotonic() - began))

    def wait(self, seconds: float | None) -> list[WorkAnswer]:
        """Return the answers of the calls since the last call of this method."""
        answers, self.done = self.done, []
        return answers

    def close(self) -> None:
        """Do nothing: no call is running."""
