"""One camera in the conventions of four tools, and a picture from a COLMAP model."""

from pathlib import Path

from pipelines.progress import Progress
from pipelines.still import RenderConfig, render_still
from splatanim.formats import write_splats
from splatanim.render.camera import orbit
from splatanim.render.camera_colmap import write_colmap
from splatanim.render.camera_formats import to_colmap, to_gsplat, to_nerfstudio, to_pytorch3d
from splatanim.render.camera_io import write_transforms
from splatanim.samples import make_sample

cameras = orbit((0, 0, 0), 3.0, (0, -1, 0), count=8, width=160, height=120)
viewmats, Ks = to_gsplat(cameras)
print("gsplat", viewmats.shape, Ks.shape)
print("COLMAP qvec, tvec", *to_colmap(cameras[0])[:2])
print("nerfstudio camera_to_world", to_nerfstudio(cameras[0]).round(3).tolist())
print("PyTorch3D R", to_pytorch3d(cameras).R[0].round(3).tolist())

write_colmap("sparse", cameras)
write_transforms("transforms.json", cameras)
write_splats("plush.ply", make_sample("plush", seed=0), up="-y")
print(render_still(RenderConfig(Path("plush.ply"), Path("plush.png"), camera=Path("sparse"), frame=1), Progress()))
