"""splatanim: elastic animation of static captures (3D Gaussian splats, meshes, point clouds).

The flow, one arrow a stage: splats | mesh -> cubature -> skinning field -> reduced model -> trajectory
-> posed splats -> frames. Each stage is a pure function over the small frozen dataclasses of
:mod:`splatanim.data`; importing this package loads neither torch nor numba.
"""

__version__ = "0.1.0"
