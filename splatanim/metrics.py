"""Figures of merit: the paper's skinning metrics (eq. 29-31), and PSNR of images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class SkinningMetrics:
    """Omega_orth (0 is orthogonal), kappa_log (1 is perfectly conditioned), H_spec (1 is balanced)."""

    omega_orth: float
    kappa_log: float
    h_spec: float


def skinning_metrics(weights: Float[np.ndarray, "n k"]) -> SkinningMetrics:
    """Eq. 29, 30 and 31 on the l2-normalised columns of a weight matrix.

    Eq. 29's norm is read as the Frobenius norm, which makes its bound of 1 exact for identical columns.
    """
    w = np.asarray(weights, np.float64)
    k = w.shape[1]
    w = w / np.maximum(np.linalg.norm(w, axis=0), 1e-300)
    gram = w.T @ w
    omega = float(np.sum((gram - np.eye(k)) ** 2)) / (k * (k - 1)) if k > 1 else 0.0
    eigenvalues = np.clip(np.linalg.eigvalsh(gram), 0.0, None)
    smallest = float(eigenvalues[0])
    kappa = float(np.log2(1.0 + eigenvalues[-1] / smallest)) if smallest > 0 else float("inf")
    p = eigenvalues / eigenvalues.sum()
    p = p[p > 0]
    entropy = float(-(p * np.log(p)).sum() / np.log(k)) if k > 1 else 1.0
    return SkinningMetrics(omega, kappa, entropy)


def psnr(image: Float[np.ndarray, "..."], truth: Float[np.ndarray, "..."]) -> float:
    """Peak signal-to-noise ratio [dB] for values in [0, 1]; infinite for equal images."""
    error = float(np.mean((np.asarray(image, np.float64) - truth) ** 2))
    return float("inf") if error == 0 else -10.0 * float(np.log10(error))
