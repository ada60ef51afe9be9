"""``splatanim render`` of a fitted asset: its motion or another, from any camera, as pictures, films, GLB and PLY."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from pipelines.cameras import parse_colour
from pipelines.fitted_motions import chosen_cameras, chosen_motion, parse_exports, up_of
from pipelines.progress import Progress
from splatanim.errors import InputError
from splatanim.render.camera import Camera

if TYPE_CHECKING:
    from pipelines.still import RenderConfig
    from rigpapr.fitted import FittedAsset
    from rigpapr.posing import PosedMotion

Poser = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
Draw = Callable[[int], np.ndarray]


def render_fitted(config: RenderConfig, progress: Progress) -> str:
    """Picture ``--frame`` (.png), the film (.mp4), all its pictures (a folder) or the rig with its clip (.glb).

    Picture k shows frame k of the motion (again from its start where it is over) from camera k of the file, or from
    the one camera.
    """
    from rigpapr.fitted import read_fitted

    suffix = config.output.suffix.lower()
    if suffix not in (".png", ".mp4", ".glb", ""):
        raise InputError(
            f"{config.output}: of a fitted asset write a .png (--frame), an .mp4, a folder of pictures, a .glb (points "
            "on their rig with the clip), or a .ply (the points at rest)."
        )
    exports = parse_exports(config.export)
    background = parse_colour(config.background)
    asset = read_fitted(config.scene)
    motion = chosen_motion(config, asset)
    cameras, fps = chosen_cameras(config, asset, motion)
    posed, said = _poser(config, asset, motion, progress)
    count = max(len(motion), len(cameras))
    if suffix == ".glb":
        exports = [("glb", config.output), *exports]
        written = []
    else:
        draw = _drawer(asset, posed, cameras, len(motion), background)
        written = [_write_pictures(config, draw, count, fps or motion.fps, progress)]
    for kind, path in exports:
        if kind == "glb":
            written.append(write_model(path, asset, motion, up_of(config, asset)))
            if config.elastic:
                said.append(f"{path.name} holds the rig's motion; for the elastic motion export ply:DIR.")
        else:
            written.append(write_points_sequence(path, asset, posed, len(motion)))
    head = f"{config.scene}: motion {motion.name}, {len(motion)} frames at {motion.fps:g} a second"
    notes = [f"  note: {note}" for note in (*motion.notes, *said)]
    return "\n".join([head, *(f"  {line}" for line in written), *notes])


def _poser(
    config: RenderConfig, asset: FittedAsset, motion: PosedMotion, progress: Progress
) -> tuple[Poser, list[str]]:
    if not config.elastic:
        return lambda frame: asset.posed_under(motion.maps[frame]), []
    from pipelines.fitted_elastic import simulate_cloud

    with progress.spinner(f"simulating {len(motion)} frames"):
        elastic = simulate_cloud(config, asset, motion)
    return elastic.posed, elastic.figures()[1]


def _drawer(
    asset: FittedAsset, posed: Poser, cameras: list[Camera], frames: int, background: tuple[float, float, float]
) -> Draw:
    from rigpapr.renderer import render

    def draw(k: int) -> np.ndarray:
        positions, rotations = posed(k % frames)
        camera = cameras[k % len(cameras)]
        return render(asset.cloud, camera, positions=positions, rotations=rotations, background=background).rgb

    return draw


def _write_pictures(config: RenderConfig, draw: Draw, count: int, fps: float, progress: Progress) -> str:
    from splatanim.render.video import VideoWriter, write_png

    output = config.output
    if output.suffix.lower() == ".png":
        if not 0 <= config.frame < count:
            raise InputError(f"--frame {config.frame}: there are frames 0 to {count - 1}.")
        image = draw(config.frame)
        write_png(output, image)
        return f"{output}: frame {config.frame}, {image.shape[1]}x{image.shape[0]}"
    if output.suffix.lower() == ".mp4":
        with VideoWriter(output, fps=fps) as video, progress.bar("rendering", count) as tick:
            for k in range(count):
                video.write(draw(k))
                tick()
        return f"{output}: {count} frames"
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file. Give a folder, a .png or an .mp4.")
    output.mkdir(parents=True, exist_ok=True)
    digits = max(4, len(str(count - 1)))
    with progress.bar("rendering", count) as tick:
        for k in range(count):
            write_png(output / f"frame_{k:0{digits}d}.png", draw(k))
            tick()
    return f"{output}: {count} pictures"


def write_model(path: Path, asset: FittedAsset, motion: PosedMotion, up: tuple[float, float, float]) -> str:
    """The points with skeleton, weights and the motion as a .glb, upright as glTF wants it."""
    from splatanim.rig.affine import shortest_turn
    from splatanim.rig.gltf import write_glb

    model = asset.model({motion.name: asset.clip_of(motion.maps, motion.fps, motion.name)})
    upright, placed = np.array([0.0, 1.0, 0.0]), np.eye(4)
    if not np.allclose(up, upright):
        placed[:3, :3] = shortest_turn(np.asarray(up), upright)
    write_glb(path, model, name="fitted", placed=placed)
    return f"{path}: {len(model.vertices)} points on {len(asset.names)} joints, clip {motion.name}"


def write_points_sequence(folder: Path, asset: FittedAsset, posed: Poser, frames: int) -> str:
    """``frame_0000.ply`` ...: the points of every frame with colours, the same rows in each."""
    from rigpapr.asset import write_points

    if folder.exists() and not folder.is_dir():
        raise InputError(f"--export ply:{folder}: is a file. Give a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    moved = copy.deepcopy(asset.cloud)
    digits = max(4, len(str(frames - 1)))
    for k in range(frames):
        with torch.no_grad():
            moved.positions.copy_(moved.to_cloud(posed(k)[0]))
        write_points(folder / f"frame_{k:0{digits}d}.ply", moved)
    return f"{folder}: {frames} frames of {len(moved)} points"
