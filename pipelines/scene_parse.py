"""Scene files: TOML to the dataclasses of :mod:`splatanim.dynamics.scene`, with errors that name line and key."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import math
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from pipelines.scene_lines import Lines
from pipelines.scene_lines import Path as Keys
from splatanim.dynamics.scene import Scene, SceneError
from splatanim.errors import InputError

_SINGULAR = {"objects": "object", "planes": "plane", "winds": "wind", "pins": "pin", "drags": "drag"}
_OUTPUTS = ("film", "ply", "npz", "report")


@dataclass(frozen=True)
class SceneFile:
    """A scene and where it came from, so that whatever is wrong with it later can be said with its line."""

    scene: Scene
    path: Path
    lines: Lines
    table: dict[str, Any]

    @contextmanager
    def located(self) -> Iterator[None]:
        """Gives every :class:`SceneError` of the block (``key`` a dotted path) the file, the line and the part."""
        try:
            yield
        except SceneError as error:
            raise self.error(_keys(error), error.message) from error

    def error(self, keys: Keys, message: str, owner: Keys | None = None) -> InputError:
        """The error of a value at ``keys``, said of the part at ``owner`` (that which holds the value)."""
        part = _owner(self.table, keys if owner is None else owner)
        return InputError(f"{self.path}:{self.lines.line(keys)}: {part}{message}")


def read_scene(path: Path) -> SceneFile:
    """Read a scene file. Paths in it are relative to it and are returned as found from here.

    Raises :class:`InputError` that names the file, the line, the part of the scene and the key, where a key is unknown
    (with the nearest that is known), a value has a wrong type or cannot be, or a file is missing.
    """
    text = _text(path)
    table = _toml(path, text)
    source = SceneFile(Scene.__new__(Scene), path, Lines(text), table)
    if not isinstance(table.get("objects", []), list):
        raise source.error(("objects",), "objects must be a list; write [[objects]] with two brackets.")
    scene = _build(Scene, table, (), source)
    scene = _found_from_here(scene, source)
    return dataclasses.replace(source, scene=scene)


def _keys(error: SceneError) -> Keys:
    return tuple(int(part) if part.isdigit() else part for part in error.key.split(".") if part)


def _text(path: Path) -> str:
    from splatanim.formats.base import first_bytes

    first_bytes(path, 1)  # names a missing or empty file
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not a text file in UTF-8 ({error.reason} at byte {error.start}).") from None


def _toml(path: Path, text: str) -> dict[str, Any]:
    tomllib: Any = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = place.group(1) if place else str(len(text.splitlines()))
        reason = re.sub(r" \(at .*\)$", "", str(error))
        raise InputError(f"{path}:{line}: this is not TOML: {reason[0].lower()}{reason[1:]}.") from None


def _build(cls: type, table: dict[str, Any], keys: Keys, source: SceneFile) -> Any:
    """A dataclass from a table; every field by its type."""
    hints = get_type_hints(cls)
    for key in table:
        if key not in hints:
            near = difflib.get_close_matches(key, hints, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f". There are: {', '.join(hints)}."
            raise source.error((*keys, key), f"unknown key {key!r}{hint}", keys)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values = {}
    for key, value in table.items():
        endless = fields[key].default == math.inf
        values[key] = _value(value, hints[key], (*keys, key), source, endless)
    for name, f in fields.items():
        needed = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if needed and name not in values:
            raise source.error(keys, f"the key {name!r} is missing.")
    try:
        return cls(**values)
    except SceneError as error:
        raise source.error((*keys, *_keys(error)), error.message) from None


def _value(value: Any, hint: Any, keys: Keys, source: SceneFile, endless: bool = False) -> Any:
    """A value by the type it should have; raises with what it is instead."""
    name = next(str(key) for key in reversed(keys) if isinstance(key, str))
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        (hint,) = (kind for kind in get_args(hint) if kind is not type(None))
        return _value(value, hint, keys, source, endless)
    if origin is Literal:
        choices = [choice for choice in get_args(hint) if choice]
        if value not in choices:
            near = difflib.get_close_matches(str(value), choices, n=1)
            hint_text = f" Did you mean {near[0]!r}?" if near else ""
            raise source.error(keys, f"{name} is {value!r}; it must be one of {', '.join(choices)}.{hint_text}")
        return value
    if origin is tuple:
        return _list(value, get_args(hint), keys, source)
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            raise source.error(keys, f"{name} must be a table {{ key = value, ... }}, not {_kind(value)}.")
        return _build(hint, value, keys, source)  # type: ignore[arg-type]
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        if math.isnan(value) or (math.isinf(value) and not endless):
            raise source.error(keys, f"{name} is {value}; it must be a finite number.")
        return float(value)
    if isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    wanted = {float: "a number", int: "a whole number", str: 'a text in "quotes"', bool: "true or false"}[hint]
    raise source.error(keys, f"{name} must be {wanted}, not {_kind(value)}.")


def _list(value: Any, kinds: tuple[Any, ...], keys: Keys, source: SceneFile) -> tuple[Any, ...]:
    name = next(str(key) for key in reversed(keys) if isinstance(key, str))
    endless = kinds[-1] is Ellipsis
    if dataclasses.is_dataclass(kinds[0]) and isinstance(value, dict):
        raise source.error(keys, f"{name} must be a list; write [[{name}]] with two brackets.")
    if not isinstance(value, list) or (not endless and len(value) != len(kinds)):
        wanted = "a list" if endless else f"{len(kinds)} numbers in brackets"
        raise source.error(keys, f"{name} must be {wanted}, not {_kind(value)}.")
    each = [kinds[0]] * len(value) if endless else list(kinds)
    return tuple(_value(v, kind, (*keys, k), source) for k, (v, kind) in enumerate(zip(value, each)))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return "a table"
    return f"the text {value!r}" if isinstance(value, str) else repr(value)


def _owner(table: dict[str, Any], keys: Keys) -> str:
    """``object 'ball': pin 2: `` for ("objects", 0, "pins", 1, ...)."""
    words, at = [], table
    for key, after in zip(keys, [*keys[1:], None]):
        try:
            at = at[key]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(key, int) or not isinstance(at, (dict, list)):
            continue
        item = at[after] if isinstance(at, list) and isinstance(after, int) and after < len(at) else at
        if isinstance(item, dict):
            name = item.get("name") if isinstance(item.get("name"), str) else None
            which = repr(name) if name else (str(after + 1) if isinstance(after, int) else "")
            words.append(f"{_SINGULAR.get(str(key), str(key))} {which}".strip())
    return "".join(f"{word}: " for word in words)


def _found_from_here(scene: Scene, source: SceneFile) -> Scene:
    """Paths relative to the scene file become paths from here; files that are read must be there."""
    folder = source.path.parent

    def there(part: Any, key: str, keys: Keys) -> Any:
        text = getattr(part, key)
        if not text:
            return part
        path = folder / text
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "there is no such file"
            raise source.error((*keys, key), f"{key} {text!r}: {what} (looked for {path}, beside the scene file).")
        return dataclasses.replace(part, **{key: str(path)})

    def part(part: Any, keys: Keys) -> Any:
        part = there(part, "file", keys)
        return there(part, "labels", keys) if hasattr(part, "labels") else part

    output: dict[str, Any] = {
        key: str(folder / getattr(scene.output, key)) for key in _OUTPUTS if getattr(scene.output, key)
    }
    camera = there(scene.camera, "path", ("camera",)) if scene.camera.path.endswith(".json") else scene.camera
    return dataclasses.replace(
        scene,
        objects=tuple(part(each, ("objects", k)) for k, each in enumerate(scene.objects)),
        scenery=tuple(part(each, ("scenery", k)) for k, each in enumerate(scene.scenery)),
        output=dataclasses.replace(scene.output, **output),
        camera=camera,
    )
