"""Elastic motion that a rig cannot make, on top of the rig's own (complementary dynamics, III-E, eq. 17-24).

A point moves to x = X + J(X) p(t) + N(X) y. The rig's part is linear in its bones' affine displacements p (12 numbers
a bone, eq. 17), so the columns of its Jacobian are w_b(X) [X; 1], once for each axis: scalar functions times R^3, as
are those of the elastic part. Both are handles of one deformation map; the bones are *prescribed* ones, so that the
reduced model, its energies and Newton's method serve as they are, F stays linear in y, and y alone is solved for
(eq. 24).

The elastic functions are made complementary exactly (eq. 21, with mass): of the many functions W_i [X; 1] of an
overcomplete field those combinations are kept that have no product with any rig function on the cubature,

    J^T M N = 0,    N^T M N = 1,    the most compliant of all such N (see :func:`most_compliant`).

The span is the same after any rotation of all displacements, so nothing has to turn with the body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

from splatanim.binding import Handles, shape_functions
from splatanim.data import Cubature, Material
from splatanim.dynamics.reduced import ReducedModel
from splatanim.errors import InputError
from splatanim.field import SkinningField

_RANK_CUT = 1e-7  # relative eigenvalue of the raw functions' Gram matrix, as in dynamics.reduced
_RIG_CUT = 1e-10  # relative singular value below which a combination of rig functions is absent
_NONE = 1e-10  # product of unit functions that counts as none
_VOXELS = 6000  # that energies are compared on
_CHUNK = 4096


@dataclass(frozen=True)
class BoneHandles(Handles):
    """A field's handles and the constant, which the solver moves, then a rig's bones, which ``motion`` moves.

    ``bones`` has one weight function a bone; ``motion(time)`` gives their affine displacements (b, 3, 4) in simulator
    units: G_j B_j - [I | 0], carried over by :func:`bone_displacements`.
    """

    bones: SkinningField | None = None
    motion: Callable[[float], np.ndarray] | None = None

    def __post_init__(self) -> None:
        if self.bones is None or self.motion is None:
            raise InputError("BoneHandles: give the bones' weights and their motion.")
        if self.regions:
            raise InputError("BoneHandles: a rig moves the body; pinned regions do not go with it.")

    @property
    def weights_of_bones(self) -> SkinningField:
        """``bones``, known to be there."""
        assert self.bones is not None
        return self.bones

    def __len__(self) -> int:
        return self.free + self.weights_of_bones.handles

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n h"], Float64[np.ndarray, "n h 3"]]:
        """Weights and gradients of the field, the constant and the bones."""
        points = np.asarray(points, np.float64)
        w, dw = self.field.evaluate(points)
        b, db = self.weights_of_bones.evaluate(points)
        one = np.ones((len(points), 1))
        return np.concatenate([w, one, b], axis=1), np.concatenate([dw, np.zeros((len(points), 1, 3)), db], axis=1)

    def prescribed(self, time: float) -> Float64[np.ndarray, "p 3 4"]:
        assert self.motion is not None
        return np.asarray(self.motion(time), np.float64).reshape(-1, 3, 4)


def bone_displacements(
    transforms: Float[np.ndarray, "*t j 4 4"], centre: Float[np.ndarray, " 3"], scale: float
) -> Float64[np.ndarray, "*t j 3 4"]:
    """Affine displacements in simulator units, x_sim = scale (x - centre), of skinning transforms of file coordinates.

    T x = A x + t becomes A x_sim + scale (A centre + t - centre).
    """
    transforms = np.asarray(transforms, np.float64)
    linear = transforms[..., :3, :3]
    centre = np.asarray(centre, np.float64)
    moved = scale * (linear @ centre + transforms[..., :3, 3] - centre)
    return np.concatenate([linear - np.eye(3), moved[..., None]], axis=-1)


def complementary_model(
    cubature: Cubature, handles: BoneHandles, material: Material, *, count: int = 48
) -> ReducedModel:
    """The reduced model of what a rig cannot do: ``count`` scalar functions (three coordinates each) at most.

    Raises :class:`InputError` where the rig's functions and the field's are the same, so that nothing is left.
    """
    shape = _shapes(cubature.points, handles)
    free = 4 * handles.free
    transform = complement(
        shape[:, :free],
        free_gradients(cubature, handles),
        shape[:, free:],
        cubature.volumes * material.density,
        count,
        poisson=material.poisson,
    )
    return led_model(cubature, handles, material, transform)


def led_model(
    cubature: Cubature, handles: BoneHandles, material: Material, transform: Float64[np.ndarray, "h k"]
) -> ReducedModel:
    """The reduced model of a body that a rig leads, in any coordinates ``transform`` (4h, K), orthonormal by mass."""
    shape, slope = shape_functions(cubature.points, *handles.evaluate(cubature.points))
    rows = np.ascontiguousarray(slope.transpose(0, 2, 1).reshape(-1, slope.shape[1]))  # point-major, then axis
    free = 4 * handles.free
    contact = _shapes(cubature.surface, handles)
    extent = cubature.domain.centres
    return ReducedModel(
        handles,
        material,
        cubature.points,
        cubature.volumes,
        cubature.volumes * material.density,
        shape[:, :free] @ transform,
        rows[:, :free] @ transform,
        np.ascontiguousarray(shape[:, free:]),
        np.ascontiguousarray(rows[:, free:]),
        cubature.surface,
        contact[:, :free] @ transform,
        np.ascontiguousarray(contact[:, free:]),
        transform,
        float(np.ptp(extent, axis=0).max() + cubature.domain.spacing),
        cubature.domain,
    )


def complement(
    raw: Float64[np.ndarray, "q k"],
    slopes: Float64[np.ndarray, "v3 k"],
    rig: Float64[np.ndarray, "q p"],
    masses: Float64[np.ndarray, " q"],
    count: int,
    *,
    poisson: float = 0.3,
) -> Float64[np.ndarray, "k c"]:
    """Combinations of ``raw`` functions without any product with the ``rig``'s, the ``count`` most compliant.

    They are orthonormal by mass. ``slopes`` (3V, K) are the raw functions' gradients at points spread evenly over the
    object; those should be many, or functions that are bent between the points would count as soft.

    Raises :class:`InputError` where no combination is left.
    """
    gram = raw.T @ (masses[:, None] * raw)
    norms = np.sqrt(np.maximum(np.diagonal(gram), 1e-24 * np.diagonal(gram).max()))
    values, vectors = np.linalg.eigh(gram / np.outer(norms, norms))
    keep = values > _RANK_CUT * values[-1]
    basis = vectors[:, keep] / np.sqrt(values[keep]) / norms[:, None]
    root = np.sqrt(masses)[:, None]
    spanned = root * (raw @ basis)
    along, _ = rig_directions(rig, masses)
    _, sizes, right = np.linalg.svd(along.T @ spanned, full_matrices=True)
    left = right[np.count_nonzero(sizes > _NONE) :].T
    if not left.shape[1]:
        raise InputError(
            f"The rig's {along.shape[1]} functions leave nothing to the {spanned.shape[1]} of the skinning field: "
            "raise the number of raw fields, or use a rig of fewer bones."
        )
    combined = basis @ (left @ most_compliant(slopes @ (basis @ left), poisson, count))
    # A second pass takes out what rounding left of products: the Gram matrix squares the condition number.
    _, r = np.linalg.qr(root * (raw @ combined))
    return combined @ np.linalg.inv(r)


def most_compliant(slopes: Float64[np.ndarray, "v3 k"], poisson: float, count: int) -> Float64[np.ndarray, "k c"]:
    """The ``count`` scalar functions that carry most elastic motion: the largest eigenvectors of sum_r (H^-1)_rr.

    H (3K, 3K) is the linear-elastic stiffness of orthonormal functions with these gradients, (H^-1)_rr its inverse's
    block of axis r: how far functions move along r under forces of equal size, which is also how far they do so by
    chance. Ranking functions by their own (Dirichlet) energy instead would miss bending, which takes stiff functions,
    such as y cos(pi x), in soft combinations. The sum over axes makes it independent of how the object is turned.
    """
    k = slopes.shape[1]
    along = [np.ascontiguousarray(slopes[axis::3]) for axis in range(3)]
    gram = [[along[a].T @ along[b] for b in range(3)] for a in range(3)]
    lam = 2.0 * poisson / (1.0 - 2.0 * poisson)  # in units of mu
    stiffness = np.empty((3, k, 3, k))
    for r in range(3):
        for s in range(3):
            stiffness[r, :, s] = gram[s][r] + lam * gram[r][s]
        stiffness[r, :, r] += gram[0][0] + gram[1][1] + gram[2][2]
    square = stiffness.reshape(3 * k, 3 * k)
    floor = 1e-9 * np.trace(square) / (3 * k)  # motion that a rig of loose bones leaves free has no stiffness
    inverse = np.linalg.inv(square + floor * np.eye(3 * k)).reshape(3, k, 3, k)
    compliance = sum(inverse[r, :, r] for r in range(3))
    return np.linalg.eigh(compliance)[1][:, ::-1][:, :count]


def free_gradients(cubature: Cubature, handles: BoneHandles) -> Float64[np.ndarray, "v3 k"]:
    """Gradients of the free handles' functions at voxels all over the object, rows point-major, then axis."""
    centres = cubature.domain.centres
    rows = np.arange(len(centres))
    if len(rows) > _VOXELS:
        rows = np.sort(np.random.default_rng(0).choice(len(rows), _VOXELS, replace=False))
    slope = shape_functions(centres[rows], *evaluated_free(handles, centres[rows]))[1]
    return slope.transpose(0, 2, 1).reshape(-1, slope.shape[1])


def rig_directions(
    rig: Float64[np.ndarray, "q p"], masses: Float64[np.ndarray, " q"]
) -> tuple[Float64[np.ndarray, "q r"], Float64[np.ndarray, "r p"]]:
    """Orthonormal directions U of sqrt(M) J, and the R with sqrt(M) J = U R.

    Columns are first made comparable: the functions of a small bone count as those of a large one.
    """
    weighted = np.sqrt(masses)[:, None] * rig
    norms = np.linalg.norm(weighted, axis=0)
    there = norms > 1e-12 * max(norms.max(initial=0.0), 1e-300)
    u, sizes, _ = np.linalg.svd(weighted[:, there] / norms[there], full_matrices=False)
    along = u[:, sizes > _RIG_CUT * sizes.max(initial=0.0)]
    return along, along.T @ weighted


def complementarity(model: ReducedModel) -> float:
    """|J^T M N| / (|J|_M |N|_M), Frobenius norms: 0 where no coordinate moves as the rig can (eq. 21).

    Of the full matrices, where every function stands for three columns: a root of 3 below that of the functions.
    """
    root = np.sqrt(model.masses)[:, None]
    rig, free = root * model.held_shape, root * model.shape
    size = np.linalg.norm(rig) * np.linalg.norm(free) * 3.0**0.5
    return float(np.linalg.norm(rig.T @ free) / size) if size else 0.0


def rig_share(model: ReducedModel, y: Float64[np.ndarray, " n"]) -> float:
    """How much of an elastic displacement the rig could have made: |P_J u|_M / |u|_M, P_J the projection on J."""
    u = np.sqrt(model.masses)[:, None] * (model.shape @ y.reshape(3, -1).T)
    along, _ = rig_directions(model.held_shape, model.masses)
    size = float(np.linalg.norm(u))
    return float(np.linalg.norm(along.T @ u)) / size if size else 0.0


def elastic_functions(
    model: ReducedModel, points: Float[np.ndarray, "n 3"]
) -> tuple[Float64[np.ndarray, "n k"], Float64[np.ndarray, "n3 k"]]:
    """N (n, K) and its gradients (3n, K; rows point-major) at rest points (simulator units)."""
    n, k = len(points), model.to_handles.shape[1]
    values, slopes = np.empty((n, k)), np.empty((3 * n, k))
    free = len(model.to_handles)
    for start in range(0, n, _CHUNK):
        part = points[start : start + _CHUNK]
        shape, slope = shape_functions(np.asarray(part, np.float64), *evaluated_free(model.handles, part))
        values[start : start + len(part)] = shape @ model.to_handles
        rows = slope.transpose(0, 2, 1).reshape(-1, free)
        slopes[3 * start : 3 * (start + len(part))] = rows @ model.to_handles
    return values, slopes


def evaluated_free(
    handles: Handles, points: Float[np.ndarray, "n 3"]
) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
    """Weights and gradients of the field and the constant alone."""
    points = np.asarray(points, np.float64)
    w, dw = handles.field.evaluate(points)
    n = len(points)
    return np.concatenate([w, np.ones((n, 1))], axis=1), np.concatenate([dw, np.zeros((n, 1, 3))], axis=1)


def _shapes(points: np.ndarray, handles: BoneHandles) -> np.ndarray:
    return shape_functions(np.asarray(points, np.float64), *handles.evaluate(points))[0]
