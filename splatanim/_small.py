"""3x3 linear algebra in Numba, float64: what the material and push-forward kernels are made of."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, inline="always")
def determinant(a):
    return (
        a[0, 0] * (a[1, 1] * a[2, 2] - a[1, 2] * a[2, 1])
        - a[0, 1] * (a[1, 0] * a[2, 2] - a[1, 2] * a[2, 0])
        + a[0, 2] * (a[1, 0] * a[2, 1] - a[1, 1] * a[2, 0])
    )


@njit(cache=True, inline="always")
def _jacobi_rotation(pp, qq, pq):
    """Cosine and sine of the rotation that makes [[pp, pq], [pq, qq]] diagonal, by the smaller angle."""
    zeta = (qq - pp) / (2.0 * pq)
    t = 1.0 / (abs(zeta) + np.sqrt(1.0 + zeta * zeta))
    if zeta < 0:
        t = -t
    c = 1.0 / np.sqrt(1.0 + t * t)
    return c, c * t


@njit(cache=True)
def orthogonalise_columns(b, v, tolerance):
    """One-sided Jacobi: rotate columns of ``b`` (and of ``v`` along with it) until they are mutually orthogonal.

    With v = I on entry, b_in = b_out v^T: the column norms of b_out are the singular values and v stays a rotation
    (every step is a proper rotation). Relative accuracy holds for the small singular values too. ``tolerance`` bounds
    the squared cosines between columns that count as orthogonal.
    """
    for _ in range(30):
        rotated = False
        for p in range(2):
            for q in range(p + 1, 3):
                pp = b[0, p] * b[0, p] + b[1, p] * b[1, p] + b[2, p] * b[2, p]
                qq = b[0, q] * b[0, q] + b[1, q] * b[1, q] + b[2, q] * b[2, q]
                pq = b[0, p] * b[0, q] + b[1, p] * b[1, q] + b[2, p] * b[2, q]
                if pq * pq <= tolerance * pp * qq or pp * qq == 0.0:
                    continue
                rotated = True
                c, s = _jacobi_rotation(pp, qq, pq)
                for i in range(3):
                    x = b[i, p]
                    y = b[i, q]
                    b[i, p] = c * x - s * y
                    b[i, q] = s * x + c * y
                    x = v[i, p]
                    y = v[i, q]
                    v[i, p] = c * x - s * y
                    v[i, q] = s * x + c * y
        if not rotated:
            break


@njit(cache=True)
def signed_svd(f, u, s, v):
    """F = U diag(s) V^T with U and V rotations: the smallest singular value carries the sign of det F.

    (Irving et al. 2004's convention, which makes energies of principal stretches smooth through inversion.)
    """
    for i in range(3):
        for j in range(3):
            u[i, j] = f[i, j]
            v[i, j] = 1.0 if i == j else 0.0
    orthogonalise_columns(u, v, 1e-28)
    for j in range(3):
        s[j] = np.sqrt(u[0, j] * u[0, j] + u[1, j] * u[1, j] + u[2, j] * u[2, j])
    k = 0  # the smallest goes last; a cyclic shift keeps V a rotation
    if s[1] < s[k]:
        k = 1
    if s[2] < s[k]:
        k = 2
    for _ in range((k + 1) % 3):
        for i in range(3):
            u[i, 0], u[i, 1], u[i, 2] = u[i, 1], u[i, 2], u[i, 0]
            v[i, 0], v[i, 1], v[i, 2] = v[i, 1], v[i, 2], v[i, 0]
        s[0], s[1], s[2] = s[1], s[2], s[0]
    if s[0] < s[1]:  # the larger first, as the second is made orthogonal to it; a quarter turn keeps V a rotation
        for i in range(3):
            u[i, 0], u[i, 1] = u[i, 1], -u[i, 0]
            v[i, 0], v[i, 1] = v[i, 1], -v[i, 0]
        s[0], s[1] = s[1], s[0]
    _normalise_first(u, s)
    _normalise_second(u, s)
    u[0, 2] = u[1, 0] * u[2, 1] - u[2, 0] * u[1, 1]
    u[1, 2] = u[2, 0] * u[0, 1] - u[0, 0] * u[2, 1]
    u[2, 2] = u[0, 0] * u[1, 1] - u[1, 0] * u[0, 1]
    s[2] = 0.0
    for i in range(3):
        for j in range(3):
            s[2] += u[i, 2] * f[i, j] * v[j, 2]


@njit(cache=True)
def _normalise_first(u, s):
    if s[0] > 0.0:
        for i in range(3):
            u[i, 0] /= s[0]
    else:
        u[0, 0], u[1, 0], u[2, 0] = 1.0, 0.0, 0.0


@njit(cache=True)
def _normalise_second(u, s):
    """Make column 1 a unit vector at right angles to column 0, whatever the rank of F."""
    if s[1] > 1e-14 * s[0] and s[1] > 0.0:
        d = (u[0, 0] * u[0, 1] + u[1, 0] * u[1, 1] + u[2, 0] * u[2, 1]) / s[1]
        for i in range(3):
            u[i, 1] = u[i, 1] / s[1] - d * u[i, 0]
    else:
        k = 0
        if abs(u[1, 0]) < abs(u[k, 0]):
            k = 1
        if abs(u[2, 0]) < abs(u[k, 0]):
            k = 2
        for i in range(3):
            u[i, 1] = (1.0 if i == k else 0.0) - u[k, 0] * u[i, 0]
    n = np.sqrt(u[0, 1] * u[0, 1] + u[1, 1] * u[1, 1] + u[2, 1] * u[2, 1])
    for i in range(3):
        u[i, 1] /= n


@njit(cache=True)
def project_psd(a, w, v):
    """Replace the symmetric ``a`` by its nearest positive semi-definite matrix (Frobenius), in place.

    ``w`` and ``v`` are 3x3 scratch. A cheap Sylvester test passes matrices that are positive already.
    """
    m2 = a[0, 0] * a[1, 1] - a[0, 1] * a[0, 1]
    if a[0, 0] > 0.0 and m2 > 0.0 and determinant(a) > 0.0:
        return
    for i in range(3):
        for j in range(3):
            w[i, j] = a[i, j]
            v[i, j] = 1.0 if i == j else 0.0
    for _ in range(20):
        off = w[0, 1] * w[0, 1] + w[0, 2] * w[0, 2] + w[1, 2] * w[1, 2]
        if off <= 1e-30 * (w[0, 0] * w[0, 0] + w[1, 1] * w[1, 1] + w[2, 2] * w[2, 2]):
            break
        for p in range(2):
            for q in range(p + 1, 3):
                if w[p, q] == 0.0:
                    continue
                c, s = _jacobi_rotation(w[p, p], w[q, q], w[p, q])
                for i in range(3):
                    x = w[i, p]
                    y = w[i, q]
                    w[i, p] = c * x - s * y
                    w[i, q] = s * x + c * y
                for i in range(3):
                    x = w[p, i]
                    y = w[q, i]
                    w[p, i] = c * x - s * y
                    w[q, i] = s * x + c * y
                    x = v[i, p]
                    y = v[i, q]
                    v[i, p] = c * x - s * y
                    v[i, q] = s * x + c * y
    for i in range(3):
        for j in range(3):
            a[i, j] = 0.0
            for k in range(3):
                a[i, j] += v[i, k] * max(w[k, k], 0.0) * v[j, k]
