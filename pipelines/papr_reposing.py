"""The re-posing study: a cloud, and splats of the same subject, under the subject's true motion.

PAPR points move with the closest place on the true surface (:mod:`rigpapr.follow`). The splats lie on that
surface and push their covariances forward by its triangles' exact maps, so that what is left of errors is the
representation's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from rigpapr.cloud import PaprCloud
from rigpapr.dataset import View
from rigpapr.follow import Attachment, attach, carried
from rigpapr.initialisation import colours_from_views, in_picture, project
from rigpapr.quality import Quality, image_quality
from rigpapr.renderer import render
from splatanim.data import Mesh, Splats
from splatanim.errors import InputError
from splatanim.render.camera import Camera
from splatanim.render.camera_io import read_cameras
from splatanim.render.rasterize import rasterize
from splatanim.transforms import push_forward

_SAMPLES = 20_000  # of the true surface
_JOINT_RADIUS = 8  # [px] around a projected joint
_SH0 = 0.28209479177387814
_INSETS = (0.0, 0.5, 1.0, 1.5)  # [spacings] tried for the splats
_TRIAL_ROUNDS, _ROUNDS = 3, 8  # of colour fitting: per inset, and for the best


@dataclass(frozen=True)
class Motion:
    """The truth: the mesh at rest and its vertices in every frame (T, V, 3); samples of its surface in every frame
    (T, S, 3), their triangles' edges and unit normals as columns (T, S, 3, 3); the joints (T, J, 3), and what novel
    cameras saw."""

    mesh: Mesh
    vertices: Float64[np.ndarray, "t v 3"]
    surface: Float64[np.ndarray, "t s 3"]
    frames: Float64[np.ndarray, "t s 3 3"]
    joints: Float64[np.ndarray, "t j 3"]
    cameras: dict[str, Camera]
    folder: Path
    pattern: str

    def __len__(self) -> int:
        return len(self.surface)

    def picture(self, name: str, frame: int) -> tuple[np.ndarray, np.ndarray]:
        """(h, w, 3) over white in [0, 1], and the subject's mask (alpha, or what is not white)."""
        from PIL import Image

        path = self.folder / self.pattern.format(name=name, frame=frame)
        if not path.is_file():
            raise InputError(f"{path}: the novel view {name} of frame {frame} is missing.")
        image = Image.open(path)
        rgba = np.asarray(image.convert("RGBA"), np.float32) / 255
        rgb = rgba[..., :3] * rgba[..., 3:] + 1 - rgba[..., 3:]
        return rgb, rgba[..., 3] > 0.5 if "A" in image.getbands() else rgb.min(axis=-1) < 0.99


def read_motion(folder: Path) -> Motion:
    """``video_vertices.npz``, ``video.json``, ``novel.json`` and the pictures it names."""
    for name in ("video_vertices.npz", "video.json", "novel.json"):
        if not (folder / name).is_file():
            raise InputError(f"{folder / name} is missing: the re-posing study needs the true motion and novel views.")
    with np.load(folder / "video_vertices.npz") as file:
        vertices, faces = file["vertices"].astype(np.float64), file["faces"].astype(np.int64)
    novel = json.loads((folder / "novel.json").read_text(encoding="utf-8"))
    joints = json.loads((folder / "video.json").read_text(encoding="utf-8")).get("joint_positions", [])
    cameras = read_cameras(folder / "novel.json", size=(int(novel["w"]), int(novel["h"]))).cameras
    names = [camera["name"] for camera in novel["cameras"]]
    mesh = Mesh(vertices[0], faces)
    surface, frames = _samples(mesh, vertices)
    return Motion(
        mesh,
        vertices,
        surface,
        frames,
        _joints(joints, len(vertices)),
        dict(zip(names, cameras)),
        folder,
        novel["pattern"],
    )


def _samples(mesh: Mesh, vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same places on the surface in every frame, uniform in area at rest, with their triangles' frames."""
    rng = np.random.default_rng(0)
    corners = mesh.vertices[mesh.faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    face = mesh.faces[rng.choice(len(area), _SAMPLES, p=area / area.sum())]
    weight = rng.dirichlet(np.ones(3), _SAMPLES)
    moved = np.einsum("sk,tskd->tsd", weight, vertices[:, face])
    one, two = (vertices[:, face[:, k]] - vertices[:, face[:, 0]] for k in (1, 2))
    normal = np.cross(one, two)
    normal /= np.maximum(np.linalg.norm(normal, axis=-1, keepdims=True), 1e-12)
    return moved, np.stack([one, two, normal], axis=-1)


def _joints(joints: object, frames: int) -> np.ndarray:
    try:
        array = np.asarray(joints, np.float64)
    except (TypeError, ValueError):
        return np.empty((frames, 0, 3))
    return array if array.ndim == 3 and len(array) == frames else np.empty((frames, 0, 3))


def surface_splats(motion: Motion, views: Sequence[View]) -> Splats:
    """Flat splats just under the true surface, their colours fitted to the training views.

    Geometry is the truth itself, which favours splats. A splat reaches beyond its centre, so they are set back by what
    gives the best picture of the training views, and colours take over the mean residuals of the views that see them.
    """
    from splatanim.metrics import psnr

    best, score = None, -np.inf
    for inset in _INSETS:
        splats = _flat_splats(motion, views, inset)
        for _ in range(_TRIAL_ROUNDS):
            splats = _fit_colours(splats, views)
        errors = [
            psnr(rasterize(splats, view.camera, backend="cpu").rgb, view.over((1.0, 1.0, 1.0))) for view in views[::4]
        ]
        if np.mean(errors) > score:
            best, score = splats, float(np.mean(errors))
    assert best is not None
    for _ in range(_ROUNDS):
        best = _fit_colours(best, views)
    return best


def _flat_splats(motion: Motion, views: Sequence[View], inset: float) -> Splats:
    """One splat a surface sample, ``inset`` spacings below it; thickness a fifth of the width."""
    from scipy.spatial import cKDTree

    from splatanim.rotations import matrices_to_quaternions

    normals = motion.frames[0, :, :, 2]
    helper = np.where(np.abs(normals[:, :1]) < 0.9, [[1.0, 0, 0]], [[0, 1.0, 0]])
    side = np.cross(normals, helper)
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    frames = np.stack([side, np.cross(normals, side), normals], axis=2)
    distance, _ = cKDTree(motion.surface[0]).query(motion.surface[0], 5)
    spacing = float(np.median(distance[:, -1]))
    points = motion.surface[0] - inset * spacing * normals
    width = np.full((len(points), 1), 0.35 * spacing)
    scales = np.log(np.concatenate([width, width, 0.2 * width], axis=1))
    colours = colours_from_views(points, views)
    return Splats(
        points.astype(np.float32),
        matrices_to_quaternions(frames).astype(np.float32),
        scales.astype(np.float32),
        np.full(len(points), 3.0, np.float32),
        ((colours[:, None] - 0.5) / _SH0).astype(np.float32),
    )


def _fit_colours(splats: Splats, views: Sequence[View]) -> Splats:
    """Each splat takes over the mean of what the views that see it still lack at its centre."""
    total, count = np.zeros((len(splats), 3)), np.full(len(splats), 1e-9)
    for view in views:
        picture = rasterize(splats, view.camera, backend="cpu", depth=True)
        assert picture.depth is not None
        x, y, z = project(view.camera, splats.means.astype(np.float64))
        rows = np.flatnonzero(in_picture(view.camera, x, y, z))
        column, line = x[rows].astype(int), y[rows].astype(int)
        scale = float(np.exp(np.median(splats.log_scales[:, 0])))
        rows_seen = z[rows] < picture.depth[line, column] + 8 * scale
        rows, column, line = rows[rows_seen], column[rows_seen], line[rows_seen]
        residual = view.over((1.0, 1.0, 1.0)) - picture.rgb
        certain = view.mask[line, column]
        total[rows] += residual[line, column] * certain[:, None]
        count[rows] += certain
    change = (total / count[:, None])[:, None] / _SH0
    return splats.replace(sh=(splats.sh + change).astype(np.float32))


@dataclass(frozen=True)
class PosedFrame:
    """One frame, mean over the novel cameras. ``holes``: the share of pixels well inside the true mask that are less
    than half covered; ``joints``: PSNR of the subject's pixels within 8 px of a joint [dB]."""

    frame: int
    quality: Quality
    holes: float
    joints: float


Picture = tuple[np.ndarray, np.ndarray]  # rgb, alpha


def attach_cloud(cloud: PaprCloud, motion: Motion) -> Attachment:
    """The cloud's points on the true surface at rest."""
    return attach(cloud.world_positions.detach().cpu().numpy(), motion.mesh)


def posed_papr(cloud: PaprCloud, attachment: Attachment, motion: Motion, frame: int) -> Iterator[tuple[str, Picture]]:
    """The cloud in one frame's pose from every novel camera; ``attachment`` from :func:`attach_cloud`."""
    import torch

    positions, rotations = carried(attachment, motion.mesh, motion.vertices[frame])
    moved, turned = torch.from_numpy(positions).float(), torch.from_numpy(rotations).float()
    for name, camera in motion.cameras.items():
        picture = render(cloud, camera, positions=moved, rotations=turned)
        yield name, (picture.rgb, picture.alpha)


def posed_splats(splats: Splats, motion: Motion, frame: int) -> Iterator[tuple[str, Picture]]:
    """The splats of :func:`surface_splats` in one frame's pose from every novel camera: each moves with its own
    triangle, Sigma' = A Sigma A^T with the triangle's exact A."""
    maps = motion.frames[frame] @ np.linalg.inv(motion.frames[0])
    below = splats.means.astype(np.float64) - motion.surface[0]
    posed = push_forward(splats, maps, motion.surface[frame] + (maps @ below[..., None])[..., 0])
    for name, camera in motion.cameras.items():
        picture = rasterize(posed, camera, backend="cpu")
        yield name, (picture.rgb, picture.alpha)


def measure(pictures: Iterator[tuple[str, Picture]], motion: Motion, frame: int) -> PosedFrame:
    """Hold one frame's pictures against the truth."""
    from scipy.ndimage import binary_erosion

    from rigpapr.quality import mean_quality
    from splatanim.metrics import psnr

    qualities, holes, joints = [], [], []
    for name, (rgb, alpha) in pictures:
        truth, mask = motion.picture(name, frame)
        qualities.append(image_quality(rgb, truth, mask))
        inside = binary_erosion(mask, np.ones((3, 3)))
        holes.append(float((alpha[inside] < 0.5).mean()) if inside.any() else 0.0)
        at_joints = mask & _near_joints(motion.cameras[name], motion.joints[frame], mask.shape)
        if at_joints.any():
            joints.append(psnr(np.clip(rgb, 0, 1)[at_joints], truth[at_joints]))
    return PosedFrame(
        frame, mean_quality(qualities), float(np.mean(holes)), float(np.mean(joints)) if joints else float("nan")
    )


def _near_joints(camera: Camera, joints: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    near = np.zeros(shape, bool)
    for u, v, z in zip(*project(camera, joints), strict=True):
        if z > 0:
            near |= (x - u) ** 2 + (y - v) ** 2 < _JOINT_RADIUS**2
    return near
