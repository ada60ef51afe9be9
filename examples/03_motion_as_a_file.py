"""One file of all frames (the 4D format): written beside the film, read back, and looked at between two frames."""

from pathlib import Path

import numpy as np

from pipelines.animate import AnimateConfig, animate
from splatanim.formats import write_splats
from splatanim.formats.sequence4d import read_sequence4d

config = AnimateConfig(output=Path("drop.mp4"), seconds=0.5, size="160x160", export=("npz:drop.npz",))
animate(config)

sequence = read_sequence4d("drop.npz")
first, later = sequence.frame(0), sequence.at(0.35)  # Splats at a frame, and at a time in seconds
fallen = np.linalg.norm(later.means - first.means, axis=1).mean()
print(f"{len(sequence)} frames of {len(first)} splats; at 0.35 s they are {fallen:.3f} units from where they were")
write_splats("at_0.35.ply", later, up="-y")
