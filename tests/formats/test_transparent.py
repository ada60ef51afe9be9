"""Transparent films: what ffmpeg and Pillow read back is the straight colour and the alpha that went in."""

from __future__ import annotations

import subprocess
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

from splatanim.errors import InputError, OutputError
from splatanim.render.film import PngFolder, open_film
from splatanim.render.video import VideoWriter, straight

COLOUR = np.array([0.9, 0.5, 0.1], np.float32)


def disc(size: int = 64, shift: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A soft disc of one colour over black, and its alpha: nothing at the rim of the picture."""
    y, x = np.mgrid[:size, : size + 16]
    alpha = np.clip(2.0 - np.hypot(x - size / 2 - shift, y - size / 2) / (size / 5), 0, 1).astype(np.float32)
    return COLOUR * alpha[..., None], alpha


def decoded(path: Path, height: int, width: int) -> np.ndarray:
    decoder = ["-c:v", "libvpx-vp9"] if path.suffix == ".webm" else []  # the native one ignores alpha
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *decoder, "-i", str(path)]
    raw = subprocess.run([*command, "-f", "rawvideo", "-pix_fmt", "rgba", "-"], capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 4)


@pytest.mark.parametrize("name", ["a.webm", "a.mov", "frames"])
def test_straight_colour_and_alpha_come_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    pictures = [disc(shift=2 * k) for k in range(4)]
    with open_film(path, fps=25, alpha=True) as film:
        for rgb, alpha in pictures:
            film.write(rgb, alpha)
    if path.is_dir():
        assert sorted(p.name for p in path.iterdir()) == [f"frame_{k:04d}.png" for k in range(4)]
        read = np.stack([np.asarray(Image.open(p)) for p in sorted(path.iterdir())])
    else:
        read = decoded(path, 64, 80)
    assert len(read) == 4 and [p.name for p in tmp_path.iterdir()] == [name]
    for frame, (_, alpha) in zip(read.astype(float), pictures, strict=True):
        error = np.abs(frame[..., 3] - 255 * alpha)
        assert error.max() < 14 and error.mean() < 1.0
        # Straight colour everywhere, the transparent surroundings included: no dark rim.
        assert np.abs(frame[..., :3] - 255 * COLOUR).max() < 12


@pytest.mark.parametrize("name", ["a.webm", "a.mov"])
def test_opaque_films_in_these_containers(tmp_path: Path, name: str) -> None:
    rgb, _ = disc()
    with open_film(tmp_path / name) as film:
        film.write(rgb)
    read = decoded(tmp_path / name, 64, 80)
    assert (read[..., 3] == 255).all() and np.abs(read[0, ..., :3] / 255 - rgb).mean() < 0.02


def test_odd_sizes(tmp_path: Path) -> None:
    for name, size in (("a.webm", (25, 33)), ("a.mov", (26, 34))):
        with open_film(tmp_path / name, alpha=True) as film:
            film.write(np.zeros((25, 33, 3), np.float32), np.ones((25, 33), np.float32))
        assert decoded(tmp_path / name, *size).shape[0] == 1
        assert ("33x25 was padded to 34x26: ProRes needs even sizes" in film.note) == (name == "a.mov")


def test_an_mp4_cannot_be_transparent(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be transparent\. Write a\.webm .*a\.mov \(ProRes 4444.*folder of PN"):
        open_film(tmp_path / "a.mp4", alpha=True)
    rgb, alpha = disc()
    with (
        pytest.raises(InputError, match="frame 0 has alpha, but the film is opaque"),
        open_film(tmp_path / "a") as film,
    ):
        film.write(rgb, alpha)
    with (
        pytest.raises(InputError, match="frame 0 has no alpha, but the film is transparent"),
        VideoWriter(tmp_path / "a.webm", alpha=True) as video,
    ):
        video.write(rgb)
    assert not list(tmp_path.iterdir())


def test_a_folder_of_pictures_is_whole_or_absent(tmp_path: Path) -> None:
    rgb, alpha = disc()
    for error in (KeyboardInterrupt, InputError):
        with pytest.raises(error), PngFolder(tmp_path / "new", alpha=True) as film:
            film.write(rgb, alpha)
            raise error("stop")
        assert not list(tmp_path.iterdir())
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "frame_0000.png").write_text("older")
    with pytest.raises(InputError, match="no frame was given"), PngFolder(tmp_path / "old"):
        pass
    assert [p.read_text() for p in (tmp_path / "old").iterdir()] == ["older"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"file: the folder cannot be made"), PngFolder(tmp_path / "file"):
        pass


def test_straight_colours_are_exact_and_spread_into_nothing() -> None:
    rng = np.random.default_rng(0)
    colour = rng.uniform(0, 1, (9, 13, 3)).astype(np.float32)
    alpha = rng.uniform(0.05, 1, (9, 13)).astype(np.float32)
    rgba = straight(colour * alpha[..., None], alpha)
    assert (
        np.abs(rgba[..., :3] / 255 - colour).max() < 0.6 / 255 and np.abs(rgba[..., 3] / 255 - alpha).max() < 0.6 / 255
    )
    lone = np.zeros((37, 50), np.float32)
    lone[30, 3] = 0.5
    rgba = straight(lone[..., None] * COLOUR, lone)
    assert np.abs(rgba[..., :3] / 255 - COLOUR).max() < 0.6 / 255 and np.count_nonzero(rgba[..., 3]) == 1
    nothing = straight(np.zeros((4, 4, 3), np.uint8), np.zeros((4, 4), np.float32))
    assert not nothing.any()
    broken = straight(np.full((2, 2, 3), np.nan, np.float32), np.array([[np.nan, 1], [2, -1]], np.float32))
    assert broken[..., 3].tolist() == [[0, 255], [255, 0]]
