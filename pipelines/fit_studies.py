"""The studies of ``splatanim bench fit``: each takes a case to its rows, and keeps them so that a study resumes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.fit_cases import Case, Chain, fitted, plan_for
from pipelines.fit_measures import (
    Method,
    cloud_method,
    geometry,
    pictures,
    sheet,
    side_by_side,
    splat_method,
    still_method,
)

if TYPE_CHECKING:
    from pipelines.evaluate_rigpapr import EvaluateFitConfig
    from rigpapr.baselines import MeshSplats, SkinnedSplats
    from rigpapr.fitted import FittedAsset
    from rigpapr.follow import Attachment
    from rigpapr.quality import Lpips
    from splatanim.data import Splats

Row = dict[str, Any]
FULL = Chain("full")
NO_DEPTH = Chain("nodepth", depth=False)


class Bench:
    """One subject under study: what its rows need is made when it is first asked for."""

    def __init__(self, config: EvaluateFitConfig, case: Case, lpips: Lpips | None = None) -> None:
        self.config, self.case, self.lpips = config, case, lpips
        self._attached: Attachment | None = None
        self._splats: Splats | None = None

    @property
    def attached(self) -> Attachment:
        """The cloud's points on the true surface at rest."""
        from pipelines.papr_reposing import attach_cloud

        if self._attached is None:
            self._attached = attach_cloud(self.case.cloud, self.case.truth)
        return self._attached

    @property
    def splats(self) -> Splats:
        """Flat splats under the true surface, colours fitted to the training views."""
        from pipelines.papr_reposing import surface_splats
        from rigpapr.dataset import read_dataset

        if self._splats is None:
            self._splats = surface_splats(self.case.truth, read_dataset(self.case.folder))
        return self._splats

    def skinned(self, asset: FittedAsset) -> SkinnedSplats:
        from rigpapr.baselines import skin_splats

        return skin_splats(self.splats, asset)

    def on_mesh(self, asset: FittedAsset) -> MeshSplats:
        from rigpapr.baselines import bind_to_mesh
        from rigpapr.follow import attach, closest_in_triangles

        mesh = self.case.truth.mesh
        points = self.splats.means.astype(np.float64)
        face = attach(points, mesh).faces[:, 0]
        places, _ = closest_in_triangles(points, mesh.vertices[mesh.faces[face]][:, None])
        return bind_to_mesh(self.splats, mesh, face, places[:, 0], asset, self.case.rig)

    def row(self, study: str, name: str, make: Callable[[], Row]) -> Row:
        """A row, kept in ``rows/`` of the output with what it was made with."""
        mark = {
            "frames": len(self.case.clip),
            "points": len(self.case.cloud),
            "plan": repr(plan_for(self.config, FULL)),
            "tracks": self.config.tracks,
            "lpips": str(self.config.lpips),
        }
        path = self.config.output / "rows" / f"{study}_{self.case.name}_{name.replace(' ', '-')}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept.get("mark") == mark:
                return kept["row"]
        row = {"subject": self.case.name, "row": name, **make()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"mark": mark, "row": row}, indent=1), encoding="utf-8")
        return row

    def measured(self, chain: Chain, stage: str) -> Row:
        """All figures of one fit."""
        asset, seconds = fitted(self.config, self.case, chain, stage)[stage]
        found = pictures(self.case, cloud_method(asset), self.lpips)
        return {**found, **geometry(self.case, asset, self.attached), "seconds": seconds}


def main_study(bench: Bench) -> list[Row]:
    """Table 1 and 3: ours and its stages, splats on the same motion, no motion, and descent on colours alone."""
    config, case = bench.config, bench.case
    full = lambda: fitted(config, case, FULL)["two"][0]  # noqa: E731
    rows = [
        bench.row("main", "ours", lambda: bench.measured(FULL, "two")),
        bench.row("main", "ours, phase 1", lambda: bench.measured(FULL, "one")),
        bench.row("main", "ours, coarse tracker", lambda: bench.measured(FULL, "coarse")),
    ]

    def splats(bind: Callable[[FittedAsset], SkinnedSplats | MeshSplats]) -> Row:
        asset = full()
        return pictures(case, splat_method(bind(asset), asset.maps()), bench.lpips)

    rows.append(bench.row("main", "splats, skinned", lambda: splats(bench.skinned)))
    rows.append(bench.row("main", "splats on the mesh", lambda: splats(bench.on_mesh)))
    rows.append(bench.row("main", "static", lambda: pictures(case, still_method(case.cloud), bench.lpips)))
    rows.append(bench.row("main", "photometric only", lambda: _photometric(bench)))
    film = config.output / f"{case.name}_main.mp4"
    if config.films and not film.is_file():
        asset = full()
        methods: dict[str, Method] = {
            "ours": cloud_method(asset),
            "skinned": splat_method(bench.skinned(asset), asset.maps()),
            "mesh": splat_method(bench.on_mesh(asset), asset.maps()),
            "static": still_method(case.cloud),
        }
        side_by_side(case, methods, film)
        count = len(case.clip)
        sheet(case, methods, sorted({count // 4, count // 2, count - 1}), film.with_suffix(".png"))
    return rows


def _photometric(bench: Bench) -> Row:
    import time

    from rigpapr.baselines import photometric_only

    start = time.process_time()
    plan = plan_for(bench.config, FULL)
    asset = photometric_only(bench.case.cloud, bench.case.rig, bench.case.clip, config=plan)
    seconds = time.process_time() - start
    found = pictures(bench.case, cloud_method(asset), bench.lpips)
    return {**found, **geometry(bench.case, asset, bench.attached), "seconds": seconds}


def ablation_study(bench: Bench) -> list[Row]:
    """Table 2: without depth in tracker and phases, phase 1 alone, and all."""
    rows = []
    for name, chain, stage in (
        ("no depth, phase 1", NO_DEPTH, "one"),
        ("no depth, both phases", NO_DEPTH, "two"),
        ("phase 1", FULL, "one"),
        ("full", FULL, "two"),
    ):
        rows.append(bench.row("ablations", name, lambda c=chain, s=stage: bench.measured(c, s)))  # type: ignore[misc]
    return rows


def weight_study(bench: Bench) -> list[Row]:
    """The depth weight of both phases a third and three times as large (appendix C)."""
    rows = []
    for name, chain in (
        ("depth x 1/3", Chain("depth_third", depth_weight=1 / 3)),
        ("depth x 1", FULL),
        ("depth x 3", Chain("depth_triple", depth_weight=3.0)),
    ):
        rows.append(bench.row("weights", name, lambda c=chain: bench.measured(c, "two")))  # type: ignore[misc]
    return rows


def rig_study(bench: Bench) -> list[Row]:
    """The given rig against the auto-rigger's."""
    return [
        bench.row("auto-rig", "given rig", lambda: bench.measured(FULL, "two")),
        bench.row("auto-rig", "auto rig", lambda: bench.measured(Chain("auto", auto_rig=True), "two")),
    ]


def travel_study(bench: Bench) -> list[Row]:
    """A subject that crosses the picture: ours by stages, and no motion."""
    case = bench.case
    return [
        bench.row("travelling", "ours", lambda: bench.measured(FULL, "two")),
        bench.row("travelling", "ours, coarse tracker", lambda: bench.measured(FULL, "coarse")),
        bench.row("travelling", "static", lambda: pictures(case, still_method(case.cloud), bench.lpips)),
    ]


def pose_study(bench: Bench, rig: Any, clip: str) -> list[Row]:
    """A clip that was not fitted (``rig`` holds it), by the fitted weights and the rig's own motion: ours, and splats
    with the same weights or on the rig's mesh; beside the fitted clip's own rows."""
    from pipelines.fit_sets import novel_frames, novel_quality
    from rigpapr.posing import read_clip_for

    config, case = bench.config, bench.case

    def driven(kind: str) -> Row:
        asset = fitted(config, case, FULL)["two"][0]
        frames = novel_frames(case, rig, clip, config.pose_frames, seed=config.seed)
        motion = read_clip_for(asset, rig, clip=clip, fps=frames.fps)
        maps = motion.maps[: len(frames)]
        methods: dict[str, Callable[[], Method]] = {
            "ours": lambda: cloud_method(asset, maps),
            "splats, skinned": lambda: splat_method(bench.skinned(asset), maps),
            "splats on the mesh": lambda: splat_method(bench.on_mesh(asset), maps),
            "static": lambda: still_method(case.cloud),
        }
        method = methods[kind]()
        if kind == "ours" and config.films:
            frames.film(method, config.output / f"{case.name}_novel_pose.mp4")
        return {"novel": novel_quality(frames, method, bench.lpips)}

    rows = [bench.row("novel-pose", "fitted clip", lambda: bench.measured(FULL, "two"))]
    for kind in ("ours", "splats, skinned", "splats on the mesh", "static"):
        rows.append(bench.row("novel-pose", f"{clip}, {kind}", lambda k=kind: driven(k)))  # type: ignore[misc]
    return rows
