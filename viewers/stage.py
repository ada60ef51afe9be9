"""What stands in the browser's scene: the splats of every body, points, the ground; sent when they change, else not."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float32

from viewers.moving import Cloud, Moving
from viewers.packing import Packer

if TYPE_CHECKING:
    import viser

Recolour = Callable[[int, Cloud], "Float32[np.ndarray, 'n 3'] | None"]
Overlay = Callable[[], None]
_GRID = 6.0  # the ground's side, in the size of what is seen


class Stage:
    """The scene of one :class:`Moving` on one server.

    :meth:`draw` sends the newest state; it may be called by any thread. ``overlays`` are called with every draw: marks,
    points and bones that move along. ``recolour`` gives other colours for a body, or None for the captured ones.
    """

    def __init__(self, server: viser.ViserServer, moving: Moving) -> None:
        self.server, self.moving = server, moving
        self.size = max(float(np.max(np.asarray(moving.high) - np.asarray(moving.low))), 1e-6)
        self.overlays: list[Overlay] = []
        self.recolour: Recolour = lambda _body, _cloud: None
        self.opacity = 1.0  # times that of the splats, to see what is inside
        self.drawn = 0  # how often the splats were sent
        self._faded: dict[int, tuple[np.ndarray, float, np.ndarray]] = {}
        self._bodies: list[tuple[Packer, viser.GaussianSplatHandle]] = []
        self._points: viser.PointCloudHandle | None = None
        self._lock = threading.Lock()
        self._version: int | None = None
        up = tuple(float(v) for v in moving.up)
        server.scene.set_up_direction(up)  # type: ignore[arg-type]
        self._first_view()
        self._ground = Ground(server, self.size)

    def draw(self, force: bool = False) -> bool:
        """Send the newest state; whether anything was sent (never twice the same, unless forced)."""
        with self._lock:
            version = self.moving.version
            if version == self._version and not force:
                return False
            clouds = self.moving.clouds()
            with self.server.atomic():
                for body, cloud in enumerate(clouds):
                    self._draw_body(body, cloud)
                self._remove_from(len(clouds))
                self._draw_points()
                if hasattr(self.moving, "floor"):
                    self._ground.place(self.moving.floor())
                for overlay in list(self.overlays):
                    overlay()
            self._version = version
            self.drawn += 1
            return True

    def show_splats(self, visible: bool) -> None:
        """Hide the splats, as where bones or points are to be seen; or show them again."""
        for _, node in self._bodies:
            node.visible = visible

    def _draw_body(self, body: int, cloud: Cloud) -> None:
        colours = self.recolour(body, cloud)
        if colours is not None:
            cloud = dataclasses.replace(cloud, rgbs=colours)
        if self.opacity != 1.0:
            cloud = dataclasses.replace(cloud, opacities=self._fade(body, cloud.opacities))
        if body < len(self._bodies) and len(self._bodies[body][0]) == len(cloud.means):
            packer, node = self._bodies[body]
            node.buffer = packer.pack(cloud)
            return
        packer = Packer(cloud)
        node = self.server.scene.add_gaussian_splats(
            f"/bodies/{body}",
            cloud.means * np.float32(packer.unit),
            cloud.covariances * np.float32(packer.unit**2),
            cloud.rgbs,
            cloud.opacities[:, None],
            scale=1.0 / packer.unit,
        )
        self._bodies[body : body + 1] = [(packer, node)]

    def _fade(self, body: int, opacities: np.ndarray) -> np.ndarray:
        """Opacities times :attr:`opacity`; the same array as long as neither changes, which spares the packing."""
        known = self._faded.get(body)
        if known is None or known[0] is not opacities or known[1] != self.opacity:
            scaled = (opacities * np.float32(self.opacity)).astype(np.float32)
            known = self._faded[body] = (opacities, self.opacity, scaled)
        return known[2]

    def _remove_from(self, count: int) -> None:
        for _, node in self._bodies[count:]:
            node.remove()
        del self._bodies[count:]

    def _draw_points(self) -> None:
        """The coloured points of what has such (PAPR assets)."""
        points = getattr(self.moving, "points", None)
        if points is None:
            return
        shown = points()
        if self._points is None:
            self._points = self.server.scene.add_point_cloud(
                "/points",
                shown.positions,
                shown.rgbs,
                point_size=shown.size,
                point_shape="circle",
                point_shading="flat",
                precision="float32",
            )
        else:
            self._points.points = shown.positions

    def _first_view(self) -> None:
        """A three-quarter view of the whole for every browser that connects."""
        from splatanim.render.camera import box_corners, frame_object
        from viewers.camera_path import browser_pose

        low, high = np.asarray(self.moving.low, np.float64), np.asarray(self.moving.high, np.float64)
        corners = box_corners(low, high)
        self.camera = frame_object(corners, self.moving.up, width=640, height=640, margin=0.2)
        _, position, fov, _ = browser_pose(self.camera)
        centre = 0.5 * (low + high)
        start = self.server.initial_camera
        start.position, start.look_at, start.fov = position, centre, fov
        start.up = np.asarray(self.moving.up, np.float64)
        start.near, start.far = 0.01 * self.size, 100.0 * self.size


class Ground:
    """The grid that stands for the floor; hidden where there is none. Sent only when the floor has moved."""

    def __init__(self, server: viser.ViserServer, size: float) -> None:
        side = _GRID * size
        self._grid = server.scene.add_grid(
            "/ground",
            width=side,
            height=side,
            plane="xy",
            cell_size=0.25 * size,
            section_size=size,
            cell_color=(215, 215, 215),
            section_color=(170, 170, 170),
            shadow_opacity=0.0,
            fade_distance=3.0 * side,
            visible=False,
        )
        self._placed: tuple[float, ...] | None = None

    def place(self, floor: tuple[np.ndarray, np.ndarray] | None) -> None:
        """Through a point, facing a normal; None hides it."""
        placed = None if floor is None else tuple(float(v) for v in np.concatenate(floor))
        if placed == self._placed:
            return
        self._placed = placed
        self._grid.visible = floor is not None
        if floor is not None:
            self._grid.position, self._grid.wxyz = np.asarray(floor[0]), facing(floor[1])


def facing(normal: np.ndarray) -> np.ndarray:
    """The ``wxyz`` turn from z to ``normal``, the shortest one."""
    n = np.asarray(normal, np.float64) / np.linalg.norm(normal)
    if n[2] < -1 + 1e-9:
        return np.array([0.0, 1.0, 0.0, 0.0])
    q = np.array([1.0 + n[2], -n[1], n[0], 0.0])
    return q / np.linalg.norm(q)
