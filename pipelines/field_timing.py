"""How long a skinning field takes, from the splats of a capture to weights and gradients at every one of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pipelines.progress import Progress
from splatanim.data import Mesh
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.evaluate_fields import EvaluateFieldsConfig

SPLATS = 100_000
STAGES = ("sample", "bind", "evaluate")


def timing_study(config: EvaluateFieldsConfig, progress: Progress) -> tuple[list[dict[str, object]], str]:
    """Seconds of sampling, of binding, and of weights with gradients at all splats, for every kind of field.

    The splats lie on the surface of the mesh ``family_file``, so that it needs no capture. A small object is bound
    first, so that imports and the reading of weights do not count.
    """
    from pipelines.field_pictures import disks
    from pipelines.field_studies import _bind
    from pipelines.objects import read_object
    from splatanim.data import Domain
    from splatanim.field.subspace import KINDS
    from splatanim.sampling.cubature import cubature_from_splats
    from splatanim.sampling.surface import sample_surface

    subject = read_object(config.folder / config.family_file, seed=config.seed)
    if not isinstance(subject.content, Mesh):
        raise InputError(f"{config.family_file}: the timing needs a mesh to spread splats over.")
    points, normals = sample_surface(subject.content, SPLATS, seed=config.seed)
    splats = disks(points, normals, 0.004 / subject.frame.scale)
    start = time.perf_counter()
    domain = cubature_from_splats(splats, subject.frame, seed=config.seed).domain
    sampling = time.perf_counter() - start
    small = Domain(domain.cells[: len(domain.cells) // 8], domain.origin, domain.spacing)
    rows: list[dict[str, object]] = []
    with progress.bar("timing", len(KINDS) + 1) as tick:
        for kind in ("auto", *KINDS):
            try:
                if kind != "simplicits":
                    _bind(config, kind, small)
                start = time.perf_counter()
                field = _bind(config, kind, domain)
                bound = time.perf_counter()
                field.evaluate(subject.frame.to_sim(splats.means))
                seconds = (sampling, bound - start, time.perf_counter() - bound)
                rows.append({"field": kind} | dict(zip(STAGES, seconds, strict=True)))
            except (InputError, ImportError) as error:
                rows.append({"field": kind, "error": str(error)})
            tick()
    return rows, _table(rows, len(domain.cells))


def _table(rows: list[dict[str, object]], voxels: int) -> str:
    lines = [
        f"\n## From {SPLATS:,} splats to a bound field ({voxels:,} voxels), seconds\n",
        "| field | sample | bind | weights and gradients at all splats | together |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        times = [t for stage in STAGES if isinstance(t := row.get(stage), float)]
        cells = [f"{t:.2f}" for t in (*times, sum(times))] if times else ["-"] * (len(STAGES) + 1)
        lines.append(f"| {row['field']} | {' | '.join(cells)} |")
    return "\n".join(lines)
