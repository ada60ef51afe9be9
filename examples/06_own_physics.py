"""The solver without the command line: a bar under terms of one's own choice, and where its free end goes."""

import numpy as np

from splatanim.binding import Handles
from splatanim.data import Frame, Mesh
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.materials import preset
from splatanim.dynamics.reduced import reduce
from splatanim.dynamics.regions import Region
from splatanim.dynamics.simulate import Settings, simulate
from splatanim.dynamics.terms import gravity
from splatanim.field.eigenmodes import bind_eigenmodes
from splatanim.sampling.cubature import cubature_from_mesh

corners = np.array([[x, y, z] for x in (0.0, 1.0) for y in (0.0, 0.15) for z in (0.0, 0.15)])
faces = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1]])
faces = np.concatenate([faces, [[2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]])
frame = Frame((0.5, 0.075, 0.075), 1.0, (0.0, 0.0, 1.0))
cubature = cubature_from_mesh(Mesh(corners, faces), frame)

wall = Region((-np.inf,) * 3, (-0.45, np.inf, np.inf), 0.05)  # held still: all that is left of x = -0.45 m
model = reduce(cubature, Handles(bind_eigenmodes(cubature.domain, 16), (wall,)), preset("rubber"))
terms = [AveragedElasticity(model), gravity(model, np.array([0.0, 0.0, -9.81]))]
trajectory = simulate(model, terms, Settings(frames=30, fps=30.0))

tip = np.array([[0.5, 0.0, 0.0]])
weights, _ = model.handles.evaluate(tip)
for time, handles in zip(trajectory.times[::5], trajectory.handles[::5], strict=True):
    moved = np.einsum("nh,hrc,c->nr", weights, handles, [*tip[0], 1.0])
    print(f"{time:.2f} s: the tip is {1000 * moved[0, 2]:7.2f} mm from where it was")
