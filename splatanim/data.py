"""The dataclasses that flow between the stages, and the conventions they share.

Units and axes, said once:

* Files keep their own coordinates, units and up axis; every output is written back in them.
* The simulator works in SI units on ``x_sim = scale * (x_file - centre)`` (:class:`Frame`): no rotation, only a
  similarity, so that the same up vector serves both. An object's longest side is 1 m unless asked otherwise.
* Quaternions are ``wxyz``, unit length. Transforms are named ``T_target_source``.
* Splats store *raw* values, as 3DGS files do: ``log_scales`` and ``raw_opacities`` (logits). The activated
  values are the properties :attr:`Splats.scales` and :attr:`Splats.opacities`, the one place that converts.
* Spherical harmonics are ``(N, K, 3)`` with ``K = (degree + 1)^2``, coefficient 0 the constant one; the basis and
  its signs are those of 3DGS (``colour = max(0, 0.5 + sum_k Y_k(d) sh_k)``, ``d`` from the camera to the splat).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Float32, Float64, Int

from splatanim.errors import InputError


@dataclass(frozen=True)
class Splats:
    """N Gaussians.

    ``offset`` is added to ``means`` to get file coordinates: files far from the origin (geo-referenced ones) are
    recentred in float64 before they become float32. ``extras`` holds further per-splat columns of the source file,
    kept so that an export loses nothing.
    """

    means: Float32[np.ndarray, "n 3"]
    quaternions: Float32[np.ndarray, "n 4"]
    log_scales: Float32[np.ndarray, "n 3"]
    raw_opacities: Float32[np.ndarray, " n"]
    sh: Float32[np.ndarray, "n k 3"]
    offset: tuple[float, float, float] = (0.0, 0.0, 0.0)
    extras: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        n = len(self.means)
        for name in ("quaternions", "log_scales", "raw_opacities", "sh"):
            if len(getattr(self, name)) != n:
                raise InputError(f"Splats: {name} has {len(getattr(self, name))} rows, means has {n}.")
        if self.sh.shape[1] not in (1, 4, 9, 16):
            raise InputError(f"Splats: {self.sh.shape[1]} SH coefficients; 1, 4, 9 or 16 are possible.")

    def __len__(self) -> int:
        return len(self.means)

    @property
    def sh_degree(self) -> int:
        return round(self.sh.shape[1] ** 0.5) - 1

    @property
    def scales(self) -> Float32[np.ndarray, "n 3"]:
        """Standard deviations along the principal axes, in file units."""
        return np.exp(self.log_scales)

    @property
    def opacities(self) -> Float32[np.ndarray, " n"]:
        return (1.0 / (1.0 + np.exp(-np.clip(self.raw_opacities, -30.0, 30.0)))).astype(np.float32)

    def select(self, rows: np.ndarray) -> Splats:
        """The splats at a boolean mask or at indices, extras included."""
        return Splats(
            self.means[rows],
            self.quaternions[rows],
            self.log_scales[rows],
            self.raw_opacities[rows],
            self.sh[rows],
            self.offset,
            {name: column[rows] for name, column in self.extras.items()},
        )

    def replace(self, **changes: object) -> Splats:
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Mesh:
    """A triangle mesh in file coordinates."""

    vertices: Float64[np.ndarray, "v 3"]
    faces: Int[np.ndarray, "f 3"]

    def __post_init__(self) -> None:
        if not np.isfinite(self.vertices).all():
            bad = int((~np.isfinite(self.vertices)).any(axis=1).sum())
            raise InputError(f"Mesh: {bad} vertices are NaN or infinite.")
        if len(self.faces) and (self.faces.min() < 0 or self.faces.max() >= len(self.vertices)):
            raise InputError(f"Mesh: a face refers to vertex {self.faces.max()} of {len(self.vertices)}.")


@dataclass(frozen=True)
class Frame:
    """The similarity from file coordinates (of ``Splats.means``) to the simulator: ``x_sim = scale (x - centre)``."""

    centre: tuple[float, float, float]
    scale: float
    up: tuple[float, float, float]

    def to_sim(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return (np.asarray(points, np.float64) - self.centre) * self.scale

    def to_file(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n 3"]:
        return np.asarray(points, np.float64) / self.scale + self.centre


@dataclass(frozen=True)
class Domain:
    """The inside of an object as occupied voxels (simulator units): what fields are bound on.

    ``cells`` are the integer indices of the occupied voxels; cell c has its centre at ``origin + (c + 1/2) spacing``.
    """

    cells: Int[np.ndarray, "v 3"]
    origin: Float64[np.ndarray, " 3"]
    spacing: float

    @property
    def centres(self) -> Float64[np.ndarray, "v 3"]:
        return self.origin + (self.cells + 0.5) * self.spacing

    @property
    def volume(self) -> float:
        return len(self.cells) * self.spacing**3


@dataclass(frozen=True)
class Cubature:
    """Integration points with volumes, and surface points for contact (simulator units, rest pose).

    ``method`` says in words how the inside was found; it reaches the user's report.
    """

    points: Float64[np.ndarray, "q 3"]
    volumes: Float64[np.ndarray, " q"]
    surface: Float64[np.ndarray, "s 3"]
    domain: Domain
    method: str

    def __post_init__(self) -> None:
        if len(self.points) != len(self.volumes):
            raise InputError(f"Cubature: {len(self.points)} points but {len(self.volumes)} volumes.")
        if not len(self.points) or self.volumes.min() <= 0:
            raise InputError("Cubature: needs at least one point, and positive volumes.")


@dataclass(frozen=True)
class Material:
    """An isotropic elastic material.

    ``young`` E [Pa], ``poisson`` nu [-], ``density`` rho [kg/m^3], ``friction`` Coulomb mu [-] against the floor.
    ``stretch_limit`` is the principal stretch from which the material stiffens (finite extensibility, as chains in
    rubber have); ``model`` is ``neohookean``, ``corotated`` or ``linear``. ``damping_mass`` alpha [1/s] and
    ``damping_stiffness`` beta [s] are Rayleigh's: they act on the bodies of a world.
    """

    name: str
    young: float
    poisson: float
    density: float
    friction: float = 0.5
    stretch_limit: float = 2.0
    model: str = "neohookean"
    damping_mass: float = 0.0
    damping_stiffness: float = 0.0

    def __post_init__(self) -> None:
        for key in ("young", "density", "stretch_limit"):
            if not getattr(self, key) > 0:
                raise InputError(f"Material {self.name}: {key} is {getattr(self, key)}; it must be positive.")
        if not -1 < self.poisson < 0.5:
            raise InputError(
                f"Material {self.name}: poisson is {self.poisson}; it must lie between -1 and 0.5 (rubber: 0.45)."
            )
        if self.model not in ("neohookean", "corotated", "linear"):
            raise InputError(f"Material {self.name}: model {self.model!r} is none of neohookean, corotated, linear.")
        for key in ("friction", "damping_mass", "damping_stiffness"):
            if getattr(self, key) < 0:
                raise InputError(f"Material {self.name}: {key} is {getattr(self, key)}; it must not be negative.")

    @property
    def lame(self) -> tuple[float, float]:
        """Lame parameters (mu, lambda) [Pa]."""
        mu = self.young / (2 * (1 + self.poisson))
        lam = self.young * self.poisson / ((1 + self.poisson) * (1 - 2 * self.poisson))
        return mu, lam
