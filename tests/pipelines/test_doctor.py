"""The doctor: what it finds, what it makes of faults, and that its list of parts is that of pyproject.toml."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

import pipelines.doctor as doctor
import pipelines.doctor_selftest as selftest
from pipelines.cli import main

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((Path(__file__).parent.parent.parent / "pyproject.toml").read_text())["project"]


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=;, ]", text)[0] for text in requirements}


def test_every_extra_and_every_dependency_is_known() -> None:
    extras = {name: names(lines) for name, lines in PROJECT["optional-dependencies"].items() if name != "test"}
    known: dict[str, set[str]] = {}
    for part in doctor.OPTIONAL:
        if part.package:
            extra = re.fullmatch(r'pip install "splatanim\[(\w+)\]"', part.install)
            assert extra is not None, part
            known.setdefault(extra[1], set()).add(part.package)
    assert known == extras
    assert set(doctor.NEEDED.values()) == names(PROJECT["dependencies"]) - {"tomli"} | {"imageio-ffmpeg"}


def test_it_says_what_is_here_and_what_is_not(capsys, monkeypatch) -> None:
    here = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda m, p: "" if m in ("ray", "gsplat") else here(m, p))
    assert main(["doctor", "--no-test"]) == 0
    out = capsys.readouterr().out
    assert 'batches on a cluster (batch --engine ray): pip install "splatanim[ray]"' in out
    assert "numpy 2" in out or "numpy 1" in out
    assert re.search(r"kernels +\d+ compiled", out) and "ffmpeg  " in out and "All that is needed is here." in out


def test_json_has_stable_keys_and_a_missing_package_is_a_problem(capsys, monkeypatch) -> None:
    here = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda m, p: "" if m == "roma" else here(m, p))
    with pytest.raises(SystemExit) as stop:
        main(["doctor", "--json"])
    data = json.loads(capsys.readouterr().out)
    assert stop.value.code == 1 and data["healthy"] is False
    assert data["problems"] == ["roma is missing: pip install roma"] and data["checks"] == []
    assert set(data) == {
        *("healthy", "python", "machine", "cores", "needed", "optional", "missing", "gpu", "ffmpeg", "kernels"),
        *("checks", "problems"),
    }


def test_without_ffmpeg_it_says_how_to_get_one(capsys, monkeypatch) -> None:
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nonexistent/ffmpeg")
    found = doctor.diagnose(test=False)
    assert not found.healthy and "IMAGEIO_FFMPEG_EXE" in found.problems[0]


def test_the_self_test_passes_and_checks_numbers() -> None:
    checks = {check.name: check for check in selftest.self_test()}
    assert list(checks) == ["files", "inside", "fall", "picture", "film"]
    assert all(check.passed for check in checks.values()), [check.said for check in checks.values()]


@pytest.mark.slow
def test_the_self_test_notices_what_is_broken(monkeypatch) -> None:
    """Twice the gravity, a wrong colour and a reader that moves splats: each is found by its own check."""
    import splatanim.dynamics.terms as terms
    import splatanim.formats as formats
    from splatanim.render.cpu import CpuRasterizer

    pull, draw, read = terms.gravity, CpuRasterizer.render, formats.read_splats

    def moved(path):
        result = read(path)
        result.splats.means[:] += 0.01
        return result

    def tinted(self, *arguments, **options):
        image = draw(self, *arguments, **options)
        image.rgb[..., 0] *= 0.99
        return image

    monkeypatch.setattr(terms, "gravity", lambda model, acceleration: pull(model, 2 * acceleration))
    monkeypatch.setattr(CpuRasterizer, "render", tinted)
    monkeypatch.setattr(formats, "read_splats", moved)
    monkeypatch.setattr(selftest, "_CHECKS", selftest._CHECKS[:4])
    assert {check.name: check.passed for check in selftest.self_test()} == {
        **{"files": False, "inside": True, "fall": False, "picture": False}
    }
