"""``splatanim fields``: the skinning field that an object gets, in figures and pictures."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from tyro.conf import Positional

from pipelines.objects import Object, read_object, surface_of
from pipelines.progress import Progress
from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.field import SkinningField
from splatanim.metrics import SkinningMetrics

Kind = Literal["auto", "neural", "gaussians", "eigenmodes", "simplicits"]
SUBSPACE = 16  # functions that subspace_ratio compares, the constant included


@dataclass(frozen=True)
class FieldsConfig:
    """Bind skinning fields to splats, meshes or point clouds, and say and show how good they are.

    Args:
        files: Splats (.ply), meshes (.ply, .obj, .stl, .glb) or point clouds (.ply).
        field: auto (eigenmodes, as long as they measure up on the object), eigenmodes, gaussians, neural or simplicits
            (trained on the object: minutes).
        handles: Number of skinning handles.
        json: Print JSON with stable keys instead of text.
        image: Write a contact sheet of the handles; with several files, each under the name plus that of the file.
        ply: Write the object as splats in the colours of one handle; several files as for image.
        handle: Which handle the ply shows, counted from 1.
        ratio: Also solve for the exact modes that subspace_ratio compares with: about a second.
        up: Which way is up: auto, +y, -y, +z, -z, +x or -x.
        seed: Seed of everything random.
    """

    files: Positional[tuple[Path, ...]]
    field: Kind = "auto"
    handles: int = 16
    json: bool = False
    image: Path | None = None
    ply: Path | None = None
    handle: int = 1
    ratio: bool = True
    up: str = "auto"
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """A bound field and its figures. ``raw`` are those of the functions before Ritz, ``raw_count`` of them."""

    subject: Object
    field: SkinningField
    reason: str
    raw_count: int
    raw: SkinningMetrics
    bound: SkinningMetrics
    subspace_ratio: float | None
    seconds: float

    def to_json(self) -> dict[str, object]:
        """Stable keys; figures that are infinite are null."""
        return {
            "file": self.subject.file,
            "handles": self.field.handles,
            "raw": _finite(asdict(self.raw)),
            "bound": _finite(asdict(self.bound)),
            "subspace_ratio": _finite({"": self.subspace_ratio})[""],
            "seconds": round(self.seconds, 4),
            "field": self.field.kind,
            "reason": self.reason,
            "raw_functions": self.raw_count,
            "form": self.subject.form,
            "inside": self.subject.cubature.method,
            "notes": list(self.subject.notes),
        }


def fields(config: FieldsConfig, progress: Progress | None = None) -> str:
    """Measure every file; bad ones are skipped with their reasons (on stderr with ``json``).

    Raises :class:`InputError` when no file was usable, or before any work when the options make no sense.
    """
    progress = progress or Progress()
    _check(config)
    done: list[Measured] = []
    skipped: list[str] = []
    with progress.bar("binding", len(config.files)) as tick:
        for path in config.files:
            try:
                found = measure(read_object(path, up=config.up, seed=config.seed), config)
                _write(found, config)
                done.append(found)
            except InputError as error:
                text = str(error)
                skipped.append(text if str(path) in text else f"{path}: {text}")
            tick()
    report = [f"skipped {len(skipped)} of {len(config.files)} files:", *(f"  {text}" for text in skipped)]
    if not done:
        raise InputError("\n".join([f"no file was usable; {report[0]}", *report[1:]]))
    if config.json:
        if skipped:
            print("\n".join(report), file=sys.stderr)
        return json.dumps([found.to_json() for found in done], indent=2)
    lines = [line for found in done for line in _lines(found)]
    return "\n".join([*lines, *(report if skipped else [])])


def measure(subject: Object, config: FieldsConfig) -> Measured:
    """Bind the field that the options ask for, and measure it on the object's voxels."""
    from splatanim.field.subspace import bind, raw_functions
    from splatanim.metrics import skinning_metrics

    domain = subject.cubature.domain
    start = time.perf_counter()
    field, reason = bind(config.field, domain, config.handles, seed=config.seed)
    seconds = time.perf_counter() - start
    raw, bound = raw_functions(field, domain), field.weights(domain.centres)
    ratio = _ratio(bound, domain) if config.ratio else None
    figures = skinning_metrics(raw), skinning_metrics(bound)
    return Measured(subject, field, reason, raw.shape[1], *figures, ratio, seconds)


def _ratio(bound: np.ndarray, domain: Domain) -> float:
    from splatanim.field.eigenmodes import neumann_modes
    from splatanim.field.ritz import subspace_ratio

    count = min(SUBSPACE, bound.shape[1] + 1)
    exact, _ = neumann_modes(domain, count)
    return subspace_ratio(bound, domain, exact, count)


def _check(config: FieldsConfig) -> None:
    if not config.files:
        raise InputError("fields: name at least one file (splats, a mesh or a point cloud).")
    if not 1 <= config.handle <= config.handles:
        raise InputError(f"--handle {config.handle}: there are handles 1 to {config.handles}.")
    for path, suffix in ((config.image, ".png"), (config.ply, ".ply")):
        if path is not None and path.suffix.lower() != suffix:
            raise InputError(f"{path}: the name must end in {suffix}.")


def _write(found: Measured, config: FieldsConfig) -> None:
    """The contact sheet and the coloured splats, where asked for."""
    from pipelines.field_pictures import contact_sheet, painted, scaled
    from splatanim.field.subspace import rayleigh
    from splatanim.formats import write_ply
    from splatanim.render.video import write_png

    if config.image is None and config.ply is None:
        return
    surface = surface_of(found.subject, seed=config.seed)
    weights = found.field.weights(surface.points)
    if config.image is not None:
        levels = rayleigh(found.field, found.subject.cubature.domain)
        labels = [f"handle {k + 1}    {level if level > 1e-9 else 0:.3g} / m^2" for k, level in enumerate(levels)]
        sheet = contact_sheet(
            surface, weights, found.subject.frame.up, title=_title(found), subtitle=_subtitle(found), labels=labels
        )
        write_png(_named(config.image, found, config), sheet)
    if config.ply is not None:
        coloured = painted(surface, scaled(weights)[:, config.handle - 1], shaded=False)
        note = f"splatanim fields: handle {config.handle} of {found.field.kind}, blue negative, red positive"
        write_ply(_named(config.ply, found, config), coloured, comments=(note,))


def _named(path: Path, found: Measured, config: FieldsConfig) -> Path:
    if len(config.files) == 1:
        return path
    return path.with_name(f"{path.stem}-{Path(found.subject.file).stem}{path.suffix}")


def _title(found: Measured) -> str:
    return f"{Path(found.subject.file).stem}: {found.field.kind}, {found.field.handles} handles"


def _subtitle(found: Measured) -> str:
    ratio = "" if found.subspace_ratio is None else f"{found.subspace_ratio:.3f} times the energy of the exact modes; "
    return f"{ratio}bound in {found.seconds:.2f} s; under each handle its mean |grad W|^2, W of unit mean square"


def _lines(found: Measured) -> list[str]:
    def figures(metrics: SkinningMetrics) -> str:
        return f"Omega_orth {metrics.omega_orth:.1e}, kappa_log {metrics.kappa_log:.3f}, H_spec {metrics.h_spec:.4f}"

    ratio = "not asked for" if found.subspace_ratio is None else f"{found.subspace_ratio:.3f} (1: the exact modes)"
    return [
        f"{found.subject.file}: {found.subject.form}; {found.subject.cubature.method}",
        f"  field     {found.reason or found.field.kind}; {found.field.handles} handles + constant",
        f"  raw       {found.raw_count} functions: {figures(found.raw)}",
        f"  bound     {figures(found.bound)}",
        f"  ratio     {ratio}",
        f"  time      bound in {found.seconds:.2f}s",
        *(f"  note      {note}" for note in found.subject.notes),
    ]


def _finite(values: dict[str, float | None]) -> dict[str, float | None]:
    return {key: value if value is not None and math.isfinite(value) else None for key, value in values.items()}
