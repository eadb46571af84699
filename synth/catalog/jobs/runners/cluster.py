"""Calls on the workers of a Dask scheduler: a local cluster, a running one, or SLURM jobs.

Each worker carries out a call in a child process, as `processes` does, with the same deadline and memory limit. If a
worker dies, the scheduler starts its call again on another one, a few times
(`distributed.scheduler.allowed-failures`).
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from synth.catalog.jobs.runners import Work, WorkAnswer, WorkCall
from synth.catalog.jobs.runners.processes import Processes
from synth.errors import SynthError, UsageError
from synth.model.registry import need
from synth.version import __version__

INSTALL = "pip install 'ccl-synth[cluster]'"
CONNECT_SECONDS = 5.0  # seconds to wait for an answer of a scheduler
CLOSE_SECONDS = 15.0  # seconds to wait for a client or a cluster to close
LOCAL = "local"

# On a worker: the runner of each thread for each client, so that a client that disconnects ends only its own child
# processes.
_runners: dict[tuple[str, int], Processes] = {}


def carry_out(work: Work, call: WorkCall, owner: str) -> WorkAnswer:
    """Carry out a call in a child of this process. Runs on a worker."""
    runner = _runners.setdefault((owner, threading.get_ident()), Processes(work, 1))
    runner.start(call)
    while not (answers := runner.wait(None)):
        pass
    return answers[0]


def give_up(owner: str) -> None:
    """End the child processes of a client that disconnects, and free the threads that wait for them. Runs on a
    worker."""
    for (client, _), runner in list(_runners.items()):
        if client == owner:
            runner.abandon()


class Cluster:
    """A runner of calls as Dask tasks.

    `cluster`: the cluster to close with this runner. `slots`: calls at a time, None for the threads of all workers.
    """

    def __init__(self, work: Work, client: Any, cluster: Any = None, slots: int | None = None) -> None:
        self.work, self.client, self.cluster = work, client, cluster
        self._slots = slots
        self.owner = uuid.uuid4().hex
        self._futures: dict[Any, tuple[int, float]] = {}

    @property
    def slots(self) -> int:
        """The number of threads of all present workers; at least 1, so that calls wait for workers that are yet to
        start."""
        if self._slots is not None:
            return self._slots
        return max(1, sum(self.client.nthreads().values()))

    def start(self, call: WorkCall) -> None:
        """Submit the call to the scheduler."""
        future = self.client.submit(carry_out, self.work, call, self.owner, pure=False)
        self._futures[future] = call.number, time.monotonic()

    def wait(self, seconds: float | None) -> list[WorkAnswer]:
        """Return the new answers. Waits for one, at most `seconds`. Raises SynthError where the scheduler is gone."""
        if not self._futures:
            return []
        with contextlib.suppress(TimeoutError):
            _distributed().wait(list(self._futures), timeout=seconds, return_when="FIRST_COMPLETED")
        if self.client.status != "running":
            raise SynthError("the connection to the Dask scheduler is lost; the same command continues")
        return [self._answer(future) for future in list(self._futures) if future.done()]

    def _answer(self, future: Any) -> WorkAnswer:
        number, began = self._futures.pop(future)
        seconds = time.monotonic() - began
        if future.status == "finished":
            try:
                return future.result()
            except Exception as error:
                return WorkAnswer(number, None, "crash", f"its answer was lost: {error}", seconds)
        if future.status == "cancelled":
            raise SynthError("the Dask scheduler dropped a task; is it still there? the same command continues")
        error = future.exception()
        return WorkAnswer(
            number, None, "crash", f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", seconds
        )

    def close(self) -> None:
        """Cancel the running calls, and close the cluster if this runner started it."""
        with contextlib.suppress(Exception):
            if self._futures:
                self.client.cancel(list(self._futures), force=True)
                self.client.run(give_up, self.owner, on_error="ignore")
        for connection in (self.client, self.cluster):
            with contextlib.suppress(Exception):
                if connection is not None:
                    connection.close(timeout=CLOSE_SECONDS)


def connect(work: Work, address: str, jobs: int) -> Cluster:
    """Return a runner on the scheduler at `address`, or on `jobs` workers of this machine for "local".

    Raises MissingDependencyError, UsageError for a malformed address, SynthError for a scheduler that does not answer.
    """
    distributed = _distributed()
    if address.lower() == LOCAL:
        cluster = distributed.LocalCluster(
            n_workers=jobs,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address=None,
            memory_limit=0,
            silence_logs=logging.CRITICAL,
        )
        return Cluster(work, distributed.Client(cluster), cluster, jobs)
    if ":" not in address.removeprefix("tcp://"):
        raise UsageError(f"--dask {address}: expected local, or the address of a scheduler such as tcp://host:8786")
    try:
        client = distributed.Client(address, timeout=CONNECT_SECONDS)
    except Exception as error:  # a program other than Dask may listen there, and answer with anything
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise SynthError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS:g} s ({why}); is one running?"
        ) from None
    check_versions(client, address)
    return Cluster(work, client)


def slurm(work: Work, options: Mapping[str, Any], jobs: int) -> Cluster:
    """Return a runner on `jobs` SLURM jobs with the `options` of the job file's key `slurm`.

    Raises MissingDependencyError, SynthError.
    """
    cluster = slurm_cluster(options)
    if shutil.which("sbatch") is None:
        cluster.close()
        raise SynthError("there is no `sbatch` on this machine; --slurm is for a login node of a SLURM cluster")
    cluster.scale(jobs=jobs)
    distributed = _distributed()
    return Cluster(work, distributed.Client(cluster), cluster, jobs * int(options.get("processes", 1)))


def slurm_cluster(options: Mapping[str, Any]) -> Any:
    """Return dask-jobqueue's SLURMCluster with the job file's options; no job is submitted. Raises SynthError."""
    _distributed()
    jobqueue = need("dask_jobqueue", "--slurm", INSTALL)
    missing = [key for key in ("cores", "memory") if key not in options]
    if missing:
        raise SynthError(f"--slurm needs {' and '.join(missing)} of a SLURM job; say so under the job file's key slurm")
    return jobqueue.SLURMCluster(**{"processes": 1, **options}, scheduler_options={"dashboard_address": None})


def _distributed() -> Any:
    """Return the module `distributed`, with its logging silenced. Raises MissingDependencyError."""
    module = need("distributed", "a Dask cluster", INSTALL)
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return module


def version() -> str:
    """Return the version of synth in this process."""
    return __version__


def check_versions(client: Any, address: str) -> None:
    """Close `client` and raise SynthError unless all workers have this version of synth."""
    try:
        versions = set(client.run(version).values())
    except Exception as error:
        client.close()
        why = " ".join(str(error).split())[:120]
        raise SynthError(f"the workers of {address} cannot run synth ({why}); install the same version there") from None
    if versions - {version()}:
        client.close()
        raise SynthError(
            f"the workers of {address} have synth {', '.join(sorted(versions))}, here it is {version()}; use the same "
            f"version"
        )
