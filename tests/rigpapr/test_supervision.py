"""Reading clips, depth and tracks: what is read is what was written, and the text of every refusal."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rigpapr.supervision import MOST_FRAMES, read_clip
from rigpapr.supervision_depth import check_depth, read_depth
from rigpapr.supervision_tracks import (
    FlowTracker,
    Tracks,
    check_tracks,
    load_cotracker,
    read_tracks,
    sample,
    seeds,
    track_with_cotracker,
)
from splatanim.errors import InputError
from splatanim.render.camera import look_at
from splatanim.render.video import VideoWriter

CAMERA = look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=32, height=24)


def frame(k: int, *, alpha: bool = True) -> np.ndarray:
    """A red square on a plain ground that moves by one pixel a frame."""
    rgba = np.full((24, 32, 4), 255, np.uint8)
    rgba[..., 3] = 0 if alpha else 255
    rgba[8:16, 6 + k : 16 + k] = (200, 30, 30, 255)
    return rgba


def folder(path: Path, frames: list[np.ndarray], name: str = "f_{}.png") -> Path:
    path.mkdir()
    for k, picture in enumerate(frames):
        Image.fromarray(picture).save(path / name.format(k))
    return path


def test_frames_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    made = folder(tmp_path / "v", [frame(k) for k in range(12)])  # f_10 comes before f_2 by name
    clip = read_clip(made, CAMERA, fps=10.0)
    assert len(clip) == 12 and clip.fps == 10.0
    for k in range(12):
        np.testing.assert_array_equal(clip.masks[k], frame(k)[..., 3] > 0)
    assert (clip.rgb[0][~clip.masks[0]] == 255).all() and (clip.rgb[0][clip.masks[0]] == (200, 30, 30)).all()
    assert len(read_clip(made, CAMERA, part=slice(2, 10, 3))) == 3
    np.testing.assert_allclose(clip.picture(0).max(), 1.0)


def test_video_with_a_plain_background(tmp_path: Path) -> None:
    path = tmp_path / "v.mp4"
    with VideoWriter(path, fps=12, crf=4) as video:
        for k in range(5):
            video.write(np.repeat(np.repeat(frame(k, alpha=False)[..., :3], 4, 0), 4, 1))
    camera = look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=128, height=96)
    clip = read_clip(path, camera)
    assert len(clip) == 5 and clip.fps == pytest.approx(12) and "plain background" in clip.notes[0]
    truth = np.repeat(np.repeat(frame(3)[..., 3] > 0, 4, 0), 4, 1)
    assert (clip.masks[3] != truth).mean() < 0.01
    assert len(read_clip(path, camera, part=slice(1, None, 2))) == 2


def test_bad_clips(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.mp4: no such video or folder"):
        read_clip(tmp_path / "nowhere.mp4", CAMERA)
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(InputError, match=r"x.txt: is no video known here"):
        read_clip(tmp_path / "x.txt", CAMERA)
    (tmp_path / "x.mp4").write_bytes(b"no video at all")
    with pytest.raises(InputError, match=r"(?s)x.mp4: ffmpeg cannot read it .*Re-encode"):
        read_clip(tmp_path / "x.mp4", CAMERA)
    one = folder(tmp_path / "one", [frame(0)])
    with pytest.raises(InputError, match="one frame was found; motion needs two or more"):
        read_clip(one, CAMERA)
    good = folder(tmp_path / "good", [frame(k) for k in range(3)])
    wide = look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=64, height=48)
    with pytest.raises(InputError, match=r"the frames are 32x24, the camera is for 64x48"):
        read_clip(good, wide)
    mixed = folder(tmp_path / "mixed", [frame(0), frame(1)[:20]])
    with pytest.raises(InputError, match=r"f_1\.png: is 32x20, the first frame .* is 32x24"):
        read_clip(mixed, CAMERA)
    empty = folder(tmp_path / "empty", [np.where(np.arange(4) == 3, 0, frame(k)).astype(np.uint8) for k in range(3)])
    with pytest.raises(InputError, match=r"the masks show no subject \(the first has 0 pixels"):
        read_clip(empty, CAMERA)
    with pytest.raises(InputError, match="--masks alpha, but no frame has a transparent pixel"):
        read_clip(folder(tmp_path / "opaque", [frame(k, alpha=False) for k in range(3)]), CAMERA, masks="alpha")
    noise = [np.random.default_rng(k).integers(0, 255, (24, 32, 3), dtype=np.uint8) for k in range(3)]
    with pytest.raises(InputError, match=r"the background is not plain \(\d+ % of the border"):
        read_clip(folder(tmp_path / "noise", noise), CAMERA)
    with pytest.raises(InputError, match="give alpha, auto, or a folder of mask pictures; there is no such folder"):
        read_clip(good, CAMERA, masks=str(tmp_path / "nomasks"))
    few = folder(tmp_path / "few", [frame(0)])
    with pytest.raises(InputError, match="holds 1 masks for 3 frames"):
        read_clip(good, CAMERA, masks=str(few))


def test_a_variable_frame_rate_is_refused(tmp_path: Path) -> None:
    import imageio_ffmpeg

    path = tmp_path / "vfr.mp4"
    with VideoWriter(tmp_path / "even.mp4", fps=12) as video:
        for k in range(24):
            video.write(np.repeat(np.repeat(frame(k % 8, alpha=False)[..., :3], 4, 0), 4, 1))
    command = [
        imageio_ffmpeg.get_ffmpeg_exe(),
        "-i",
        str(tmp_path / "even.mp4"),
        "-vf",
        "select=not(mod(n\\,5))+eq(n\\,1)",
    ]
    subprocess.run([*command, "-fps_mode", "vfr", str(path)], check=True, capture_output=True)
    with pytest.raises(InputError, match=r"its frame rate varies \(\d+ % of the frames\). Re-encode it at one rate"):
        read_clip(path, look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=128, height=96))


def test_long_clips_are_refused_with_their_memory(tmp_path: Path) -> None:
    long = tmp_path / "long"
    long.mkdir()
    for k in range(2000):
        (long / f"{k}.png").touch()
    camera = look_at((0, 0, 3), (0, 0, 0), (0, 1, 0), width=1000, height=1000)
    with pytest.raises(InputError, match=rf"2000 frames would take 24.0 GB; up to {MOST_FRAMES} .*--frames 0:600"):
        read_clip(long, camera)


def test_mask_folder(tmp_path: Path) -> None:
    made = folder(tmp_path / "v", [frame(k, alpha=False) for k in range(3)])
    masks = folder(tmp_path / "m", [frame(k)[..., 3] for k in range(3)])
    clip = read_clip(made, CAMERA, masks=str(masks))
    np.testing.assert_array_equal(clip.masks[2], frame(2)[..., 3] > 0)


def test_depth_files(tmp_path: Path) -> None:
    maps = np.random.default_rng(0).uniform(1, 3, (3, 24, 32)).astype(np.float32)
    maps[0, 0, 0] = np.nan
    np.savez(tmp_path / "d.npz", near=maps, depth=maps + 1)
    np.testing.assert_allclose(read_depth(tmp_path / "d.npz", (3, 24, 32))[1], maps[1] + 1)
    read = read_depth(f"{tmp_path / 'd.npz'}:near", (3, 24, 32))
    assert read[0, 0, 0] == 0 and np.allclose(read[1:], maps[1:])
    assert read_depth(f"{tmp_path / 'd.npz'}:near", (2, 24, 32), part=slice(1, None)).shape == (2, 24, 32)
    pictures = folder(tmp_path / "d16", [(1000 * maps[k]).astype(np.uint16) for k in (1, 2)])
    np.testing.assert_allclose(read_depth(pictures, (2, 24, 32))[0], np.floor(1000 * maps[1]))
    with pytest.raises(InputError, match=r"has no array 'far'; it has near, depth. Name one: d.npz:KEY"):
        read_depth(f"{tmp_path / 'd.npz'}:far", (3, 24, 32))
    with pytest.raises(InputError, match=r"have shape \(3, 24, 32\), the clip is 4 frames of 32x24"):
        read_depth(tmp_path / "d.npz", (4, 24, 32))
    with pytest.raises(InputError, match="has 8 bits, too few for depth"):
        read_depth(folder(tmp_path / "d8", [frame(0)[..., 0]] * 2), (2, 24, 32))
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no depth maps"):
        read_depth(tmp_path / "none", (2, 24, 32))
    np.save(tmp_path / "zero.npy", np.zeros((2, 24, 32)))
    with pytest.raises(InputError, match="no depth map has a positive value"):
        read_depth(tmp_path / "zero.npy", (2, 24, 32))
    (tmp_path / "bad.npz").write_bytes(b"x")
    with pytest.raises(InputError, match=r"bad.npz: cannot be read as NumPy arrays"):
        read_depth(tmp_path / "bad.npz", (2, 24, 32))


def test_depth_is_held_against_the_geometry() -> None:
    y, x = np.mgrid[:24, :32]
    known = (2 + 0.01 * x + 0.005 * y).astype(np.float32)
    mask = np.ones((24, 32), bool)
    assert "correlation 1.00" in check_depth(known / 1000, known, mask, "d") and "1000" in check_depth(
        known / 1000, known, mask, "d"
    )
    with pytest.raises(InputError, match=r"d: the maps fall where the object recedes .* disparity .*1 / disparity"):
        check_depth(1 / known, known, mask, "d")
    noise = np.random.default_rng(0).uniform(1, 2, (24, 32))
    with pytest.raises(InputError, match=r"does not follow the object's depth \(correlation"):
        check_depth(noise, known, mask, "d")
    with pytest.raises(InputError, match="share 0 pixels"):
        check_depth(np.zeros_like(known), known, mask, "d")


def textured(shift: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    coarse = np.kron(rng.integers(0, 255, (20, 24, 3)), np.ones((8, 8, 1)))
    return np.roll(coarse, shift, axis=1)[:96, :128].astype(np.uint8)


def test_flow_follows_a_shift() -> None:
    rgb = np.stack([textured(2 * k) for k in range(4)])
    start = np.stack(np.meshgrid(np.arange(30.5, 90, 12), np.arange(20.5, 80, 12)), -1).reshape(-1, 2)
    tracks = FlowTracker().track(np.arange(len(start)), start, rgb, np.ones(rgb.shape[:3], bool))
    good = tracks.seen[3]
    assert good.mean() > 0.8
    assert np.abs(np.median(tracks.pixels[3][good] - start[good], axis=0) - [6, 0]).max() < 0.3
    off = np.ones(rgb.shape[:3], bool)
    off[1:] = False
    with pytest.raises(InputError, match="optical flow: every track is lost right after the first frame"):
        FlowTracker().track(np.arange(len(start)), start, rgb, off)


def test_track_files(tmp_path: Path) -> None:
    start = np.array([[4.0, 4.0], [10.0, 10.0], [20.0, 12.0]])
    pixels = np.stack([start[[2, 1]] + k for k in range(3)])
    np.savez(tmp_path / "t.npz", tracks=pixels, visibility=np.array([[1, 1], [1, 0], [1, 1]]))
    tracks = read_tracks(tmp_path / "t.npz", 3, start, np.ones(3, bool))
    assert tracks.rows.tolist() == [2, 1] and not tracks.seen[1, 1] and tracks.seen[2].all()
    np.savez(tmp_path / "p.npz", tracks=pixels, points=np.array([0, 9]))
    with pytest.raises(InputError, match="points must name one of the asset's 3 points"):
        read_tracks(tmp_path / "p.npz", 3, start, np.ones(3, bool))
    with pytest.raises(InputError, match=r"tracks have shape \(3, 2, 2\); \(5, M, 2\) is needed"):
        read_tracks(tmp_path / "t.npz", 5, start, np.ones(3, bool))
    with pytest.raises(InputError, match=r"tracks are kept in a \.npz"):
        read_tracks(tmp_path / "t.npy", 3, start, np.ones(3, bool))
    np.savez(tmp_path / "n.npz", tracks=np.where(np.arange(3)[:, None, None] > 0, np.nan, pixels))
    with pytest.raises(InputError, match="every track is lost right after the first frame"):
        read_tracks(tmp_path / "n.npz", 3, start, np.ones(3, bool))
    with pytest.raises(InputError, match="a visible track has a NaN"):
        check_tracks(Tracks(np.arange(1), np.full((2, 1, 2), np.nan, np.float32), np.ones((2, 1), bool)), "t")


def test_seeds_are_the_dominant_points() -> None:
    rendering = types.SimpleNamespace(
        weights=np.array([[[0.6, 0.2], [0.04, 0.03], [0.1, 0.7]]], np.float32),
        indices=np.array([[[5, 2], [7, 8], [9, 5]]], np.int32),
    )
    assert seeds(rendering, np.ones((1, 3), bool)).tolist() == [5]
    with pytest.raises(InputError, match="no point of the object dominates"):
        seeds(rendering, np.zeros((1, 3), bool))


class FakePredictor:
    """CoTracker3's interface: pixels with 0 at a pixel's centre, all tracks move by one pixel a frame."""

    def __init__(self, checkpoint: str, offline: bool, window_len: int) -> None:
        assert offline and window_len == 60 and checkpoint.endswith("scaled_offline.pth")

    def to(self, device: str) -> FakePredictor:
        return self

    def __call__(self, video, queries):
        assert video.shape == (1, 4, 3, 96, 128) and float(video.max()) > 1.5
        assert (queries[..., 0] == 0).all()
        import torch

        places = torch.stack([queries[0, :, 1:] + k for k in range(4)])[None]
        return places, torch.ones(1, 4, queries.shape[1], dtype=torch.bool)


def test_cotracker_through_its_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "scaled_offline.pth"
    with pytest.raises(InputError, match="no such checkpoint"):
        load_cotracker(checkpoint)
    checkpoint.touch()
    with pytest.raises(InputError, match="cotracker cannot be imported"):
        load_cotracker(checkpoint)
    online = tmp_path / "scaled_online.pth"
    online.touch()
    with pytest.raises(InputError, match="is an online checkpoint; whole clips need the offline one"):
        load_cotracker(online)
    module = types.ModuleType("cotracker.predictor")
    module.CoTrackerPredictor = FakePredictor
    monkeypatch.setitem(sys.modules, "cotracker", types.ModuleType("cotracker"))
    monkeypatch.setitem(sys.modules, "cotracker.predictor", module)
    rgb = np.stack([textured(2 * k) for k in range(4)])
    start = np.array([[3.5, 4.5], [20.0, 9.0], [7.0, 8.0]])
    tracks = track_with_cotracker(load_cotracker(checkpoint), np.arange(3), start, rgb, chunk=2)
    for k in range(4):
        np.testing.assert_allclose(tracks.pixels[k], start + k, atol=1e-5)
    assert tracks.seen.all()


def test_bilinear_sampling() -> None:
    image = np.arange(12, dtype=np.float32).reshape(3, 4, 1)
    places = np.array([[0.5, 0.5], [1.0, 0.5], [2.5, 1.5], [99.0, 99.0], [1.5, 1.0]])
    np.testing.assert_allclose(sample(image, places)[:, 0], [0.0, 0.5, 6.0, 11.0, 3.0])
