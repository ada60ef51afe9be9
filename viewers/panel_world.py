"""The world around an object, and what it is made of: gravity, floor, wind, materials, and things dropped in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float64

from splatanim.dynamics.materials import PRESETS, preset
from viewers.controls import on_change, on_click, put

if TYPE_CHECKING:
    import viser

EARTH = 9.81  # m/s^2
_YOUNG = (2.0, 11.0)  # log10 of E [Pa] that the slider spans: slime to steel
_DENSITY = (10.0, 9000.0)  # kg/m^3
CUSTOM = "(own numbers)"


class WorldPanel:
    """Gravity, floor and wind. Directions are relative to up and two axes across it."""

    def __init__(self, gui: viser.GuiApi, moving: Any) -> None:
        self._moving = moving
        self._across = across(np.asarray(moving.up, np.float64))
        with gui.add_folder("Gravity"):
            self.strength = gui.add_slider("m/s²", 0.0, 20.0, 0.01, EARTH)
            self.lean = [gui.add_slider(name, -180, 180, 1, 0) for name in ("Lean, °", "Lean sideways, °")]
        with gui.add_folder("Floor"):
            self.height = gui.add_slider("Height, m", -2.0, 1.0, 0.01, 0.0, hint="Against where it stood at first")
            self.tilt = [gui.add_slider(name, -45.0, 45.0, 0.5, 0.0) for name in ("Tilt, °", "Tilt sideways, °")]
        with gui.add_folder("Wind", expand_by_default=False):
            self.wind = gui.add_slider("m/s", 0.0, 30.0, 0.1, 0.0)
            self.heading = gui.add_slider("From, °", 0, 360, 5, 0)
        for widget in (self.strength, *self.lean):
            on_change(widget, self._set_gravity)
        for widget in (self.height, *self.tilt):
            on_change(widget, self._set_floor)
        for widget in (self.wind, self.heading):
            on_change(widget, self._set_wind)

    def refresh(self) -> None:
        """Nothing changes but by hand."""

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _set_gravity(self) -> None:
        up = np.asarray(self._moving.up, np.float64)
        turn = turned(self._across, (float(self.lean[0].value), float(self.lean[1].value)))
        self._moving.set_gravity(-self.strength.value * turn @ up)

    def _set_floor(self) -> None:
        tilt = (float(self.tilt[0].value), float(self.tilt[1].value))
        self._moving.set_floor(float(self.height.value), tilt)

    def _set_wind(self) -> None:
        angle = np.radians(self.heading.value)
        direction = np.cos(angle) * self._across[0] + np.sin(angle) * self._across[1]
        self._moving.set_wind(-self.wind.value * direction)


class MaterialPanel:
    """What each body is made of; every change applies at the next step."""

    def __init__(self, gui: viser.GuiApi, moving: Any) -> None:
        self._moving, self._gui = moving, gui
        names = [body.name for body in moving.bodies]
        self.body = gui.add_dropdown("Body", _numbered(names), visible=len(names) > 1)
        self.preset = gui.add_dropdown("Material", (CUSTOM, *PRESETS))
        self.young = gui.add_slider("E, log10 Pa", *_YOUNG, 0.05, 4.0, hint="Young's modulus: how stiff it is")
        self.number = gui.add_markdown("")
        self.poisson = gui.add_slider("Poisson ν", 0.0, 0.49, 0.01, 0.4, hint="How much it keeps its volume")
        self.density = gui.add_slider("Density, kg/m³", *_DENSITY, 10.0, 1000.0)
        on_change(self.body, self._show)
        on_change(self.preset, self._set_preset)
        on_change(self.young, lambda: self._set(young=10.0**self.young.value))
        on_change(self.poisson, lambda: self._set(poisson=float(self.poisson.value)))
        on_change(self.density, lambda: self._set(density=float(self.density.value)))
        self._show()

    @property
    def chosen(self) -> int:
        """The index of the body that the sliders speak of."""
        return self.body.options.index(self.body.value)

    def refresh(self) -> None:
        names = _numbered([body.name for body in self._moving.bodies])
        if names != tuple(self.body.options):
            self.body.options = names
            self.body.visible = len(names) > 1

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _show(self) -> None:
        """The sliders at the chosen body's material."""
        material = self._moving.bodies[self.chosen].material
        put(self.preset, material.name if material.name in self.preset.options else CUSTOM)
        self._place(material.young, material.poisson, material.density)

    def _place(self, young: float, poisson: float, density: float) -> None:
        put(self.young, float(np.clip(np.log10(young), *_YOUNG)))
        put(self.poisson, float(np.clip(poisson, 0.0, 0.49)))
        put(self.density, float(np.clip(density, *_DENSITY)))
        self._say(young)

    def _say(self, young: float) -> None:
        self.number.content = f"E = {pressure(young)}"

    def _set_preset(self) -> None:
        if self.preset.value == CUSTOM:
            return
        self._moving.set_material(self.chosen, preset=self.preset.value)
        material = preset(self.preset.value)
        self._place(material.young, material.poisson, material.density)

    def _set(self, **change: float) -> None:
        self._moving.set_material(self.chosen, **change)
        put(self.preset, CUSTOM)
        if "young" in change:
            self._say(change["young"])


class DropPanel:
    """A further object, dropped in while all goes on."""

    def __init__(self, gui: viser.GuiApi, moving: Any, choices: Sequence[str]) -> None:
        self._moving = moving
        self.what = gui.add_dropdown("Object", tuple(choices), hint="Bundled samples, and the files of --drop")
        self.height = gui.add_slider("Above, m", 0.1, 3.0, 0.05, 0.6)
        self.button = gui.add_button("Drop it in")
        on_click(self.button, self._drop)

    def refresh(self) -> None:
        """Nothing changes but by hand."""

    def client_left(self, client: int) -> None:
        """Nothing is held."""

    def _drop(self, client: viser.ClientHandle | None) -> None:
        self.button.disabled = True
        try:
            low, high = np.asarray(self._moving.low, np.float64), np.asarray(self._moving.high, np.float64)
            up = np.asarray(self._moving.up, np.float64)
            middle = 0.5 * (low + high)
            top = float(np.maximum(low * up, high * up).sum())
            self._moving.drop(self.what.value, middle + (top + self.height.value - middle @ up) * up)
        finally:
            self.button.disabled = False


def across(up: np.ndarray) -> Float64[np.ndarray, "2 3"]:
    """Two unit vectors at right angles to ``up`` and each other: the first is the front's."""
    from splatanim.render.camera import view_direction

    front = -view_direction(up, 0.0, 0.0)
    return np.stack([front, np.cross(up / np.linalg.norm(up), front)])


def turned(axes: Float64[np.ndarray, "2 3"], degrees: tuple[float, float]) -> Float64[np.ndarray, "3 3"]:
    """The rotation that leans up by the first angle towards the first axis, then by the second towards the second."""
    from scipy.spatial.transform import Rotation

    first, second = np.radians(degrees)
    return (Rotation.from_rotvec(first * axes[1]) * Rotation.from_rotvec(-second * axes[0])).as_matrix()


def pressure(value: float) -> str:
    """A modulus with its unit, such as 12 kPa."""
    for unit, size in (("GPa", 1e9), ("MPa", 1e6), ("kPa", 1e3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g} Pa"


def _numbered(names: Sequence[str]) -> tuple[str, ...]:
    """Names made unique, as a dropdown needs them."""
    return tuple(f"{k + 1} {name}" for k, name in enumerate(names)) or ("(none)",)
