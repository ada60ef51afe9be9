"""Depth maps of a clip by Depth Anything 3 from a local folder, through its package ``depth_anything_3``.

The folder holds ``config.json`` and ``model.safetensors`` as published; nothing is downloaded. Frames go in one by one,
so that each is a monocular prediction; the metric model's output becomes metres by focal length / 300. Scale and shift
between a prediction and the scene are left to :mod:`rigpapr.supervision_depth` and to the fit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from rigpapr.supervision import Clip
from splatanim.errors import InputError

_CANONICAL_FOCAL = 300.0  # [px] of the metric model's canonical camera
_SIDE = 504  # [px] that the package's own pre-processing brings the longer side to


def load_depth_anything(folder: str | os.PathLike[str], device: str = "cpu") -> tuple[Any, bool]:
    """The model, and whether it predicts metric depth.

    Raises InputError where a file lacks, the package is not installed, or the two do not fit.
    """
    folder = Path(folder)
    for name in ("config.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise InputError(
                f"--depth da3:{folder}: there is no {name}. Give the folder of a published Depth Anything 3 model, "
                "such as da3metric-large, with config.json and model.safetensors."
            )
    try:
        from depth_anything_3.api import DepthAnything3
    except ImportError as error:
        raise InputError(
            "depth_anything_3 cannot be imported. Install a checkout of Depth Anything 3 (pip install -e "
            "Depth-Anything-3), give maps in an .npz, or fit with --depth none."
        ) from error
    try:
        text = (folder / "config.json").read_text(encoding="utf-8")
        model = DepthAnything3.from_pretrained(str(folder), local_files_only=True).to(device)
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        raise InputError(
            f"--depth da3:{folder}: the model cannot be loaded ({error}). Copy the folder again."
        ) from error
    return model, _is_metric(text)


def _is_metric(text: str) -> bool:
    try:
        data = json.loads(text)
    except ValueError:
        return False
    return isinstance(data, dict) and "metric" in str(data.get("model_name", ""))


def predict_depth(
    model: Any, clip: Clip, *, metric: bool, on_frame: Callable[[], None] | None = None
) -> Float32[np.ndarray, "t h w"]:
    """Maps of all frames at the frames' size, 0 outside the subject.

    Raises InputError where the model gives something else than one finite map.
    """
    from scipy.ndimage import zoom

    height, width = clip.masks.shape[1:]
    out = np.zeros(clip.masks.shape, np.float32)
    for frame in range(len(clip)):
        found = np.asarray(model.inference([clip.rgb[frame]], process_res=_SIDE).depth, np.float32)
        if found.ndim > 2 and found.size == np.prod(found.shape[-2:]):
            found = found.reshape(found.shape[-2:])
        if found.ndim != 2 or not np.isfinite(found).all():
            raise InputError(f"Depth Anything 3: frame {frame} came back as {found.shape}, not one finite map.")
        if metric:
            found = found * (clip.camera.fy * found.shape[0] / height / _CANONICAL_FOCAL)
        full = zoom(found, (height / found.shape[0], width / found.shape[1]), order=1, grid_mode=True, mode="nearest")
        out[frame] = np.where(clip.masks[frame], full[:height, :width].clip(0), 0)
        if on_frame is not None:
            on_frame()
    return out
