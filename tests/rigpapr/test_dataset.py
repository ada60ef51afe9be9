"""Each dataset layout on a synthetic subject, and what is said about bad ones."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rigpapr.dataset import Lens, ReadOptions, Source, View, read_dataset, read_view, undistort
from splatanim.errors import InputError
from tests.helpers import data_file
from tests.rigpapr import scenes


def assert_same(found: list[View], tolerance: float = 0.0) -> None:
    """The views are those of the scene: cameras, colours and masks."""
    shots = scenes.cameras()
    assert len(found) == len(shots)
    for view, camera in zip(found, shots, strict=True):
        np.testing.assert_allclose(view.camera.T_camera_world, camera.T_camera_world, atol=1e-9)
        np.testing.assert_allclose(view.camera.intrinsics, camera.intrinsics, rtol=1e-9)
        truth = scenes.picture(camera)
        assert (view.mask > 0.5).tolist() == (truth[..., 3] > 127).tolist()
        expected = View("", camera, truth).over((1.0, 1.0, 1.0))
        assert np.abs(view.over((1.0, 1.0, 1.0)) - expected).mean() <= tolerance


def test_nerf_synthetic(tmp_path: Path) -> None:
    folder = scenes.write_transforms(tmp_path / "nerf")
    assert_same(read_dataset(folder))
    assert_same(read_dataset(folder / "transforms_train.json"))


def test_nerfstudio_with_masks_and_pinhole_lens(tmp_path: Path) -> None:
    folder = scenes.write_transforms(tmp_path / "ns")
    path = folder / "transforms_train.json"
    data = json.loads(path.read_text())
    shot = scenes.cameras()[0]
    data |= {
        "fl_x": shot.fx,
        "fl_y": shot.fy,
        "cx": 20,
        "cy": 20,
        "w": 40,
        "h": 40,
        "camera_model": "OPENCV",
        "k1": 0.0,
    }
    del data["camera_angle_x"]
    for k, frame in enumerate(data["frames"]):
        rgba = np.asarray(Image.open(folder / f"r_{k}.png"))
        Image.fromarray(rgba[..., :3]).save(folder / f"r_{k}.jpg", quality=100, subsampling=0)
        Image.fromarray(rgba[..., 3]).save(folder / f"m_{k}.png")
        frame["file_path"], frame["mask_path"] = f"r_{k}.jpg", f"m_{k}.png"
    (folder / "transforms.json").write_text(json.dumps(data))
    path.unlink()
    assert_same(read_dataset(folder), tolerance=0.01)


def test_zju_mocap(tmp_path: Path) -> None:
    assert_same(read_dataset(scenes.write_zju(tmp_path)), tolerance=0.02)


def test_colmap_text_and_binary(tmp_path: Path) -> None:
    pycolmap = pytest.importorskip("pycolmap")
    folder = scenes.write_colmap_text(tmp_path)
    assert_same(read_dataset(folder))
    model = folder / "sparse" / "0"
    reconstruction = pycolmap.Reconstruction(str(model))
    for file in model.iterdir():
        file.unlink()
    reconstruction.write_binary(str(model))
    assert (model / "cameras.bin").is_file()
    assert_same(read_dataset(folder))


def test_the_multiview_data() -> None:
    views = read_dataset(data_file("multiview/fox"))
    assert len(views) == 32 and views[0].rgba.shape == (256, 256, 4)
    assert views[0].camera.fx == pytest.approx(355.5555, abs=1e-3)
    assert 0.03 < np.mean([view.mask.mean() for view in views]) < 0.3


def test_images_without_mask_are_cut_out_by_a_plain_background(tmp_path: Path) -> None:
    folder = scenes.write_transforms(tmp_path / "plain")
    for file in folder.glob("*.png"):
        rgba = np.asarray(Image.open(file)).astype(float)
        alpha = rgba[..., 3:] / 255
        Image.fromarray((rgba[..., :3] * alpha + (1 - alpha) * [0, 255, 0]).astype(np.uint8)).save(file)
    assert_same(read_dataset(folder, ReadOptions(background=(0.0, 1.0, 0.0))))
    with pytest.raises(InputError, match=r"r_0.png has neither alpha nor a mask, and no pixel of the background"):
        read_dataset(folder)


def test_reduction_keeps_what_a_pixel_looks_at(tmp_path: Path) -> None:
    view = read_dataset(scenes.write_transforms(tmp_path / "s"), ReadOptions(resolution=20))[0]
    full = scenes.views()[0]
    assert view.rgba.shape == (20, 20, 4) and view.camera.fx == pytest.approx(full.camera.fx / 2)
    blocks = full.over((1, 1, 1)).reshape(20, 2, 20, 2, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(view.over((1, 1, 1)), blocks, atol=0.02)


@pytest.mark.parametrize("fisheye", [False, True])
def test_undistortion_straightens_a_distorted_picture(fisheye: bool) -> None:
    """A pattern is drawn through a distorting lens by inverse lookup; undone, it is the pinhole's picture again."""
    cv2 = pytest.importorskip("cv2")
    camera = dataclasses.replace(scenes.cameras(2, 120)[0], fx=70.0, fy=70.0)
    coefficients = (0.08, -0.02, 0.0, 0.0) if fisheye else (-0.15, 0.03, 0.001, -0.002)
    truth = np.zeros((120, 120, 4), np.uint8)
    y, x = np.mgrid[:120, :120]
    truth[..., 0] = 128 + 100 * np.sin(x / 9.0)
    truth[..., 1] = 128 + 100 * np.sin(y / 11.0)
    truth[..., 3] = 255
    intrinsics = camera.intrinsics.copy()
    intrinsics[:2, 2] -= 0.5
    grid = np.stack([x, y], axis=-1).astype(np.float64).reshape(-1, 1, 2)
    undo = cv2.fisheye.undistortPoints if fisheye else cv2.undistortPoints
    ideal = undo(grid, intrinsics, np.array(coefficients), P=intrinsics).reshape(120, 120, 2).astype(np.float32)
    bent = cv2.remap(truth, ideal[..., 0], ideal[..., 1], cv2.INTER_LINEAR)
    straight = undistort(bent, camera, Lens(coefficients, fisheye))
    inner = (slice(20, 100), slice(20, 100))
    before, after = (np.abs(p[inner].astype(int) - truth[inner])[..., :2].mean() for p in (bent, straight))
    assert before > 2 and after < 0.4 * before


def edit(folder: Path, change) -> None:
    path = folder / "transforms_train.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def _resave(path: Path, change) -> None:
    Image.fromarray(change(np.array(Image.open(path)))).save(path)


def _scale_pose(data: dict) -> None:
    data["frames"][2]["transform_matrix"][0] = [0, 0, 0, 0]


BROKEN = {
    "missing image": (lambda d: (d / "r_3.png").unlink(), r"frames\[3\]: the image .*r_3 is missing"),
    "no file_path": (
        lambda d: edit(d, lambda x: x["frames"][1].pop("file_path")),
        r"frames\[1\]: file_path is missing",
    ),
    "mixed sizes": (
        lambda d: _resave(d / "r_4.png", lambda a: a[:30]),
        r"frames\[4\]: .*r_4.png is 40x30, the first image 40x40: images of different sizes cannot share one lens",
    ),
    "size of the intrinsics": (
        lambda d: edit(d, lambda x: x.update(w=80, h=80)),
        r"frames\[0\]: .*r_0.png is 40x40, but its intrinsics are for 80x80",
    ),
    "singular pose": (lambda d: edit(d, _scale_pose), r"frames\[2\]: the 3x3 part of transform_matrix is singular"),
    "empty mask": (
        lambda d: _resave(d / "r_5.png", lambda a: a * np.array([1, 1, 1, 0], np.uint8)),
        r"frames\[5\]: the mask of r_5 is empty",
    ),
    "inverted masks": (
        lambda d: [_resave(p, lambda a: np.dstack([a[..., :3], 255 - a[..., 3]])) for p in d.glob("*.png")],
        r"in 8 of 8 images the border is subject .* look inverted. Give --invert-masks",
    ),
    "not an image": (lambda d: (d / "r_6.png").write_bytes(b"hello"), r"r_6.png"),
    "missing mask": (
        lambda d: edit(d, lambda x: x["frames"][7].update(mask_path="m.png")),
        r"frames\[7\]: the mask .*m.png is missing",
    ),
    "unknown lens": (lambda d: edit(d, lambda x: x.update(camera_model="EQUIRECTANGULAR")), "camera_model is EQUIRECT"),
    "distortion that is no number": (lambda d: edit(d, lambda x: x.update(k1="a")), "coefficients .* must be numbers"),
    "no layout": (lambda d: (d / "transforms_train.json").unlink(), "no dataset layout known here"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_bad_datasets_are_named(name: str, tmp_path: Path) -> None:
    folder = scenes.write_transforms(tmp_path / "nerf")
    damage, text = BROKEN[name]
    damage(folder)
    with pytest.raises((InputError, OSError), match=text) as raised:
        read_dataset(folder)
    if name != "not an image":
        assert isinstance(raised.value, InputError)


def test_an_image_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"hello")
    source = Source("x", "frames[0]", tmp_path / "x.png", scenes.cameras()[0])
    with pytest.raises(InputError, match=r"frames\[0\]: .*x.png cannot be read as an image"):
        read_view(source, ReadOptions())


def test_inverted_masks_can_be_turned(tmp_path: Path) -> None:
    folder = scenes.write_transforms(tmp_path / "nerf")
    for path in folder.glob("*.png"):
        _resave(path, lambda a: np.dstack([a[..., :3], 255 - a[..., 3]]))
    assert_same(read_dataset(folder, ReadOptions(invert_masks=True)))


class _Evil:
    def __reduce__(self):
        return (print, ("run",))


def test_annotations_run_no_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "annots.npy", np.array(_Evil(), dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match=r"cannot be read as ZJU-MoCap's annotations .*print"):
        read_dataset(tmp_path)
    assert "run" not in capsys.readouterr().out


def test_bad_zju_folders_are_named(tmp_path: Path) -> None:
    folder = scenes.write_zju(tmp_path)
    with pytest.raises(InputError, match="moment 3 is not there; the file has 0 to 0"):
        read_dataset(folder, ReadOptions(frame=3))
    (folder / "mask" / "Camera_B2" / "000000.png").unlink()
    with pytest.raises(InputError, match="moment 0, camera 2: no mask for Camera_B2"):
        read_dataset(folder)
    (folder / "Camera_B1" / "000000.jpg").unlink()
    with pytest.raises(InputError, match=r"camera 1: .*000000.jpg is missing"):
        read_dataset(folder)
    np.save(folder / "annots.npy", np.array({"cams": {}}, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="is not as ZJU-MoCap's"):
        read_dataset(folder)
    (folder / "annots.npy").write_bytes(pickle.dumps([1]))
    with pytest.raises(InputError, match="cannot be read as ZJU-MoCap's annotations"):
        read_dataset(folder)


def test_bad_colmap_folders_are_named(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap")
    folder = scenes.write_colmap_text(tmp_path)
    (folder / "images" / "im_4.png").unlink()
    with pytest.raises(InputError, match=r"image im_4.png: .*im_4.png is missing"):
        read_dataset(folder)
    cameras = folder / "sparse" / "0" / "cameras.txt"
    cameras.write_text("1 THIN_PRISM_FISHEYE 40 40 50 50 20 20 0 0 0 0 0 0 0 0\n")
    with pytest.raises(InputError, match="camera model THIN_PRISM_FISHEYE; known are"):
        read_dataset(folder)


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(InputError, match="there is no such folder or file"):
        read_dataset("/nowhere/at/all")
