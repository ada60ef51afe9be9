"""How near a fit comes to the truth: pictures from the training and novel cameras, points, surface and joints.

A *method* is a function from a frame's number to a function from a camera to a picture, so that clouds and splats are
measured alike.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from pipelines.fit_cases import Case
from rigpapr.baselines import MeshSplats, SkinnedSplats
from rigpapr.cloud import PaprCloud
from rigpapr.coarse_kinematics import JointPose, skinned, transforms
from rigpapr.fitted import FittedAsset
from rigpapr.quality import Lpips, Quality, image_quality, mean_quality
from rigpapr.renderer import render
from rigpapr.skin import Skin
from splatanim.render.camera import Camera
from splatanim.render.rasterize import rasterize

if TYPE_CHECKING:
    from rigpapr.follow import Attachment

Draw = Callable[[Camera], np.ndarray]
Method = Callable[[int], Draw]


def cloud_method(asset: FittedAsset, maps: torch.Tensor | None = None) -> Method:
    """An asset in its fitted motion, or under other skinning transforms (T, J, 4, 4)."""

    def at(frame: int) -> Draw:
        moved, turned = asset.posed(frame) if maps is None else asset.posed_under(maps[frame])
        return lambda camera: render(asset.cloud, camera, positions=moved, rotations=turned).rgb

    return at


def still_method(cloud: PaprCloud) -> Method:
    """A cloud that does not move."""
    return lambda _frame: lambda camera: render(cloud, camera).rgb


def splat_method(bound: SkinnedSplats | MeshSplats, maps: torch.Tensor) -> Method:
    """Splats under skinning transforms (T, J, 4, 4)."""

    def at(frame: int) -> Draw:
        posed = bound.posed(maps[frame].double().numpy())
        return lambda camera: rasterize(posed, camera, backend="cpu").rgb

    return at


def pictures(case: Case, method: Method, lpips: Lpips | None = None) -> dict[str, Any]:
    """Quality from the video's camera and from the novel ones, means over all frames but the first."""
    train: list[Quality] = []
    novel: list[Quality] = []
    for k in range(1, len(case.clip)):
        draw = method(k)
        train.append(image_quality(draw(case.clip.camera), case.clip.picture(k), case.clip.masks[k], lpips))
        for name, camera in case.truth.cameras.items():
            truth, mask = case.truth.picture(name, k)
            novel.append(image_quality(draw(camera), truth, mask, lpips))
    return {"train": dataclasses.asdict(mean_quality(train)), "novel": dataclasses.asdict(mean_quality(novel))}


def geometry(case: Case, asset: FittedAsset, attachment: Attachment) -> dict[str, Any]:
    """Mean distances over all frames but the first [scene units].

    ``points``: of every point from where the true surface that it lies on at rest takes it; ``chamfer``: from points
    to the nearest true surface sample and back, the two means added; ``joints``: of joints that both rigs name;
    ``vertices``: of the true mesh's vertices, where the asset has the case's own rig.
    """
    from scipy.spatial import cKDTree

    from rigpapr.follow import carried

    maps = asset.maps().double().numpy()
    joints = asset.joints.double().numpy()
    shared = [(k, case.joints[name]) for k, name in enumerate(asset.names) if name in case.joints]
    points, chamfer, places = [], [], []
    for k in range(1, len(asset)):
        moved = asset.posed(k)[0].double().numpy()
        wanted, _ = carried(attachment, case.truth.mesh, case.truth.vertices[k])
        points.append(np.linalg.norm(moved - wanted, axis=1).mean())
        surface = case.truth.surface[k]
        there, back = cKDTree(surface).query(moved)[0], cKDTree(moved).query(surface)[0]
        chamfer.append(there.mean() + back.mean())
        here = np.einsum("jab,jb->ja", maps[k, :, :3, :3], joints) + maps[k, :, :3, 3]
        places += [float(np.linalg.norm(here[j] - truth[k])) for j, truth in shared]
    return {
        "points": float(np.mean(points)),
        "chamfer": float(np.mean(chamfer)),
        "joints": float(np.mean(places)) if places and len(shared) > len(asset.names) // 2 else None,
        "vertices": float(np.mean(mean_vertex_errors(case, asset))) if asset.names == case.rig.names else None,
    }


def vertex_errors(case: Case, skin: Skin, pose: JointPose, frame: int) -> np.ndarray:
    """Distances of the posed true mesh from the truth, (V,)."""
    moved, _ = skinned(case.vertices[0], skin, transforms(case.rig, pose))
    return np.linalg.norm(moved - case.vertices[frame], axis=1)


def mean_vertex_errors(case: Case, asset: FittedAsset) -> list[float]:
    """The mean over the true mesh's vertices in every frame but the first, moved as the case's rig moves them."""
    skin, errors = case.rig.skin(case.vertices[0]), []
    for k in range(1, len(asset)):
        pose = JointPose(asset.rotations[k].double().numpy(), asset.translations[k].double().numpy())
        errors.append(float(vertex_errors(case, skin, pose, k).mean()))
    return errors


def widest(case: Case) -> tuple[str, Camera]:
    """The novel camera that sees most of the subject in the first frame."""
    return max(case.truth.cameras.items(), key=lambda item: int(case.truth.picture(item[0], 0)[1].sum()))


def side_by_side(case: Case, methods: dict[str, Method], path: Path) -> None:
    """A film: truth and every method in a row, the training view above, a novel view below."""
    from splatanim.render.video import VideoWriter

    name, camera = widest(case)
    with VideoWriter(path, fps=max(case.clip.fps / 2, 1.0)) as film:
        for k in range(len(case.clip)):
            draws = [method(k) for method in methods.values()]
            rows = [
                [case.clip.picture(k), *(draw(case.clip.camera) for draw in draws)],
                [case.truth.picture(name, k)[0], *(draw(camera) for draw in draws)],
            ]
            film.write(np.concatenate([np.concatenate([image.clip(0, 1) for image in row], axis=1) for row in rows]))


def sheet(case: Case, methods: dict[str, Method], frames: Sequence[int], path: Path) -> None:
    """A picture: the same for some frames, one below the other, from a novel view, cut to where the subject is."""
    from splatanim.render.video import write_png

    name, camera = widest(case)
    shown = np.any([case.truth.picture(name, k)[1] for k in frames], axis=0)
    y, x = (np.flatnonzero(shown.any(axis=axis)) for axis in (1, 0))
    cut = (slice(max(y[0] - 8, 0), y[-1] + 9), slice(max(x[0] - 8, 0), x[-1] + 9))
    rows = []
    for k in frames:
        images = [case.truth.picture(name, k)[0], *(method(k)(camera) for method in methods.values())]
        rows.append(np.concatenate([image[cut].clip(0, 1) for image in images], axis=1))
    write_png(path, np.concatenate(rows).astype(np.float32))
