"""``splatanim batch``: every object of a folder to a film of its own, with a contact sheet and a table."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from pipelines.batch_jobs import DONE, Job, Record, do_job, finished, objects_in
from pipelines.batch_local import Work, run_local
from pipelines.batch_ray import run_ray
from pipelines.batch_tables import write_contact_sheets, write_tables
from pipelines.cameras import parse_size
from pipelines.film import SEQUENCES
from pipelines.progress import Progress
from splatanim.errors import InputError

_EVERY = 30.0  # seconds between tables while the batch runs


@dataclass(frozen=True)
class BatchConfig:
    """Animate every splat file of a folder: a film each, a contact sheet and a table.

    Args:
        folder: The folder of splat files (.ply, .splat, .ksplat, .spz, .sog, .glb), also in subfolders. Files that
            cannot be animated are listed with their reasons and do not stop the others.
        output: The folder to write to: the films under the names of the files, contact_sheet.png (first, middle and
            last frame of each object), table.csv, .md and .jsonl, failures.txt. Objects that are there already, made
            with the same options from the same file, are skipped, so that an interrupted run goes on.
        motion: What happens to them: drop, poke, sway, squash, twist, drag or ramp.
        material: auto (foam) or a preset: jelly, slime, plush, cloth, flesh, foam, leaf, rubber, leather, wood or
            metal.
        young: Young's modulus [Pa] instead of the preset's.
        poisson: Poisson's ratio instead of the preset's.
        density: Density [kg/m^3] instead of the preset's.
        object_size: The objects' longest side in metres.
        seconds: Length of a film.
        fps: Frames per second.
        size: Size of the picture in pixels, WIDTHxHEIGHT.
        camera: orbit, fixed, a nerfstudio camera_path.json or transforms.json, or a COLMAP model's folder.
        background: Red, green and blue of the background, 0 to 1; or transparent, with --film webm or mov.
        stage: Draw the ground and other planes with soft shadows.
        up: Which way is up: auto, +y, -y, +z, -z, +x or -x.
        pin: What is held: auto (the motion's own choice), none, bottom or top.
        handles: Number of skinning handles.
        field: The skinning field: auto, eigenmodes, gaussians, neural or simplicits.
        export: Also write the moving splats: ply, splat, spz or glb (a sequence in a folder NAME_ply) or npz (one file
            NAME.npz); repeatable.
        film: What kind of film: mp4, webm or mov.
        seed: Seed of everything random.
        limit: Only the first so many files.
        engine: local (processes on this machine) or ray (a Ray cluster; needs the extra ray).
        workers: How many objects at a time; by default one a core.
        threads: Threads for each of them.
        address: With --engine ray, the cluster's address, or auto; without it one is started on this machine.
    """

    folder: Positional[Path]
    output: Annotated[Path, arg(aliases=["-o"])]
    motion: str = "drop"
    material: str = "auto"
    young: float | None = None
    poisson: float | None = None
    density: float | None = None
    object_size: float = 1.0
    seconds: float = 3.0
    fps: float = 30.0
    size: str = "320x320"
    camera: str = "orbit"
    background: str = "1,1,1"
    stage: bool = True
    up: str = "auto"
    pin: str = "auto"
    handles: int = 16
    field: Literal["auto", "eigenmodes", "gaussians", "neural", "simplicits"] = "auto"
    export: UseAppendAction[tuple[str, ...]] = ()
    film: Literal["mp4", "webm", "mov"] = "mp4"
    seed: int = 0
    limit: int | None = None
    engine: Literal["local", "ray"] = "local"
    workers: int | None = None
    threads: int = 1
    address: str | None = None


#: The fields that go to ``animate`` under the same names.
OPTIONS = (
    *("motion", "material", "young", "poisson", "density", "object_size", "seconds", "fps", "size", "camera"),
    *("background", "stage", "up", "pin", "handles", "field", "seed"),
)


def batch(config: BatchConfig, progress: Progress | None = None, *, work: Work = do_job) -> str:
    """Do what is missing, write the tables, and say in words what was done. ``work`` does one object.

    Raises :class:`InputError` for options that fit no object, ``OutputError`` where the tables cannot be written.
    """
    from splatanim.formats.atomic import made_folder

    progress = progress or Progress()
    _check(config)
    jobs = jobs_of(config)
    output = made_folder(config.output)
    records = {job.name: record for job in jobs if (record := finished(job)) is not None}
    skipped = len(records)
    missing = [job for job in jobs if job.name not in records]
    started = written = time.monotonic()
    with progress.bar("animating", len(missing)) as tick:
        try:
            with closing(_run(config, missing, work)) as results:
                for record in results:
                    records[record.name] = record
                    tick()
                    if time.monotonic() - written > _EVERY:
                        write_tables(output, list(records.values()))
                        written = time.monotonic()
        finally:
            write_tables(output, list(records.values()))
    shown = [(records[job.name], job.thumbnail) for job in jobs]
    sheets = write_contact_sheets(output, shown)
    return _summary(list(records.values()), skipped, time.monotonic() - started, output, sheets)


def jobs_of(config: BatchConfig) -> list[Job]:
    """One job for every object of the folder, in the order of their names."""
    options: dict[str, Any] = {name: getattr(config, name) for name in OPTIONS}
    exports = tuple(config.export)
    return [
        Job(name, str(path), str(config.output), f".{config.film}", options, exports)
        for name, path in objects_in(config.folder, config.output, limit=config.limit)
    ]


def _run(config: BatchConfig, jobs: Sequence[Job], work: Work) -> Generator[Record, None, None]:
    if config.engine == "ray" and jobs:
        return run_ray(jobs, work, workers=config.workers, threads=config.threads, address=config.address)
    workers = config.workers or max((os.cpu_count() or 1) // config.threads, 1)
    return run_local(jobs, work, workers=workers, threads=config.threads)


def _check(config: BatchConfig) -> None:
    """What is wrong for all objects is said once, before the work."""
    from pipelines.animate import AnimateConfig, check, chosen_material
    from splatanim.dynamics.motions import body_of, direct
    from splatanim.inspect import up_vector
    from splatanim.render.camera_io import read_cameras

    for option, value in (("--workers", config.workers), ("--threads", config.threads), ("--limit", config.limit)):
        if value is not None and value < 1:
            raise InputError(f"{option} {value}: give a positive number.")
    if config.address is not None and config.engine != "ray":
        raise InputError(f"--address {config.address}: only --engine ray has a cluster to join.")
    for kind in config.export:
        if kind not in (*SEQUENCES, "npz"):
            raise InputError(f"--export {kind!r}: a batch exports {', '.join(SEQUENCES)} or npz.")
    if config.handles < 1:
        raise InputError(f"--handles {config.handles}: at least one handle is needed (16 is usual).")
    if config.pin not in ("auto", "none", "bottom", "top"):
        raise InputError(f"--pin {config.pin!r}: of many objects, auto, none, bottom or top can be held.")
    options: dict[str, Any] = {name: getattr(config, name) for name in OPTIONS}
    trial = AnimateConfig(scene=config.folder / "any.ply", output=Path(f"film.{config.film}"), **options)
    check(trial)
    chosen_material(trial)
    if config.camera.endswith(".json") or Path(config.camera).is_dir():
        read_cameras(config.camera, size=parse_size(config.size))
    elif config.camera not in ("orbit", "fixed"):
        raise InputError(f"--camera {config.camera!r} is neither orbit, fixed nor a .json file of cameras.")
    up = np.array(up_vector("+y" if config.up == "auto" else config.up))
    direct(config.motion, body_of(-np.ones(3), np.ones(3), up, config.seconds))


def _summary(records: list[Record], skipped: int, seconds: float, output: Path, sheets: list[Path]) -> str:
    done = sum(record.status == DONE for record in records)
    failures = len(records) - done
    lines = [
        f"{output}: {done} of {len(records)} objects animated ({skipped} of them before) in {seconds:.1f} s",
        f"  look at   {', '.join(str(path) for path in sheets)}",
        f"  table     {output / 'table.md'}, .csv and .jsonl",
    ]
    if failures:
        lines.append(f"  failed    {failures}, with reasons in {output / 'failures.txt'}")
    return "\n".join(lines)
