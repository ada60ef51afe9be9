"""Elastic motion on top of a rig's clip: from an actor to its elastic coordinates in every frame of the film."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from splatanim.data import Cubature, Frame, Material, Splats
from splatanim.errors import InputError

if TYPE_CHECKING:
    from pipelines.rigged import Actor, RiggedConfig
    from splatanim.dynamics.newton import Term
    from splatanim.dynamics.reduced import ReducedModel
    from splatanim.rig.animation import Animation
    from splatanim.rig.elastic import ElasticMotion, ElasticSplats

MATERIAL = "flesh"
LONGEST_STEP = 1.0 / 60.0  # s
_LONGEST_RUN_UP = 3.0  # s of a clip played before the film begins
_POSES = 24  # of a clip, in which the rig's own strain is measured
_CYCLIC = 0.03  # of the size: how near to its start a clip must end to go round


@dataclass(frozen=True)
class Body:
    """An actor's inside: integration points, the bones' weights there, the raw field and the place in the simulator.

    ``joints`` are those of the skeleton that move some of it.
    """

    actor: Actor
    frame: Frame
    cubature: Cubature
    bones: Any
    joints: np.ndarray
    field: Any


@dataclass(frozen=True)
class Elastic:
    """A simulated actor: what poses its splats, its motion in the film's frames, and what to say about it."""

    body: Body
    model: ReducedModel
    bound: ElasticSplats
    motion: ElasticMotion
    first: int
    notes: tuple[str, ...]

    @property
    def coordinates(self) -> Float64[np.ndarray, "t n"]:
        """y in every frame of the film."""
        return self.motion.coordinates[self.first :]

    def move(self, frame: int, joints: Float64[np.ndarray, "j 4 4"]) -> Splats:
        """The splats in a frame of the film: what :func:`pipelines.rigged.film_actor` asks for."""
        from splatanim.rig.elastic import pose_elastic

        return pose_elastic(self.bound, joints, self.coordinates[frame])

    def displacements(self) -> Float64[np.ndarray, "t n 3"]:
        """N y at the splats in every frame, in units of the object's longest side."""
        shape = self.bound.shape / self.model.size
        return np.stack([shape @ y.reshape(3, -1).T for y in self.coordinates]).astype(np.float64)


def chosen_material(config: RiggedConfig) -> Material:
    """The preset, with whatever the user overrides."""
    from splatanim.dynamics.materials import preset

    changes = {key: getattr(config, key) for key in ("young", "poisson", "density") if getattr(config, key) is not None}
    return dataclasses.replace(preset(MATERIAL if config.material == "auto" else config.material), **changes)


def check_elastic(config: RiggedConfig) -> None:
    """Raises InputError for a material that there is not, and for elastic options out of range."""
    chosen_material(config)
    if not 0.0 <= config.leak <= 1.0:
        raise InputError(f"--leak {config.leak:g}: a number from 0 to 1 is needed.")
    if config.functions < 1:
        raise InputError(f"--functions {config.functions}: at least one is needed (48 is usual).")
    if not 0 < config.object_size < 1e6:
        raise InputError(f"--object-size {config.object_size:g}: a positive number of metres is needed.")


def inside_of(actor: Actor, *, object_size: float = 1.0, points: int = 1024, raw: int = 0, seed: int = 0) -> Body:
    """The inside of an actor's splats. ``raw`` fields, or as many as its bones need where that is 0."""
    from splatanim.field.eigenmodes import bind_eigenmodes
    from splatanim.rig.bone_field import bone_field
    from splatanim.sampling.cubature import cubature_from_splats

    splats = actor.rigged.splats
    low, high = splats.means.min(axis=0).astype(np.float64), splats.means.max(axis=0).astype(np.float64)
    frame = Frame(tuple((0.5 * (low + high)).tolist()), object_size / float((high - low).max()), actor.up)
    cubature = cubature_from_splats(splats, frame, count=points, seed=seed)
    bones, joints = bone_field(cubature.domain, frame.to_sim(splats.means), actor.rigged.skin)
    modes = raw or int(np.clip(2 * len(joints) + 16, 64, 128))
    field = bind_eigenmodes(cubature.domain, min(modes, len(cubature.domain.cells) // 8))
    return Body(actor, frame, cubature, bones, joints, field)


def elastic_model(
    body: Body, motion: Callable[[float], np.ndarray], material: Material, *, functions: int = 48
) -> ReducedModel:
    """The complementary model under skinning transforms (j, 4, 4) of file coordinates, ``motion(t)``."""
    from splatanim.rig.complementary import BoneHandles, bone_displacements, complementary_model

    centre = np.asarray(body.frame.centre)

    def displaced(time: float) -> np.ndarray:
        transforms = body.actor.rigged.local(motion(time))[body.joints]
        return bone_displacements(transforms, centre, body.frame.scale)

    handles = BoneHandles(body.field, bones=body.bones, motion=displaced)
    return complementary_model(body.cubature, handles, material, count=functions)


def simulate_actor(
    config: RiggedConfig, actor: Actor, clip: Animation, frames: int, on_frame: Callable[[int], None] = lambda _k: None
) -> Elastic:
    """The elastic motion of a film of ``frames`` frames, after a run-up where the clip goes round."""
    from splatanim.dynamics.simulate import Settings
    from splatanim.rig.elastic import bind_elastic, simulate_on_rig
    from splatanim.rig.skeleton import skin_transforms

    material = chosen_material(config)
    body = inside_of(actor, object_size=config.object_size, seed=config.seed)
    round_, notes = _goes_round(actor, clip), []
    first = int(np.ceil(clip.duration * config.fps)) if round_ and clip.duration <= _LONGEST_RUN_UP else 0
    if not round_ and frames / config.fps > clip.duration + 1.0 / config.fps:
        notes.append("the clip does not end where it starts: its repetition jolts the elastic motion.")

    def motion(time: float) -> np.ndarray:
        at = clip_time(clip, time - first / config.fps)
        return skin_transforms(actor.model.skeleton, clip.sample(at))

    model = elastic_model(body, motion, material, functions=config.functions)
    terms = flesh_terms(model, clip.duration, config.leak)
    substeps = max(1, int(np.ceil(1.0 / (config.fps * LONGEST_STEP) - 1e-9)))
    settings = Settings(first + frames, config.fps, substeps, integrator="bdf2")
    moved = simulate_on_rig(model, settings, terms, on_frame=on_frame)
    if not np.isfinite(moved.coordinates).all():
        raise InputError("The elastic motion is not finite: the material is far too soft for this motion. Stiffen it.")
    failed = [report for report in moved.reports if not report.converged]
    if failed:
        notes.append(f"{len(failed)} of {len(moved.reports)} steps did not converge: {failed[0].reason}.")
    return Elastic(body, model, bind_elastic(actor.rigged, body.frame, model), moved, first, tuple(notes))


def flesh_terms(model: ReducedModel, duration: float, leak: float) -> list[Term]:
    """What acts on an actor's flesh: elasticity and damping, softened where the rig tears, and the rig's inertia."""
    from splatanim.dynamics.damping import RayleighDamping
    from splatanim.dynamics.dilation import AveragedElasticity
    from splatanim.rig.elastic import RigInertia, flesh_stiffness

    stiffness = flesh_stiffness(model, np.linspace(0.0, duration, _POSES, endpoint=False))
    alpha, beta = model.material.damping_mass, model.material.damping_stiffness
    damping = [RayleighDamping(model, alpha, beta, stiffness)] if alpha or beta else []
    return [AveragedElasticity(model, stiffness), RigInertia(model, leak), *damping]


def clip_time(clip: Animation, time: float) -> float:
    """The time within a clip that repeats, as :func:`pipelines.rigged.frame_times` has it."""
    length = clip.duration
    return clip.start + (float(np.mod(time, length)) if length > 0 else 0.0)


def _goes_round(actor: Actor, clip: Animation) -> bool:
    """Whether a clip ends where it starts."""
    from splatanim.rig.skeleton import skin_transforms
    from splatanim.rig.skinning import blend_points

    rows = np.arange(0, len(actor.rigged.splats), max(1, len(actor.rigged.splats) // 1000))
    points, skin = actor.rigged.splats.means[rows].astype(np.float64), actor.rigged.skin.select(rows)
    ends = skin_transforms(actor.model.skeleton, clip.sample(np.array([clip.start, clip.end])))
    a, b = (blend_points(points, skin, actor.rigged.local(end)) for end in ends)
    return float(np.linalg.norm(a - b, axis=1).max()) < _CYCLIC * float(np.ptp(points, axis=0).max())


def figures(elastic: Elastic) -> dict[str, Any]:
    """What happened, for the report: complementarity, how far the flesh moves by itself, and how the solver did."""
    from splatanim.rig.complementary import complementarity, rig_share

    model, moved = elastic.model, elastic.motion
    size = np.linalg.norm(elastic.displacements(), axis=2)
    iterations = [report.iterations for report in moved.reports] or [0]
    return {
        "inside": elastic.body.cubature.method,
        "material": dataclasses.asdict(model.material),
        "bones": len(elastic.body.joints),
        "raw_fields": elastic.body.field.handles,
        "functions": model.dof // 3,
        "complementarity": complementarity(model),
        "rig_share": max(rig_share(model, y) for y in elastic.coordinates),
        "extra_motion_max": float(size.max()),
        "extra_motion_p95": float(np.quantile(size, 0.95)),
        "converged_fraction": moved.converged_fraction,
        "newton_mean": float(np.mean(iterations)),
        "steps": len(moved.reports),
        "ms_per_step_median": float(np.median(moved.milliseconds)) if len(moved.milliseconds) else 0.0,
    }


def in_words(found: dict[str, Any]) -> str:
    """:func:`figures` as one line."""
    return (
        f"elastic ({found['material']['name']}): moves by up to {100 * found['extra_motion_max']:.1f} % of the size "
        f"beside the rig, {100 * found['rig_share']:.1g} % of that as the rig could; "
        f"{100 * found['converged_fraction']:.0f} % of {found['steps']} steps converged, "
        f"{found['newton_mean']:.1f} Newton iterations and {found['ms_per_step_median']:.0f} ms each"
    )
