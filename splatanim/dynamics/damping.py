"""Rayleigh damping as a dissipation potential: what implicit steps can minimise along with the energies.

With the velocity v = (y - anchor) / reach of a step, the potential is reach/2 v^T C v, C = alpha M + beta K, and its
gradient the force C v. K is the stiffness of the rest shape carried along with the body (Kelvin and Voigt's solid): at
each point beta V (2 mu |D|^2 + lambda tr(D)^2) / 2 with D = sym(F^T dF/dt) the rate of strain, F that of the step's
anchor. D vanishes for rigid motion from any deformed and turned shape, so spins are not braked, and the potential is a
positive quadratic form whatever the material.

K is lagged, as damping matrices usually are (the elastic Hessian itself will not do: under compression it is not
positive): it is assembled anew only once the body's shape, its mean rotation apart, has changed by a few percent of
strain since it last was. Until then the old one is turned along with the body, R K R^T: exact for rigid motion.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.newton import Term
from splatanim.dynamics.reduced import ReducedModel
from splatanim.dynamics.terms import Matrix, Step, Vector, assemble_tangents
from splatanim.errors import InputError

_STALE = 0.05  # root mean square change of F after which K is assembled anew


class RayleighDamping:
    """``alpha`` [1/s] brakes all motion (as drag of a surrounding medium does), ``beta`` [s] that of strains.

    A mode of angular frequency w loses the share (alpha / w + beta w) pi of its amplitude a period, while small.
    ``stiffness`` (Q,) scales the Lame parameters point by point, as of ``Elasticity``.
    """

    def __init__(
        self, model: ReducedModel, alpha: float, beta: float, stiffness: Float64[np.ndarray, " q"] | None = None
    ) -> None:
        if alpha < 0 or beta < 0:
            raise InputError(f"Damping: alpha is {alpha} and beta {beta}; neither may be negative.")
        mu, lam = model.material.lame
        weight = model.volumes * (1.0 if stiffness is None else np.asarray(stiffness, np.float64))
        self._model = model
        self._alpha, self._mu, self._lam = alpha, beta * mu * weight, beta * lam * weight
        self._strains = beta > 0
        self._coupling = model.shape.T @ (model.masses[:, None] * model.held_shape)
        self._hessian: np.ndarray = np.zeros((model.dof, model.dof))
        self._anchor, self._force = np.zeros(model.dof), np.zeros(model.dof)
        self._span = 1.0
        self._share = model.volumes / model.volumes.sum()
        self._known: tuple[np.ndarray, np.ndarray] | None = None  # F and what K was assembled there
        self.assemblies = 0

    def begin_step(self, step: Step) -> None:
        """The quadratic form 1/(2 reach) (y - anchor)^T C (y - anchor) + force . y of this step."""
        model, span = self._model, step.span
        free, held = step.anchors()
        self._anchor, self._span = free, span
        drift = step.held_next - held
        self._force = (self._alpha / span) * (drift @ self._coupling.T).ravel()
        self._hessian = (self._alpha / span) * np.eye(model.dof)
        if not self._strains:
            return
        f = model.deformation_gradients(free, held)
        self._hessian += self._stiffness(f) / span
        if drift.any():
            rate = (model.held_slope @ drift.T).reshape(-1, 3, 3).transpose(0, 2, 1)
            stress = _viscous_stresses(f, rate, self._mu / span, self._lam / span)
            self._force += (model.slope.T @ stress.transpose(0, 2, 1).reshape(-1, 3)).T.ravel()

    def _stiffness(self, f: np.ndarray) -> np.ndarray:
        """beta K at the deformation gradients ``f``: the last one turned along, or a new one."""
        if self._known is not None:
            before, stiffness = self._known
            left, _, right = np.linalg.svd(np.einsum("q,qrc,qsc->rs", self._share, f, before))
            turn = left @ np.diag([1.0, 1.0, np.linalg.det(left @ right)]) @ right
            change = f - turn @ before
            if self._share @ np.einsum("qrc,qrc->q", change, change) < _STALE**2:
                k = len(stiffness) // 3
                blocks = np.tensordot(turn, stiffness.reshape(3, k, 3, k), (1, 0))
                blocks = np.tensordot(blocks, turn, (2, 1))  # (r, k, l, s)
                return np.ascontiguousarray(blocks.transpose(0, 1, 3, 2)).reshape(3 * k, 3 * k)
        stiffness = assemble_tangents(_viscous_tangents(f, self._mu, self._lam), self._model.slope)
        self._known = f, stiffness
        self.assemblies += 1
        return stiffness

    def energy(self, y: Vector) -> float:
        change = y - self._anchor
        return float(0.5 * change @ (self._hessian @ change) + self._force @ change)

    def gradient(self, y: Vector) -> Vector:
        return self._hessian @ (y - self._anchor) + self._force

    def hessian(self, y: Vector, psd: bool = True) -> Matrix:
        return self._hessian


def _viscous_stresses(f: np.ndarray, rate: np.ndarray, mu: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """The gradient in G, at ``rate``, of mu |sym(F^T G)|^2 + lam/2 tr(F^T G)^2 at every point (Q, 3, 3)."""
    strain = np.einsum("qrc,qrd->qcd", f, rate)
    strain = 0.5 * (strain + strain.transpose(0, 2, 1))
    inner = 2.0 * mu[:, None, None] * strain
    inner += (lam * np.einsum("qcc->q", strain))[:, None, None] * np.eye(3)
    return f @ inner


def _viscous_tangents(f: np.ndarray, mu: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """d^2/dG^2 of mu |sym(F^T G)|^2 + lam/2 tr(F^T G)^2 at every point, (Q, 3, 3, 3, 3) indexed [r, c, s, d]."""
    eye = np.eye(3)
    left = np.einsum("qre,qse->qrs", f, f)
    out = np.einsum("qrs,cd->qrcsd", left, eye) + np.einsum("qrd,qsc->qrcsd", f, f)
    out *= mu[:, None, None, None, None]
    out += lam[:, None, None, None, None] * np.einsum("qrc,qsd->qrcsd", f, f)
    return out


def material_damping(model: ReducedModel, terms: Sequence[Term] = ()) -> tuple[Term, ...]:
    """The damping of a body's material, unless it has none, or its ``terms`` bring their own damping or rigidity."""
    from splatanim.dynamics.rigid import Orthogonality

    alpha, beta = model.material.damping_mass, model.material.damping_stiffness
    if any(isinstance(term, RayleighDamping) for term in terms) or (alpha == 0 and beta == 0):
        return ()
    rigid = any(isinstance(term, Orthogonality) for term in terms)
    return (RayleighDamping(model, alpha, 0.0 if rigid else beta),) if alpha or not rigid else ()
