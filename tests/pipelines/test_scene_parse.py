"""Scene files as people write them: what is understood, and what is said where it is not."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pipelines.scene_lines import Lines
from pipelines.scene_parse import read_scene
from pipelines.scene_verb import documentation, keys_of, schema_tables
from splatanim.dynamics import scene as spec
from splatanim.errors import InputError

GOOD = """\
# a comment
seconds = 2

[[objects]]
name = "ball"
shape = "ball"
at = [0, 1, 0]          # metres
pins = [
  { end = "bottom" },
  { box = [0, 0, 0, 1, 1, 1], width = 0.2 },
]

[[objects]]
name = "cube"
shape = "box"

[[objects.drags]]
point = [0, 0, 0]

[objects.drags.motion]
times = [0.0, 1.0]
move = [[0, 0, 0], [0, 1, 0]]
stop = inf

[[planes]]
motion = { sway = [0.1, 0, 0] }

[output]
size = "64x48"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "scene.toml"
    path.write_text(text)
    return path


def said(folder: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_scene(write(folder, text))
    message = str(caught.value)
    assert message.startswith(f"{folder / 'scene.toml'}:")
    return message.removeprefix(f"{folder / 'scene.toml'}:")


def test_a_good_file_is_a_scene(tmp_path: Path) -> None:
    scene = read_scene(write(tmp_path, GOOD)).scene
    ball, cube = scene.objects
    assert scene.seconds == 2.0 and isinstance(scene.seconds, float) and scene.frames == 60
    assert ball.at == (0.0, 1.0, 0.0) and ball.pins[0].end == "bottom" and ball.pins[1].width == 0.2
    assert cube.drags[0].motion.move[1] == (0.0, 1.0, 0.0) and cube.drags[0].motion.stop == math.inf
    assert scene.planes[0].motion.sway == (0.1, 0.0, 0.0) and scene.output.size == "64x48"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at = [0, 1, 0]", "att = [0, 1, 0]", "7: object 'ball': unknown key 'att'; did you mean 'at'?"),
        ('shape = "box"', 'shape = "box"\nyonug = 3', "16: object 'cube': unknown key 'yonug'; did you mean 'young'?"),
        ('shape = "box"', 'shape = "box"\nyoung = "3"', "16: object 'cube': young must be a number, not the text '3'."),
        ('shape = "box"', 'shape = "box"\nyoung = nan', "16: object 'cube': young is nan; it must be a finite number."),
        ('shape = "box"', 'shape = "box"\nsize = 0', "16: object 'cube': size is 0.0; it must be positive."),
        ('shape = "box"', 'shape = "box"\nrigid = 1', "16: object 'cube': rigid must be true or false, not 1."),
        (
            'shape = "box"',
            'shape = "box"\nhandles = true',
            "16: object 'cube': handles must be a whole number, not true",
        ),
        ('shape = "box"', "", "13: object 'cube': one of file, sample, shape is needed."),
        (
            'shape = "box"',
            'shape = "cube"',
            "15: object 'cube': shape is 'cube'; it must be one of box, ball, cylinder",
        ),
        ('shape = "box"', 'sample = "jelly"\nfile = "a.ply"', "15: object 'cube': file and sample are both given"),
        ("[0, 1, 0] ", "[0, 1] ", "7: object 'ball': at must be 3 numbers in brackets, not a list of 2."),
        ("[0, 1, 0] ", '[0, "1", 0] ', "7: object 'ball': at must be a number, not the text '1'."),
        ("width = 0.2", "widht = 0.2", "10: object 'ball': pin 2: unknown key 'widht'; did you mean 'width'?"),
        ("width = 0.2", "width = -1", "10: object 'ball': pin 2: width is -1.0; it must be positive."),
        ('"bottom"', '"botom"', "9: object 'ball': pin 1: end is 'botom'; it must be one of bottom, top. Did you mean"),
        ("times = [0.0, 1.0]", "times = [1.0, 0.5]", "21: object 'cube': drag 1: motion: times 1 and 0.5 are out of"),
        ("times = [0.0, 1.0]", "times = [1.0]", "22: object 'cube': drag 1: motion: move has 2 keyframes, but there"),
        ("sway = [0.1, 0, 0]", "swey = [0.1, 0, 0]", "26: plane 1: motion: unknown key 'swey'; did you mean 'sway'?"),
        ("{ sway = [0.1, 0, 0] }", "3", "26: plane 1: motion must be a table { key = value, ... }, not 3."),
        ('"cube"', '"ball"', "14: object 'ball': the name is taken; every object and scenery needs its own."),
        ("seconds = 2", "secnods = 2", "2: unknown key 'secnods'; did you mean 'seconds'?"),
        ("seconds = 2", "seconds = -2", "2: seconds is -2.0; it must be positive."),
        ("seconds = 2", 'up = "y"', "2: up is 'y'; it must be one of +y, -y, +z, -z, +x, -x. Did you mean"),
        ("seconds = 2", "zzz = 2", "2: unknown key 'zzz'. There are: objects, scenery, planes"),
        ("[output]", "[outptu]", "28: unknown key 'outptu'; did you mean 'output'?"),
        ("[[objects.drags]]", "[objects.drags]", "17: object 'cube': drag: drags must be a list; write [[drags]] with"),
        ("point = [0, 0, 0]", "", "17: object 'cube': drag 1: the key 'point' is missing."),
        ('shape = "ball"', 'file = "no.ply"', "6: object 'ball': file 'no.ply': there is no such file (looked for"),
        ('shape = "ball"', 'shape = "ball"\nlabels = "no.npy"', "7: object 'ball': labels 'no.npy': there is no such"),
        ('size = "64x48"', "size = 64", '29: output: size must be a text in "quotes", not 64.'),
        ("seconds = 2", "seconds = = 2", "2: this is not TOML: invalid value."),
    ],
)
def test_mistakes_are_said_with_their_line_and_key(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert GOOD.count(old) >= 1
    assert said(tmp_path, GOOD.replace(old, new, 1)).startswith(message)


def test_scenes_without_objects_or_text_are_refused(tmp_path: Path) -> None:
    assert said(tmp_path, "seconds = 1").startswith("1: there is no object; add a table [[objects]]")
    assert "write [[objects]] with two brackets" in said(tmp_path, '[objects]\nname = "a"')
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"binary.toml: is not a text file in UTF-8"):
        read_scene(tmp_path / "binary.toml")
    with pytest.raises(InputError, match=r"absent.toml: no such file"):
        read_scene(tmp_path / "absent.toml")


def test_paths_are_relative_to_the_scene_file(tmp_path: Path) -> None:
    folder = tmp_path / "deep"
    folder.mkdir()
    (folder / "a.obj").write_text("x")
    text = '[[objects]]\nname = "a"\nfile = "a.obj"\n[output]\nfilm = "b.mp4"\nply = "frames"'
    scene = read_scene(write(folder, text)).scene
    assert scene.objects[0].file == str(folder / "a.obj")
    assert scene.output.film == str(folder / "b.mp4") and scene.output.ply == str(folder / "frames")
    assert scene.output.npz == ""


def test_lines_are_found_through_strings_comments_and_lists() -> None:
    text = 'a = "x # [ y"\nb = [ # [[\n  1,\n  { c = 2 },\n]\n\'d e\' = 3\n[t."u.v"]\nw = """\nx = 1\n"""\ny.z = 4\n'
    lines = Lines(text)
    assert lines.line(("a",)) == 1 and lines.line(("b", 1, "c")) == 4 and lines.line(("d e",)) == 6
    assert lines.line(("t", "u.v", "w")) == 8 and lines.line(("t", "u.v", "y", "z")) == 11
    assert lines.line(("t", "u.v", "absent")) == 7 and lines.line(("nowhere",)) == 1


def test_the_documentation_lists_every_key_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs" / "scenes.md"
    text = page.read_text(encoding="utf-8")
    assert documentation(text) == text, "run: python -m pipelines.scene_verb docs/scenes.md"
    for cls in (spec.Scene, spec.SceneObject, spec.Scenery, spec.Plane, spec.Pin, spec.Drag, spec.Motion, spec.Wind):
        assert all(f"| `{key}` |" in schema_tables() for key, _, _ in keys_of(cls))


def test_the_examples_can_be_read() -> None:
    examples = sorted((Path(__file__).parents[2] / "examples").glob("*.toml"))
    assert len(examples) >= 4
    assert all(read_scene(path).scene.objects for path in examples)
