"""How good an object's fields are, measured on its own voxels, and which kind it should get.

The mean Rayleigh quotient of bound fields is evidence about exactly the object at hand: no kind can go below that of
the exact modes, and of two kinds the one with the lower mean spans the softer subspace. It costs one evaluation at
the voxels, so that it is measured anew for every object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float64, Int

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field import SkinningField
from splatanim.field.eigenmodes import bind_eigenmodes, softest
from splatanim.field.gaussians import GaussianField, bind_gaussians
from splatanim.field.ritz import dirichlet, neighbours
from splatanim.threads import one_blas_thread

KINDS = ("neural", "gaussians", "eigenmodes", "simplicits")
ENOUGH = 0.04  # of energy above the least possible; on 40 unseen shapes the worst of eigenmodes is a tenth of it


def parts(domain: Domain) -> tuple[int, Int[np.ndarray, " v"]]:
    """The number of loose parts of a domain and each voxel's part, from 0.

    Voxels belong together where they share a face: that is what the Dirichlet energy sees, so every loose part
    beyond the first is one more function of zero energy.
    """
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    adjacent = neighbours(domain)
    row, axis = np.nonzero(adjacent >= 0)
    graph = sparse.coo_matrix((np.ones(len(row)), (row, adjacent[row, axis])), (len(adjacent),) * 2)
    count, labels = connected_components(graph, directed=False)
    return int(count), labels.astype(np.int64)


def rayleigh(field: SkinningField, domain: Domain) -> Float64[np.ndarray, " m"]:
    """The Rayleigh quotients [1/m^2] of a bound field's functions on the object's voxels (they are orthonormal)."""
    return np.diagonal(dirichlet(field.weights(domain.centres), neighbours(domain), domain.spacing)).copy()


def raw_functions(field: SkinningField, domain: Domain) -> Float64[np.ndarray, "v k"]:
    """What a bound field combines, at the voxels: its functions before Ritz (of a network, what it puts out)."""
    if field.kind == "neural":
        from splatanim.field.neural import raw_fields

        return np.asarray(raw_fields(domain, domain.centres), np.float64)
    if isinstance(field, GaussianField):
        return field.raw(domain.centres)[0]
    combined: Any = field
    count = len(combined.coefficients)
    plain = dataclasses.replace(combined, coefficients=np.eye(count), constants=np.zeros(count))
    return plain.weights(domain.centres)


def bind(kind: str, domain: Domain, handles: int, *, seed: int = 0) -> tuple[SkinningField, str]:
    """Bind a field of a kind of :data:`KINDS`, or ``auto``; and a sentence on how it came about ('' where trivial).

    Raises :class:`InputError` for an unknown kind, and what the kinds raise.
    """
    if handles < 1:
        raise InputError(f"--handles {handles}: at least one handle is needed (16 is usual).")
    if kind != "auto" and kind not in KINDS:
        raise InputError(f"There is no skinning field {kind!r}. There are: auto, {', '.join(KINDS)}.")
    with one_blas_thread():  # beside any other busy process a second one made this forty times as long
        return choose(domain, handles, seed) if kind == "auto" else (_binder(kind)(domain, handles, seed), "")


def choose(
    domain: Domain, handles: int, seed: int = 0, *, rivals: tuple[str, ...] = ("neural", "gaussians")
) -> tuple[SkinningField, str]:
    """The field that ``auto`` stands for on this object, and a sentence with the evidence.

    That is ``eigenmodes``, held against the least mean Rayleigh quotient that any functions on these voxels can have
    (what the solver found, before splines). Should they come out stiffer than that by more than :data:`ENOUGH`, the
    rivals are bound as well and the lowest mean wins. Rivals that cannot be bound (no weights, no torch) are passed
    over and named. Raises :class:`InputError` when the object has too few voxels.
    """
    own, least = softest(domain, handles)
    extent = float(np.ptp(domain.centres, axis=0).max()) + domain.spacing
    floor = float(least.mean()) + 1e-3 / extent**2  # least is zero where every handle has a loose part of its own
    level = float(rayleigh(own, domain).mean())
    if level <= (1.0 + ENOUGH) * floor:
        return own, f"{own.kind} ({100.0 * max(level / floor - 1.0, 0.0):.1f} % above the softest possible here)"
    bound: list[SkinningField] = [own]
    failed: list[str] = []
    for kind in rivals:
        try:
            bound.append(_binder(kind)(domain, handles, seed))
        except (ImportError, InputError) as error:
            failed.append(f"{kind} could not be bound: {error}")
    levels = [float(rayleigh(field, domain).mean()) for field in bound]
    best, *others = np.argsort(levels, kind="stable")
    beaten = [f"{100.0 * (levels[k] / levels[best] - 1.0):.1f} % softer than those of {bound[k].kind}" for k in others]
    reasons = ([f"its modes on this object are {' and '.join(beaten)}"] if beaten else []) + failed
    return bound[best], f"{bound[best].kind} ({'; '.join(reasons)})"


def _binder(kind: str) -> Callable[[Domain, int, int], SkinningField]:
    """``(domain, handles, seed) -> field``; what a kind needs is imported when it is asked for."""
    if kind == "neural":
        from splatanim.field.neural import bind_neural

        return lambda domain, handles, seed: bind_neural(domain, handles, seed=seed)
    if kind == "simplicits":
        from splatanim.field.simplicits import bind_simplicits

        return lambda domain, handles, seed: bind_simplicits(domain, handles, seed=seed)
    if kind == "eigenmodes":
        return lambda domain, handles, _seed: bind_eigenmodes(domain, handles)
    return lambda domain, handles, seed: bind_gaussians(domain, handles, seed=seed)
