"""Which joint of one skeleton is which of another, by name: what retargeting starts from.

Names are cut at case changes and separators, prefixes of tools and namespaces are dropped, left and right are told
from words and single letters, and the rest is compared: first as it stands, then as a part of the body in the words of
the common rigs (CMU, Mixamo, Unreal, Blender, KayKit).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from splatanim.errors import InputError, require
from splatanim.formats.base import first_bytes
from splatanim.rig.skeleton import Skeleton

_WORDS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SIDES = {"left": 1, "l": 1, "right": -1, "r": -1}
_DECORATION = {"b", "bone", "joint", "jnt", "def", "bip", "mixamorig", "valvebiped", "rig", "ctrl", "org"}
_ROLES = {
    "hips": ("hips", "hip", "pelvis"),
    "lower back": ("lowerback", "spine0"),
    "spine": ("spine", "abdomen", "waist", "torso"),
    "chest": ("chest", "upperchest", "thorax", "spine1", "spine2", "spine3"),
    "neck": ("neck",),
    "head": ("head",),
    "shoulder": ("shoulder", "clavicle", "collar"),
    "upper arm": ("upperarm", "arm", "uparm"),
    "lower arm": ("forearm", "lowerarm", "lowarm", "elbow"),
    "hand": ("hand", "wrist", "palm"),
    "upper leg": ("upleg", "upperleg", "thigh"),
    "lower leg": ("lowerleg", "shin", "calf", "knee", "lowleg"),
    "foot": ("foot", "ankle"),
    "toe": ("toebase", "toe", "toes", "ball"),
}  # fmt: skip
_ROLE_OF = {word: role for role, words in _ROLES.items() for word in words}


def side_of(name: str) -> int:
    """1 for left, -1 for right, 0 for neither."""
    return _parts(name)[0]


def _parts(name: str) -> tuple[int, str]:
    """Side, and the plain name in lower case: ``mixamorig:LeftUpLeg`` is (1, "upleg")."""
    base = re.split(r"[:|]", name)[-1]
    base = re.sub(r"_0\d+$", "", base)  # a running number, as some exporters append
    words = [word.lower() for word in _WORDS.findall(base)]
    side = next((_SIDES[word] for word in words if word in _SIDES), 0)
    kept = [str(int(word)) if word.isdigit() else word for word in words if word not in _SIDES]
    plain = [word for word in kept if word not in _DECORATION] or kept
    return side, "".join(plain)


def match_names(source: Skeleton, target: Skeleton) -> dict[str, str]:
    """Source joint -> target joint where the names speak of the same part; joints without a partner are left out."""
    ours = {name: _parts(name) for name in target.names}
    theirs = {name: _parts(name) for name in source.names}
    out: dict[str, str] = {}
    taken: set[str] = set()
    for compare in (lambda parts, _all: parts, _role):
        found: dict[object, str] = {}
        for name, parts in theirs.items():
            key = compare(parts, theirs)
            if key is not None and name not in out:
                found[key] = name  # the last one, which is the lowest in a chain
        for name, parts in ours.items():
            key = compare(parts, ours)
            if key in found and name not in taken and found[key] not in out:
                out[found[key]] = name
                taken.add(name)
    return {name: out[name] for name in source.names if name in out}


def _role(parts: tuple[int, str], everything: Mapping[str, tuple[int, str]]) -> tuple[int, str] | None:
    """Side and part of the body; a bare ``leg`` is the lower one where the skeleton has another upper one."""
    side, plain = parts
    if plain == "leg":
        upper = any(_ROLE_OF.get(other) == "upper leg" for _, other in everything.values())
        return side, "lower leg" if upper else "upper leg"
    role = _ROLE_OF.get(plain)
    return None if role is None else (side, role)


def read_name_map(path: str | os.PathLike[str], source: Skeleton, target: Skeleton) -> dict[str, str]:
    """A map from a .toml: lines ``"SourceName" = "TargetName"``, in a table ``[joints]`` or without one.

    An empty target leaves a joint out. Raises :class:`InputError` for names that neither skeleton has.
    """
    path = Path(path)
    first_bytes(path, 1)
    try:
        import tomllib
    except ImportError:  # Python 3.10
        tomllib = require("tomli", extra="rig")
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f'{path}: is no TOML ({error}). Write lines such as "LeftUpLeg" = "thigh.L".') from error
    table = content.get("joints", content)
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise InputError(f'{path}: every line must be "SourceName" = "TargetName", both in quotes.')
    out = {}
    for name, other in table.items():
        for which, skeleton, wanted in (("motion", source, name), ("rig", target, other)):
            if wanted and wanted not in skeleton.names:
                raise InputError(f"{path}: the {which} has no joint {wanted!r}. It has: {', '.join(skeleton.names)}.")
        if other:
            out[name] = other
    return out


def describe_map(name_map: Mapping[str, str], source: Skeleton, target: Skeleton) -> str:
    """The map as lines to print, with what has no partner."""
    width = max((len(name) for name in name_map), default=0)
    lines = [f"  {name:<{width}} -> {other}" for name, other in name_map.items()]
    lonely = [name for name in target.names if name not in name_map.values()]
    unused = [name for name in source.names if name not in name_map]
    if lonely:
        lines.append(f"  of the rig, without a partner (they keep their rest): {', '.join(lonely)}")
    if unused:
        lines.append(f"  of the motion, unused: {', '.join(unused)}")
    return "\n".join(lines)
