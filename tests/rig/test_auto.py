"""The auto-rigger on bodies whose skeleton is known, and on input that it must refuse or survive."""

from __future__ import annotations

import numpy as np
import pytest

from splatanim.data import Domain
from splatanim.errors import InputError
from splatanim.rig.auto_grid import nearest_cells
from splatanim.rig.auto_rig import AutoRig, auto_rig, auto_rig_points
from tests.helpers import random_rotation
from tests.rig.auto_shapes import CREATURE, SPACING, UNIT, capsule_domain, surface_points, tube_domain


@pytest.fixture(scope="module")
def creature() -> AutoRig:
    return auto_rig(capsule_domain(CREATURE), UNIT)


def bone_points(rig: AutoRig) -> np.ndarray:
    tree = rig.tree
    lower = np.flatnonzero(tree.parents >= 0)
    share = np.linspace(0, 1, 20)[:, None, None]
    return (tree.positions[tree.parents[lower]] * (1 - share) + tree.positions[lower] * share).reshape(-1, 3)


def check(rig: AutoRig) -> None:
    """What every rig must be: one tree with its root first, weights that sum to one on joints that turn something."""
    parents = rig.tree.parents
    assert parents[0] == -1 and (parents[1:] >= 0).all() and (parents < np.arange(len(parents))).all()
    assert len(set(rig.skeleton.names)) == len(parents)
    assert np.isfinite(rig.tree.positions).all()
    np.testing.assert_allclose(rig.cells.sum(axis=1), 1.0, atol=1e-9)
    assert rig.cells.min() >= 0.0
    assert not rig.cells[:, rig.tree.ends].any()


def test_creature_has_its_six_chains_and_their_names(creature: AutoRig) -> None:
    check(creature)
    assert set(creature.limbs) == {("trunk_1",), ("trunk_2",), ("limb_1_l", "limb_1_r"), ("limb_2_l", "limb_2_r")}
    ends = creature.tree.positions[creature.tree.ends]
    for tip in ([0, 0.3, 0.45], [0, 0.2, -0.48], *([s * 0.08, -0.35, z] for s in (1, -1) for z in (0.22, -0.22))):
        assert np.linalg.norm(ends - tip, axis=1).min() < 0.06  # the tip of the surface, a radius away


def test_creature_bones_keep_to_its_centrelines(creature: AutoRig) -> None:
    points = bone_points(creature)
    gaps = []
    for a, b, _ in CREATURE:
        a, b = np.array(a, float), np.array(b, float)
        share = np.clip((points - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
        gaps.append(np.linalg.norm(points - a - share[:, None] * (b - a), axis=1))
    nearest = np.min(gaps, axis=0)
    assert nearest.mean() < 0.8 * SPACING and nearest.max() < 0.06
    away = nearest_cells(creature.graph, points)[0]
    assert away.max() < SPACING  # no bone outside the body


def test_legs_have_several_bones_and_hang_on_the_trunk(creature: AutoRig) -> None:
    names = creature.skeleton.names
    for limb in ("limb_1_l", "limb_1_r", "limb_2_l", "limb_2_r"):
        mine = [k for k, name in enumerate(names) if name.startswith(limb)]
        assert 3 <= len(mine) <= 6
        first = creature.tree.parents[mine[0]]
        assert names[first] == "root" or names[first].startswith("trunk")


def test_limbs_are_mirror_images(creature: AutoRig) -> None:
    assert creature.plane is not None
    np.testing.assert_allclose(creature.plane.normal, [1, 0, 0], atol=0.02)
    names = creature.skeleton.names
    where = dict(zip(names, creature.tree.positions))
    left = [name for name in names if "_l" in name]
    assert len(left) >= 6
    for name in left:
        other = name.replace("_l", "_r")
        assert where[name][0] > 0 > where[other][0]
        np.testing.assert_allclose(creature.plane.mirrored(where[name][None])[0], where[other], atol=1e-9)
    for name in names:
        if name.startswith("trunk"):
            assert abs(creature.plane.side(where[name][None])[0]) < 1e-9


def test_without_symmetry_limbs_stand_alone() -> None:
    rig = auto_rig(capsule_domain(CREATURE), UNIT, symmetric=False)
    check(rig)
    assert rig.plane is None and all(len(limb) == 1 for limb in rig.limbs) and len(rig.limbs) == 6


def test_weights_follow_the_parts(creature: AutoRig) -> None:
    """A foot follows its own leg alone, and the middle of the body no leg at all."""
    skin = creature.weights(np.array([[0.08, -0.33, 0.22], [-0.08, -0.33, 0.22], [0.0, 0.1, 0.0]])).dense()
    names = np.array(creature.skeleton.names)
    for row, side in ((0, "_l"), (1, "_r")):
        followed = names[skin[row] > 0]
        assert all(side in name for name in followed), followed
    assert not any("limb" in name for name in names[skin[2] > 0])


def test_finer_bones_on_request() -> None:
    domain = capsule_domain(CREATURE)
    counts = [len(auto_rig(domain, UNIT, bone=bone).skeleton) for bone in (0.05, 0.075, 0.2)]
    assert counts[0] > counts[1] > counts[2]
    with pytest.raises(InputError, match=r"bones of 2 of the longest way; use 0\.01 to 1"):
        auto_rig(domain, UNIT, bone=2.0)


def test_points_give_the_same_chains(creature: AutoRig) -> None:
    """The surface alone, turned, scaled and moved: as a PAPR cloud or a scan has it."""
    rng = np.random.default_rng(3)
    turn = random_rotation(rng)
    points = 7.0 * surface_points(CREATURE) @ turn.T + [10.0, -4.0, 2.0]
    rig = auto_rig_points(points)
    check(rig)
    assert sorted(len(limb) for limb in rig.limbs) == [1, 1, 2, 2]
    tips = rig.skeleton.joint_positions[rig.tree.ends]
    for tip in creature.tree.positions[creature.tree.ends]:
        assert np.linalg.norm(tips - (7.0 * turn @ tip + [10.0, -4.0, 2.0]), axis=1).min() < 7.0 * 0.06
    skin = rig.weights(points)
    assert skin.joints.shape[1] <= 4 and len(skin) == len(points)


def test_bent_tube_is_one_chain_along_its_middle() -> None:
    angle = np.linspace(0.0, 1.6 * np.pi, 60)
    curve = np.stack([0.3 * np.cos(angle), 0.3 * np.sin(angle), 0.1 * angle - 0.25], axis=1)
    rig = auto_rig(tube_domain(curve, 0.05), UNIT, symmetric=False)
    check(rig)
    children = np.bincount(rig.tree.parents[1:], minlength=len(rig.tree.parents))
    assert children[0] == 2 and children[1:].max() == 1 and rig.tree.ends.sum() == 2
    inner = rig.tree.positions[~rig.tree.ends]
    assert np.linalg.norm(inner[:, None] - curve[None], axis=2).min(axis=1).max() < 1.5 * SPACING
    lengths = np.linalg.norm(rig.tree.positions[1:] - rig.tree.positions[rig.tree.parents[1:]], axis=1)
    assert 10 <= len(lengths) <= 18 and lengths.max() < 2.0 * lengths.min()


def test_ball_needs_no_more_than_two_bones() -> None:
    rig = auto_rig(capsule_domain([((0, 0, 0), (0, 0, 0.001), 0.45)], 1 / 30), UNIT)
    check(rig)
    bones = np.unique(rig.cells.argmax(axis=1))
    assert len(bones) <= 4 and rig.tree.ends.sum() <= 2


def test_flat_plate() -> None:
    cells = np.stack(np.meshgrid(np.arange(50), np.arange(2), np.arange(40), indexing="ij"), axis=-1).reshape(-1, 3)
    rig = auto_rig(Domain(cells, np.array([-0.5, -0.02, -0.4]), 0.02), UNIT)
    check(rig)
    away = nearest_cells(rig.graph, bone_points(rig))[0]
    assert away.max() < 0.02


def test_one_voxel() -> None:
    rig = auto_rig(Domain(np.zeros((1, 3), np.int64), np.zeros(3), 0.1), UNIT)
    assert len(rig.skeleton) <= 2 and np.allclose(rig.weights(np.zeros((2, 3))).weights, 1.0)


def test_two_parts_hang_on_one_tree() -> None:
    parts = [((-0.3, 0, -0.3), (-0.3, 0, 0.3), 0.06), ((0.3, 0, -0.3), (0.3, 0, 0.3), 0.06)]
    rig = auto_rig(capsule_domain(parts), UNIT)
    check(rig)
    assert (rig.skeleton.parents < 0).sum() == 1
    far = rig.weights(np.array([[-0.3, 0, 0.34], [0.3, 0, 0.34]])).dense()
    assert (far[0] * far[1]).sum() == 0.0  # the two follow different bones


def test_a_crowd_of_specks_is_rigged_by_its_largest_part() -> None:
    specks = np.random.default_rng(0).choice(12**3, 60, replace=False)
    cells = np.concatenate(
        [4 * np.stack(np.unravel_index(specks, (12,) * 3), axis=1), [[60 + k, 0, 0] for k in range(40)]]
    )
    rig = auto_rig(Domain(cells, np.zeros(3), 0.01), UNIT)
    check(rig)
    assert len(rig.graph) == 40 and np.allclose(rig.weights(np.full((3, 3), 0.2)).weights.sum(axis=1), 1.0)


def test_same_input_same_rig(creature: AutoRig) -> None:
    again = auto_rig(capsule_domain(CREATURE), UNIT)
    assert again.skeleton.names == creature.skeleton.names
    np.testing.assert_array_equal(again.tree.positions, creature.tree.positions)
    np.testing.assert_array_equal(again.cells, creature.cells)


def test_refused_points(creature: AutoRig) -> None:
    with pytest.raises(InputError, match="5 points say nothing about a shape; at least 8"):
        auto_rig_points(np.random.default_rng(0).normal(size=(5, 3)))
    broken = surface_points(CREATURE, 200)
    broken[3, 1] = np.nan
    with pytest.raises(InputError, match="1 of 200 points are NaN or infinite"):
        auto_rig_points(broken)
    with pytest.raises(InputError, match="all points lie at one place"):
        auto_rig_points(np.ones((50, 3)))
    with pytest.raises(InputError, match="weights were asked for at 1 points that are NaN"):
        creature.weights(np.array([[0.0, np.inf, 0.0]]))


def test_few_points_give_some_rig() -> None:
    rig = auto_rig_points(np.random.default_rng(1).normal(size=(12, 3)))
    check(rig)
    assert len(rig.skeleton) >= 1
