"""Objects of a batch on the cores of this machine: processes that each take one object after the other.

A process keeps its compiled kernels from one object to the next and works on few threads (one), as many processes side
by side are faster than many threads each. Which object a process is at is known here, so that the death of one (out of
memory, a crash in native code) costs nothing but a second try of that object.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from pipelines.batch_jobs import Job, Record, failed

Work = Callable[[Job], Record]
TRIES = 2  # of an object whose process dies
PATIENCE = 20.0  # seconds to clean up in after an interrupt
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class _Worker:
    """A process and the object that it is at (None while idle)."""

    def __init__(self, work: Work, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), name="splatanim-batch", daemon=False)
        with environment(thread_limits(threads)):
            self.process.start()
        theirs.close()
        self.job: Job | None = None

    def give(self, job: Job) -> None:
        self.job = job
        with contextlib.suppress(OSError):  # died while idle: its sentinel says so
            self.pipe.send(job)

    def stop(self) -> None:
        """Let an idle process go."""
        with contextlib.suppress(OSError):
            self.pipe.send(None)

    def interrupt(self) -> None:
        if self.process.is_alive():
            self.process.terminate()

    def close(self, patience: float) -> None:
        self.process.join(patience)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def run_local(jobs: Sequence[Job], work: Work, *, workers: int, threads: int = 1) -> Generator[Record, None, None]:
    """Do all jobs, yielding records as they come. Closing the iterator, or an interrupt, stops the processes, which
    take their unfinished files with them."""
    waiting = deque((job, 1) for job in jobs)
    tries: dict[str, int] = {}
    crew: list[_Worker] = []
    try:
        while waiting or any(worker.job for worker in crew):
            while waiting and len(crew) < workers:
                crew.append(_Worker(work, threads))
            for worker in crew:
                if worker.job is None and waiting:
                    job, tries[job.name] = waiting.popleft()
                    worker.give(job)
            for worker in _ready(crew):
                record = _answer(worker)
                at, worker.job = worker.job, None
                if record is not None:
                    yield record
                    continue
                crew.remove(worker)
                worker.close(PATIENCE)
                if at is not None and tries[at.name] < TRIES:
                    waiting.append((at, tries[at.name] + 1))
                elif at is not None:
                    yield failed(at, _obituary(worker.process.exitcode))
        for worker in crew:
            worker.stop()
    finally:
        for worker in crew:
            if worker.job is not None:
                worker.interrupt()
            else:
                worker.stop()
        for worker in crew:
            worker.close(PATIENCE)


def _ready(crew: list[_Worker]) -> list[_Worker]:
    """Workers that have answered or died; waits for the first."""
    sources: list[Any] = [worker.pipe for worker in crew] + [worker.process.sentinel for worker in crew]
    seen = wait(sources)
    return [worker for worker in crew if worker.pipe in seen or worker.process.sentinel in seen]


def _answer(worker: _Worker) -> Record | None:
    """The record that a worker sends; None where it has died."""
    try:
        return worker.pipe.recv() if worker.pipe.poll() else None
    except (EOFError, OSError):
        return None


def _obituary(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        cause = "the machine was out of memory, most likely" if name == "SIGKILL" else "a crash in compiled code"
        return f"The process that worked on it was ended by {name} ({cause}), {TRIES} times. Try fewer --workers."
    return f"The process that worked on it ended with code {code}, {TRIES} times. Animate this file alone to see why."


def _serve(pipe: Connection, work: Work) -> None:
    """The life of a process: jobs in, records out, until None comes, the pipe ends or it is terminated."""
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # Ctrl-C reaches the parent alone, not ffmpeg in the middle of a film
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        while (job := pipe.recv()) is not None:
            pipe.send(work(job))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _interrupted(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what cleans up must not be interrupted
    raise KeyboardInterrupt


def thread_limits(threads: int) -> dict[str, str]:
    """Environment variables that hold a process to so many threads; they count from its first import on."""
    return dict.fromkeys(_THREADS, str(threads)) | {"OMP_WAIT_POLICY": "passive"}


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables for the processes that are started in the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
