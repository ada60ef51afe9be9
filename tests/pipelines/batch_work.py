"""Work for batch engines whose every start is written down, and which dies where it is told to."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from pipelines.batch_jobs import DONE, Job, Record, finished


def note(job: Job, what: str) -> None:
    """One line in a file of all processes (appending is atomic for lines so short)."""
    with open(Path(job.output, "log.txt"), "a") as file:
        file.write(f"{what} {job.name} {os.getpid()}\n")


def logged(job: Job) -> list[list[str]]:
    return [line.split() for line in Path(job.output, "log.txt").read_text().splitlines()]


def write_something(job: Job) -> Record:
    """A 'film' of a few bytes, unless it is done."""
    done = finished(job)
    if done is not None:
        return done
    note(job, "start")
    job.film.parent.mkdir(parents=True, exist_ok=True)
    job.film.write_bytes(b"film of " + job.name.encode())
    record = Record(job.name, job.source, DONE, job.key, film=str(job.film), seconds=0.1)
    record.write(job.record)
    note(job, "done")
    return record


def die_once(job: Job) -> Record:
    """The third object takes its process along at the first try, in the middle of the work."""
    marker = Path(job.output, "died")
    if job.name == "object_2" and not marker.exists():
        note(job, "start")
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return write_something(job)


def die_always(job: Job) -> Record:
    if job.name == "object_1":
        note(job, "start")
        os.kill(os.getpid(), signal.SIGKILL)
    return write_something(job)


def die_after_the_record(job: Job) -> Record:
    """The worst moment: the work is done and written, the answer not yet given."""
    record = write_something(job)
    marker = Path(job.output, "died")
    if job.name == "object_0" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return record


def wait_to_be_killed(job: Job) -> Record:
    """The first object that begins says who works on it and waits; at a later try it is done."""
    marker = Path(job.output, "pid")
    if not marker.exists():
        note(job, "start")
        marker.with_suffix(".part").write_text(f"{os.getpid()} {job.name}")
        os.replace(marker.with_suffix(".part"), marker)
        time.sleep(120)
    return write_something(job)
