"""The 4D format: one file that poses its splats at any frame. Splats once, and an affine map a handle a frame.

An .npz (a zip of .npy arrays, no pickles), N splats of which M move by h handles over T frames:

=================== ============== ==========================================================================
``format``          text           ``splatanim-4d/1``
``means`` ...       float32        the splats at rest as in a .ply, with ``quaternions`` (wxyz), ``log_scales``,
                                   ``raw_opacities``; ``sh`` (N, K, 3) is float16
``offset``          float64 (3)    to be added to ``means`` for file coordinates
``moving``          int64 (M)      which splats move; the others stay as they are
``rows``            int64 (M)      which row of the source file each of those was
``rest``            float32 (M, 3) their places X in simulator units, X = scale (x - centre)
``weights``         float32 (M, h) weight of every handle there, kept to 17 significant bits
``weight_gradients``float16        (M, h, 3), their gradients in X
``handles``         float32        Z, (T, h, 3, 4)
``times``           float64 (T)    seconds
``centre``, ``scale``, ``up``      of the simulator's frame: file coordinates, units a file unit, a unit vector
``full_gradient``   bool           whether covariances follow F with the weights' gradients (as they should), or without
=================== ============== ==========================================================================

At frame k a moving splat is at x = X + sum_h w_h Z_kh [X; 1], and its covariance is F Sigma F^T with
F = I + sum_h (w_h Z_kh[:, :3] + (Z_kh [X; 1]) grad(w_h)^T) (eq. 26 to 28); x / scale + centre is the file coordinate.
"""

from __future__ import annotations

import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float, Float32, Float64, Int

from splatanim.data import Frame, Splats
from splatanim.errors import InputError
from splatanim.formats.atomic import atomic_path
from splatanim.formats.base import damaged, first_bytes
from splatanim.transforms import BoundSplats, pose

FORMAT = "splatanim-4d/1"
_LOW_BITS = 7  # of float32 weights that are rounded away: what is left compresses well
_HALF_LIMIT = 6e4  # float16 ends at 65504


@dataclass(frozen=True)
class Sequence4D:
    """Splats at rest, which of them move (``moving`` (M,)), how they are bound, and the motion.

    ``bound`` holds the M moving splats in the order of ``moving``; ``rows`` says which row of the source file each
    was. ``times`` are in seconds.
    """

    splats: Splats
    moving: Int[np.ndarray, " m"]
    bound: BoundSplats
    handles: Float32[np.ndarray, "t h 3 4"]
    times: Float64[np.ndarray, " t"]
    rows: Int[np.ndarray, " m"]

    def __post_init__(self) -> None:
        if len(self.handles) != len(self.times) or not len(self.times):
            raise InputError(f"Sequence4D: {len(self.handles)} frames of handles, {len(self.times)} times.")

    def __len__(self) -> int:
        return len(self.times)

    def frame(self, k: int) -> Splats:
        """All splats at frame ``k``, in the order of ``splats``; negative ones count from the end."""
        if not -len(self) <= k < len(self):
            raise InputError(f"Sequence4D: there is no frame {k}; it has {len(self)}.")
        return self._posed(self.handles[k])

    def at(self, time: float) -> Splats:
        """All splats at a time in seconds, between frames by linear interpolation, clamped at the ends."""
        place = float(np.interp(time, self.times, np.arange(len(self))))
        k = min(int(place), max(len(self) - 2, 0))
        share = np.float32(place - k)
        return self._posed((1 - share) * self.handles[k] + share * self.handles[min(k + 1, len(self) - 1)])

    def _posed(self, handles: np.ndarray) -> Splats:
        moved = pose(self.bound, handles)
        if len(self.moving) == len(self.splats) and np.array_equal(self.moving, np.arange(len(self.moving))):
            return moved.replace(extras=self.splats.extras)
        out = {
            name: getattr(self.splats, name).copy()
            for name in ("means", "quaternions", "log_scales", "raw_opacities", "sh")
        }
        for name, values in out.items():
            values[self.moving] = getattr(moved, name)
        return self.splats.replace(**out)


def sequence_of(
    bound: BoundSplats,
    handles: Float[np.ndarray, "t h 3 4"],
    times: Float[np.ndarray, " t"],
    *,
    rows: Int[np.ndarray, " m"] | None = None,
    whole: Splats | None = None,
) -> Sequence4D:
    """A simulated motion as a sequence.

    ``rows`` says which row of the source file each bound splat is (its own order by default): the sequence goes back to
    the file's order. ``whole`` are all splats of the file where only some of them move; then ``rows`` index it.
    """
    rows = np.arange(len(bound.rest)) if rows is None else np.asarray(rows)
    back = np.argsort(rows, kind="stable")
    ordered = BoundSplats(
        bound.splats.select(back),
        bound.frame,
        bound.rest[back],
        bound.weights[back],
        bound.slopes[back],
        bound.weight_gradients,
    )
    moving = np.arange(len(rows)) if whole is None else rows[back]
    return Sequence4D(
        ordered.splats if whole is None else whole,
        moving,
        ordered,
        np.asarray(handles, np.float32),
        np.asarray(times, np.float64),
        rows[back],
    )


def write_sequence4d(path: str | os.PathLike[str], sequence: Sequence4D) -> None:
    """Write the .npz of the module's table, whole or not at all.

    Further columns of the splats (extras) are not stored.

    Raises InputError for another suffix, OutputError where the file cannot be written.
    """
    if Path(path).suffix.lower() != ".npz":
        raise InputError(f"{path}: a 4D sequence is written as .npz. Give a name such as {Path(path).stem}.npz.")
    splats, bound = sequence.splats, sequence.bound
    half = np.abs(splats.sh).max(initial=0) < _HALF_LIMIT
    with atomic_path(path) as temporary:
        np.savez_compressed(
            temporary,
            format=np.array(FORMAT),
            means=splats.means,
            quaternions=splats.quaternions,
            log_scales=splats.log_scales,
            raw_opacities=splats.raw_opacities,
            sh=splats.sh.astype(np.float16) if half else splats.sh,
            offset=np.asarray(splats.offset, np.float64),
            moving=np.asarray(sequence.moving, np.int64),
            rows=np.asarray(sequence.rows, np.int64),
            rest=bound.rest,
            weights=_rounded(bound.weights),
            weight_gradients=np.clip(bound.slopes, -_HALF_LIMIT, _HALF_LIMIT).astype(np.float16),
            handles=sequence.handles,
            times=sequence.times,
            centre=np.asarray(bound.frame.centre) + splats.offset,
            scale=np.float64(bound.frame.scale),
            up=np.asarray(bound.frame.up, np.float64),
            full_gradient=np.bool_(bound.weight_gradients),
        )


def read_sequence4d(path: str | os.PathLike[str]) -> Sequence4D:
    """Read a 4D sequence; raises InputError where the file is none, is damaged, or contradicts itself."""
    path = Path(path)
    first_bytes(path, 4)
    try:
        with np.load(path, allow_pickle=False) as archive:
            data = {name: archive[name] for name in archive.files} if isinstance(archive, np.lib.npyio.NpzFile) else {}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError, NotImplementedError) as error:
        raise damaged(path, f"is no .npz that can be read ({error})") from None
    if str(data.get("format", "")) != FORMAT:
        raise InputError(f"{path}: is no 4D sequence of the kind {FORMAT}. Make one with animate --export npz:FILE.")
    try:
        return _sequence(data)
    except (KeyError, ValueError, TypeError, IndexError) as error:  # InputError is a ValueError
        raise damaged(path, f"its arrays do not fit each other ({error})") from None


def _sequence(data: dict[str, np.ndarray]) -> Sequence4D:
    n, m = len(data["means"]), len(data["moving"])
    h, t = data["weights"].shape[1], len(data["times"])
    shapes = {"means": (n, 3), "quaternions": (n, 4), "log_scales": (n, 3), "raw_opacities": (n,), "offset": (3,)}
    shapes |= {"moving": (m,), "rows": (m,), "rest": (m, 3), "weights": (m, h), "weight_gradients": (m, h, 3)}
    shapes |= {"handles": (t, h, 3, 4), "times": (t,), "centre": (3,), "scale": (), "up": (3,), "full_gradient": ()}
    for name, shape in shapes.items():
        if data[name].shape != shape:
            raise ValueError(f"{name} has shape {data[name].shape}, not {shape}")
    moving = data["moving"].astype(np.int64)
    if m and (moving.min() < 0 or moving.max() >= n):
        raise ValueError(f"moving refers to splat {moving.max()} of {n}")
    names = ("means", "quaternions", "log_scales", "raw_opacities")
    single: dict[str, np.ndarray] = {name: data[name].astype(np.float32) for name in names}
    x, y, z = (float(v) for v in data["offset"])
    splats = Splats(
        single["means"],
        single["quaternions"],
        single["log_scales"],
        single["raw_opacities"],
        data["sh"].astype(np.float32),
        (x, y, z),
    )
    centre = tuple(float(v) for v in data["centre"] - data["offset"])
    frame = Frame(centre, float(data["scale"]), tuple(float(v) for v in data["up"]))  # type: ignore[arg-type]
    bound = BoundSplats(
        splats.select(moving),
        frame,
        data["rest"].astype(np.float32),
        data["weights"].astype(np.float32),
        data["weight_gradients"].astype(np.float32),
        bool(data["full_gradient"]),
    )
    handles, times = data["handles"].astype(np.float32), data["times"].astype(np.float64)
    return Sequence4D(splats, moving, bound, handles, times, data["rows"].astype(np.int64))


def _rounded(weights: Float32[np.ndarray, "m h"]) -> Float32[np.ndarray, "m h"]:
    """Weights with their lowest bits rounded away: relative error 2^-17."""
    bits = np.ascontiguousarray(weights, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(1 << (_LOW_BITS - 1))) & ~np.uint32((1 << _LOW_BITS) - 1)
    return rounded.view(np.float32)
