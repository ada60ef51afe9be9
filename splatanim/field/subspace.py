"""How good an object's fields are, measured on its own voxels, and which kind it should get.

The mean Rayleigh quotient of bound fields is evidence about exactly the object at hand: no kind can go below that of
the exact modes, and of two kinds the one with the lower mean spans the softer subspace. It costs one evaluation at
the voxels, so the choice is made anew for every object instead of by a rule learnt on others.
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
from splatanim.field.ritz import dirichlet, neighbours

KINDS = ("neural", "gaussians", "eigenmodes", "simplicits")


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


def without_crumbs(domain: Domain, share: float = 0.01) -> Domain:
    """The domain without loose parts of less than ``share`` of its voxels.

    Voxels that hang on by an edge or a corner are artefacts of the grid; each of them would count as a mode of zero
    energy, and take a handle away from the object.
    """
    _, labels = parts(domain)
    sizes = np.bincount(labels)
    keep = sizes >= min(share * len(labels), sizes.max())
    return domain if keep.all() else dataclasses.replace(domain, cells=domain.cells[keep[labels]])


def rayleigh(field: SkinningField, domain: Domain) -> Float64[np.ndarray, " m"]:
    """The Rayleigh quotients [1/m^2] of a bound field's functions on the object's voxels (they are orthonormal)."""
    return np.diagonal(dirichlet(field.weights(domain.centres), neighbours(domain), domain.spacing)).copy()


def raw_functions(field: SkinningField, domain: Domain) -> Float64[np.ndarray, "v k"]:
    """What a bound field combines, at the voxels: its functions before Ritz (of a network, what it puts out)."""
    if field.kind == "neural":
        from splatanim.field.neural import raw_fields

        return np.asarray(raw_fields(domain, domain.centres), np.float64)
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
    if kind == "auto":
        return choose(domain, handles, seed)
    if kind not in KINDS:
        raise InputError(f"There is no skinning field {kind!r}. There are: auto, {', '.join(KINDS)}.")
    return _binder(kind)(domain, handles, seed), ""


def choose(
    domain: Domain, handles: int, seed: int = 0, *, kinds: tuple[str, ...] = ("neural", "gaussians")
) -> tuple[SkinningField, str]:
    """The best field of several kinds on this object, and a sentence that says why.

    Best is the lowest mean Rayleigh quotient; of equals the first. Kinds that cannot be bound (no weights, no torch)
    are passed over and named. Raises :class:`InputError` when none can.
    """
    bound: list[SkinningField] = []
    failed: list[str] = []
    for kind in kinds:
        try:
            bound.append(_binder(kind)(domain, handles, seed))
        except (ImportError, InputError) as error:
            failed.append(f"{kind} could not be bound: {error}")
    if not bound:
        raise InputError("; ".join(failed))
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
        from splatanim.field.eigenmodes import bind_eigenmodes

        return lambda domain, handles, _seed: bind_eigenmodes(domain, handles)
    from splatanim.field.gaussians import bind_gaussians

    return lambda domain, handles, seed: bind_gaussians(domain, handles, seed=seed)
