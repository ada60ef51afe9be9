"""Objects of a batch on a Ray cluster: as tasks that Ray starts where there is a core, and starts again where one dies.

Every machine must reach the folders under the same paths, and have splatanim installed in the same version.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from pipelines.batch_jobs import Job, Record, failed
from pipelines.batch_local import PATIENCE, TRIES, Work, thread_limits
from splatanim.errors import InputError, require

_AHEAD = 2  # tasks handed to Ray a core, so that none waits for the next


def run_ray(
    jobs: Sequence[Job], work: Work, *, workers: int | None, threads: int = 1, address: str | None = None
) -> Generator[Record, None, None]:
    """Do all jobs, yielding records as they come.

    ``address``: a running cluster's (``auto`` finds the one of this machine); None starts one here with ``workers``
    cores, which ends with the run. ``workers`` bounds how many tasks run at once; None: as many as fit.

    Raises :class:`InputError` where Ray is missing or the cluster does not answer.
    """
    ray = require("ray", extra="ray")
    started = not ray.is_initialized()
    if started:
        _start(ray, address, workers)
    try:
        limits = {"env_vars": thread_limits(threads)}
        options = {"num_cpus": threads, "max_retries": TRIES - 1, "runtime_env": limits}
        task = ray.remote(**options)(work)
        cores = max(int(ray.cluster_resources().get("CPU", 1)) // threads, 1)
        most = workers if address is not None and workers else _AHEAD * cores
        waiting: deque[Job] = deque(jobs)
        flying: dict[Any, Job] = {}
        try:
            while waiting or flying:
                while waiting and len(flying) < most:
                    job = waiting.popleft()
                    flying[task.remote(job)] = job
                for reference in ray.wait(list(flying), num_returns=1)[0]:
                    yield _result(ray, reference, flying.pop(reference))
        finally:
            for reference in flying:  # interrupted: the tasks clean up after themselves, in time
                ray.cancel(reference)
            if flying:
                ray.wait(list(flying), num_returns=len(flying), timeout=PATIENCE)
    finally:
        if started:
            ray.shutdown()


def _start(ray, address: str | None, workers: int | None) -> None:
    common = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    try:
        if address is None:
            ray.init(num_cpus=workers, **common)
        else:
            _knock(address)
            ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"--address {address}: no Ray cluster answers ({error}). Start one with `ray start --head`, or leave "
            "--address out for one of its own on this machine."
        ) from error


def _knock(address: str) -> None:
    """Whether anybody listens at ``host:port``; Ray itself would try for minutes. Raises OSError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=10).close()


def _result(ray, reference, job: Job) -> Record:
    """A task's record; a failure where its process died too often."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayError as error:
        said = str(error).strip().splitlines()
        return failed(job, f"Ray gave it up: {said[0] if said else type(error).__name__}")
