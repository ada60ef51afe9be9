"""``splatanim animate scene.toml``: what the command line changes in a scene file, and ``--scene-schema``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from pipelines.animate import AnimateConfig
from pipelines.progress import Progress
from pipelines.scene_parse import read_scene
from splatanim.dynamics import scene as spec
from splatanim.dynamics.scene import Scene
from splatanim.errors import InputError

_OVERRIDES = (
    "output",
    "seconds",
    "fps",
    "size",
    "camera",
    "background",
    "stage",
    "export",
    "report",
    "seed",
    "backend",
)
_TABLES = (
    ("top", "Keys at the top of the file, before the first table", Scene),
    ("objects", "[[objects]]: what physics moves, one table each", spec.SceneObject),
    ("pins", "[[objects.pins]]: parts of the object above that are held or moved along", spec.Pin),
    ("drags", "[[objects.drags]]: parts of the object above that are pulled and let go", spec.Drag),
    ("stiffness", "[[objects.stiffness]]: parts of the object above that are stiffer or softer", spec.Stiffness),
    ("scenery", "[[scenery]]: what is drawn and touched, and stands or moves as prescribed", spec.Scenery),
    ("planes", "[[planes]]: floors, ramps and plates", spec.Plane),
    ("motion", "motion = { ... } of pins, drags, scenery and planes", spec.Motion),
    ("winds", "[[winds]]: moving air", spec.Wind),
    ("camera", "[camera]", spec.View),
    ("output", "[output]", spec.Output),
)


def animate_scene_file(config: AnimateConfig, progress: Progress) -> str:
    """Read, animate and report a scene file; options given beside it win over what it says."""
    from pipelines.scene_run import animate_scene, scene_summary

    assert config.scene is not None
    source = read_scene(config.scene)
    given = options_given(config)
    scene = overridden(source.scene, config, given)
    film = config.output or scene.output.film or config.scene.with_suffix(".mp4")
    with source.located():
        result = animate_scene(scene, film, backend=config.backend, progress=progress)
    return scene_summary(result)


def options_given(config: AnimateConfig) -> set[str]:
    """The options that were given: named on the command line, or (from Python) other than the default.

    Raises :class:`InputError` for one that says nothing about a scene file.
    """
    fields = {f.name: f for f in dataclasses.fields(config)}
    given = set(config.given) | {
        name
        for name, f in fields.items()
        if name not in ("scene", "given", "scene_schema") and getattr(config, name) != f.default
    }
    for name in sorted(given):
        if name not in _OVERRIDES:
            flag = "--" + name.replace("_", "-")
            raise InputError(
                f"{flag} is for one capture; in a scene file each object says so itself. Set it in {config.scene}. "
                f"Beside a scene file there are: {', '.join('--' + option for option in _OVERRIDES)}."
            )
    return given


def overridden(scene: Scene, config: AnimateConfig, given: set[str]) -> Scene:
    """The scene with what the command line says instead."""
    from pipelines.cameras import parse_colour, parse_size
    from pipelines.film import TRANSPARENT, parse_exports

    top: dict[str, Any] = {name: getattr(config, name) for name in ("seconds", "fps", "seed") if name in given}
    output: dict[str, Any] = {}
    if "size" in given:
        parse_size(config.size)
        output["size"] = config.size
    if "background" in given:
        output["transparent"] = config.background == TRANSPARENT
        if config.background != TRANSPARENT:
            output["background"] = parse_colour(config.background)
    if "stage" in given:
        output["stage"] = config.stage
    if "report" in given and config.report is not None:
        output["report"] = str(config.report)
    output |= {kind: str(path) for kind, path in parse_exports(config.export)}
    if "camera" in given:
        top["camera"] = dataclasses.replace(scene.camera, path=config.camera)
    for name in ("seconds", "fps"):
        if name in top and not 0 < top[name] < 1e6:
            raise InputError(f"--{name} {top[name]:g}: a positive number is needed.")
    return dataclasses.replace(scene, output=dataclasses.replace(scene.output, **output), **top)


def schema_tables() -> str:
    """Every table and key of scene files, from the dataclasses' docstrings, as Markdown."""
    lines: list[str] = []
    for _, title, cls in _TABLES:
        lines += [f"### {title}", "", "| key | value | what |", "| --- | --- | --- |"]
        lines += [f"| `{key}` | {kind} | {text} |" for key, kind, text in keys_of(cls)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def keys_of(cls: type) -> list[tuple[str, str, str]]:
    """(key, kind with its default, description) of a scene dataclass, in order. Each must be described."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        texts |= _described(base.__doc__ or "") if dataclasses.is_dataclass(base) else {}
    hints = get_type_hints(cls)
    out = []
    for f in dataclasses.fields(cls):
        if f.name not in texts:
            raise AssertionError(f"{cls.__name__}.{f.name} has no description in its docstring")
        out.append((f.name, _kind(hints[f.name], f), texts[f.name]))
    return out


def _described(doc: str) -> dict[str, str]:
    """The ``Args:`` of a docstring."""
    texts: dict[str, str] = {}
    key = ""
    for line in doc.partition("Args:")[2].splitlines():
        stripped = line.strip()
        name, colon, text = stripped.partition(": ")
        if line.startswith("        ") and not line.startswith("         ") and colon and name.isidentifier():
            key = name
            texts[key] = text
        elif stripped and key:
            texts[key] += f" {stripped}"
    return texts


def _kind(hint: Any, field: dataclasses.Field) -> str:
    """``number, 1.0`` and the like."""
    default = field.default if field.default is not dataclasses.MISSING else None
    arguments = [a for a in get_args(hint) if a is not type(None)]
    optional = type(None) in get_args(hint)
    core = arguments[0] if optional and len(arguments) == 1 else hint
    words = {float: "number", int: "whole number", str: "text", bool: "true or false"}
    inner = get_args(core)
    if core in words:
        kind = words[core]
    elif get_origin(core) is tuple and Ellipsis in inner:
        kind = "tables" if dataclasses.is_dataclass(inner[0]) else ("numbers" if inner[0] is float else "list of 3s")
    elif get_origin(core) is tuple:
        kind = f"{len(inner)} numbers"
    elif dataclasses.is_dataclass(core):
        kind = "table"
    else:
        kind = "text"
    if isinstance(default, bool):
        return f"{kind}, {str(default).lower()}"
    if isinstance(default, (int, float)) or (isinstance(default, str) and default):
        return f"{kind}, {default:g}" if isinstance(default, float) else f"{kind}, {default}"
    if isinstance(default, tuple) and default and isinstance(default[0], float):
        return f"{kind}, {', '.join(f'{v:g}' for v in default)}"
    return kind


def documentation(text: str) -> str:
    """A page of docs with its key tables made anew between the two marks."""
    start, end = "<!-- keys -->\n", "<!-- end of keys -->"
    head, _, rest = text.partition(start)
    _, _, tail = rest.partition(end)
    return f"{head}{start}\n{schema_tables()}\n{end}{tail}"


if __name__ == "__main__":  # python -m pipelines.scene_verb docs/scenes.md
    import sys

    page = Path(sys.argv[1])
    page.write_text(documentation(page.read_text(encoding="utf-8")), encoding="utf-8")
