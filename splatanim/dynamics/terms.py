"""The energies of reduced dynamics (eq. 10, 11, 13), each with exact gradient and Hessian.

All are functions of y, the (3, K) coordinates of :class:`~splatanim.dynamics.reduced.ReducedModel`, flat row-major.
Terms that depend on time have ``begin_step``, called by the simulator with the step's data before each solve.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.reduced import ReducedModel

Vector = Float64[np.ndarray, " n"]
Matrix = Float64[np.ndarray, "n n"]

_CHUNK = 128  # points that are summed at a time: their factors stay in the cache


@dataclass
class Step:
    """One implicit step: from time t to t + h, with the prescribed handles' coordinates at t - h, t, t + h.

    ``predicted`` is where inertia alone leads, and (y - ``anchor``) / ``reach`` the velocity that ending in y means
    (see :mod:`splatanim.dynamics.integrators`); ``held_*`` are the same of the prescribed handles. They default to
    implicit Euler's.
    """

    time: float
    h: float
    y: Vector
    y_before: Vector
    held_next: np.ndarray
    held: np.ndarray
    held_before: np.ndarray
    predicted: Vector | None = None
    held_predicted: np.ndarray | None = None
    anchor: Vector | None = None
    held_anchor: np.ndarray | None = None
    reach: float | None = None

    def inertial(self) -> tuple[Vector, np.ndarray]:
        """Where free and prescribed coordinates would be without forces."""
        if self.predicted is None or self.held_predicted is None:
            return 2.0 * self.y - self.y_before, 2.0 * self.held - self.held_before
        return self.predicted, self.held_predicted

    def anchors(self) -> tuple[Vector, np.ndarray]:
        """What free and prescribed coordinates are measured against for their velocity."""
        if self.anchor is None or self.held_anchor is None:
            return self.y, self.held
        return self.anchor, self.held_anchor

    @property
    def span(self) -> float:
        """The seconds that a displacement from the anchors takes, for its velocity [s]."""
        return self.h if self.reach is None else self.reach

    @property
    def target_time(self) -> float:
        return self.time + self.h


class Inertia:
    """1/(2 h^2) |x - 2 x_t + x_{t-1}|_M^2 (eq. 10), or BDF2's. M is the identity in these coordinates.

    Prescribed handles accelerate the points too: their part enters as a fixed shift through the mass coupling.
    """

    def __init__(self, model: ReducedModel) -> None:
        self._coupling = model.shape.T @ (model.masses[:, None] * model.held_shape)  # (K, p)
        self._h = 1.0
        self._target = np.zeros(model.dof)
        self._identity = np.eye(model.dof)

    def begin_step(self, step: Step) -> None:
        self._h = step.span
        free, held = step.inertial()
        self._target = free - ((step.held_next - held) @ self._coupling.T).ravel()

    def energy(self, y: Vector) -> float:
        return float(0.5 * np.sum((y - self._target) ** 2)) / self._h**2

    def gradient(self, y: Vector) -> Vector:
        return (y - self._target) / self._h**2

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        return self._identity / self._h**2


class Elasticity:
    """sum_q V_q Psi(F_q): hyperelastic energy by cubature; F is affine in y, so everything is a few GEMMs over G.

    ``stiffness`` (Q,) scales the Lame parameters point by point. A body that brings its own elastic term (one whose
    ``elastic`` is true) gets no other from the simulator.
    """

    elastic = True

    def __init__(self, model: ReducedModel, stiffness: Float64[np.ndarray, " q"] | None = None) -> None:
        from splatanim.dynamics.materials import MODELS

        mu, lam = model.material.lame
        factor = np.ones(len(model.rest)) if stiffness is None else np.asarray(stiffness, np.float64)
        self._model = model
        self._kind = MODELS[model.material.model]
        self._law = (mu * factor, lam * factor, model.material.stretch_limit)
        self._held = np.zeros((3, model.held_shape.shape[1]))
        self._cached: tuple[bytes, np.ndarray] | None = None

    def begin_step(self, step: Step) -> None:
        self._held = step.held_next
        self._cached = None

    def energy(self, y: Vector) -> float:
        from splatanim.dynamics import _neohookean_kernels, materials

        f, volumes = self._gradients(y), self._model.volumes
        if self._kind == materials.MODELS["neohookean"]:
            return _neohookean_kernels.energies(f, volumes, *self._law)
        return materials.energies(self._kind, f, volumes, *self._law)

    def gradient(self, y: Vector) -> Vector:
        from splatanim.dynamics import _neohookean_kernels, materials

        f, volumes = self._gradients(y), self._model.volumes
        if self._kind == materials.MODELS["neohookean"]:
            stress = _neohookean_kernels.stresses(f, volumes, *self._law)
        else:
            stress, _ = materials.stresses_and_tangents(self._kind, f, volumes, *self._law, False)
        rows = stress.transpose(0, 2, 1).reshape(-1, 3)  # (3Q, 3): rows point-major, then c; columns r
        return np.ascontiguousarray((self._model.slope.T @ rows).T).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        from splatanim.dynamics import _neohookean_kernels, materials

        f, volumes = self._gradients(y), self._model.volumes
        if self._kind == materials.MODELS["neohookean"] and not psd:
            tangent = _neohookean_kernels.tangents(f, volumes, *self._law)
        else:
            _, tangent = materials.stresses_and_tangents(self._kind, f, volumes, *self._law, psd)
        return assemble_tangents(tangent, self._model.slope)

    def _gradients(self, y: Vector) -> np.ndarray:
        """F at the cubature points, kept for the energy, the gradient and the Hessian of one y."""
        key = y.tobytes()
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, self._model.deformation_gradients(y, self._held))
        return self._cached[1]


def assemble_tangents(tangents: Float64[np.ndarray, "q 3 3 3 3"], slope: Float64[np.ndarray, "q3 k"]) -> Matrix:
    """The coordinates' Hessian from d vec(P) / d vec(F) at every point."""
    from splatanim.dynamics.materials import spread_tangents

    k, points = slope.shape[1], len(tangents)
    blocks = np.zeros((k, 6 * k))
    spread = np.empty((min(_CHUNK, points), 3, 6, k))
    for start in range(0, points, _CHUNK):
        some, part = tangents[start : start + _CHUNK], slope[3 * start : 3 * (start + _CHUNK)]
        factors = spread[: len(some)]
        spread_tangents(some, part.reshape(len(some), 3, k), factors)
        blocks += part.T @ factors.reshape(-1, 6 * k)
    out = np.empty((3, k, 3, k))
    pair = 0
    for r in range(3):
        for s in range(r, 3):
            block = blocks.reshape(k, 6, k)[:, pair]
            out[r, :, s, :] = block
            out[s, :, r, :] = block.T
            pair += 1
    return out.reshape(3 * k, 3 * k)


class Load:
    """-f . z, forces held fixed during a solve (eq. 13): gravity, pokes, wind.

    ``forces(time)`` gives the force on every cubature point (Q, 3) [N]; f_z = J_phi^T f_x.
    """

    def __init__(self, model: ReducedModel, forces) -> None:
        self._shape = model.shape
        self._forces = forces
        self._reduced = np.zeros(model.dof)
        self._zero = np.zeros((model.dof, model.dof))

    def begin_step(self, step: Step) -> None:
        self._reduced = np.ascontiguousarray((self._shape.T @ self._forces(step.target_time)).T).ravel()

    def energy(self, y: Vector) -> float:
        return -float(self._reduced @ y)

    def gradient(self, y: Vector) -> Vector:
        return -self._reduced

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        return self._zero


def gravity(model: ReducedModel, acceleration: Float64[np.ndarray, " 3"]) -> Load:
    """The weight of every cubature point under a constant acceleration [m/s^2]."""
    forces = model.masses[:, None] * np.asarray(acceleration, np.float64)
    return Load(model, lambda _time: forces)


def poke(model: ReducedModel, centre, radius: float, impulse: Float64[np.ndarray, " 3"], start: float, length: float):
    """A push: an ``impulse`` [N s] spread over points by a Gaussian of ``radius`` [m] and over time by a half sine."""
    weight = gaussian_kernel(model.rest, centre, radius) * model.masses
    share = weight / weight.sum()

    def forces(time: float) -> np.ndarray:
        phase = (time - start) / length
        strength = np.pi / (2.0 * length) * np.sin(np.pi * phase) if 0.0 < phase < 1.0 else 0.0
        return share[:, None] * (strength * np.asarray(impulse))

    return Load(model, forces)


def gaussian_kernel(points: Float64[np.ndarray, "n 3"], centre, radius: float) -> Float64[np.ndarray, " n"]:
    return np.exp(-0.5 * np.sum((points - np.asarray(centre)) ** 2, axis=1) / radius**2)


class Drag:
    """1/2 sum_q k_q |x_q - (X_q + Z(t) [X_q; 1])|^2: springs from a part of the object to where it should be.

    The paper's local dragging force (III-D) held implicitly, so that a stiff drag at a large step stays stable. The
    springs are k_q = stiffness * m_q * kernel_q [N/m], ``stiffness`` in 1/s^2, ``kernel`` (Q,) for instance
    :func:`gaussian_kernel`. ``target(time)`` is the wanted affine displacement Z (3, 4), or None once let go.
    """

    def __init__(self, model: ReducedModel, kernel: Float64[np.ndarray, " q"], stiffness: float, target) -> None:
        self._model = model
        self._weight = stiffness * model.masses * kernel
        self._block = model.shape.T @ (self._weight[:, None] * model.shape)
        self._target_of = target
        self._active = False
        self._target = np.zeros((len(model.rest), 3))

    def begin_step(self, step: Step) -> None:
        z = self._target_of(step.target_time)
        self._active = z is not None
        if z is not None:
            wanted = self._model.rest @ z[:, :3].T + z[:, 3]
            self._target = wanted - self._model.held_shape @ step.held_next.T

    def _error(self, y: Vector) -> np.ndarray:
        return self._model.shape @ y.reshape(3, -1).T - self._target

    def energy(self, y: Vector) -> float:
        return 0.5 * float(np.sum(self._weight[:, None] * self._error(y) ** 2)) if self._active else 0.0

    def gradient(self, y: Vector) -> Vector:
        if not self._active:
            return np.zeros_like(y)
        return np.ascontiguousarray((self._model.shape.T @ (self._weight[:, None] * self._error(y))).T).ravel()

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        return np.kron(np.eye(3), self._block if self._active else np.zeros_like(self._block))
