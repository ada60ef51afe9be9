"""Films without a background: of a still capture, of a moved one and of a scene, all written the same way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipelines.cli import main
from splatanim.formats import write_ply
from splatanim.render.camera import orbit
from splatanim.render.camera_io import write_camera_path
from tests.helpers import random_splats

SHORT = ["--seconds", "0.2", "--fps", "10", "--size", "48x40"]


@pytest.fixture(scope="module")
def ball(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 opaque splats on a sphere."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=(800, 3))
    means = (0.5 * direction / np.linalg.norm(direction, axis=1, keepdims=True)).astype(np.float32)
    path = tmp_path_factory.mktemp("scene") / "ball.ply"
    write_ply(path, random_splats(800, degree=1).replace(means=means, raw_opacities=np.full(800, 3.0, np.float32)))
    return path


def alpha_of(path: Path) -> np.ndarray:
    image = np.asarray(Image.open(path))
    assert image.shape[2] == 4
    return image[..., 3]


def test_every_verb_leaves_nothing_behind_the_object(ball: Path, tmp_path: Path) -> None:
    scene = tmp_path / "s.toml"
    scene.write_text(f'seconds = 0.2\nfps = 10\n[[objects]]\nname = "b"\nfile = "{ball}"\nat = [0, 1, 0]\n[[planes]]\n')
    folders = [tmp_path / name for name in ("still", "moved", "scene")]
    clear = ["--background", "transparent", "--size", "48x40"]
    assert main(["render", str(ball), "-o", str(folders[0]), *clear]) == 0
    assert main(["animate", str(ball), "-o", str(folders[1]), *SHORT, "--background", "transparent"]) == 0
    assert main(["animate", str(scene), "-o", str(folders[2]), *clear]) == 0
    for folder, frames in zip(folders, (1, 2, 2), strict=True):
        pictures = sorted(folder.glob("frame_*.png"))
        assert len(pictures) == frames
        alpha = alpha_of(pictures[0])
        assert alpha[0, 0] == 0 and alpha.max() > 200 and 0.02 < (alpha > 128).mean() < 0.9
    png = tmp_path / "a.png"
    assert main(["render", str(ball), "-o", str(png), *clear]) == 0
    assert alpha_of(png)[0, 0] == 0


def test_mp4_without_background_is_refused_with_what_to_write(ball: Path, tmp_path: Path, capsys) -> None:
    scene = tmp_path / "s.toml"
    scene.write_text(f'[[objects]]\nname = "b"\nfile = "{ball}"\n[output]\ntransparent = true\n')
    for arguments in (["render", str(ball), "--background", "transparent"], ["animate", str(scene)]):
        assert main([*arguments, "-o", str(tmp_path / "a.mp4")]) == 2
        said = capsys.readouterr().err
        assert "holds no alpha" in said and "a.webm" in said
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]


@pytest.mark.slow
def test_a_scene_becomes_every_kind_of_film(ball: Path, tmp_path: Path) -> None:
    scene = tmp_path / "s.toml"
    scene.write_text(f'seconds = 0.2\nfps = 10\n[[objects]]\nname = "b"\nfile = "{ball}"\nat = [0, 1, 0]\n')
    for suffix in (".mp4", ".webm", ".mov"):
        film = tmp_path / f"a{suffix}"
        assert main(["animate", str(scene), "-o", str(film), "--size", "48x40"]) == 0
        assert film.stat().st_size > 300


def test_odd_sizes_are_padded_said_and_playable(ball: Path, tmp_path: Path, capsys) -> None:
    from imageio_ffmpeg import read_frames

    film = tmp_path / "odd.mp4"
    camera = tmp_path / "cameras.json"
    write_camera_path(camera, orbit((0, 0, 0), 2.0, (0, -1, 0), count=3, width=333, height=251), 10.0)
    assert main(["render", str(ball), "-o", str(film), "--camera", str(camera)]) == 0
    assert "333x251 was padded to 334x252" in capsys.readouterr().out
    frames = read_frames(str(film))
    facts = next(frames)
    assert facts["size"] == (334, 252) and "yuv420p" in facts["pix_fmt"] and facts["codec"] == "h264"
    assert sum(1 for _ in frames) == 3
