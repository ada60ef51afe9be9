"""A PAPR point cloud from a few pictures: rendered from splats here, photographed elsewhere. (A minute.)"""

from pathlib import Path

from pipelines.progress import Progress
from pipelines.reconstruct import ReconstructConfig, reconstruct
from pipelines.still import RenderConfig, render_still
from splatanim.render.camera import orbit
from splatanim.render.camera_io import write_transforms
from splatanim.render.rasterize import rasterize
from splatanim.render.video import write_png
from splatanim.samples import make_sample

splats = make_sample("plush", seed=0)
rings = [
    orbit(splats.means.mean(axis=0), 3.0, (0, -1, 0), count=10, width=64, height=64, elevation_degrees=height)
    for height in (5.0, 35.0)
]
cameras = [camera for ring in rings for camera in ring]
names = [f"images/{k:02d}.png" for k in range(len(cameras))]
Path("views", "images").mkdir(parents=True, exist_ok=True)
for camera, name in zip(cameras, names, strict=True):
    image = rasterize(splats, camera, background=(0.0, 0.0, 0.0))
    write_png(Path("views", name), image.rgb, image.alpha)
write_transforms("views/transforms.json", cameras, names=names)

asset = Path("plush.papr.safetensors")
print(reconstruct(ReconstructConfig(Path("views"), asset, steps=200, points=1500, holdout=7), Progress()))
print(render_still(RenderConfig(asset, Path("seen.png"), camera=Path("views/transforms.json"), frame=3), Progress()))
