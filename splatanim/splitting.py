"""Long splats on bending parts, cut into shorter ones where one affine map cannot follow the bend (DESIGN section 5).

Posing moves a splat by the map's linearisation at its centre, x(X) + F s for s along its axes. A needle on a bending
part then sticks out tangentially: its ends miss their true places by the map's higher orders. That *miss* is evaluated
with the handles' weights at the ends themselves,

    x(X + s) - x(X) - F s = sum_h Z_h v_h,   v_h = w_h(X+s) [X+s; 1] - w_h(X) [X+s; 1] - (grad w_h . s) [X; 1],

for the poses at hand, or in expectation over random ones. Splats that miss by more than a tolerance are replaced by a
row of shorter ones along their longest axis, which together look as they did at rest; again, where one cut is not
enough.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int

from splatanim.binding import Handles
from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.rotations import quaternions_to_matrices
from splatanim.transforms import BoundSplats

_CHUNK = 16384
# pieces: (spacing, width of the Gaussian that weighs them), in standard deviations of the whole. The narrowest pieces
# whose weighted sum stays within 2 % of the whole Gaussian's height.
_ROWS = {3: (1.10, 0.75), 5: (0.95, 0.85), 7: (0.80, 0.90), 9: (0.60, 0.95)}
_MOST_OPAQUE = 0.999
_TIGHTEST = 0.04  # of the size: the radius of the tightest bend that is looked for


@dataclass(frozen=True)
class Splitting:
    """When to cut. ``tolerance``: how far a splat's ends may miss their true places, of the object's size (0.002 is one
    pixel of a picture of 512). ``reach``: where the ends are, in standard deviations. ``amplitude``: displacements
    without known poses, of the size, all handles together. ``rounds``: how often a piece may be cut again."""

    tolerance: float = 0.002
    reach: float = 2.0
    amplitude: float = 0.05
    rounds: int = 3

    def __post_init__(self) -> None:
        for name in ("tolerance", "reach", "amplitude"):
            if not getattr(self, name) > 0:
                raise InputError(f"Splitting: {name} is {getattr(self, name)}; it must be positive.")
        if not 0 <= self.rounds <= 6:
            raise InputError(f"Splitting: rounds is {self.rounds}; use 0 (never cut) to 6.")


@dataclass(frozen=True)
class Row:
    """Pieces that replace a Gaussian of standard deviation 1: where, with which share, and how long each is.

    sum(share) = 1, sum(share place) = 0 and sum(share place^2) + length^2 = 1: mean and covariance are kept.
    """

    places: Float64[np.ndarray, " k"]
    shares: Float64[np.ndarray, " k"]
    length: float


def row_of(pieces: int) -> Row:
    """The row of 3, 5, 7 or 9 pieces."""
    if pieces not in _ROWS:
        raise InputError(f"A splat can be cut into {', '.join(map(str, _ROWS))} pieces, not {pieces}.")
    spacing, width = _ROWS[pieces]
    places = spacing * (np.arange(pieces) - (pieces - 1) / 2)
    shares = np.exp(-0.5 * (places / width) ** 2)
    shares /= shares.sum()
    return Row(places, shares, float(np.sqrt(1.0 - shares @ places**2)))


def split_splats(
    bound: BoundSplats,
    handles: Handles,
    options: Splitting | None = None,
    *,
    poses: Float[np.ndarray, "p h 3 4"] | None = None,
    size: float | None = None,
) -> BoundSplats:
    """The bound splats with those cut that would miss; ``parents`` of the result says which row each piece came from.

    ``poses``: affine displacements of the handles (as frames of a trajectory) that the splats shall follow; the
    largest miss over them counts. Without poses it is the root mean square over random ones in which the handles
    displace by ``amplitude``, stiff ones less (inversely to their Dirichlet energies, as under equal forces). The
    pieces of a splat stand next to each other, in its place. Where nothing needs cutting the input itself is returned.
    ``size`` [m] is the object's where ``bound`` is only a part of it.
    """
    options = options or Splitting()
    low, high = bound.rest.min(axis=0, initial=np.inf), bound.rest.max(axis=0, initial=-np.inf)
    if size is None:
        size = float((high - low).max()) if len(bound.rest) else 0.0
    if not (size > 0 and len(bound.rest)):
        return bound
    spread = RandomPoses(*_amplitudes(bound, options.amplitude * size, size), 0.5 * (low + high).astype(np.float64))
    shortest = size * np.sqrt(2.0 * options.tolerance * _TIGHTEST)
    rows = np.arange(len(bound.rest))
    for _ in range(options.rounds):
        ends = options.reach * bound.frame.scale * np.exp(bound.splats.log_scales[rows].max(axis=1, initial=-np.inf))
        rows = rows[ends > shortest]
        missed = misses(bound, handles, rows, reach=options.reach, poses=spread if poses is None else poses)
        over = missed > options.tolerance * size
        if not over.any():
            break
        bound, rows = _cut(bound, handles, rows[over], _pieces(missed[over] / (options.tolerance * size)))
    return bound


@dataclass(frozen=True)
class RandomPoses:
    """Independent normal entries of every handle's Z: their standard deviations (h,), of linear parts and of
    translations [m], about a centre."""

    linear: Float64[np.ndarray, " h"]
    shift: Float64[np.ndarray, " h"]
    centre: Float64[np.ndarray, " 3"]


def misses(
    bound: BoundSplats,
    handles: Handles,
    rows: Int[np.ndarray, " m"],
    *,
    reach: float,
    poses: RandomPoses | Float[np.ndarray, "p h 3 4"],
) -> Float64[np.ndarray, " m"]:
    """How far [m] the ends of some splats' longest axes miss their places: the worse end, the worst pose.

    Over random poses it is the root mean square, in closed form: E |sum_h Z_h v_h|^2 = 3 sum_h var_h . v_h^2.
    """
    out = np.zeros(len(rows))
    for start in range(0, len(rows), _CHUNK):
        part = rows[start : start + _CHUNK]
        axis = reach * bound.frame.scale * _long_axes(bound.splats.select(part))[0]
        for sign in (1.0, -1.0):
            v = _higher_orders(bound, handles, part, sign * axis)
            if isinstance(poses, RandomPoses):
                linear = v[:, :, :3] - v[:, :, 3:] * poses.centre  # Z [X; 1] = L (X - centre) + t
                squares = (linear**2).sum(axis=2) @ poses.linear**2 + v[:, :, 3] ** 2 @ poses.shift**2
                missed = np.sqrt(3.0 * squares)
            else:
                flat = np.asarray(poses, np.float64).transpose(1, 3, 0, 2).reshape(v.shape[1] * 4, -1)  # (4h, 3p)
                ends = (v.reshape(len(part), -1) @ flat).reshape(len(part), -1, 3)
                missed = np.linalg.norm(ends, axis=2).max(axis=1, initial=0.0)
            out[start : start + len(part)] = np.maximum(out[start : start + len(part)], missed)
    return out


def _higher_orders(
    bound: BoundSplats, handles: Handles, rows: np.ndarray, step: Float64[np.ndarray, "m 3"]
) -> Float64[np.ndarray, "m h 4"]:
    """The v_h of the module's equation; without weight gradients in F, their part is missed as well."""
    rest = bound.rest[rows].astype(np.float64)
    one = np.ones((len(rows), 1, 1))
    there = np.concatenate([(rest + step)[:, None], one], axis=2)
    v = (handles.evaluate(rest + step)[0] - bound.weights[rows])[:, :, None] * there
    if bound.weight_gradients:
        along = np.einsum("mha,ma->mh", bound.slopes[rows].astype(np.float64), step)
        v -= along[:, :, None] * np.concatenate([rest[:, None], one], axis=2)
    return v


def _amplitudes(bound: BoundSplats, amplitude: float, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Standard deviations of linear parts and translations, sharing ``amplitude``: stiffer than a bar's first mode
    means smaller."""
    energy = np.einsum("nha,nha->h", bound.slopes, bound.slopes, dtype=np.float64)
    energy /= np.maximum(np.einsum("nh,nh->h", bound.weights, bound.weights, dtype=np.float64), 1e-12)
    shift = np.minimum(1.0, (np.pi / size) ** 2 / np.maximum(energy, 1e-300))
    shift *= amplitude / np.sqrt((shift**2).sum())
    return shift / (0.5 * size), shift


def _long_axes(splats: Splats) -> tuple[Float64[np.ndarray, "m 3"], Int[np.ndarray, " m"]]:
    """The longest principal axis of every splat, as long as its standard deviation (file units), and which it is."""
    which = splats.log_scales.argmax(axis=1)
    turn = quaternions_to_matrices(splats.quaternions)
    every = np.arange(len(splats))
    return turn[every, :, which] * np.exp(splats.log_scales[every, which].astype(np.float64))[:, None], which


def _pieces(excess: Float64[np.ndarray, " m"]) -> Int[np.ndarray, " m"]:
    """The fewest pieces whose miss, falling with the square of their length, would be small enough; else the most."""
    counts = np.array(sorted(_ROWS))
    shrink = np.array([row_of(int(k)).length ** -2 for k in counts])
    return counts[np.minimum(np.searchsorted(shrink, excess), len(counts) - 1)]


def _cut(
    bound: BoundSplats, handles: Handles, rows: Int[np.ndarray, " m"], pieces: Int[np.ndarray, " m"]
) -> tuple[BoundSplats, Int[np.ndarray, " c"]]:
    """Replace rows by their pieces; also where the pieces are now."""
    repeats = np.ones(len(bound.rest), np.int64)
    repeats[rows] = pieces
    source = np.repeat(np.arange(len(repeats)), repeats)
    first = np.cumsum(repeats) - repeats
    splats = bound.splats.select(source)
    for count in np.unique(pieces):
        mine = rows[pieces == count]
        _write_pieces(splats, bound.splats.select(mine), row_of(int(count)), first[mine])
    new = np.flatnonzero(np.repeat(repeats > 1, repeats))
    rest, weights, slopes = bound.rest[source], bound.weights[source], bound.slopes[source]
    for start in range(0, len(new), _CHUNK):
        part = new[start : start + _CHUNK]
        rest[part] = bound.frame.to_sim(splats.means[part])
        weights[part], slopes[part] = handles.evaluate(rest[part])
    parents = source if bound.parents is None else bound.parents[source]
    changed = dataclasses.replace(
        bound, splats=splats, rest=rest, weights=weights, slopes=slopes, parents=parents.astype(np.int64)
    )
    return changed, new


def _write_pieces(splats: Splats, whole: Splats, row: Row, first: Int[np.ndarray, " m"]) -> None:
    """Write each whole splat's pieces into ``splats``, at rows ``first``, first + 1, ..."""
    axis, which = _long_axes(whole)
    opacities = piece_opacities(whole.opacities.astype(np.float64), row)
    for k, place in enumerate(row.places):
        at = first + k
        splats.means[at] = whole.means + place * axis
        splats.log_scales[at, which] = whole.log_scales[np.arange(len(which)), which] + np.log(row.length)
        splats.raw_opacities[at] = np.log(opacities[:, k] / (1.0 - opacities[:, k]))


def piece_opacities(opacities: Float64[np.ndarray, " m"], row: Row) -> Float64[np.ndarray, "m k"]:
    """Opacities with which overlapping pieces let through, at every piece's middle, what the whole let through there.

    For faint splats they tend to opacity * share / length, the mixture of Gaussians. Solved by fixed-point iteration on
    -log(1 - opacity), in which the pieces' shares of each place's total stay positive.
    """
    whole = np.clip(opacities, 1e-6, _MOST_OPAQUE)
    wanted = -np.log1p(-whole[:, None] * np.exp(-0.5 * row.places**2))
    reach = np.exp(-0.5 * ((row.places[:, None] - row.places) / row.length) ** 2)
    found = np.clip(whole[:, None] * row.shares / row.length, 1e-7, _MOST_OPAQUE)
    for _ in range(40):
        total = -np.log1p(-found[:, None, :] * reach).sum(axis=2)
        found = np.clip(-np.expm1(np.log1p(-found) * wanted / total), 1e-7, _MOST_OPAQUE)
    return found
