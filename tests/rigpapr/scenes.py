"""A tiny subject for tests of PAPR: a two-coloured ellipsoid before posed cameras, and it in every dataset layout."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

from rigpapr.dataset import View
from splatanim.render.camera import Camera, orbit

_FLIP = np.diag([1.0, -1.0, -1.0, 1.0])
RADII = np.array([0.5, 0.3, 0.4])


def cameras(count: int = 8, size: int = 40) -> list[Camera]:
    """Two rings of cameras around the origin."""
    ring = [
        orbit((0, 0, 0), 2.0, (0, 1, 0), count=count // 2, width=size, height=size, elevation_degrees=e)
        for e in (10, 50)
    ]
    return [camera for pair in zip(*ring, strict=True) for camera in pair]


def picture(camera: Camera) -> np.ndarray:
    """(h, w, 4) uint8: the ellipsoid, red where x > 0, blue elsewhere, by exact ray casting at pixel centres."""
    y, x = np.mgrid[: camera.height, : camera.width] + 0.5
    rays = np.stack([(x - camera.cx) / camera.fx, (y - camera.cy) / camera.fy, np.ones_like(x)], axis=-1)
    d = (rays @ camera.T_camera_world[:3, :3]) / RADII
    o = camera.position / RADII
    a, b, c = (d * d).sum(-1), (d * o).sum(-1), float(o @ o) - 1
    root = b * b - a * c
    hit = root > 0
    t = (-b - np.sqrt(np.maximum(root, 0))) / a
    side = (o + t[..., None] * d)[..., 0] > 0
    rgba = np.zeros((camera.height, camera.width, 4), np.uint8)
    rgba[hit & side] = (200, 40, 40, 255)
    rgba[hit & ~side] = (40, 60, 180, 255)
    return rgba


def views(count: int = 8, size: int = 40) -> list[View]:
    return [View(f"v{k}", camera, picture(camera)) for k, camera in enumerate(cameras(count, size))]


def write_transforms(folder: Path, count: int = 8, size: int = 40, **extra: object) -> Path:
    """NeRF-synthetic layout."""
    folder.mkdir(parents=True, exist_ok=True)
    frames = []
    shots = cameras(count, size)
    for k, camera in enumerate(shots):
        Image.fromarray(picture(camera)).save(folder / f"r_{k}.png")
        pose = np.linalg.inv(camera.T_camera_world) @ _FLIP
        frames.append({"file_path": f"./r_{k}", "transform_matrix": pose.tolist()})
    angle = 2 * np.arctan(size / 2 / shots[0].fx)
    data = {"camera_angle_x": float(angle), "frames": frames, **extra}
    (folder / "transforms_train.json").write_text(json.dumps(data))
    return folder


def write_zju(folder: Path, count: int = 8, size: int = 40) -> Path:
    """ZJU-MoCap's layout, one moment."""
    shots = cameras(count, size)
    cams: dict[str, list[np.ndarray]] = {key: [] for key in "KDRT"}
    names = []
    for k, camera in enumerate(shots):
        name = f"Camera_B{k}/000000.jpg"
        rgba = picture(camera)
        for sub, image in (("", rgba[..., :3]), ("mask", (rgba[..., 3] > 0).astype(np.uint8))):
            path = (folder / sub / name).with_suffix(".png" if sub else ".jpg")
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(path, quality=95) if not sub else Image.fromarray(image).save(path)
        matrix = camera.intrinsics.copy()
        matrix[:2, 2] -= 0.5
        cams["K"].append(matrix)
        cams["D"].append(np.zeros((5, 1)))
        cams["R"].append(camera.T_camera_world[:3, :3])
        cams["T"].append(1000 * camera.T_camera_world[:3, 3:])
        names.append(name)
    np.save(folder / "annots.npy", np.array({"cams": cams, "ims": [{"ims": names}]}, dtype=object), allow_pickle=True)
    return folder


def write_colmap_text(folder: Path, count: int = 8, size: int = 40) -> Path:
    """COLMAP's text model with PINHOLE cameras, images and masks beside it."""
    from scipy.spatial.transform import Rotation

    model = folder / "sparse" / "0"
    model.mkdir(parents=True)
    (folder / "images").mkdir()
    (folder / "masks").mkdir()
    shots = cameras(count, size)
    c = shots[0]
    (model / "cameras.txt").write_text(f"1 PINHOLE {size} {size} {c.fx} {c.fy} {c.cx} {c.cy}\n")
    lines = []
    for k, camera in enumerate(shots):
        rgba = picture(camera)
        Image.fromarray(rgba[..., :3]).save(folder / "images" / f"im_{k}.png")
        Image.fromarray(rgba[..., 3]).save(folder / "masks" / f"im_{k}.png")
        q = np.roll(Rotation.from_matrix(camera.T_camera_world[:3, :3]).as_quat(), 1)
        t = camera.T_camera_world[:3, 3]
        lines += [f"{k + 1} {' '.join(map(str, [*q, *t]))} 1 im_{k}.png", ""]
    (model / "images.txt").write_text("\n".join(lines) + "\n")
    (model / "points3D.txt").write_text("")
    return folder
