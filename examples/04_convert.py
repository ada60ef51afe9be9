"""A capture turned, cropped, made smaller and written in other formats."""

from pathlib import Path

from pipelines.convert import ConvertConfig, convert
from splatanim.formats import read_splats, write_splats
from splatanim.samples import make_sample

write_splats("plant.ply", make_sample("plant", seed=1), up="-y")
print(convert(ConvertConfig(Path("plant.ply"), Path("plant.spz"))))
print(convert(ConvertConfig(Path("plant.ply"), Path("turned.glb"), rotate="0,90,0", scale=0.5, drop_floaters=True)))
print(convert(ConvertConfig(Path("plant.ply"), Path("small.splat"), count=2000, cap_needles=True)))

for name in ("plant.ply", "plant.spz", "turned.glb", "small.splat"):
    result = read_splats(name)
    size = Path(name).stat().st_size // 1024
    print(f"{name}: {result.format}, {len(result.splats)} splats of degree {result.splats.sh_degree}, {size} KiB")
