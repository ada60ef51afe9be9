"""Elastic motion of a body that a rig leads, step by step, and splats that show both (eq. 24, 27, 28).

With J^T M N = 0 the rig's accelerations do no work on the elastic coordinates: bones excite them through the strain of
the rig's own deformation alone. That is as if the forces that make the flesh follow its bones acted on every point by
its mass. Real bones pull where they are. With a share D(X) of the mass that the bones carry directly (1 in the core,
less towards the surface) and those forces M D J l, eq. 24's equation of motion M u'' + M J p'' + f = M D J l and the
same condition J^T M u = 0 give, in the coordinates of u = N y,

    y'' + N^T f = C p'',    C = N^T M D J (J^T M D J)^-1 (J^T M J),

and C = 0 where D = 1. The motion stays complementary exactly; what changes is that a belly lags when its body bounces.
(Momentum leaks into the flesh: Zhang et al. 2020, *Complementary dynamics*, sec. 4.3, let the condition itself leak.)
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64

from splatanim.data import Frame, Splats
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.integrators import History
from splatanim.dynamics.newton import NewtonReport, Term, minimise
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.simulate import Settings
from splatanim.dynamics.stepper import Body, Stepper
from splatanim.dynamics.terms import Elasticity, Matrix, Step, Vector
from splatanim.errors import InputError
from splatanim.rig.bone_field import depth_in
from splatanim.rig.complementary import elastic_functions, rig_directions
from splatanim.rig.skinning import RiggedSplats, blend_maps
from splatanim.threads import one_blas_thread

_CORE = 0.02  # the least share of the mass that bones carry, at the surface
_ALLOWED = 0.5  # strain of the rig's own up to which the material is as stiff as it is said to be
_STILL = 1e-7  # of the object's size: tolerance of the equilibrium that a motion starts from
_APART = 1e-4  # s, between the poses whose difference is the rig's first velocity


def flesh_stiffness(model: ReducedModel, times: Float64[np.ndarray, " t"]) -> Float64[np.ndarray, " q"]:
    """Factors on the stiffness of every cubature point, below 1 where the rig itself tears or crushes the body.

    Linear blending folds the inside of joints, and where two limbs touch in the bind pose their weights jump from
    voxel to voxel. Such strains e (the largest |stretch - 1| of the rig's motion at ``times``) are no flesh's; at full
    stiffness a few points of them would shake the rest. Beyond 0.5 stiffness falls as 1 / e^2, so that stress does
    as 1 / e.
    """
    still = np.zeros(model.dof)
    worst = np.full(len(model.rest), _ALLOWED)
    for time in times:
        f = model.deformation_gradients(still, model.held_coordinates(float(time)))
        stretches = np.sqrt(np.maximum(np.linalg.eigvalsh(np.swapaxes(f, 1, 2) @ f), 0.0))
        stretches[:, 0] *= np.sign(np.linalg.det(f))
        worst = np.maximum(worst, np.abs(stretches - 1.0).max(axis=1))
    return (_ALLOWED / worst) ** 2


class RigInertia:
    """-(C p'') . y: how the rig's accelerations shake the flesh. ``leak`` in [0, 1]: D = 1 - leak (1 - depth)."""

    def __init__(self, model: ReducedModel, leak: float = 1.0) -> None:
        if not 0.0 <= leak <= 1.0:
            raise InputError(f"--leak {leak:g}: a number from 0 (bones carry all mass) to 1 is needed.")
        carried = 1.0 - leak * (1.0 - np.maximum(depth_in(model.domain, model.rest), _CORE))
        along, rig = rig_directions(model.held_shape, model.masses)
        free = np.sqrt(model.masses)[:, None] * model.shape
        pulled = carried[:, None] * along
        self._coupling: np.ndarray = (free.T @ pulled) @ np.linalg.solve(along.T @ pulled, rig)
        self._force = np.zeros(model.dof)
        self._zero = np.zeros((model.dof, model.dof))

    def begin_step(self, step: Step) -> None:
        """p'' as the integrator sees it: what eq. 10's inertia would have of the prescribed coordinates."""
        acceleration = (step.held_next - step.inertial()[1]) / step.span**2
        self._force = (acceleration @ self._coupling.T).ravel()

    def energy(self, y: Vector) -> float:
        return -float(self._force @ y)

    def gradient(self, y: Vector) -> Vector:
        return -self._force

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        return self._zero


@dataclass(frozen=True)
class ElasticMotion:
    """``coordinates`` (t, n): y in every frame; ``reports`` and ``milliseconds`` (wall) of every step."""

    coordinates: Float64[np.ndarray, "t n"]
    times: Float64[np.ndarray, " t"]
    reports: tuple[NewtonReport, ...]
    milliseconds: Float64[np.ndarray, " steps"]

    @property
    def converged_fraction(self) -> float:
        return float(np.mean([report.converged for report in self.reports])) if self.reports else 1.0


def equilibrium(model: ReducedModel, time: float = 0.0, term: Elasticity | None = None) -> tuple[Vector, NewtonReport]:
    """The elastic coordinates at rest in the rig's pose of a moment: where nothing moves and all forces balance."""
    term = term or AveragedElasticity(model)
    held = model.held_coordinates(time)
    still = np.zeros(model.dof)
    term.begin_step(Step(time, 1.0, still, still, held, held, held))
    size = model.size * np.sqrt(model.mass)
    stiffness = np.abs(np.diagonal(term.hessian(still))).max()
    return minimise(
        [term], still, tolerance=float(_STILL * size), unit=1.0 / max(float(stiffness), 1e-30), max_iterations=100
    )


class RigStepper:
    """A body on a rig, one step at a time: for films, and for a rig that is moved by hand."""

    def __init__(self, model: ReducedModel, settings: Settings, terms: Sequence[Term] = ()) -> None:
        self.model = model
        self.settings = settings
        self.time = 0.0
        self._stepper = Stepper([Body.of(model, terms)], None, settings)
        own = next((term for term in terms if isinstance(term, Elasticity)), None)
        with one_blas_thread():
            y, self.start_report = equilibrium(model, 0.0, own)
        now, soon = model.held_coordinates(0.0), model.held_coordinates(_APART)
        moving = np.concatenate([np.zeros(model.dof), ((soon - now) / _APART).ravel()])
        self._history = History(np.concatenate([y, now.ravel()]), moving)

    @property
    def y(self) -> Vector:
        return self._history.now[: self.model.dof]

    def step(self) -> NewtonReport:
        """``settings.h`` seconds further."""
        with one_blas_thread():
            (self._history,), report = self._stepper.step([self._history], self.time)
        self.time += self.settings.h
        return report


def simulate_on_rig(
    model: ReducedModel,
    settings: Settings,
    terms: Sequence[Term] = (),
    *,
    on_frame: Callable[[int], None] | None = None,
) -> ElasticMotion:
    """``settings.frames`` frames of eq. 24 from equilibrium in the first pose, the rig already in motion.

    ``terms`` act beside inertia and elasticity: :class:`RigInertia`, damping, forces. An ``Elasticity`` with a
    stiffness of its own replaces the default.
    """
    reports: list[NewtonReport] = []
    spent: list[float] = []
    stepper = RigStepper(model, settings, terms)
    frames = [stepper.y.copy()]
    for frame in range(1, settings.frames):
        for _ in range(settings.substeps):
            start = clock.perf_counter()
            reports.append(stepper.step())
            spent.append(1e3 * (clock.perf_counter() - start))
        frames.append(stepper.y.copy())
        if on_frame is not None:
            on_frame(frame)
    times = np.arange(settings.frames) / settings.fps
    return ElasticMotion(np.stack(frames), times, tuple(reports), np.array(spent))


@dataclass(frozen=True)
class ElasticSplats:
    """Splats on a rig with the elastic functions at their centres: ``shape`` (n, K) and ``slope`` (3n, K)."""

    rigged: RiggedSplats
    frame: Frame
    shape: Float32[np.ndarray, "n k"]
    slope: Float32[np.ndarray, "n3 k"]

    def motion(self, y: Float64[np.ndarray, " c"]) -> tuple[Float32[np.ndarray, "n 3"], Float32[np.ndarray, "n 3 3"]]:
        """N y at the splats, in file units, and its gradient (the same number in any unit of length)."""
        right = np.ascontiguousarray(y.reshape(3, -1).T, np.float32)
        with one_blas_thread():
            moved, slope = self.shape @ right, self.slope @ right
        return moved / np.float32(self.frame.scale), slope.reshape(-1, 3, 3).transpose(0, 2, 1)


def bind_elastic(rigged: RiggedSplats, frame: Frame, model: ReducedModel) -> ElasticSplats:
    """Evaluate the elastic functions at the splats' rest centres, once."""
    shape, slope = elastic_functions(model, frame.to_sim(rigged.splats.means))
    return ElasticSplats(rigged, frame, shape.astype(np.float32), slope.astype(np.float32))


def pose_elastic(bound: ElasticSplats, transforms: Float[np.ndarray, "j 4 4"], y: Float64[np.ndarray, " n"]) -> Splats:
    """One frame: the rig's own motion exactly, plus N y; covariances under A_rig + grad(N y)."""
    from splatanim.transforms import push_forward

    rigged = bound.rigged
    means, linear = blend_maps(rigged.splats.means, rigged.skin, rigged.local(transforms), rigged.method)
    moved, slope = bound.motion(y)
    means += moved
    linear += slope
    return push_forward(rigged.splats, linear, means)
