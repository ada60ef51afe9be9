"""Skinning fields on one object: how soft is each, against the softest that there can be?"""

from pipelines.animate import prepare
from splatanim.field.eigenmodes import softest
from splatanim.field.subspace import bind, rayleigh
from splatanim.formats.base import ReadResult
from splatanim.samples import make_sample
from splatanim.sampling.cubature import cubature_from_splats

splats = make_sample("octopus", seed=0)
subject = prepare(ReadResult(splats, "sample", len(splats), up="-y"), "auto", 1.0, "octopus")
cubature = cubature_from_splats(subject.splats, subject.frame)
print(cubature.method)

_, least = softest(cubature.domain, 16)
for kind in ("eigenmodes", "gaussians"):
    field, _ = bind(kind, cubature.domain, 16)
    stiffness = rayleigh(field, cubature.domain).mean() / least.mean()
    print(f"{kind}: {field.handles} handles, {stiffness:.3f} times the least possible energy")
