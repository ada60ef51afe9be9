"""What was simulated before, played back: a 4D sequence, or a folder of splat files, one a frame."""

from __future__ import annotations

import re
from collections import OrderedDict
from pathlib import Path

import numpy as np
from jaxtyping import Float

from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.formats import READERS, read_splats
from splatanim.formats.sequence4d import Sequence4D, read_sequence4d
from splatanim.inspect import robust_bounds
from splatanim.rotations import SH_C0, quaternions_to_matrices
from viewers.moving import Cloud
from viewers.player import Player

_FRAME_NAME = re.compile(r"^(.*?)(\d+)$")
_KEPT_BYTES = 400e6  # of frames read from a folder that stay in memory


class Playback(Player):
    """Frames of splats, looping. ``frame_splats`` gives one frame in file coordinates (``Splats.offset`` set)."""

    def __init__(self, name: str, frames: int, fps: float, first: Splats, frame: Frame) -> None:
        offset = np.asarray(first.offset)
        self.names = (name,)
        self._frame_of_means = frame
        x, y, z = (float(v) for v in np.asarray(frame.centre) + offset)
        self.file_frame = Frame((x, y, z), frame.scale, frame.up)
        self.up = np.asarray(frame.up, np.float64)
        low, high = robust_bounds(first)
        self.low, self.high = frame.to_sim(low[None])[0], frame.to_sim(high[None])[0]
        super().__init__(frames, fps)

    def frame_splats(self, frame: int) -> Splats:
        """The splats of one frame, in the file's coordinates."""
        raise NotImplementedError

    def clouds(self) -> tuple[Cloud, ...]:
        return (cloud_of(self.frame_splats(self._frame), self._frame_of_means),)

    def splats(self) -> Splats:
        """The present frame in the viewer's coordinates, with its harmonics: what stills are drawn from."""
        return placed(self.frame_splats(self._frame), self._frame_of_means)


class SequencePlayback(Playback):
    """A 4D sequence (:mod:`splatanim.formats.sequence4d`), posed as it is shown."""

    def __init__(self, path: Path) -> None:
        self.sequence: Sequence4D = read_sequence4d(path)
        count, times = len(self.sequence), self.sequence.times
        span = float(times[-1] - times[0])
        fps = (count - 1) / span if count > 1 and span > 0 else 30.0
        super().__init__(path.stem, count, fps, self.sequence.splats, self.sequence.bound.frame)

    def frame_splats(self, frame: int) -> Splats:
        return self.sequence.frame(frame)


class FolderPlayback(Playback):
    """A folder of frames (``frame_0000.ply`` ...), read as they are shown; the latest stay in memory.

    ``up`` and ``object_size`` place the first frame in the viewer, as ``animate`` would.
    """

    def __init__(self, folder: Path, fps: float, up: str = "auto", object_size: float = 1.0) -> None:
        from pipelines.animate import prepare

        self.paths = frame_files(folder)
        first = read_splats(self.paths[0])
        subject = prepare(first, up, object_size, self.paths[0])
        self._kept: OrderedDict[int, Splats] = OrderedDict({0: first.splats})
        self._count = len(first.splats)
        super().__init__(folder.name, len(self.paths), fps, first.splats, subject.frame)

    def frame_splats(self, frame: int) -> Splats:
        kept = self._kept.get(frame)
        if kept is not None:
            return kept
        splats = read_splats(self.paths[frame]).splats
        if len(splats) != self._count:
            raise InputError(
                f"{self.paths[frame]}: has {len(splats)} splats, the first frame {self._count}. The frames of one "
                "sequence have the same splats in the same order."
            )
        first = self._kept[0]
        if splats.offset != first.offset:  # every file is recentred for itself; the viewer has one frame
            shift = np.asarray(splats.offset) - np.asarray(first.offset)
            splats = splats.replace(means=(splats.means + shift).astype(np.float32), offset=first.offset)
        self._kept[frame] = splats
        bytes_each = splats.means.nbytes * 5 + splats.sh.nbytes
        while len(self._kept) > 2 and len(self._kept) * bytes_each > _KEPT_BYTES:
            self._kept.pop(next(k for k in self._kept if k != 0))
        return splats


def frame_files(folder: Path) -> list[Path]:
    """The files of a sequence in order: one prefix, then digits.

    Raises InputError where there is none, or where the folder holds several sequences.
    """
    found: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    for path in folder.iterdir():
        match = _FRAME_NAME.match(path.stem)
        if match and path.suffix.lower() in READERS and path.suffix.lower() != ".json":
            found.setdefault((match[1], path.suffix.lower()), []).append((int(match[2]), path))
    if not found:
        raise InputError(
            f"{folder}: holds no numbered splat files such as frame_0000.ply. Make them with animate --export ply:DIR."
        )
    if len(found) > 1:
        kinds = ", ".join(f"{prefix}*{suffix}" for prefix, suffix in sorted(found))
        raise InputError(f"{folder}: holds several sequences ({kinds}). Put each into a folder of its own.")
    return [path for _, path in sorted(next(iter(found.values())))]


def is_frames_folder(path: Path) -> bool:
    """Whether it is a folder that is not itself one capture (an unbundled SOG)."""
    from splatanim.formats.sog import META

    return path.is_dir() and not (path / META).is_file()


def cloud_of(splats: Splats, frame: Frame) -> Cloud:
    """Splats of the file as the viewer draws them: with covariances, and the constant part of their colours."""
    spread = quaternions_to_matrices(splats.quaternions) * (frame.scale * splats.scales.astype(np.float64))[:, None]
    return Cloud(
        frame.to_sim(splats.means).astype(np.float32),
        covariances(spread).astype(np.float32),
        flat_colours(splats),
        splats.opacities,
    )


def covariances(spread: Float[np.ndarray, "n 3 3"]) -> Float[np.ndarray, "n 3 3"]:
    """``L L^T`` of every splat's rotation times its scales."""
    return spread @ spread.transpose(0, 2, 1)


def flat_colours(splats: Splats) -> Float[np.ndarray, "n 3"]:
    """The colours without their dependence on the direction of sight, 0 to 1."""
    return np.clip(0.5 + SH_C0 * splats.sh[:, 0], 0.0, 1.0).astype(np.float32)


def placed(splats: Splats, frame: Frame) -> Splats:
    """Splats of the file under the viewer's similarity; harmonics stay, as nothing turns."""
    return splats.replace(
        means=frame.to_sim(splats.means).astype(np.float32),
        log_scales=(splats.log_scales + np.float32(np.log(frame.scale))).astype(np.float32),
        offset=(0.0, 0.0, 0.0),
        extras={},
    )
