"""A skeleton for a capture that has none, placed and weighted without a network; what it found is in rig.png."""

from pathlib import Path

from pipelines.rig_verb import RigConfig, rig
from splatanim.formats import write_splats
from splatanim.rig.files import read_rig
from splatanim.samples import make_sample

write_splats("octopus.ply", make_sample("octopus", seed=0), up="-y")
print(rig(RigConfig(Path("octopus.ply"), (Path("rig.glb"), Path("rig.png")))))

model = read_rig("rig.glb")
for name, parent in zip(model.skeleton.names, model.skeleton.parents, strict=True):
    print(name, "<-", model.skeleton.names[parent] if parent >= 0 else "(root)")
