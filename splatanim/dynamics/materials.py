"""Isotropic elastic materials, as functions of the principal stretches (signed singular values of F).

Each model is one short function that gives the energy density Psi [J/m^3], its first and second derivatives in the
stretches, and the two families of rotational stiffness that an isotropic Hessian has in closed form (Kim & Eberle
2020, *Dynamic Deformables*, sec. 7; Teran et al. 2005): for each pair (i, j)

    twist_ij = (dPsi_i + dPsi_j) / (s_i + s_j),     flip_ij = (dPsi_i - dPsi_j) / (s_i - s_j),

written without the divisions where the model allows it. Pairs are ordered (0,1), (0,2), (1,2). Every model also
carries the same finite extensibility: beyond the stretch limit a cubic term in I_1 = |F|^2 is added, which is convex
in F, so soft materials at large steps stay bounded without any clamping of the state.
"""

from __future__ import annotations

import difflib

import numpy as np
from numba import njit

from splatanim._small import project_psd, signed_svd
from splatanim.data import Material
from splatanim.errors import InputError

# Compiled with _small.py dbf3935a6d73.

MODELS = {"neohookean": 0, "corotated": 1, "linear": 2}

# Where the numbers come from (each is of the order that the source gives; chosen for objects of about a metre):
# jelly, slime: gelatine gels of 5 to 15 % have E = 5 to 50 kPa (e.g. Markidou et al. 2005, Rev. Sci. Instrum. 76), loss
#   tangents of 0.05 to 0.2; water's density.
# foam: flexible polyurethane foam, E = 0.05 to 0.1 MPa at 30 to 80 kg/m^3, nu 0.1 to 0.3 (Gibson & Ashby, Cellular
#   Solids, ch. 5), loss factor 0.1 to 0.3. plush, cloth: fibre wadding, a few kPa to some ten kPa at 50 to 150 kg/m^3.
# rubber: natural rubber and silicone, E = 0.1 to 5 MPa, nu near 0.5 (kept at 0.45: volume locking is not the point),
#   rho = 1100 (Ashby, Materials Selection in Mechanical Design, app. C), loss factor 0.05 to 0.2.
# flesh: muscle and fat, 10 to 100 kPa, rho = 1050 (Fung, Biomechanics, ch. 7), loss tangent 0.1 to 0.3.
# leaf: parenchyma, 0.3 to 20 MPa (Niklas, Plant Biomechanics, ch. 2). leather: 10 to 100 MPa (Ashby, app. C).
# wood: 6 to 14 GPa along, 0.3 to 1 GPa across the grain (Wood Handbook, FPL, ch. 5); the latter, for a visible flex;
#   loss factor 0.008 to 0.02. metal: aluminium, 70 GPa, 2700 kg/m^3, 1e-4 to 1e-3. (Loss factors: Cremer, Heckl &
#   Petersson, Structure-Borne Sound, sec. 3.) Friction is that of everyday floors, 0.3 to 0.8.


def _preset(
    name: str, young: float, poisson: float, density: float, loss: float, *, friction: float, stretch_limit: float
) -> Material:
    """A material whose stiffness-proportional damping gives the loss factor ``loss`` in the slowest wave of 1 m.

    beta = loss / w at w = 2 sqrt(E / rho) / (1 m), about the first bending mode of a stocky body; the damping ratio
    there is loss / 2.
    """
    wave = 2.0 * (young / density) ** 0.5
    beta = float(f"{loss / wave:.2g}")
    return Material(name, young, poisson, density, friction, stretch_limit, damping_stiffness=beta)


PRESETS: dict[str, Material] = {
    material.name: material
    for material in (
        _preset("jelly", 3.0e4, 0.45, 1000.0, 0.1, friction=0.4, stretch_limit=1.8),
        _preset("slime", 8.0e3, 0.47, 1000.0, 0.3, friction=0.6, stretch_limit=1.4),
        _preset("plush", 2.0e4, 0.25, 150.0, 0.2, friction=0.7, stretch_limit=1.6),
        _preset("cloth", 6.0e3, 0.15, 60.0, 0.2, friction=0.6, stretch_limit=1.4),
        _preset("flesh", 8.0e4, 0.45, 1050.0, 0.2, friction=0.6, stretch_limit=1.8),
        _preset("foam", 6.0e4, 0.20, 60.0, 0.2, friction=0.7, stretch_limit=1.8),
        _preset("leaf", 5.0e5, 0.30, 400.0, 0.1, friction=0.5, stretch_limit=1.5),
        _preset("rubber", 1.0e6, 0.45, 1100.0, 0.1, friction=0.8, stretch_limit=2.5),
        _preset("leather", 3.0e7, 0.40, 900.0, 0.1, friction=0.6, stretch_limit=1.5),
        _preset("wood", 3.0e8, 0.35, 600.0, 0.015, friction=0.45, stretch_limit=1.5),
        _preset("metal", 7.0e10, 0.33, 2700.0, 0.001, friction=0.3, stretch_limit=1.5),
    )
}

_LIMIT_STIFFNESS = 6.0  # dimensionless: a bar hanging under ten times its modulus stays below a stretch of 3.6


def preset(name: str) -> Material:
    """The material preset called ``name``; an :class:`InputError` names the nearest ones otherwise."""
    if name in PRESETS:
        return PRESETS[name]
    near = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f" Did you mean {near[0]}?" if near else ""
    raise InputError(f"There is no material preset {name!r}.{hint} There are: {', '.join(PRESETS)}.")


@njit(cache=True)
def _neohookean(s, mu, lam, d, a, twist, flip):
    """Stable Neo-Hookean (Smith et al. 2018; Kim & Eberle 2020 eq. 6.9 ff.).

    Psi = mu/2 (|F|^2 - 3) - mu (J - 1) + (lambda + mu)/2 (J - 1)^2, whose linearisation is that of Lame mu, lambda.
    """
    lam1 = lam + mu
    j = s[0] * s[1] * s[2]
    c = lam1 * (j - 1.0) - mu
    g0, g1, g2 = s[1] * s[2], s[0] * s[2], s[0] * s[1]
    d[0], d[1], d[2] = mu * s[0] + c * g0, mu * s[1] + c * g1, mu * s[2] + c * g2
    a[0, 0], a[1, 1], a[2, 2] = mu + lam1 * g0 * g0, mu + lam1 * g1 * g1, mu + lam1 * g2 * g2
    a[0, 1], a[0, 2], a[1, 2] = lam1 * g0 * g1 + c * s[2], lam1 * g0 * g2 + c * s[1], lam1 * g1 * g2 + c * s[0]
    for pair in range(3):
        other = c * s[2 - pair]
        twist[pair] = mu + other
        flip[pair] = mu - other
    # In e = s - 1 the first-order parts of the first two terms cancel on paper rather than in floating point.
    e0, e1, e2 = s[0] - 1.0, s[1] - 1.0, s[2] - 1.0
    cross = e0 * e1 + e0 * e2 + e1 * e2 + e0 * e1 * e2
    dilation = e0 + e1 + e2 + cross
    return mu * (0.5 * (e0 * e0 + e1 * e1 + e2 * e2) - cross) + 0.5 * lam1 * dilation * dilation


@njit(cache=True)
def _corotated(s, mu, lam, d, a, twist, flip):
    """Corotated linear elasticity: Psi = mu |F - R|^2 + lambda/2 tr(R^T F - I)^2 (Mueller & Gross 2004)."""
    trace = s[0] + s[1] + s[2] - 3.0
    for i in range(3):
        d[i] = 2.0 * mu * (s[i] - 1.0) + lam * trace
        a[i, i] = 2.0 * mu + lam
    a[0, 1] = a[0, 2] = a[1, 2] = lam
    for pair in range(3):
        i = 1 if pair == 2 else 0
        j = 1 if pair == 0 else 2
        flip[pair] = 2.0 * mu
        twist[pair] = (d[i] + d[j]) / max(s[i] + s[j], 1e-9)
    e = (s[0] - 1.0) ** 2 + (s[1] - 1.0) ** 2 + (s[2] - 1.0) ** 2
    return mu * e + 0.5 * lam * trace * trace


@njit(cache=True)
def _add_limit(s, mu, limit, d, a, twist, flip):
    """Finite extensibility: + mu c I0/3 max(0, I_1/I0 - 1)^3 with I0 = |F|^2 of an isochoric uniaxial ``limit``."""
    i0 = limit * limit + 2.0 / limit
    i1 = s[0] * s[0] + s[1] * s[1] + s[2] * s[2]
    t = i1 / i0 - 1.0
    if t <= 0.0:
        return 0.0
    first = mu * _LIMIT_STIFFNESS * t * t
    second = 2.0 * mu * _LIMIT_STIFFNESS * t / i0
    for i in range(3):
        d[i] += 2.0 * first * s[i]
        for j in range(i, 3):
            a[i, j] += 4.0 * second * s[i] * s[j]
        a[i, i] += 2.0 * first
        twist[i] += 2.0 * first
        flip[i] += 2.0 * first
    return mu * _LIMIT_STIFFNESS * i0 * t * t * t / 3.0


@njit(cache=True)
def stretch_energy(model, s, mu, lam, limit, d, a, twist, flip):
    """Psi and its derivatives in the principal stretches for a model of ``MODELS`` (not ``linear``)."""
    if model == 0:
        psi = _neohookean(s, mu, lam, d, a, twist, flip)
    else:
        psi = _corotated(s, mu, lam, d, a, twist, flip)
    psi += _add_limit(s, mu, limit, d, a, twist, flip)
    a[1, 0], a[2, 0], a[2, 1] = a[0, 1], a[0, 2], a[1, 2]
    return psi


@njit(cache=True)
def _linear(f, mu, lam, volume, stress):
    """Small-strain elasticity: Psi = mu |eps|^2 + lambda/2 tr(eps)^2; not rotation invariant, exact near rest."""
    trace = f[0, 0] + f[1, 1] + f[2, 2] - 3.0
    psi = 0.5 * lam * trace * trace
    for r in range(3):
        for c in range(3):
            eps = 0.5 * (f[r, c] + f[c, r]) - (1.0 if r == c else 0.0)
            psi += mu * eps * eps
            stress[r, c] = volume * (2.0 * mu * eps + (lam * trace if r == c else 0.0))
    return volume * psi


@njit(cache=True)
def energies(model, f, volumes, mu, lam, limit):
    """Total elastic energy [J] of deformation gradients ``f`` (Q, 3, 3) with cubature volumes (Q,) [m^3]."""
    u, v, a = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    s, d, twist, flip = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    total = 0.0
    for q in range(len(f)):
        if model == 2:
            total += _linear(f[q], mu[q], lam[q], volumes[q], u)
        else:
            signed_svd(f[q], u, s, v)
            total += volumes[q] * stretch_energy(model, s, mu[q], lam[q], limit, d, a, twist, flip)
    return total


@njit(cache=True)
def _stress(u, d, v, volume, out):
    for r in range(3):
        for c in range(3):
            out[r, c] = volume * (u[r, 0] * d[0] * v[c, 0] + u[r, 1] * d[1] * v[c, 1] + u[r, 2] * d[2] * v[c, 2])


@njit(cache=True)
def _tangent(u, v, a, twist, flip, volume, out):
    """d vec(P) / d vec(F), (3, 3, 3, 3) indexed [r, c, s, d]: rotate the closed-form Hessian out of the SVD frame."""
    h = np.empty((3, 3))
    for s in range(3):
        for d in range(3):
            for i in range(3):
                for j in range(3):
                    h[i, j] = u[s, i] * v[d, j]
            e0, e1, e2 = h[0, 0], h[1, 1], h[2, 2]
            for i in range(3):
                h[i, i] = a[i, 0] * e0 + a[i, 1] * e1 + a[i, 2] * e2
            for pair in range(3):
                i = 1 if pair == 2 else 0
                j = 1 if pair == 0 else 2
                same = 0.5 * (flip[pair] + twist[pair])
                swap = 0.5 * (flip[pair] - twist[pair])
                x, y = h[i, j], h[j, i]
                h[i, j] = same * x + swap * y
                h[j, i] = same * y + swap * x
            for r in range(3):
                w0 = u[r, 0] * h[0, 0] + u[r, 1] * h[1, 0] + u[r, 2] * h[2, 0]
                w1 = u[r, 0] * h[0, 1] + u[r, 1] * h[1, 1] + u[r, 2] * h[2, 1]
                w2 = u[r, 0] * h[0, 2] + u[r, 1] * h[1, 2] + u[r, 2] * h[2, 2]
                for c in range(3):
                    out[r, c, s, d] = volume * (w0 * v[c, 0] + w1 * v[c, 1] + w2 * v[c, 2])


@njit(cache=True)
def _linear_tangent(mu, lam, volume, out):
    out[:] = 0.0
    for r in range(3):
        for c in range(3):
            out[r, c, r, c] += volume * mu
            out[r, c, c, r] += volume * mu
            out[r, r, c, c] += volume * lam


@njit(cache=True)
def stresses_and_tangents(model, f, volumes, mu, lam, limit, project):
    """Volume-weighted first Piola-Kirchhoff stresses (Q, 3, 3) [J] and their derivatives (Q, 3, 3, 3, 3) in F.

    With ``project`` the derivative of every point is made positive semi-definite (eigenvalue clamping).
    """
    n = len(f)
    stress, tangent = np.empty((n, 3, 3)), np.empty((n, 3, 3, 3, 3))
    u, v, a = np.empty((3, 3)), np.empty((3, 3)), np.empty((3, 3))
    w1, w2 = np.empty((3, 3)), np.empty((3, 3))
    s, d, twist, flip = np.empty(3), np.empty(3), np.empty(3), np.empty(3)
    for q in range(n):
        if model == 2:
            _linear(f[q], mu[q], lam[q], volumes[q], stress[q])
            _linear_tangent(mu[q], lam[q], volumes[q], tangent[q])
            continue
        signed_svd(f[q], u, s, v)
        stretch_energy(model, s, mu[q], lam[q], limit, d, a, twist, flip)
        if project:
            project_psd(a, w1, w2)
            for i in range(3):
                twist[i] = max(twist[i], 0.0)
                flip[i] = max(flip[i], 0.0)
        _stress(u, d, v, volumes[q], stress[q])
        _tangent(u, v, a, twist, flip, volumes[q], tangent[q])
    return stress, tangent


@njit(cache=True)
def spread_tangents(tangent, gradients, out):
    """B[pair, q, c, k] = sum_d C_q[(r, c), (s, d)] G_q[d, k] for the six pairs r <= s: the factors of the Hessian.

    tangent (Q, 3, 3, 3, 3), gradients (Q, 3, K) -> out (Q, 3, 6, K), so that H_rs = sum_qc G_qc^T B_qc[pair].
    """
    n, _, k = gradients.shape
    for q in range(n):
        pair = 0
        for r in range(3):
            for s in range(r, 3):
                for c in range(3):
                    x, y, z = tangent[q, r, c, s, 0], tangent[q, r, c, s, 1], tangent[q, r, c, s, 2]
                    for i in range(k):
                        out[q, c, pair, i] = x * gradients[q, 0, i] + y * gradients[q, 1, i] + z * gradients[q, 2, i]
                pair += 1
