"""Make the pictures of the README and these pages: ``python docs/pictures.py`` (from the repository's root)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from PIL import Image

from pipelines.animate import AnimateConfig, animate
from splatanim.formats import write_ply
from splatanim.samples import make_sample

STRIPS = {
    "jelly_drop.png": ("jelly", "drop", "jelly", (0.0, 0.33, 0.43, 0.62, 0.86)),
    "octopus_poke.png": ("octopus", "poke", "flesh", (0.0, 0.25, 0.4, 1.3, 1.5)),
    "plant_sway.png": ("plant", "sway", "leaf", (0.0, 0.2, 0.45, 0.7, 1.0)),
}
SIZE = 260


def strip(sample: str, motion: str, material: str, moments: tuple[float, ...]) -> np.ndarray:
    """Frames of one sample side by side, (SIZE, len(moments) * SIZE, 3)."""
    with tempfile.TemporaryDirectory() as folder:
        scene, film = Path(folder) / "scene.ply", Path(folder) / "film.mp4"
        write_ply(scene, make_sample(sample), comments=("Vertical Axis: -y",))
        size = f"{2 * SIZE}x{2 * SIZE}"
        animate(
            AnimateConfig(
                scene, film, motion=motion, material=material, camera="fixed", size=size, seconds=moments[-1] + 0.1
            )
        )
        reader = imageio_ffmpeg.read_frames(str(film))
        width, height = next(reader)["size"]
        frames = [np.frombuffer(frame, np.uint8).reshape(height, width, 3) for frame in reader]
    chosen = (Image.fromarray(frames[min(round(30 * t), len(frames) - 1)]) for t in moments)
    return np.concatenate([np.asarray(frame.resize((SIZE, SIZE), Image.Resampling.LANCZOS)) for frame in chosen], 1)


def main() -> int:
    folder = Path(__file__).parent
    for name, recipe in STRIPS.items():
        picture = Image.fromarray(strip(*recipe)).quantize(256, dither=Image.Dither.NONE)
        picture.save(folder / name, optimize=True)
        print(folder / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
