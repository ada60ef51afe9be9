"""Stable Neo-Hookean in invariants of F, in Numba: what :mod:`splatanim.dynamics.materials` does without an SVD.

With C = F^T F - I, of invariants a = tr C, b = the sum of its principal minors and c = det C, J = det F and
J - 1 = (a + b + c) / (1 + J), the energy density is

    Psi = mu (a (J - 1) - 2 b - 2 c) / (2 (1 + J)) + (lambda + mu)/2 (J - 1)^2  [+ the limit's term in |F|^2 = a + 3],

which is mu/2 (|F|^2 - 3) - mu (J - 1) + ... with the parts of first order cancelled on paper: every product left is of
second order in C, so that energies of stiff bodies near rest keep their digits however far the body has turned.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_LIMIT_STIFFNESS = 6.0  # as of materials._add_limit


@njit(cache=True, inline="always")
def _cofactor(f, g):
    """g = dJ/dF; returns J."""
    for r in range(3):
        a, b = (r + 1) % 3, (r + 2) % 3
        for c in range(3):
            d, e = (c + 1) % 3, (c + 2) % 3
            g[r, c] = f[a, d] * f[b, e] - f[a, e] * f[b, d]
    return f[0, 0] * g[0, 0] + f[0, 1] * g[0, 1] + f[0, 2] * g[0, 2]


@njit(cache=True)
def energies(f, volumes, mu, lam, limit):
    """Total elastic energy [J] of deformation gradients ``f`` (Q, 3, 3) with cubature volumes (Q,) [m^3]."""
    i0 = limit * limit + 2.0 / limit
    total = 0.0
    g = np.empty((3, 3))
    for q in range(len(f)):
        x = f[q]
        j = _cofactor(x, g)
        c00 = x[0, 0] * x[0, 0] + x[1, 0] * x[1, 0] + x[2, 0] * x[2, 0] - 1.0
        c11 = x[0, 1] * x[0, 1] + x[1, 1] * x[1, 1] + x[2, 1] * x[2, 1] - 1.0
        c22 = x[0, 2] * x[0, 2] + x[1, 2] * x[1, 2] + x[2, 2] * x[2, 2] - 1.0
        c01 = x[0, 0] * x[0, 1] + x[1, 0] * x[1, 1] + x[2, 0] * x[2, 1]
        c02 = x[0, 0] * x[0, 2] + x[1, 0] * x[1, 2] + x[2, 0] * x[2, 2]
        c12 = x[0, 1] * x[0, 2] + x[1, 1] * x[1, 2] + x[2, 1] * x[2, 2]
        first = c00 + c11 + c22
        if j > 0.0:
            second = c00 * c11 + c00 * c22 + c11 * c22 - c01 * c01 - c02 * c02 - c12 * c12
            third = c00 * (c11 * c22 - c12 * c12) - c01 * (c01 * c22 - c12 * c02) + c02 * (c01 * c12 - c11 * c02)
            dilation = (first + second + third) / (1.0 + j)
            psi = mu[q] * (first * dilation - 2.0 * (second + third)) / (2.0 * (1.0 + j))
        else:
            dilation = j - 1.0
            psi = mu[q] * (0.5 * first - dilation)
        psi += 0.5 * (lam[q] + mu[q]) * dilation * dilation
        t = (first + 3.0) / i0 - 1.0
        if t > 0.0:
            psi += mu[q] * _LIMIT_STIFFNESS * i0 * t * t * t / 3.0
        total += volumes[q] * psi
    return total


@njit(cache=True, inline="always")
def _invariants(x, limit):
    """dPhi/d(|F|^2) and its derivative, over mu, of the limit's term."""
    i0 = limit * limit + 2.0 / limit
    square = 0.0
    for r in range(3):
        for c in range(3):
            square += x[r, c] * x[r, c]
    t = max(square / i0 - 1.0, 0.0)
    return _LIMIT_STIFFNESS * t * t, 2.0 * _LIMIT_STIFFNESS * t / i0


@njit(cache=True)
def stresses(f, volumes, mu, lam, limit):
    """Volume-weighted first Piola-Kirchhoff stresses (Q, 3, 3) [J]: mu F + ((lambda + mu)(J - 1) - mu) dJ/dF + ..."""
    out = np.empty((len(f), 3, 3))
    g = np.empty((3, 3))
    for q in range(len(f)):
        j = _cofactor(f[q], g)
        first, _ = _invariants(f[q], limit)
        along = volumes[q] * mu[q] * (1.0 + 2.0 * first)
        bulk = volumes[q] * ((lam[q] + mu[q]) * (j - 1.0) - mu[q])
        for r in range(3):
            for c in range(3):
                out[q, r, c] = along * f[q, r, c] + bulk * g[r, c]
    return out


@njit(cache=True)
def tangents(f, volumes, mu, lam, limit):
    """The stresses' derivatives in F (Q, 3, 3, 3, 3), indexed [r, c, s, d]; exact, not projected."""
    out = np.empty((len(f), 3, 3, 3, 3))
    g = np.empty((3, 3))
    for q in range(len(f)):
        x = f[q]
        j = _cofactor(x, g)
        first, second = _invariants(x, limit)
        diagonal = volumes[q] * mu[q] * (1.0 + 2.0 * first)
        outer = 4.0 * volumes[q] * mu[q] * second
        stiff = volumes[q] * (lam[q] + mu[q])
        bulk = volumes[q] * ((lam[q] + mu[q]) * (j - 1.0) - mu[q])
        for r in range(3):
            for c in range(3):
                for s in range(3):
                    for d in range(3):
                        out[q, r, c, s, d] = stiff * g[r, c] * g[s, d] + outer * x[r, c] * x[s, d]
        for r in range(3):
            for c in range(3):
                out[q, r, c, r, c] += diagonal
                for s in range(3):
                    if s != r:
                        for d in range(3):
                            if d != c:  # d(cofactor)_rc / dF_sd = +-F of the row and column that are left
                                sign = 1.0 if (s - r) % 3 == (d - c) % 3 else -1.0
                                out[q, r, c, s, d] += sign * bulk * x[3 - r - s, 3 - c - d]
    return out
