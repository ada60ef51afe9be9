"""A window on this machine (Polyscope): fields, cubature points and rigs of what moves, as scientific plots.

Splats are drawn as their centres; the browser draws them whole. Everything that a simulation or a rig offers becomes a
structure of its own in Polyscope's list, to be shown, hidden and coloured there.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from splatanim.errors import InputError, require
from viewers.moving import Moving
from viewers.panel_see import weight_colours

_RADIUS = 0.003  # of points, relative to the scene
_ONE_WEIGHT = "weight of the chosen handle"


def show_window(moving: Moving, *, backend: str = "auto", frames: int | None = None) -> str:
    """Show ``moving`` until the window is closed; returns what to say at the end.

    ``backend`` is Polyscope's (``auto``: the one it finds); ``frames`` ends it after so many drawings.

    Raises InputError where polyscope is missing or no window can be opened.
    """
    ps = require("polyscope", extra="viewer")
    ps.set_verbosity(0)
    ps.set_program_name("splatanim")
    ps.set_use_prefs_file(False)
    _open(ps, backend)
    ps.set_frame_tick_limit_fps_mode("block_to_hit_target")  # otherwise the loop below would spin
    scene = WindowScene(ps, moving)
    ps.set_user_callback(scene.tick)
    try:
        left = frames
        while not ps.window_requests_close() and (left is None or left > 0):
            ps.frame_tick()
            left = None if left is None else left - 1
    finally:
        ps.clear_user_callback()
        ps.remove_all_structures()
    return ""


def _open(ps: Any, backend: str) -> None:
    shown = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    try:
        if backend == "auto" and sys.platform.startswith("linux") and not shown:
            raise RuntimeError("neither DISPLAY nor WAYLAND_DISPLAY is set")
        ps.init(backend)
    except RuntimeError as error:
        raise InputError(
            f"--window: no window can be opened here ({error}). Without a screen, look in the browser: leave --window "
            "out."
        ) from error


class WindowScene:
    """The structures of one :class:`Moving` in Polyscope, and the few controls above them."""

    def __init__(self, ps: Any, moving: Any) -> None:
        self._ps, self._moving = ps, moving
        self._version: int | None = None
        self.handle = 0
        ps.set_up_dir(_up_name(np.asarray(moving.up, np.float64)))
        ps.set_ground_plane_mode("none")
        self._clouds: dict[str, Any] = {}
        self._bones: Any = None
        self.refresh()
        self._colour()

    def tick(self) -> None:
        """Once a frame: the controls, and whatever is new."""
        self._controls()
        if self._moving.version != self._version:
            self.refresh()

    def refresh(self) -> None:
        """Bring every structure to the newest state."""
        moving, self._version = self._moving, self._moving.version
        for k, cloud in enumerate(moving.clouds()):
            self._points(f"splats {k + 1} {_name(moving, k)}", cloud.means, cloud.rgbs)
        if hasattr(moving, "points"):
            shown = moving.points()
            self._points("points", shown.positions, shown.rgbs)
        for name, places in (("cubature points", "cubature"), ("contact points", "contact_points")):
            if hasattr(moving, places):
                for body in range(len(moving.bodies)):
                    found = np.asarray(getattr(moving, places)(body), np.float64)
                    if len(found):
                        self._points(f"{name} {body + 1}", found, None)
        if hasattr(moving, "skeleton"):
            self._draw_bones()

    def _points(self, name: str, places: np.ndarray, colours: np.ndarray | None) -> None:
        known = self._clouds.get(name)
        if known is not None and known.n_points() == len(places):
            known.update_point_positions(places)
            return
        cloud = self._ps.register_point_cloud(name, places, radius=_RADIUS, enabled="points " not in name)
        cloud.set_point_render_mode("quad")
        if colours is not None:
            cloud.add_color_quantity("captured", colours, enabled=True)
        self._clouds[name] = cloud

    def _draw_bones(self) -> None:
        places, edges = bones(self._moving)
        if self._bones is None:
            self._bones = self._ps.register_curve_network("bones", places, edges, radius=0.004, color=(0.2, 0.2, 0.2))
        else:
            self._bones.update_node_positions(places)

    def _colour(self) -> None:
        """Handle weights as quantities of the splats' centres: one handle, and all in their hues."""
        moving = self._moving
        if not hasattr(moving, "weights"):
            return
        for body in range(len(moving.bodies)):
            cloud = self._clouds.get(f"splats {body + 1} {_name(moving, body)}")
            weights = np.asarray(moving.weights(body))
            if cloud is None or len(weights) != cloud.n_points():
                continue
            one = weights[:, min(self.handle, weights.shape[1] - 1)]
            cloud.add_scalar_quantity(_ONE_WEIGHT, one, datatype="symmetric", cmap="coolwarm")
            cloud.add_color_quantity("weights of all handles", weight_colours(weights))

    def _controls(self) -> None:
        gui, moving = self._ps.imgui, self._moving
        if gui.Button("Pause" if moving.playing else "Play"):
            moving.pause() if moving.playing else moving.play()
        for label, action in (("Step", moving.step), ("Reset", moving.reset)):
            gui.SameLine()
            if gui.Button(label):
                action()
        readout = moving.readout()
        gui.TextUnformatted(
            f"time {readout.time:.2f} s, step {readout.ms_per_step:.1f} ms, Newton {readout.newton}; kinetic "
            f"{readout.kinetic:.3g} J, elastic {readout.elastic:.3g} J"
        )
        if moving.error:
            gui.TextUnformatted(f"stopped: {moving.error}")
        if hasattr(moving, "weights"):
            changed, self.handle = gui.InputInt("handle", self.handle)
            if changed:
                self.handle = max(self.handle, 0)
                self._colour()


def bones(moving: Any) -> tuple[Float[np.ndarray, "j 3"], Int[np.ndarray, "e 2"]]:
    """Joint positions and the edges from each joint to its parent."""
    parents = np.asarray(moving.skeleton.parents)
    children = np.flatnonzero(parents >= 0)
    return np.asarray(moving.joints())[:, :3, 3], np.stack([parents[children], children], axis=1)


def _name(moving: Any, body: int) -> str:
    return moving.names[body] if body < len(moving.names) else ""


def _up_name(up: np.ndarray) -> str:
    axis = int(np.argmax(np.abs(up)))
    return ("" if up[axis] > 0 else "neg_") + "xyz"[axis] + "_up"
