"""Makes golden.npz with the float64 brute force: ``python -m tests.render.make_golden``."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from splatanim.render.reference import rasterize_reference
from tests.helpers import random_splats
from tests.render import scenes


def main() -> None:
    splats = random_splats(250, 3, seed=2024)
    rgb, alpha, depth = rasterize_reference(splats, scenes.camera(80, 60), background=(0.2, 0.4, 0.6))
    half = np.float16
    where = Path(__file__).parent / "golden.npz"
    np.savez_compressed(where, rgb=rgb.astype(half), alpha=alpha.astype(half), depth=depth.astype(half))


if __name__ == "__main__":
    main()
