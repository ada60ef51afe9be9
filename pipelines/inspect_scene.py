"""``splatanim inspect``: what a capture holds, and what ``animate`` would do with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from pipelines.animate import prepare
from splatanim.inspect import Inspection


@dataclass(frozen=True)
class InspectConfig:
    """Say what a capture holds and what animate would do with it.

    Args:
        scene: The .ply to look at, or a PAPR asset (*.papr.safetensors).
        json: Print JSON with stable keys instead of text.
        up: Which way is up, where file and convention are wrong: +y, -y, +z, -z, +x or -x.
    """

    scene: Positional[Path]
    json: bool = False
    up: str = "auto"


def inspect_scene(config: InspectConfig) -> str:
    """The report as text or JSON."""
    if config.scene.name.lower().endswith(".papr.safetensors"):
        from pipelines.render_papr import inspect_asset

        return inspect_asset(config.scene, as_json=config.json)
    from splatanim.formats import read_splats
    from splatanim.sampling.cubature import cubature_from_splats

    subject = prepare(read_splats(config.scene), config.up, 1.0, config.scene)
    cubature = cubature_from_splats(subject.splats, subject.frame)
    plan = {"animates": len(subject.splats), "inside": cubature.method, "metres_per_unit": subject.frame.scale}
    if config.json:
        return json.dumps({**subject.inspection.to_json(), "plan": plan}, indent=2)
    return "\n".join([*_lines(subject.inspection), f"  animate   {plan['animates']} splats; {plan['inside']}"])


def _lines(found: Inspection) -> list[str]:
    low, high = found.bounds
    dropped = ", ".join(f"{count} {reason}" for reason, count in found.dropped.items()) or "none"

    def triple(values: tuple[float, float, float]) -> str:
        return " ".join(f"{value:.4g}" for value in values)

    return [
        f"{found.file}: {found.format}",
        f"  splats    {found.splats} rows, {found.kept} kept; dropped: {dropped}",
        f"  colour    SH degree {found.sh_degree}",
        f"  bounds    {triple(low)} to {triple(high)}, longest side {found.size:.4g}",
        f"  up        {found.up} ({found.up_source})",
        f"  floaters  {found.floaters}; needles {found.needles}",
        f"  opacity   5/50/95 %: {triple(found.opacity_quantiles)}",
        f"  scale     5/50/95 %: {triple(found.scale_quantiles)}",
        *(f"  note      {note}" for note in found.warnings),
    ]
