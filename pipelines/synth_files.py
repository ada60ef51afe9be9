"""The files that ``splatanim synth`` writes: the layout of the project's multi-view data, and a README beside them."""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from splatanim.errors import InputError, OutputError
from splatanim.render.camera import Camera

MARK = "transforms_train.json"  # what tells such a folder from others
_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])  # OpenGL axes <-> OpenCV axes
_SCALES = (1.4, 2.0)  # of the stand-in for a depth predictor
_SCALE_JITTER, _SHIFT, _BIAS, _NOISE = 0.02, 0.1, 0.03, 0.003
_WAVES = 5  # of the smooth bias


@contextmanager
def whole_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary folder to fill, renamed to ``path`` when the block ends well and removed when it does not.

    Raises :class:`InputError` where something is there already and ``overwrite`` is not given, or where it is no set of
    this kind (a folder of other things is never replaced); :class:`OutputError` where nothing can be written.
    """
    target = Path(os.path.realpath(path))
    _check_target(path, target, overwrite)
    temporary = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}")
    old = temporary.with_name(temporary.name + ".old")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.mkdir()
        yield temporary
        if target.exists():
            os.replace(target, old)
        os.replace(temporary, target)
    except OutputError as error:
        raise OutputError(str(error).replace(str(temporary), str(path))) from error
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be written ({error.strerror or error}). Check the folder and the disk, then try again."
        ) from error
    finally:
        with suppress(OSError):
            if old.exists() and not target.exists():  # stopped between the two moves
                os.replace(old, target)
        for left in (temporary, old) if target.exists() else (temporary,):
            with suppress(OSError):
                shutil.rmtree(left)


def _check_target(path: Path, target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"{path}: is a file. Give the name of a folder to make.")
    if not overwrite:
        raise InputError(f"{path}: exists already. Choose another folder, or replace it with --overwrite.")
    if any(target.iterdir()) and not (target / MARK).is_file():
        raise InputError(
            f"{path}: is not empty and holds no {MARK}, so it is no set of this kind and is not replaced. "
            "Choose another folder."
        )


def lens(camera: Camera) -> dict[str, Any]:
    """The intrinsics of a camera in a transforms file."""
    return {
        "camera_angle_x": 2.0 * math.atan(camera.width / (2.0 * camera.fx)),
        "w": camera.width,
        "h": camera.height,
        "fl_x": camera.fx,
        "fl_y": camera.fy,
        "cx": camera.cx,
        "cy": camera.cy,
    }


def matrix(camera: Camera) -> list[list[float]]:
    """Camera to world, OpenGL axes."""
    return (np.linalg.inv(camera.T_camera_world) @ _FLIP).tolist()


def write_json(path: Path, data: dict[str, Any]) -> None:
    """One line, as the multi-view data has it."""
    path.write_text(json.dumps(data), encoding="utf-8")


def write_picture(path: Path, rgba: np.ndarray) -> None:
    """Straight RGBA bytes as PNG."""
    from PIL import Image

    Image.fromarray(rgba).save(path)


def monocular(depth: Float32[np.ndarray, "t h w"], seed: int) -> Float32[np.ndarray, "t h w"]:
    """A stand-in for what a monocular predictor says about true depth, 0 where that is 0.

    With z in scene units: scale_t (z + bias(x, y, t)) + shift + noise. One scale in 1.4 to 2 and one shift up to 0.1
    for the clip, the scale off by 2 % from frame to frame; the bias is smooth over the picture and drifts over time
    (standard deviation 0.03); the noise is 0.3 % of the depth, pixel by pixel.
    """
    rng = np.random.default_rng((seed, 1))
    frames, height, width = depth.shape
    scale = rng.uniform(*_SCALES) * np.exp(_SCALE_JITTER * rng.normal(size=frames))
    shift = rng.uniform(-_SHIFT, _SHIFT)
    waves = rng.uniform(-1.0, 1.0, (_WAVES, 2)) * math.pi  # at most one wave across the picture
    phases, drift = rng.uniform(0, 2 * math.pi, _WAVES), rng.uniform(-0.15, 0.15, _WAVES)
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    out = np.zeros(depth.shape, np.float32)
    for t in range(frames):
        turns = x[..., None] * waves[:, 0] + y[..., None] * waves[:, 1] + phases + drift * t
        bias = _BIAS * np.sqrt(2.0 / _WAVES) * np.cos(turns).sum(axis=-1)
        z = depth[t].astype(np.float64)
        seen = scale[t] * (z + bias) + shift + scale[t] * _NOISE * z * rng.normal(size=z.shape)
        out[t] = np.where(z > 0, np.maximum(seen, 1e-3), 0.0)
    return out


_HEAD = """# {name}: posed images with ground truth

Made by `splatanim synth` from {model}{clip}, seed {seed}. Rendered, not photographed: {light}; no view dependence.
Pictures are RGBA with straight alpha, the mask; {size} x {size} pixels.

- Scene coordinates are (model - center) * scale with center {centre} and scale {scale:.9g}, axes as in the model.
- `train/`, `transforms_train.json`: {views} views of the {pose} (NeRF-synthetic: camera to world, OpenGL axes).
- `train_vertices.npz`: `vertices` (V, 3) in that pose, `faces` (F, 3).
- `rig.glb`: the model in its bind pose in scene coordinates, with skeleton, weights and the source's clips.
"""
_CLIP = """- `video/`, `video.json`: the clip from one fixed camera, {frames} frames: camera, times, model, clip,
  normalisation, joint names, parents and positions a frame. Way of the subject: {travel}.
- `video_depth.npz`: `depth` is true z-depth in scene units at the pixels' centres, 0 outside. `depth_mono` stands in
  for a monocular predictor: scale and shift are unknown to its reader. One scale in 1.4 to 2 for the clip, off by 2 %
  from frame to frame, one shift of at most 0.1, a smooth bias over the picture that drifts (standard deviation 0.03)
  and noise of 0.3 % of the depth.
- `video_vertices.npz`: `vertices` (T, V, 3) and `faces` (F, 3).
- `video_rig.npz`: `skin_transforms` (T, J, 4, 4) of the joints of `rig.glb`: linear blending of its vertices by them
  gives `video_vertices.npz`.
"""
_NOVEL = """- `novel/`, `novel.json`: the same frames from {novel} held-out cameras around the subject: truth for novel
  views, for evaluation only.
"""


def readme(values: dict[str, Any]) -> str:
    """The text that lies in the folder; ``frames`` and ``novel`` 0 leave their parts out."""
    parts = [_HEAD, *([_CLIP] if values["frames"] else []), *([_NOVEL] if values["frames"] and values["novel"] else [])]
    return "".join(parts).format(**values)
