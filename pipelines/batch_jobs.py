"""One object of a batch: what is asked for, whether it is done already, doing it, and the record that it leaves.

Records are files of their own, ``OUT/.records/NAME.json``, written whole by whoever did the work after the film
stands. So they survive any way a run can end, and who starts an object looks there first: nothing is done twice.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from splatanim.errors import InputError, OutputError

SUFFIXES = (".ply", ".splat", ".ksplat", ".spz", ".sog", ".glb")
_FORMAT = 1  # of records; older ones count as not done
_THUMBNAIL = 112  # pixels, the longer side of each of the three pictures
DONE, FAILED = "done", "failed"


@dataclass(frozen=True)
class Job:
    """An object to animate: ``source`` relative to nothing (as given), ``name`` of its files under ``output``, and the
    options of ``animate`` that make a difference to the film, as plain values."""

    name: str
    source: str
    output: str
    suffix: str
    options: dict[str, Any]
    exports: tuple[str, ...] = ()

    @property
    def film(self) -> Path:
        return Path(self.output, self.name + self.suffix)

    @property
    def record(self) -> Path:
        return Path(self.output, ".records", self.name + ".json")

    @property
    def thumbnail(self) -> Path:
        return Path(self.output, ".records", self.name + ".png")

    @property
    def key(self) -> str:
        """What the film depends on: the options, and the source as it is now (its size and time of change)."""
        status = Path(self.source).stat()
        told = [_FORMAT, self.options, self.suffix, sorted(self.exports), status.st_size, status.st_mtime_ns]
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Record:
    """What became of an object. ``status`` is done or failed, then with a ``reason``; times are seconds of work."""

    name: str
    source: str
    status: str
    key: str
    reason: str = ""
    film: str = ""
    splats: int = 0
    left_out: int = 0
    frames: int = 0
    handles: int = 0
    converged: float = 0.0
    penetration: float = 0.0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    def write(self, path: Path) -> None:
        """As JSON, whole or not at all."""
        from splatanim.formats.atomic import atomic_path, made_folder

        made_folder(path.parent)
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", encoding="utf-8")


def read_record(path: Path) -> Record | None:
    """A record, or None where there is none that can be read."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Record(**{**data, "notes": tuple(data["notes"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def finished(job: Job) -> Record | None:
    """The record of an object that is done, with these very options and from this very file; else None."""
    found = read_record(job.record)
    try:
        same = found is not None and found.status == DONE and found.key == job.key and job.film.is_file()
    except OSError:
        return None
    return found if same else None


def objects_in(folder: Path, output: Path, *, limit: int | None = None) -> list[tuple[str, Path]]:
    """Names and paths of the splat files under a folder, sorted, without what lies in ``output`` or is hidden.

    A name is the path under ``folder`` without suffix; of files that differ in the suffix alone, with it. A
    ``meta.json`` (unbundled SOG) goes by its folder's name. Raises :class:`InputError` where there is none.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder. Give the folder that holds the splat files, in subfolders or not.")
    inside = output.resolve()
    found: list[tuple[Path, Path, Path]] = []  # name without suffix, name with it, path
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in relative.parts)
        if hidden or inside in path.resolve().parents or not path.is_file():
            continue
        if path.name == "meta.json" and len(relative.parts) > 1:
            found.append((relative.parent, relative.parent, path))
        elif path.suffix.lower() in SUFFIXES:
            found.append((relative.with_suffix(""), relative, path))
    if not found:
        raise InputError(f"{folder}: holds no splat files ({', '.join(SUFFIXES)}), nor do its subfolders.")
    count = Counter(stem for stem, _, _ in found)
    return [((stem if count[stem] == 1 else full).as_posix(), path) for stem, full, path in found][:limit]


def do_job(job: Job) -> Record:
    """Animate one object, unless it is done; never raises for what may be wrong with it. Interrupts pass through."""
    done = finished(job)
    if done is not None:
        return done
    started = time.perf_counter()
    try:
        record = _animated(job, started)
        record.write(job.record)
        return record
    except (InputError, OutputError) as error:
        return failed(job, str(error))
    except (MemoryError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError, OSError) as error:
        return failed(job, f"{type(error).__name__}: {error}")


def failed(job: Job, reason: str) -> Record:
    """The record of an object that could not be animated; written, where that is possible."""
    try:
        key = job.key
    except OSError:  # the file is gone
        key = ""
    record = Record(job.name, job.source, FAILED, key, " ".join(reason.split()))
    with suppress(OutputError):  # the disk is full, most likely: the table still says what happened
        record.write(job.record)
    return record


def _animated(job: Job, started: float) -> Record:
    from pipelines.animate import AnimateConfig, animate
    from pipelines.report import to_json
    from splatanim.formats.atomic import made_folder

    key = job.key  # of the file as it was when the work began
    made_folder(job.film.parent)
    exports = tuple(_export(kind, job.film) for kind in job.exports)
    config = AnimateConfig(scene=Path(job.source), output=job.film, export=exports, **job.options)
    thumbnails: dict[int, np.ndarray] = {}
    wanted = {0, (config.frames - 1) // 2, config.frames - 1}

    def look(k: int, picture: np.ndarray) -> None:
        if k in wanted:
            thumbnails[k] = _small(picture)

    result = animate(config, look=look)
    _write_strip(job.thumbnail, [thumbnails[k] for k in sorted(thumbnails)])
    report: dict[str, Any] = to_json(result)
    return Record(
        name=job.name,
        source=job.source,
        status=DONE,
        key=key,
        film=str(job.film),
        splats=report["splats"],
        left_out=sum(report["dropped"].values()),
        frames=report["frames"],
        handles=report["field"]["handles"],
        converged=report["solver"]["converged_fraction"],
        penetration=report["max_penetration_fraction"],
        seconds=round(time.perf_counter() - started, 3),
        notes=tuple(report["warnings"]),
    )


def _export(kind: str, film: Path) -> str:
    target = film.with_suffix(".npz") if kind == "npz" else film.with_name(f"{film.stem}_{kind}")
    return f"{kind}:{target}"


def _small(picture: np.ndarray) -> np.ndarray:
    """A thumbnail of a picture (H, W, 3) in [0, 1], as bytes."""
    from PIL import Image

    from splatanim.render.video import to_bytes

    image = Image.fromarray(to_bytes(picture))
    image.thumbnail((_THUMBNAIL, _THUMBNAIL))
    return np.asarray(image)


def _write_strip(path: Path, pictures: list[np.ndarray]) -> None:
    """First, middle and last frame side by side."""
    from splatanim.formats.atomic import made_folder
    from splatanim.render.video import write_png

    made_folder(path.parent)
    write_png(path, np.concatenate(pictures, axis=1))
