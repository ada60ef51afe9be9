"""The self test of ``splatanim doctor``: a small object is read, bound, dropped, drawn and filmed, its numbers checked.

Every check says what was measured and what is right; the truths are closed forms, float64 references and round trips.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from splatanim.data import Splats
from splatanim.dynamics.newton import Term
from splatanim.dynamics.reduced import ReducedModel

_COUNT = 2500  # splats of the object
_GRAVITY = 9.81


@dataclass(frozen=True)
class Check:
    """One thing that was tried: what it is, whether it came out right, and what was measured."""

    name: str
    passed: bool
    said: str
    seconds: float


@dataclass
class _Patient:
    """What one check hands to the next."""

    splats: Splats
    folder: Path
    model: ReducedModel | None = None
    posed: Splats | None = None


def self_test() -> Iterator[Check]:
    """Run every check, one after the other; what fails or breaks is told, and the others go on."""
    with tempfile.TemporaryDirectory(prefix="splatanim-doctor-") as folder:
        patient = _Patient(_object(), Path(folder))
        for name, check in _CHECKS:
            start = time.perf_counter()
            try:
                passed, said = check(patient)
            except Exception as error:  # whatever is broken here is what the doctor is asked about
                passed, said = False, f"{type(error).__name__}: {error}"
            yield Check(name, passed, said, time.perf_counter() - start)


def _object() -> Splats:
    """The jelly, thinned; its splats widened, so that it stays closed."""
    from splatanim.samples import make_sample

    whole = make_sample("jelly", seed=0)
    rows = np.linspace(0, len(whole) - 1, _COUNT).astype(np.int64)
    return whole.select(rows).replace(log_scales=whole.log_scales[rows] + np.float32(0.5 * np.log(len(whole) / _COUNT)))


def _files(patient: _Patient) -> tuple[bool, str]:
    from splatanim.formats import read_splats, write_splats

    exact, packed = patient.folder / "a.ply", patient.folder / "a.spz"
    write_splats(exact, patient.splats, up="-y")
    write_splats(packed, patient.splats, up="-y")
    same = np.array_equal(read_splats(exact).splats.means, patient.splats.means)
    error = float(np.abs(read_splats(packed).splats.means - patient.splats.means).max())
    return same and error < 2e-3, f".ply comes back {'exactly' if same else 'CHANGED'}, .spz to {error:.1e}"


def _inside(patient: _Patient) -> tuple[bool, str]:
    from pipelines.animate import prepare
    from splatanim.binding import Handles
    from splatanim.dynamics.materials import preset
    from splatanim.dynamics.reduced import reduce
    from splatanim.field.subspace import bind
    from splatanim.formats.base import ReadResult
    from splatanim.metrics import skinning_metrics
    from splatanim.sampling.cubature import cubature_from_splats

    subject = prepare(ReadResult(patient.splats, "sample", _COUNT, up="-y"), "auto", 1.0, "the sample")
    cubature = cubature_from_splats(subject.splats, subject.frame, count=400)
    field, _ = bind("eigenmodes", cubature.domain, 12)
    handles = Handles(field)
    patient.splats = subject.splats
    patient.model = reduce(cubature, handles, preset("jelly"))
    omega = skinning_metrics(field.weights(cubature.domain.centres)).omega_orth
    ratio = float(cubature.volumes.sum() / cubature.domain.volume)
    good = omega < 1e-8 and abs(ratio - 1) < 0.02
    return (
        good,
        f"{len(cubature.points)} points hold {100 * ratio:.1f} % of the volume, weights orthogonal to {omega:.0e}",
    )


def _fall(patient: _Patient) -> tuple[bool, str]:
    """Implicit Euler's own parabola: x_n = g h^2 n (n + 1) / 2."""
    from splatanim.dynamics.dilation import AveragedElasticity
    from splatanim.dynamics.simulate import Settings, simulate
    from splatanim.dynamics.terms import gravity

    model = _given(patient.model)
    h, steps = 1 / 120, 24
    terms: list[Term] = [
        AveragedElasticity(model),
        gravity(model, np.array([0.0, _GRAVITY, 0.0])),
    ]  # down is +y in this file
    trajectory = simulate(model, terms, Settings(steps + 1, 1 / h, 1))
    one = np.concatenate([model.rest, np.ones((len(model.rest), 1))], axis=1)
    weights = model.handles.evaluate(model.rest)[0]
    moved = np.einsum("nh,hrc,nc->nr", weights, trajectory.handles[-1], one)
    wanted = 0.5 * _GRAVITY * h * h * steps * (steps + 1)
    error = float(np.abs(moved - [0.0, wanted, 0.0]).max() / wanted)
    return (
        error < 1e-5,
        f"fell {moved[:, 1].mean():.6f} m, the closed form says {wanted:.6f} m (worst error {error:.0e})",
    )


def _film(patient: _Patient) -> tuple[bool, str]:
    from imageio_ffmpeg import count_frames_and_secs

    from pipelines.animate import AnimateConfig, animate

    source, film = patient.folder / "a.ply", patient.folder / "a.mp4"
    result = animate(AnimateConfig(scene=source, output=film, seconds=1.0, fps=12, size="160x120", material="jelly"))
    trajectory = result.trajectory
    frames, _ = count_frames_and_secs(str(film))
    solved = trajectory.converged_fraction
    finite = bool(np.isfinite(trajectory.handles).all())
    good = solved == 1.0 and finite and trajectory.penetration < 0.005 and frames == 12
    return good, (
        f"{100 * solved:.0f} % of steps converged, deepest in the floor {100 * trajectory.penetration:.2f} % of its "
        f"size, {frames} of 12 frames in the .mp4"
    )


def _picture(patient: _Patient) -> tuple[bool, str]:
    from splatanim.metrics import psnr
    from splatanim.render.camera import frame_object
    from splatanim.render.cpu import CpuRasterizer
    from splatanim.render.rasterize import cuda_available, rasterize
    from splatanim.render.reference import rasterize_reference

    few = patient.splats.select(np.arange(0, len(patient.splats), 5))
    camera = frame_object(few.means, (0, -1, 0), width=80, height=60)
    truth = rasterize_reference(few, camera)[0]
    decibel = psnr(np.clip(CpuRasterizer().render(few, camera).rgb, 0, 1), np.clip(truth, 0, 1))
    seen = float(np.abs(truth - 1).max())
    said = f"CPU {decibel:.0f} dB from the float64 reference"
    good = decibel > 90 and seen > 0.2
    if cuda_available():
        decibel = psnr(np.clip(rasterize(few, camera, backend="cuda").rgb, 0, 1), np.clip(truth, 0, 1))
        said += f", CUDA {decibel:.0f} dB"
        good = good and decibel > 55
    return good, said


def _given(model: ReducedModel | None) -> ReducedModel:
    if model is None:
        raise RuntimeError("there is no model, as the check before failed")
    return model


_CHECKS: tuple[tuple[str, Callable[[_Patient], tuple[bool, str]]], ...] = (
    ("files", _files),
    ("inside", _inside),
    ("fall", _fall),
    ("picture", _picture),
    ("film", _film),
)
