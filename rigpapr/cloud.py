"""The PAPR cloud: points with features and influence, and the attention head that they share.

Inside, coordinates are normalised as the official PAPR's are, to an object about 20 long around the origin:
x_cloud = scale (x_world - centre). World coordinates are those of the cameras; every function that takes or returns
points for others says which it means.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from rigpapr.attention import Attention, KernelHead, PaperHead, Relation, brightening, relate
from splatanim.errors import InputError

OBJECT_SIZE = 20.0  # the object's longest side in cloud units


@dataclass(frozen=True)
class CloudConfig:
    """What an asset stores beside its tensors.

    ``neighbours``: K. ``feature_size``, ``width``, ``key_layers``, ``value_layers`` and ``octaves`` are of the paper's
    head alone; the kernel head has 16 features.
    """

    head: Literal["kernel", "paper"] = "kernel"
    neighbours: int = 12
    feature_size: int = 64
    width: int = 256
    key_layers: int = 5
    value_layers: int = 8
    octaves: int = 6

    def __post_init__(self) -> None:
        if self.head not in ("kernel", "paper"):
            raise InputError(f"CloudConfig: no head {self.head!r}; there are kernel and paper.")
        for key in ("neighbours", "feature_size", "width", "octaves"):
            if getattr(self, key) < 1:
                raise InputError(f"CloudConfig: {key} is {getattr(self, key)}; it must be at least 1.")
        if self.key_layers < 2 or self.value_layers < 2:
            raise InputError("CloudConfig: key_layers and value_layers must be at least 2.")

    def to_json(self) -> dict[str, Any]:
        """The fields as plain values."""
        return asdict(self)


class PaprCloud(nn.Module):
    """N points: ``positions`` (N, 3) in cloud units, ``features`` (N, F), ``influence`` (N,); and the head.

    ``centre`` (3,) and ``scale`` lead from world to cloud units; ``reach`` is the distance [cloud units] beyond which
    a ray sees background only (infinite: never), which saves work. All tensors may be trained; freeze them with
    ``requires_grad_(False)`` to fit motion through the fixed renderer.

    ``normals`` (N, 3) and ``lamp`` (3,), both or none, say how the subject was lit (:mod:`rigpapr.light`), so that
    points which have turned change their brightness.
    """

    def __init__(
        self,
        config: CloudConfig,
        positions: Float[Tensor, "n 3"],
        *,
        centre: Float[np.ndarray, " 3"] | None = None,
        scale: float = 1.0,
        reach: float = float("inf"),
        seed: int = 0,
    ) -> None:
        super().__init__()
        if not len(positions):
            raise InputError("PaprCloud: no points.")
        generator = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.head = _head(config, float(median_spacing(positions)))
        self.config = config
        self.positions = nn.Parameter(positions.detach().clone().float())
        self.features = nn.Parameter(self.head.initial_features(len(positions), generator))
        first = 2.0 if config.head == "kernel" else 1.0
        self.influence = nn.Parameter(torch.full((len(positions),), first))
        self.register_buffer("centre", torch.as_tensor(np.zeros(3) if centre is None else centre).double())
        self.register_buffer("scale", torch.tensor(float(scale), dtype=torch.float64))
        self.register_buffer("reach", torch.tensor(float(reach)))
        self.register_buffer("normals", None)
        self.register_buffer("lamp", None)
        self.centre: Tensor
        self.scale: Tensor
        self.reach: Tensor
        self.normals: Tensor | None
        self.lamp: Tensor | None

    def __len__(self) -> int:
        return len(self.positions)

    def set_light(self, normals: Float[Tensor, "n 3"] | None, lamp: Float[Tensor, " 3"] | None) -> None:
        """Say how the subject was lit at rest, or forget it (None): points that come or go have no normals."""
        if (normals is None) != (lamp is None) or (normals is not None and normals.shape != self.positions.shape):
            raise InputError(f"PaprCloud: give normals of all {len(self)} points and the lamp, or neither.")
        self.normals, self.lamp = normals, lamp

    @property
    def world_positions(self) -> Float[Tensor, "n 3"]:
        """The points in world coordinates, with gradient."""
        return self.to_world(self.positions)

    def to_cloud(self, points: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3"]:
        """World to cloud coordinates."""
        return ((points - self.centre) * self.scale).to(self.positions.dtype)

    def to_world(self, points: Float[Tensor, "*b 3"]) -> Float[Tensor, "*b 3"]:
        """Cloud to world coordinates."""
        return (points / self.scale + self.centre).to(self.positions.dtype)

    def attend(
        self,
        origins: Float[Tensor, "r 3"],
        directions: Float[Tensor, "r 3"],
        rows: Tensor,
        positions: Float[Tensor, "n 3"] | None = None,
        rotations: Float[Tensor, "n 3 3"] | None = None,
    ) -> tuple[Relation, Attention]:
        """Attention of rays (cloud units) to the points in ``rows`` (R, K), -1 for none, moved to ``positions`` and
        turned by ``rotations`` since rest, which lights them anew where the cloud knows its lamp."""
        points = self.positions if positions is None else positions
        flat = rows.clamp(min=0).reshape(-1)

        def gather(values: Tensor) -> Tensor:
            return values.index_select(0, flat).view(*rows.shape, *values.shape[1:])

        frames = None if rotations is None else gather(rotations)
        relation = relate(gather(points), origins, directions, rows >= 0, frames)
        weights, colours = self.head(relation, gather(self.features), gather(self.influence))
        if rotations is not None and self.normals is not None and self.lamp is not None:
            gain = gather(brightening(self.normals, self.lamp, rotations))
            colours = (colours * gain[..., None]).clamp(max=1.0)
        return relation, Attention(weights, colours)

    def colours(self) -> Float[np.ndarray, "n 3"]:
        """Each point's own colour in [0, 1]: the kernel's; for the paper's head, what a ray through the point sees of
        it from the front, averaged over the six axes."""
        with torch.no_grad():
            if isinstance(self.head, KernelHead):
                return torch.sigmoid(self.features[:, 4:7]).cpu().numpy()
            axes = torch.cat([torch.eye(3), -torch.eye(3)]).to(self.positions)
            rows = torch.arange(len(self), device=self.positions.device)[:, None]
            total = torch.zeros_like(self.positions)
            for axis in axes:
                origins = self.positions - 3 * OBJECT_SIZE * axis
                for part in torch.arange(len(self), device=rows.device).split(4096):
                    directions = axis.expand(len(part), 3)
                    total[part] += self.attend(origins[part], directions, rows[part])[1].colours[:, 0] / len(axes)
            return total.cpu().numpy()


def median_spacing(positions: Float[Tensor, "n 3"]) -> float:
    """The median distance from a point to its nearest neighbours' fourth: about the spacing of points on a surface."""
    from scipy.spatial import cKDTree

    points = positions.detach().cpu().numpy().astype(np.float64)
    if len(points) < 2:
        return 1.0
    distances, _ = cKDTree(points).query(points, min(5, len(points)))
    return max(float(np.median(distances[:, -1])), 1e-6)


def _head(config: CloudConfig, spacing: float) -> KernelHead | PaperHead:
    if config.head == "kernel":
        return KernelHead(spacing)
    return PaperHead(config.feature_size, config.width, config.key_layers, config.value_layers, config.octaves)
