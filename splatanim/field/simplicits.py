"""The per-object baseline: a small network trained on the object itself (Modi et al., "Simplicits", SIGGRAPH 2024).

A multilayer perceptron W(X) is trained so that random handle transforms z ~ N(0, mu^2 I) cost little elastic energy
while its columns stay orthonormal over the object. The energy goes from linear elasticity to Neo-Hookean over the
training; the linear part enters by its exact expectation (see :func:`_linear_expectation`), the other by samples of
z. Training takes torch; the bound field is arrays, with gradients by forward accumulation through the layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Float64

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field import chunks
from splatanim.field.ritz import ritz

if TYPE_CHECKING:
    import torch

_CHUNK = 4096
_OCTAVES = 2
_WIDTH, _HIDDEN = 64, 4
_SPREAD = 0.2  # mu, the standard deviation of the random handle transforms
_MU, _LAMBDA = 1.0, 3.0  # Lame parameters of the training material, nu = 0.375; only their ratio matters
_ORTHOGONALITY = 3e4  # weight of the mean squared deviation of the Gram matrix from the identity
_BATCH, _TRANSFORMS = 512, 8


@dataclass(frozen=True)
class SimplicitsField:
    """W(X) = MLP(gamma((X - centre) / radius)) @ C + c; ``layers`` are (matrix (in, out), bias (out,)) pairs."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    centre: Float64[np.ndarray, " 3"]
    radius: float
    coefficients: Float64[np.ndarray, "k m"]
    constants: Float64[np.ndarray, " m"]
    kind: str = "simplicits"

    @property
    def handles(self) -> int:
        return self.coefficients.shape[1]

    def weights(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m"]:
        out = np.empty((len(points), self.handles))
        for rows in chunks(len(points), _CHUNK):
            h, _ = _features(self._local(points[rows]), slopes=False)
            for matrix, bias in self.layers[:-1]:
                h = _elu(h @ matrix + bias)
            out[rows] = (h @ self.layers[-1][0] + self.layers[-1][1]) @ self.coefficients + self.constants
        return out

    def gradients(self, points: Float[np.ndarray, "n 3"]) -> Float64[np.ndarray, "n m 3"]:
        return self.evaluate(points)[1]

    def evaluate(
        self, points: Float[np.ndarray, "n 3"]
    ) -> tuple[Float64[np.ndarray, "n m"], Float64[np.ndarray, "n m 3"]]:
        w, dw = np.empty((len(points), self.handles)), np.empty((len(points), self.handles, 3))
        for rows in chunks(len(points), _CHUNK):
            h, tangent = _features(self._local(points[rows]), slopes=True)  # (n, w), (n, 3, w)
            for matrix, bias in self.layers[:-1]:
                a = h @ matrix + bias
                h, tangent = _elu(a), (tangent @ matrix) * np.exp(np.minimum(a, 0.0))[:, None, :]
            w[rows] = (h @ self.layers[-1][0] + self.layers[-1][1]) @ self.coefficients + self.constants
            tangent = tangent @ (self.layers[-1][0] @ self.coefficients)
            dw[rows] = tangent.transpose(0, 2, 1) / self.radius
        return w, dw

    def _local(self, points: np.ndarray) -> np.ndarray:
        return (np.asarray(points, np.float64) - self.centre) / self.radius


def bind_simplicits(domain: Domain, handles: int, *, steps: int = 1000, seed: int = 0) -> SimplicitsField:
    """Train the network on a domain and bind its ``handles`` outputs there (orthonormalised, rotated by Ritz).

    ``steps`` of Adam take about 10 ms each on one core. The same seed gives the same field on the same machine.
    Raises :class:`InputError` when the object has too few voxels or no step is asked for.
    """
    if len(domain.cells) < handles + 2:
        raise InputError(
            f"The object fills only {len(domain.cells)} voxels, too few for {handles} handles. Use fewer --handles."
        )
    if steps < 1:
        raise InputError(f"Simplicits: {steps} training steps; at least one is needed (1000 is usual).")
    points = domain.centres
    low, high = points.min(axis=0), points.max(axis=0)
    centre, radius = 0.5 * (low + high), 0.5 * (float((high - low).max()) + domain.spacing)
    with _one_thread():
        layers = _train((points - centre) / radius, domain.spacing / radius, handles, steps, seed)
    raw = SimplicitsField(layers, centre, radius, np.eye(handles), np.zeros(handles))
    coefficients, constants, _ = ritz(raw.weights(points), domain, handles)
    if coefficients.shape[1] < handles:
        raise InputError(
            f"Simplicits: only {coefficients.shape[1]} of {handles} functions are independent after {steps} steps. "
            "Train longer, or use fewer --handles."
        )
    return SimplicitsField(layers, centre, radius, coefficients, constants)


@contextmanager
def _one_thread() -> Iterator[None]:
    """torch on one thread: the matrices are small, and threads that wait for each other cost more than they do."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _train(
    points: np.ndarray, spacing: float, handles: int, steps: int, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Adam with warm-up and cosine decay on batches of jittered voxel centres (coordinates in [-1, 1])."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    sizes = [3 + 6 * _OCTAVES, *[_WIDTH] * _HIDDEN, handles]
    layers = []
    for first, second in itertools.pairwise(sizes):
        matrix = torch.randn(first, second, generator=generator) / first**0.5
        layers.append((matrix.requires_grad_(), torch.zeros(second, requires_grad=True)))
    cloud = torch.from_numpy(points.astype(np.float32))
    optimiser = torch.optim.Adam([p for layer in layers for p in layer], lr=2e-3)
    warm = max(steps // 50, 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda k: min((k + 1) / warm, 0.05 + 0.475 * (1 + np.cos(np.pi * k / steps)))
    )
    for step in range(steps):
        rows = torch.randint(len(cloud), (_BATCH,), generator=generator)
        batch = cloud[rows] + spacing * (torch.rand(_BATCH, 3, generator=generator) - 0.5)
        z = _SPREAD * torch.randn(_TRANSFORMS, 3, 4 * handles, generator=generator)
        loss = _loss(layers, batch, z, blend=step / steps)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return tuple((m.detach().double().numpy(), b.detach().double().numpy()) for m, b in layers)


def _loss(layers: list, batch: torch.Tensor, z: torch.Tensor, blend: float) -> torch.Tensor:
    """Expected energy per unit shear modulus, and the deviation of the Gram matrix of [1, W] from the identity."""
    import torch

    w, slope = _forward(layers, batch)  # (n, m), (n, 3, m)
    n, m = w.shape
    one = torch.cat([batch, torch.ones(n, 1)], dim=1)
    g = one[:, None, None, :] * slope[:, :, :, None]  # (n, 3, m, 4): d(W_i [X; 1]) / dX_c
    g = g + w[:, None, :, None] * torch.eye(3, 4)[None, :, None, :]
    g = g.reshape(n, 3, 4 * m)
    energy = (1.0 - blend) * _linear_expectation(g)
    if blend > 0:
        energy = energy + blend * _neohookean(torch.eye(3) + torch.einsum("brk,nck->bnrc", z, g)).mean()
    columns = torch.cat([torch.ones(n, 1), w], dim=1)
    gram = columns.T @ columns / n
    return energy / m + _ORTHOGONALITY * ((gram - torch.eye(m + 1)) ** 2).mean()


def _linear_expectation(g: torch.Tensor) -> torch.Tensor:
    """Mean over the points of E_z[Psi_linear] = mu_z^2 (2 mu + lambda / 2) |G|^2, exactly.

    With H = Z G and z iid N(0, s^2): E|H|^2 = 3 s^2 |G|^2, E[H_rc H_cr] summed = s^2 |G|^2, so E|eps|^2 = 2 s^2 |G|^2;
    and E[tr(H)^2] = s^2 |G|^2.
    """
    return _SPREAD**2 * (2.0 * _MU + 0.5 * _LAMBDA) * (g**2).sum(dim=(1, 2)).mean()


def _neohookean(f: torch.Tensor) -> torch.Tensor:
    """Stable Neo-Hookean energy density (Smith et al. 2018) with the rest value 0."""
    import torch

    j = torch.linalg.det(f)
    square = (f**2).sum(dim=(-2, -1))
    return 0.5 * _MU * (square - 3.0) - _MU * (j - 1.0) + 0.5 * (_LAMBDA + _MU) * (j - 1.0) ** 2


def _forward(layers: list, batch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """W (n, m) and dW/dX (n, 3, m), differentiable in the layers."""
    import torch

    h, tangent = _features(batch, slopes=True)
    for matrix, bias in layers[:-1]:
        a = h @ matrix + bias
        h = torch.nn.functional.elu(a)
        tangent = (tangent @ matrix) * torch.exp(a.clamp(max=0.0))[:, None, :]
    matrix, bias = layers[-1]
    return h @ matrix + bias, tangent @ matrix


def _features(x: Any, *, slopes: bool) -> tuple[Any, Any]:
    """gamma(x) = [x, sin(2^k pi/2 x), cos(2^k pi/2 x)] (n, 3 + 6 octaves) and its derivatives (n, 3, .) or None.

    Arrays and tensors alike.
    """
    library: Any = np
    if not isinstance(x, np.ndarray):
        import torch

        library = torch

    def diagonal(v: Any) -> Any:
        return v[:, :, None] * library.eye(3, dtype=v.dtype)

    sin, cos, join = library.sin, library.cos, library.concatenate
    values, derivatives = [x], [diagonal(0 * x + 1)] if slopes else []
    for octave in range(_OCTAVES):
        k = 0.5 * np.pi * 2.0**octave
        values += [sin(k * x), cos(k * x)]
        if slopes:
            derivatives += [diagonal(k * cos(k * x)), diagonal(-k * sin(k * x))]
    return join(values, 1), join(derivatives, 2) if slopes else None


def _elu(a: np.ndarray) -> np.ndarray:
    return np.where(a > 0, a, np.expm1(np.minimum(a, 0.0)))
