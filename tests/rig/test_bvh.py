"""BVH: channel orders against products of axis rotations, round trips of real motion, and files that are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from splatanim.errors import InputError
from splatanim.rig.bvh import read_bvh, write_bvh
from splatanim.rig.skeleton import forward_kinematics
from tests.helpers import data_file
from tests.rig.rigs import random_skeleton

TEXT = """HIERARCHY
ROOT hips
{
  OFFSET 1 2 3
  CHANNELS 6 Yposition Zposition Xposition Yrotation Xrotation Zrotation
  JOINT leg
  {
    OFFSET 0 -4 0
    CHANNELS 2 Xrotation Zrotation
    End Site
    {
      OFFSET 0 -5 0
    }
  }
  JOINT arm
  {
    OFFSET 2 0 0
    CHANNELS 4 Zrotation Yrotation Xrotation Xposition
    End Site
    {
      OFFSET 1 0 0
    }
  }
}
MOTION
Frames: 2
Frame Time: 0.04
0 0 0 0 0 0 0 0 0 0 0 2
20 30 10 15 -25 40 50 -60 70 80 -35 7
"""


def axis(name: str, degrees: float) -> np.ndarray:
    return Rotation.from_euler(name, degrees, degrees=True).as_matrix()


def test_channels_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "a.bvh"
    path.write_text(TEXT.replace("\n", "\r\n"))
    bvh = read_bvh(path)
    assert bvh.skeleton.names == ("hips", "leg", "arm") and bvh.skeleton.parents.tolist() == [-1, 0, 0]
    np.testing.assert_allclose(bvh.skeleton.joint_positions, [[1, 2, 3], [1, -2, 3], [3, 2, 3]])
    moved = forward_kinematics(bvh.skeleton, bvh.poses)
    hips = axis("Y", 15) @ axis("X", -25) @ axis("Z", 40)
    np.testing.assert_allclose(moved[1, 0, :3, :3], hips, atol=1e-12)
    np.testing.assert_allclose(moved[1, 0, :3, 3], [10, 20, 30], atol=1e-12)
    np.testing.assert_allclose(moved[1, 1, :3, :3], hips @ axis("X", 50) @ axis("Z", -60), atol=1e-12)
    np.testing.assert_allclose(moved[1, 1, :3, 3], [10, 20, 30] + hips @ [0, -4, 0], atol=1e-12)
    np.testing.assert_allclose(moved[1, 2, :3, :3], hips @ axis("Z", 70) @ axis("Y", 80) @ axis("X", -35), atol=1e-12)
    np.testing.assert_allclose(moved[1, 2, :3, 3], [10, 20, 30] + hips @ [7, 0, 0], atol=1e-12)
    assert bvh.tips[1].tolist() == [0, -5, 0] and bvh.frames == 2
    clip = bvh.animation("a")
    np.testing.assert_allclose(clip.sample(0.04).translations, bvh.poses.translations[1])
    assert clip.duration == 0.04


@pytest.mark.parametrize("name", ["cmu_02_01_walk", "cmu_05_06_dance", "cmu_01_01_climb_jump_first600"])
def test_real_motion_round_trips(name: str, tmp_path: Path) -> None:
    bvh = read_bvh(data_file(f"motion/{name}.bvh"))
    assert len(bvh.skeleton) == 31 and abs(bvh.frame_time - 1 / 120) < 1e-5
    write_bvh(tmp_path / "again.bvh", bvh)
    again = read_bvh(tmp_path / "again.bvh")
    assert again.skeleton.names == bvh.skeleton.names and again.tips.keys() == bvh.tips.keys()
    ours, theirs = (forward_kinematics(b.skeleton, b.poses) for b in (bvh, again))
    np.testing.assert_allclose(theirs, ours, atol=1e-6)
    heads = ours[:, bvh.skeleton.index("Head"), 1, 3] - ours[:, bvh.skeleton.index("LeftFoot"), 1, 3]
    assert np.median(heads) > 18  # upright, in the file's inches


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("HIERARCHY", "HIERARCHIE"), "has 'HIERARCHIE' where 'HIERARCHY' is needed"),
        (("OFFSET 0 -4 0", "OFFSET 0 four 0"), "has 'four' where a number is needed"),
        (("OFFSET 0 -4 0", "OFFSET 0 nan 0"), "numbers must be finite"),
        (("2 Xrotation Zrotation", "2 Xrotation Wrotation"), "joint 'leg' has a channel 'Wrotation'"),
        (("JOINT arm", "BONE arm"), "has 'BONE' where JOINT, End Site or } is needed"),
        (("Frames: 2", "Frames: 3"), "24 numbers for 3 frames of 12 channels. It is cut off"),
        (("Frames: 2", "Frames: 0"), "there is no motion in it"),
        (("Frame Time: 0.04", "Frame Time: 0"), "there is no motion in it"),
        (("20 30 10", "20 thirty 10"), "holds something that is no number"),
        (("20 30 10", "20 inf 10"), "NaN or infinite"),
    ],
)
def test_files_that_are_no_bvh(change: tuple[str, str], text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.bvh"
    path.write_text(TEXT.replace(*change))
    with pytest.raises(InputError, match=text) as caught:
        read_bvh(path)
    assert str(path) in str(caught.value)


def test_a_cut_off_hierarchy_and_a_skeleton_that_bvh_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.bvh"
    path.write_text(TEXT[: TEXT.index("JOINT arm") + 14])
    with pytest.raises(InputError, match="ends in the middle"):
        read_bvh(path)
    path.write_text(TEXT)
    import dataclasses

    odd = dataclasses.replace(read_bvh(path), skeleton=random_skeleton())
    with pytest.raises(InputError, match="have the world's axes at rest"):
        write_bvh(tmp_path / "b.bvh", odd)


def test_a_chain_as_deep_as_a_stack_is_read(tmp_path: Path) -> None:
    depth = 3000
    opening = "".join(f"JOINT j{k}\n{{\nOFFSET 0 1 0\nCHANNELS 1 Xrotation\n" for k in range(depth))
    text = f"HIERARCHY\nROOT r\n{{\nOFFSET 0 0 0\nCHANNELS 0\n{opening}"
    text += "\n".join(["}"] * (depth + 1)) + f"\nMOTION\nFrames: 1\nFrame Time: 1\n{' 0' * depth}\n"
    path = tmp_path / "deep.bvh"
    path.write_text(text)
    assert len(read_bvh(path).skeleton) == depth + 1
