"""Calls in this process, one after the other, to debug a task. Deadlines and memory limits are not enforced."""

from __future__ import annotations

import time

from synth.catalog.jobs.runners import Answer, Call, Work


class Inline:
    """A runner that carries out a call when it is started."""

    slots = 1

    def __init__(self, work: Work) -> None:
        self.work = work
        self.done: list[Answer] = []

    def start(self, call: Call) -> None:
        """Carry out the call to its end."""
        began = time.monotonic()
        try:
            answer = Answer(call.number, self.work(call.text))
        except MemoryError:
            answer = Answer(call.number, None, "memory", "out of memory")
        except Exception as error:
            answer = Answer(call.number, None, "crash", f"{type(error).__name__}: {error}")
        self.done.append(answer._replace(seconds=time.monotonic() - began))

    def wait(self, seconds: float | None) -> list[Answer]:
        """Return the answers of the calls since the last call of this method."""
        answers, self.done = self.done, []
        return answers

    def close(self) -> None:
        """Do nothing: no call is running."""
