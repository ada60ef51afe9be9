"""Compressed formats against the splats they were made from, within their quantisation, version by version."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made import (
    compressed_ply_bytes,
    ksplat_bytes,
    order_of_ksplat,
    scene,
    sog_bytes,
    sog_files,
    splat_bytes,
    spz_bytes,
    write,
)

from splatanim.data import Splats
from splatanim.errors import InputError
from splatanim.formats import ReadResult, read_splats, write_splats
from splatanim.formats.axes import HALF_TURN_SH, half_turn
from splatanim.rotations import quaternions_to_matrices, sh_rotation
from tests.helpers import random_splats


def covariances(splats: Splats) -> np.ndarray:
    axes = quaternions_to_matrices(splats.quaternions) * splats.scales[:, None, :].astype(np.float64)
    return axes @ axes.transpose(0, 2, 1)


def assert_close(
    result: ReadResult, source: Splats, *, place: float, shape: float, colour: float, harmonics: float | None
) -> None:
    """``shape`` is relative to a splat's covariance; the others are absolute. ``harmonics`` None: there are none."""
    splats = result.splats
    assert (result.total, result.dropped) == (len(source), {})
    np.testing.assert_allclose(splats.means, source.means, rtol=0, atol=place)
    wanted = covariances(source)
    error = np.linalg.norm(covariances(splats) - wanted, axis=(1, 2)) / np.linalg.norm(wanted, axis=(1, 2))
    assert error.max() < shape, error.max()
    np.testing.assert_allclose(splats.opacities, source.opacities, rtol=0, atol=0.51 / 255)
    np.testing.assert_allclose(splats.sh[:, 0], source.sh[:, 0], rtol=0, atol=colour)
    if harmonics is None:
        assert splats.sh_degree == 0
    else:
        assert splats.sh_degree == source.sh_degree
        np.testing.assert_allclose(splats.sh[:, 1:], source.sh[:, 1:], rtol=0, atol=harmonics)


COLOUR = 0.51 / 255 / 0.28209479177387814


def test_splat(tmp_path: Path) -> None:
    source = scene()
    result = read_splats(write(tmp_path, "a.splat", splat_bytes(source)))
    assert_close(result, source, place=0, shape=0.04, colour=COLOUR, harmonics=None)
    assert result.format == "splat"


@pytest.mark.parametrize("version", [1, 2, 3, 4])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_spz_in_the_axes_of_ply(tmp_path: Path, version: int, degree: int) -> None:
    if version == 4:
        pytest.importorskip("zstandard")
    source = scene(degree=degree)
    result = read_splats(write(tmp_path, "a.spz", spz_bytes(source, version)))
    place = 5e-4 if version == 1 else 0.51 / 4096
    shape = 0.12 if version >= 3 else 0.2
    assert_close(result, source, place=place, shape=shape, colour=0.51 / 255 / 0.15, harmonics=0.51 / 128)
    assert result.format == f"spz/{version}" and result.warnings == ()


def test_spz_flags_are_said(tmp_path: Path) -> None:
    pytest.importorskip("zstandard")
    result = read_splats(write(tmp_path, "a.spz", spz_bytes(scene(), 4, flags=3)))
    assert "anti-aliased" in result.warnings[0] and "Vendor extensions" in result.warnings[1]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("by_degree", [True, False])
def test_ksplat(tmp_path: Path, level: int, degree: int, by_degree: bool) -> None:
    source = scene(count=90, degree=degree)
    source = source.replace(means=(6 * source.means).astype(np.float32))
    result = read_splats(write(tmp_path, "a.ksplat", ksplat_bytes(source, level, by_degree=by_degree)))
    source = source.select(order_of_ksplat(source, level))
    harmonics = (1e-7, 1e-3, 0.51 * 2.5 / 255)[level]
    place, shape = (0, 1e-5) if level == 0 else (1e-4, 0.005)
    assert_close(result, source, place=place, shape=shape, colour=COLOUR, harmonics=harmonics)
    assert result.format == f"ksplat/{level}"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_sog_zipped_and_in_a_folder(tmp_path: Path, version: int, degree: int) -> None:
    source = scene(count=150, degree=degree)
    for name, data in sog_files(source, version).items():
        write(tmp_path, name, data)
    write(tmp_path, "a.sog", sog_bytes(source, version))
    for path in (tmp_path, tmp_path / "meta.json", tmp_path / "a.sog"):
        result = read_splats(path)
        if version == 1:  # logits of 8 bits
            np.testing.assert_allclose(result.splats.raw_opacities, source.raw_opacities, atol=0.03)
            source = source.replace(raw_opacities=result.splats.raw_opacities)
        assert_close(result, source, place=2.2e-5, shape=0.05, colour=0.51 * 4 / 255, harmonics=0.51 * 2 / 255)
        assert result.format == f"sog/{version}"


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("interleaved", [False, True])
def test_compressed_ply(tmp_path: Path, degree: int, interleaved: bool) -> None:
    source = scene(count=300, degree=degree)  # two chunks
    data = compressed_ply_bytes(source, colours=interleaved, interleaved=interleaved)
    result = read_splats(write(tmp_path, "a.ply", data))
    assert_close(result, source, place=0.0011, shape=0.02, colour=COLOUR, harmonics=0.51 * 8 / 256)
    assert result.format == "ply/compressed"


def test_the_half_turn_is_a_rotation_of_the_harmonics() -> None:
    turn = np.diag([1.0, -1.0, -1.0])
    np.testing.assert_allclose(sh_rotation(turn, 3), np.diag(HALF_TURN_SH), atol=1e-9)
    splats = random_splats(20)
    means, quaternions, sh = half_turn(splats.means, splats.quaternions, splats.sh)
    turned = splats.replace(quaternions=quaternions)
    np.testing.assert_allclose(covariances(turned), turn @ covariances(splats) @ turn, atol=1e-6)
    again = half_turn(means, quaternions, sh)
    for a, b in zip(again, (splats.means, splats.quaternions, splats.sh), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("suffix", [".splat", ".spz", ".glb", ".ply"])
@pytest.mark.parametrize("degree", [0, 1, 2, 3])
def test_what_is_written_comes_back(tmp_path: Path, suffix: str, degree: int) -> None:
    source = scene(degree=degree)
    notes = write_splats(tmp_path / f"a{suffix}", source, up="+y" if suffix == ".glb" else "-y")
    result = read_splats(tmp_path / f"a{suffix}")
    if suffix == ".splat":
        assert_close(result, source, place=0, shape=0.04, colour=COLOUR, harmonics=None)
        assert ("SH degree" in " ".join(notes)) == (degree > 0)
    elif suffix == ".spz":
        assert_close(result, source, place=0.51 / 65536, shape=0.12, colour=0.51 / 255 / 0.15, harmonics=0.07)
        assert notes == ()
    else:
        assert_close(result, source, place=0, shape=1e-5, colour=0, harmonics=0)
        assert result.up == ("+y" if suffix == ".glb" else "-y") and notes == ()
    # A second round trip changes nothing more: what is stored are fixed points of the quantisation.
    write_splats(tmp_path / f"b{suffix}", result.splats, up=result.up or "-y")
    again = read_splats(tmp_path / f"b{suffix}").splats
    for name in ("means", "log_scales", "sh"):
        np.testing.assert_allclose(getattr(again, name), getattr(result.splats, name), atol=1e-6)


@pytest.mark.parametrize("version", [3, 4])
def test_written_spz_holds_what_an_independent_writer_stores(tmp_path: Path, version: int) -> None:
    """Byte by byte in the streams that leave no choice: opacities, colours, scales, and rotations up to rounding."""
    if version == 4:
        pytest.importorskip("zstandard")
    from made import spz_parts

    from splatanim.formats.spz import unpack_spz, write_spz

    source = scene(degree=1)
    write_spz(tmp_path / "a.spz", source, version=version)
    mine, number, _ = unpack_spz(tmp_path / "a.spz", (tmp_path / "a.spz").read_bytes())
    theirs, _, _ = unpack_spz(tmp_path / "b.spz", spz_bytes(source, 3))
    assert number == version and len(spz_parts(source, 3)) == 6
    for name in ("opacity", "log_scales"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
    np.testing.assert_array_equal(mine.sh[:, 0], theirs.sh[:, 0])
    np.testing.assert_allclose(mine.rotation, theirs.rotation, atol=2e-3)
    np.testing.assert_allclose(mine.xyz, theirs.xyz, atol=0.6 / 4096)


def test_far_off_scenes_are_refused_where_they_would_tear(tmp_path: Path) -> None:
    far = scene().replace(offset=(5e5, 4.5e6, 100.0))
    for suffix in (".splat", ".spz"):
        with pytest.raises(InputError, match=rf"a{suffix}: the scene is .*up to 4.5e\+06 from the origin.*--translate"):
            write_splats(tmp_path / f"a{suffix}", far)
    write_splats(tmp_path / "a.glb", far, up="+y")
    back = read_splats(tmp_path / "a.glb").splats
    np.testing.assert_allclose(
        back.means.astype(float) + back.offset, far.means.astype(float) + far.offset, rtol=0, atol=1e-6
    )
    with pytest.raises(InputError, match=r"reaches 2e\+07 from the origin, SPZ to 8388608"):
        write_splats(tmp_path / "a.spz", scene().replace(means=(2e7 * np.sign(scene().means)).astype(np.float32)))
    assert [p.name for p in tmp_path.iterdir()] == ["a.glb"]


def test_what_a_format_cannot_hold_is_said(tmp_path: Path) -> None:
    source = scene().replace(extras={"label": np.arange(60), "nx": np.zeros(60)})
    for suffix in (".splat", ".spz", ".glb"):
        notes = " ".join(write_splats(tmp_path / f"a{suffix}", source, up="+z"))
        assert "holds no further columns: label left out" in notes
        assert ("readers take y for up; here it is +z" in notes) == (suffix == ".spz")
        assert ("turns the points from +z to +y" in notes) == (suffix == ".glb")
    with pytest.raises(InputError, match=r"\.sog cannot be written as splats\. Write one of \.ply, \.splat, \.spz, "):
        write_splats(tmp_path / "a.sog", source)
