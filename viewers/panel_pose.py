"""Posing a rig: its bones in the scene, a gizmo for every joint, clips with a timeline, and the pose as a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from splatanim.formats.atomic import atomic_path
from splatanim.rotations import matrices_to_quaternions, quaternions_to_matrices
from viewers.controls import attempt, on_change, on_click, put
from viewers.outputs import OutputFolder
from viewers.panel_record import offer

if TYPE_CHECKING:
    import viser

    from viewers.stage import Stage

NO_CLIP = "(no clip)"
_DARK, _ORANGE = (60, 60, 60), (255, 150, 0)


class PosePanel:
    """The rig of a :class:`viewers.rigged.RigSimulation` or a :class:`viewers.papr_rig.FittedView`.

    Turns that gizmos give are on top of the clip, in each joint's own frame; the elastic motion answers them.
    """

    def __init__(self, gui: viser.GuiApi, moving: Any, stage: Stage, output: OutputFolder) -> None:
        self._moving, self._stage, self._output = moving, stage, output
        self._names = tuple(moving.skeleton.names)
        self._gizmos: dict[int, viser.TransformControlsHandle] = {}
        self._held: dict[int, int] = {}  # joint -> the browser whose mouse is down on its gizmo
        self._bones: viser.LineSegmentsHandle | None = None
        self._dots: viser.PointCloudHandle | None = None
        self.show = gui.add_checkbox("Bones", True)
        self.joint = gui.add_dropdown("Joint", self._names, hint="The one whose gizmo is shown")
        self.every = gui.add_checkbox("A gizmo at every joint", False)
        self.clear = gui.add_button("Back to the clip", hint="Take all turns off again")
        self._clips = ClipControls(gui, moving) if moving.clips else None
        self.elastic: Any = None
        if hasattr(moving, "elastic"):
            self.elastic = gui.add_checkbox("Elastic motion", bool(moving.elastic), hint="What the rig cannot make")
            on_change(self.elastic, self._set_elastic)
        self.export = gui.add_button("Write pose (JSON)")
        on_change(self.show, self._shown)
        on_change(self.joint, self._place_gizmos)
        on_change(self.every, self._place_gizmos)
        on_click(self.clear, lambda _client: self._clear())
        on_click(self.export, self._export)
        stage.overlays.append(self._draw)
        self._place_gizmos()

    def refresh(self) -> None:
        if self._clips is not None:
            self._clips.refresh()
        if self.elastic is not None:
            put(self.elastic, bool(self._moving.elastic))

    def client_left(self, client: int) -> None:
        self._held = {joint: holder for joint, holder in self._held.items() if holder != client}

    def _shown(self) -> None:
        if not self.show.value:
            for node in (self._bones, self._dots):
                if node is not None:
                    node.remove()
            self._bones = self._dots = None
        self._place_gizmos()
        self._stage.draw(force=True)

    def _place_gizmos(self) -> None:
        """Gizmos for the joints that shall have one."""
        one = {self._names.index(self.joint.value)}
        wanted = set(range(len(self._names))) if self.every.value else one
        if not self.show.value:
            wanted = set()
        for joint in set(self._gizmos) - wanted:
            self._gizmos.pop(joint).remove()
        for joint in sorted(wanted - set(self._gizmos)):
            self._gizmos[joint] = self._gizmo(joint)

    def _gizmo(self, joint: int) -> viser.TransformControlsHandle:
        size = (0.07 if self.every.value else 0.14) * self._stage.size
        place = np.asarray(self._moving.joints())[joint]
        gizmo = self._stage.server.scene.add_transform_controls(
            f"/joints/{joint}", size, disable_axes=True, disable_sliders=True, depth_test=False,
            wxyz=rotation_of(place), position=place[:3, 3],
        )  # fmt: skip

        @gizmo.on_update
        async def _(event: viser.TransformControlsEvent) -> None:
            if event.phase == "start" and event.client_id is not None:
                self._held[joint] = event.client_id
            elif event.phase == "end":
                self._held.pop(joint, None)
            else:
                attempt(lambda: self._turn(joint, np.array(gizmo.wxyz)), event.client)

        return gizmo

    def _turn(self, joint: int, wxyz: np.ndarray) -> None:
        """Turn a joint so that it stands as its gizmo does."""
        still = np.asarray(self._moving.untwisted(joint))[:3, :3]
        still = still / np.cbrt(np.linalg.det(still))
        self._moving.set_turn(joint, still.T @ quaternions_to_matrices(wxyz[None])[0])

    def _clear(self) -> None:
        self._moving.clear_turns()
        self._stage.draw(force=True)

    def _set_elastic(self) -> None:
        self._moving.elastic = bool(self.elastic.value)

    def _export(self, client: viser.ClientHandle | None) -> None:
        path = self._output.new("pose", ".json")
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self._moving.pose_json(), indent=1), encoding="utf-8")
        offer(client, path)

    def _draw(self) -> None:
        """With every drawing: the bones, and gizmos that nobody holds where their joints are."""
        if not self.show.value:
            return
        joints = np.asarray(self._moving.joints())
        self._draw_bones(joints)
        for joint, gizmo in list(self._gizmos.items()):
            if joint not in self._held:
                gizmo.position = joints[joint, :3, 3]
                gizmo.wxyz = rotation_of(joints[joint])

    def _draw_bones(self, joints: np.ndarray) -> None:
        parents = np.asarray(self._moving.skeleton.parents)
        children = np.flatnonzero(parents >= 0)
        places = joints[:, :3, 3].astype(np.float32)
        lines = np.stack([places[parents[children]], places[children]], axis=1)
        scene = self._stage.server.scene
        if self._dots is None:
            self._dots = scene.add_point_cloud(
                "/joint_dots", places, _ORANGE, point_size=0.014 * self._stage.size, point_shape="circle",
                precision="float32",
            )  # fmt: skip
            if len(lines):
                self._bones = scene.add_line_segments("/bones", lines, _DARK, thickness=2.5, thickness_units="screen")
            return
        self._dots.points = places
        if self._bones is not None:
            self._bones.points = lines


class ClipControls:
    """Which clip plays, and where it is."""

    def __init__(self, gui: viser.GuiApi, moving: Any) -> None:
        self._moving = moving
        self.clip = gui.add_dropdown("Clip", (NO_CLIP, *moving.clips))
        self.time = gui.add_slider("Time, s", 0.0, 1.0, 0.01, 0.0)
        on_change(self.clip, self._choose)
        on_change(self.time, self._seek)
        self.refresh()

    def refresh(self) -> None:
        """The widgets at what the engine plays."""
        moving = self._moving
        put(self.clip, moving.clip if moving.clip in self.clip.options else NO_CLIP)
        duration = max(float(moving.clip_duration or 0.0), 0.01)
        if abs(self.time.max - duration) > 1e-6:
            self.time.max = duration
        put(self.time, round(float(np.clip(moving.clip_time, 0.0, duration)), 2))

    def _choose(self) -> None:
        self._moving.play_clip(None if self.clip.value == NO_CLIP else self.clip.value)

    def _seek(self) -> None:
        self._moving.pause()
        self._moving.clip_time = float(self.time.value)


def rotation_of(transform: np.ndarray) -> np.ndarray:
    """The ``wxyz`` of a transform's rotation, scales divided out."""
    columns = transform[:3, :3] / np.linalg.norm(transform[:3, :3], axis=0)
    return matrices_to_quaternions(columns[None])[0]
