"""``splatanim bench verify``: dynamics against closed forms and conservation laws, as a Markdown table.

Each case is a short function that gives rows (what, measured, wanted, whether it is met). Everything is seeded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from splatanim.binding import Handles, shape_functions
from splatanim.data import Cubature, Domain, Frame, Material, Mesh
from splatanim.dynamics.contact import Plane, PlaneContact
from splatanim.dynamics.dilation import AveragedElasticity
from splatanim.dynamics.integrators import Integrator
from splatanim.dynamics.materials import preset
from splatanim.dynamics.newton import Term, minimise
from splatanim.dynamics.reduced import ReducedModel, reduce
from splatanim.dynamics.regions import Region, rotation_about, translation
from splatanim.dynamics.rigid import rigid_model
from splatanim.dynamics.simulate import Settings, State, placed_state
from splatanim.dynamics.terms import Step, gravity
from splatanim.dynamics.world import Actor, World, WorldTrajectory, simulate_world
from splatanim.errors import InputError

G = 9.81
DOWN, UP, ACROSS = np.array([0.0, 0.0, -G]), np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 0.0])
STILL = np.zeros((3, 4))
INTEGRATORS: tuple[Integrator, ...] = ("euler", "bdf2")


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    case: str
    measured: str
    wanted: str
    met: bool


def box_cubature(cells: tuple[int, int, int], spacing: float, count: int = 256) -> Cubature:
    """A box of voxels about the origin, with at most ``count`` integration points and contact points on its faces."""
    from splatanim.sampling.cubature import spread

    grid = np.stack(np.meshgrid(*(np.arange(n) for n in cells), indexing="ij"), axis=-1).reshape(-1, 3)
    half = 0.5 * spacing * np.array(cells, float)
    domain = Domain(grid, -half, spacing)
    points, volumes = spread(domain, count)
    faces = np.stack(np.meshgrid(*(np.linspace(-h, h, 7) for h in half), indexing="ij"), axis=-1).reshape(-1, 3)
    faces = faces[(np.abs(np.abs(faces) - half) < 1e-9 * half).any(axis=1)]
    return Cubature(points, volumes, faces, domain, "box")


def soft(cubature: Cubature, material: Material, handles: int = 4, regions: tuple[Region, ...] = ()) -> ReducedModel:
    from splatanim.field.gaussians import bind_gaussians

    return reduce(cubature, Handles(bind_gaussians(cubature.domain, handles), regions), material)


def floor(model: ReducedModel, height: float) -> PlaneContact:
    return PlaneContact(model, Plane(np.array([0.0, 0.0, height]), UP, ACROSS), model.material.friction, G)


def centres(model: ReducedModel, trajectory) -> np.ndarray:
    """The centre of mass in every frame (T, 3)."""
    values, _ = shape_functions(model.rest, *model.handles.evaluate(model.rest))
    mean = model.masses @ values / model.mass
    flat = trajectory.handles.transpose(0, 2, 1, 3).reshape(len(trajectory.handles), 3, -1)
    return model.masses @ model.rest / model.mass + flat @ mean


# --- one body --------------------------------------------------------------------------------------------------------


def cantilever() -> list[Row]:
    """A bar 1 x 1/4 x 1/4 m held at one end: where it comes to rest, and how fast it swings, with both integrators."""
    young, density, length, height, light = 1e6, 1000.0, 1.0, 0.25, 0.01
    area, inertia, poisson = height**2, height**4 / 12, 0.3
    region = Region((-np.inf,) * 3, (-0.5, np.inf, np.inf), 0.2)
    model = soft(box_cubature((48, 12, 12), 1 / 48, 1024), Material("bar", young, poisson, density), 16, (region,))
    shear, kappa = young / (2 * (1 + poisson)), 10 * (1 + poisson) / (12 + 11 * poisson)
    load = density * area * light
    deflection = load * length**4 / (8 * young * inertia) + load * length**2 / (2 * kappa * shear * area)
    frequency = 3.516 * np.sqrt(young * inertia / (density * area * length**4)) / (2 * np.pi)
    terms: list[Term] = [AveragedElasticity(model), gravity(model, np.array([0.0, 0.0, -light]))]
    held = model.held_coordinates(0.0)
    zero = np.zeros(model.dof)
    for term in terms:
        term.begin_step(Step(0.0, 1.0, zero, zero, held, held, held))  # type: ignore[attr-defined]
    y, _ = minimise(terms, zero, tolerance=1e-6, unit=1 / (model.mass**0.5 * light))
    end = np.isclose(model.contact_rest[:, 0], 0.5)
    sag = -(model.contact_positions(y, held) - model.contact_rest)[end, 2].mean()
    rows = [_share("cantilever's deflection against Timoshenko", sag / deflection, 0.05)]
    for integrator in INTEGRATORS:
        settings = Settings(100, 100.0, 1, integrator=integrator)
        world = simulate_world(World((Actor("bar", model, (), State(y, y)),)), settings)
        tip = np.array([_tip(model, z, end) for z in world.trajectories[0].handles])
        rows.append(_share(f"first frequency against Euler-Bernoulli, {integrator}", _rate(tip) / frequency, 0.10))
    return rows


def _tip(model: ReducedModel, z: np.ndarray, end: np.ndarray) -> float:
    values, _ = shape_functions(model.contact_rest[end], *model.handles.evaluate(model.contact_rest[end]))
    return float((values @ z[:, 2].reshape(-1)).mean())


def _rate(signal: np.ndarray, dt: float = 0.01) -> float:
    """The frequency of a swing about zero [Hz], from its zero crossings."""
    k = np.flatnonzero(np.signbit(signal[:-1]) != np.signbit(signal[1:]))
    at = (k + signal[k] / (signal[k] - signal[k + 1])) * dt
    return 0.5 * (len(at) - 1) / (at[-1] - at[0])


def _share(case: str, ratio: float, limit: float) -> Row:
    return Row(case, f"{100 * (ratio - 1):+.1f} %", f"within {100 * limit:.0f} %", abs(ratio - 1) <= limit)


def bounce() -> list[Row]:
    rows, curves, aloft = [], {}, 90
    for integrator in INTEGRATORS:
        model = soft(box_cubature((10, 10, 10), 0.1, 216), Material("ball", 2e5, 0.3, 1000.0, friction=0.0))
        actor = Actor("ball", model, (gravity(model, DOWN), floor(model, -1.0)))
        world = simulate_world(World((actor,)), Settings(91, 30.0, 8, integrator=integrator))
        height = centres(model, world.trajectories[0])[:, 2]
        total = world.kinetic[:, 0] + world.elastic[:, 0] + model.mass * G * (height + 0.5)
        clear = np.flatnonzero(height > -0.46)
        gain = np.diff(total[clear]).max() / total[0]
        curves[integrator], aloft = total / total[0], min(aloft, int(clear[-1]))
        rows.append(Row(f"bouncing ball, gain of energy, {integrator}", f"{100 * gain:.2f} %", "< 0.5 %", gain < 5e-3))
    losses = {name: 1 - curve[aloft] for name, curve in curves.items()}  # at one moment: the first ball's last flight
    text = ", ".join(f"{name} {100 * loss:.0f} %" for name, loss in losses.items())
    case = f"bouncing ball, energy lost in {aloft / 30:.1f} s"
    rows.append(Row(case, text, "bdf2 loses less", losses["bdf2"] < losses["euler"]))
    return rows


def ramp() -> list[Row]:
    """A block put down on a slope slides if and only if tan(angle) > mu."""
    rows = []
    for degrees in (15.0, 20.0, 30.0):
        for share in (0.9, 1.1):
            mu, angle = np.tan(np.radians(degrees)) * share, np.radians(degrees)
            model = soft(box_cubature((8, 8, 3), 1 / 8), Material("stone", 1e6, 0.3, 1000.0, friction=mu))
            foot = np.array([0.0, 0.0, model.contact_rest[:, 2].min()])
            normal, down = np.array([np.sin(angle), 0, np.cos(angle)]), np.array([np.cos(angle), 0, -np.sin(angle)])
            contact = PlaneContact(model, Plane(foot - 0.0025 * normal, normal, down), mu, G)
            settings = Settings(61, 30.0, 2)
            state = placed_state(model, rotation_about(np.array([0, 1.0, 0]), angle, foot), STILL, settings.h)
            world = simulate_world(World((Actor("block", model, (gravity(model, DOWN), contact), state),)), settings)
            path = centres(model, world.trajectories[0]) @ down
            speed, slides = (path[-1] - path[-4]) * 10.0, share < 1
            expected = G * (np.sin(angle) - mu * np.cos(angle)) * 2.0
            ok = speed > 0.5 * expected if slides else abs(speed) < 5e-3
            wanted = f"slides, {expected:.2f} m/s after 2 s" if slides else "holds, under 0.005 m/s"
            rows.append(Row(f"block, {degrees:.0f} degrees, mu = {share} tan", f"{speed:.3f} m/s", wanted, ok))
    return rows


# --- several ---------------------------------------------------------------------------------------------------------


def stack(size: float = 0.3) -> list[Row]:
    """Five rubber blocks (E = 1e6 Pa) on each other for 4 s: how far they go sideways or down after the first second.

    (Half as high as wide: 30 x 30 x 15 cm stand far below the height at which their own weight would buckle the tower,
    1 x 1 x 0.5 m at two thirds of it.)
    """
    settings, actors = Settings(121, 30.0, 4), []
    for level in range(5):
        model = soft(box_cubature((16, 16, 8), size / 16), preset("rubber"))
        place = translation(size * np.array([0.01 * (level % 2), 0.0, 0.0015 + level * 0.504]))
        state = placed_state(model, place, STILL, settings.h)
        actors.append(Actor(f"block {level}", model, (gravity(model, DOWN), floor(model, -0.25 * size)), state))
    world = simulate_world(World(tuple(actors)), settings)
    paths = np.stack([centres(a.model, t) for a, t in zip(actors, world.trajectories, strict=True)])
    drift = np.linalg.norm(paths[:, -1] - paths[:, 30], axis=1).max() / size
    label = f"stack of 5, {size:g} m"
    return [
        Row(f"{label}, drift from 1 s to 4 s", f"{100 * drift:.2f} % of size", "< 0.5 %", drift < 5e-3),
        Row(f"{label}, smallest gap", f"{world.smallest_gap:.3f} of reach", "> 0", world.smallest_gap > 0),
        Row(f"{label}, steps converged", _percent(world), ">= 99 %", world.converged_fraction >= 0.99),
    ]


def collision() -> list[Row]:
    """Two bodies, one three times as heavy and one of them rigid, meet off centre: total momentum before and after."""
    rows = []
    for integrator in INTEGRATORS:
        settings = Settings(31, 30.0, 4, integrator=integrator)
        one = soft(box_cubature((12, 12, 12), 1 / 12), Material("a", 2e5, 0.4, 1000.0))
        two, rigidity = rigid_model(box_cubature((12, 12, 12), 1 / 12), Material("b", 1e9, 0.3, 3000.0))
        speed = [np.array([2.0, 0.0, 0.3]), np.array([-1.0, 0.1, 0.0])]
        places = [np.array([-0.8, 0.0, 0.0]), np.array([0.8, 0.2, 0.1])]
        states = [
            placed_state(m, translation(p), translation(v), settings.h)
            for m, p, v in zip((one, two), places, speed, strict=True)
        ]
        world = simulate_world(World((Actor("a", one, (), states[0]), Actor("b", two, rigidity, states[1]))), settings)
        paths = [centres(m, t) for m, t in zip((one, two), world.trajectories, strict=True)]
        momentum = 30.0 * (one.mass * np.diff(paths[0], axis=0) + two.mass * np.diff(paths[1], axis=0))
        scale = one.mass * np.linalg.norm(speed[0])
        change = np.linalg.norm(momentum[-1] - momentum[0]) / scale
        met = bool(change < 0.01 and np.isfinite(world.gaps).any() and world.smallest_gap > 0)
        rows.append(
            Row(f"collision, change of momentum, {integrator}", f"{100 * change:.4f} %", "< 1 %, after a hit", met)
        )
    return rows


def falling(seconds: float = 5.0, integrator: Integrator = "euler") -> list[Row]:
    """Ten random bodies, half of them rigid, fall onto each other and a floor."""
    rng = np.random.default_rng(0)
    settings, actors = Settings(round(30 * seconds) + 1, 30.0, 4, integrator=integrator), []
    for index in range(10):
        cubature = _random_body(rng)
        material = Material("m", 10 ** rng.uniform(4.7, 6), 0.4, rng.uniform(300, 1500), friction=rng.uniform(0.3, 0.7))
        terms: tuple[Term, ...] = ()
        if index % 2:
            model, terms = rigid_model(cubature, material)
        else:
            model = soft(cubature, material)
        spot = np.array([0.4 * (-1) ** index, 0.1 * (index // 2 % 2), 0.6 + 0.6 * index])
        turn = rotation_about(rng.normal(size=3), 1.0, np.zeros(3)) + translation(spot + rng.uniform(-0.05, 0.05, 3))
        state = placed_state(model, turn, translation(rng.uniform(-0.3, 0.3, 3)), settings.h)
        actors.append(Actor(f"body {index}", model, (*terms, gravity(model, DOWN), floor(model, 0.0)), state))
    start = time.process_time()
    world = simulate_world(World(tuple(actors)), settings)
    cpu = time.process_time() - start
    label = f"10 falling bodies, {integrator}"
    iterations = float(np.mean([report.iterations for report in world.reports]))
    sunk = max(t.penetration for t in world.trajectories)
    return [
        Row(f"{label}, smallest gap", f"{world.smallest_gap:.4f} of reach", "> 0", world.smallest_gap > 0),
        Row(f"{label}, steps converged", _percent(world), ">= 99 %", world.converged_fraction >= 0.99),
        Row(f"{label}, steps cut", f"{sum(n > 1 for n in world.substeps)} of {len(world.substeps)}", "reported", True),
        Row(f"{label}, deepest under the floor", f"{100 * sunk:.3f} % of size", "< 0.5 %", sunk < 5e-3),
        Row(f"{label}, speed", f"{seconds / cpu:.2f} x real time, {iterations:.1f} iterations", "reported", True),
    ]


def _random_body(rng: np.random.Generator) -> Cubature:
    """A box, ball or torus of random proportions, 0.3 to 0.6 m long."""
    import trimesh

    from splatanim.sampling.cubature import cubature_from_mesh

    size = rng.uniform(0.3, 0.6)
    kind = rng.integers(3)
    if kind == 0:
        mesh = trimesh.creation.box(rng.uniform(0.4, 1.0, 3))
    elif kind == 1:
        mesh = trimesh.creation.icosphere(3)
    else:
        mesh = trimesh.creation.torus(1.0, rng.uniform(0.3, 0.5))
    vertices = np.array(mesh.vertices) * (size / np.ptp(mesh.vertices, axis=0).max())
    frame = Frame((0.0, 0.0, 0.0), 1.0, (0.0, 0.0, 1.0))
    shape = Mesh(np.ascontiguousarray(vertices, np.float64), np.array(mesh.faces))
    return cubature_from_mesh(shape, frame, count=200, contact_count=200, resolution=24)


HOSTILE = {
    "h = 1/15 s, E = 1e3, rho = 5000": (1.0, Material("m", 1e3, 0.45, 5000.0), Settings(31, 15.0, 1)),
    "E = 1e9": (1.0, Material("m", 1e9, 0.3, 1500.0), Settings(31, 30.0, 1)),
    "1 mm": (1e-3, Material("m", 2e4, 0.3, 500.0), Settings(31, 30.0, 4)),
    "1 km": (1e3, Material("m", 2e7, 0.3, 500.0), Settings(31, 30.0, 4)),
    "4 cubature points for 5 handles": (1.0, Material("m", 2e4, 0.3, 500.0), Settings(31, 30.0, 4)),
    "3 cubature points for 5 handles": (1.0, Material("m", 2e4, 0.3, 500.0), Settings(31, 30.0, 4)),
}


def hostile() -> list[Row]:
    """Two bodies fall on a floor and each other under settings that break simulators: finite, and said how it went."""
    rows = []
    for name, (size, material, settings) in HOSTILE.items():
        actors = []
        for index in range(2):
            count = int(name[0]) if "cubature points" in name else 200
            model = soft(box_cubature((10, 8, 6), size / 10, count), material)
            place = translation(np.array([0.02 * index, 0.0, (0.35 + 0.7 * index) * size]))
            state = placed_state(model, place, STILL, settings.h)
            actors.append(Actor(f"body {index}", model, (gravity(model, DOWN), floor(model, 0.0)), state))
        try:
            world = simulate_world(World(tuple(actors)), settings)
        except InputError as error:  # three points lie in a plane: the mass matrix is singular
            text = "refused at once" if "mass matrix is singular" in str(error) else str(error)
            rows.append(Row(f"hostile: {name}", text, "refused, and why", text == "refused at once"))
            continue
        finite = all(np.isfinite(t.handles).all() for t in world.trajectories)
        said = all(report.converged for report in world.reports) or len(world.notes) > 0
        text = f"{'finite' if finite else 'NOT FINITE'}, {_percent(world)} converged, gap {world.smallest_gap:.3g}"
        rows.append(Row(f"hostile: {name}", text, "finite, reported", finite and said))
    return rows


def _percent(world: WorldTrajectory) -> str:
    return f"{100 * world.converged_fraction:.1f} %"


CASES: dict[str, Callable[[], list[Row]]] = {
    "cantilever": cantilever,
    "bounce": bounce,
    "ramp": ramp,
    "stack": stack,
    "stack_1m": lambda: stack(1.0),
    "collision": collision,
    "hostile": hostile,
    "falling": falling,
    "falling_bdf2": lambda: falling(integrator="bdf2"),
}


def table(rows: Sequence[Row]) -> str:
    """Rows as a Markdown table."""
    lines = ["| case | measured | wanted | met |", "| --- | --- | --- | --- |"]
    return "\n".join(
        [*lines, *(f"| {r.case} | {r.measured} | {r.wanted} | {'yes' if r.met else 'NO'} |" for r in rows)]
    )


@dataclass(frozen=True)
class VerifyDynamicsConfig:
    """Hold dynamics against closed forms and conservation laws; prints a Markdown table.

    Args:
        cases: Which of cantilever, bounce, ramp, stack, stack_1m, collision, hostile, falling and falling_bdf2.
    """

    cases: tuple[str, ...] = tuple(CASES)


def verify_dynamics(config: VerifyDynamicsConfig) -> str:
    """The table of the cases; raises :class:`InputError` for one that there is not."""
    for name in config.cases:
        if name not in CASES:
            raise InputError(f"bench verify: there is no case {name!r}. There are: {', '.join(CASES)}.")
    return table([row for name in config.cases for row in CASES[name]()])


if __name__ == "__main__":
    import tyro

    print(verify_dynamics(tyro.cli(VerifyDynamicsConfig)))
