"""Evaluation sets that ``bench fit`` makes for itself: other characters, travelling clips, clips that no fit saw."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.fit_cases import Case, read_case
from pipelines.fit_measures import Method
from pipelines.progress import Progress
from splatanim.errors import InputError
from splatanim.render.camera import Camera

if TYPE_CHECKING:
    from pipelines.evaluate_rigpapr import EvaluateFitConfig
    from rigpapr.quality import Lpips

_VIEWS, _SIZE = 32, 256
_SAME_LOOK = 30.0  # dB: a set's own first frame, drawn again, must come this near


@dataclass(frozen=True)
class Character:
    """A rigged file of the data, the clip that is fitted, another one for novel poses, and how far it goes."""

    name: str
    model: str
    clip: str
    other: str = ""
    travel: str = "clip"
    frames: int = 16


NOVEL_POSE = (
    Character("fox_walk", "rigged/fox_textured.glb", "Walk", "Run"),
    Character("wolf_walk", "rigged/wolf.glb", "Walk", "Gallop"),
    Character("stag_walk", "rigged/stag.glb", "Walk", "Gallop"),
)
TRAVELLING = (
    Character("horse_travels", "rigged/horse.glb", "Walk", travel="1.0"),
    Character("fox_travels", "rigged/fox_textured.glb", "Walk", travel="1.0"),
)


def chosen(config: EvaluateFitConfig, all_: tuple[Character, ...]) -> list[Character]:
    """The characters asked for by name. Raises InputError for others."""
    known = {character.name: character for character in all_}
    unknown = [name for name in config.subjects if name not in known]
    if unknown:
        raise InputError(f"bench fit: this study has no subject {unknown[0]!r}; it has {', '.join(known)}.")
    return [known[name] for name in config.subjects or known]


def made_case(config: EvaluateFitConfig, character: Character, progress: Progress) -> Case:
    """A character's set and asset, made once, read as a case."""
    from pipelines.reconstruct import ReconstructConfig, reconstruct
    from pipelines.synth import SynthConfig, synth

    source = (config.rigs or config.folder.parent) / character.model
    if not source.is_file():
        raise InputError(f"{source}: no such file. Give the folder that holds {character.model} with --rigs.")
    folder, asset = (
        config.output / "sets" / character.name,
        config.output / "sets" / f"{character.name}.papr.safetensors",
    )
    folder.parent.mkdir(parents=True, exist_ok=True)
    if not (folder / "video.json").is_file():
        plan = SynthConfig(
            source,
            folder,
            character.clip,
            frames=character.frames,
            views=_VIEWS,
            size=_SIZE,
            travel=character.travel,
            seed=config.seed,
        )
        synth(plan, progress)
    if not asset.is_file():
        reconstruct(
            ReconstructConfig(folder, asset, seconds=config.train_seconds, steps=config.train_steps, seed=config.seed),
            progress,
        )
    case = read_case(config, folder, asset, folder / "rig.glb", placed=False)
    return dataclasses.replace(case, name=character.name)


@dataclass(frozen=True)
class NovelFrames:
    """Frames of another clip from the set's novel cameras: ``rgb`` [t][camera] over white and ``masks``."""

    cameras: tuple[Camera, ...]
    rgb: tuple[tuple[np.ndarray, ...], ...]
    masks: tuple[tuple[np.ndarray, ...], ...]
    fps: float

    def __len__(self) -> int:
        return len(self.rgb)

    def film(self, method: Method, path: Path) -> None:
        """Truth above, the method below, two cameras side by side."""
        from splatanim.render.video import VideoWriter

        with VideoWriter(path, fps=max(self.fps / 2, 1.0)) as film:
            for k in range(len(self)):
                draw = method(k)
                above = np.concatenate(self.rgb[k][:2], axis=1)
                below = np.concatenate([draw(camera).clip(0, 1) for camera in self.cameras[:2]], axis=1)
                film.write(np.concatenate([above, below]).astype(np.float32))


def novel_frames(case: Case, rig: Path, clip: str, count: int, *, seed: int = 0) -> NovelFrames:
    """Draw ``count`` frames, evenly over another clip of a set's own ``rig.glb``, in the set's place, look and light.

    Raises InputError where the set's first frame, drawn the same way, does not look like the set's picture.
    """
    from pipelines.synth import SynthConfig
    from pipelines.synth_look import Look, Painter
    from splatanim.metrics import psnr
    from splatanim.rig.gltf import read_gltf
    from splatanim.rig.skeleton import skin_transforms

    model = read_gltf(rig)
    defaults = SynthConfig(rig, rig.parent)
    light = (defaults.ambient, *defaults.light)
    painter = Painter(model, (0.0, 1.0, 0.0), Look(light, defaults.pattern, defaults.samples, seed))

    def draw(transforms: np.ndarray, camera: Camera) -> tuple[np.ndarray, np.ndarray]:
        rgba = painter.draw(painter.pose(transforms), camera).rgba.astype(np.float32) / 255
        return rgba[..., :3] * rgba[..., 3:] + 1 - rgba[..., 3:], rgba[..., 3] > 0.5

    with np.load(case.folder / "video_rig.npz") as file:
        first = file["skin_transforms"][0].astype(np.float64)
    near = psnr(draw(first, case.clip.camera)[0], case.clip.picture(0))
    if near < _SAME_LOOK:
        raise InputError(f"{case.folder}: its first frame drawn again differs ({near:.1f} dB). Make the set again.")
    other = model.clip(clip)
    fps = count / other.duration
    times = other.start + np.arange(count) / fps
    cameras = tuple(case.truth.cameras.values())
    drawn = [
        [draw(transforms, c) for c in cameras] for transforms in skin_transforms(model.skeleton, other.sample(times))
    ]
    return NovelFrames(
        cameras,
        tuple(tuple(rgb for rgb, _ in row) for row in drawn),
        tuple(tuple(mask for _, mask in row) for row in drawn),
        fps,
    )


def novel_quality(frames: NovelFrames, method: Method, lpips: Lpips | None) -> dict[str, Any]:
    """Mean over all frames and cameras."""
    from rigpapr.quality import image_quality, mean_quality

    found = []
    for k in range(len(frames)):
        draw = method(k)
        for camera, rgb, mask in zip(frames.cameras, frames.rgb[k], frames.masks[k], strict=True):
            found.append(image_quality(draw(camera), rgb, mask, lpips))
    return dataclasses.asdict(mean_quality(found))
