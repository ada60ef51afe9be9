"""Training shapes: a folder of meshes, filled on a 48-cubed grid with its exact Neumann modes, in a compact cache."""

from __future__ import annotations

import csv
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int
from scipy import ndimage

from splatanim.data import Domain, Mesh
from splatanim.errors import InputError
from splatanim.field.eigenmodes import neumann_modes
from splatanim.field.neural_surface import Surface, surface_of

SUFFIXES = (".ply", ".obj", ".off", ".stl", ".glb", ".gltf")
GRID = 48  # voxels across the box [-1.1, 1.1]^3 that a shape of longest side 2 is filled in
MODES = 24  # exact modes kept per shape, the constant included
CANDIDATES = 6000  # voxels that training draws its points from
SURFACE = 4096  # surface points kept
FEWEST = 60  # voxels below which a shape teaches nothing
_SPACING = 2.2 / GRID
_SURFACE_SAMPLES = 40_000
_VERSION = 1


class Skipped(ValueError):
    """A mesh that cannot be used; the text is the reason that is counted."""


@dataclass(frozen=True)
class Shape:
    """One preprocessed shape, in coordinates where the filled voxels span [-1, 1]^3 (longest side).

    ``rows`` (c,) are voxels of the domain; ``points`` are their centres and ``modes`` (c, k) the exact Neumann modes
    there (mean square 1 over the domain, the constant first); ``levels`` (k,) are their eigenvalues.
    """

    name: str
    split: str
    domain: Domain
    surface: Surface
    rows: Int[np.ndarray, " c"]
    modes: np.ndarray
    levels: Float64[np.ndarray, " k"]
    parts: int

    @property
    def points(self) -> Float64[np.ndarray, "c 3"]:
        return self.domain.centres[self.rows]


@dataclass
class Dataset:
    """Usable shapes, and how many files were skipped for what reason."""

    shapes: list[Shape] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)

    def split(self, name: str) -> list[Shape]:
        return [shape for shape in self.shapes if shape.split == name]

    def summary(self) -> str:
        """``490 shapes for training, 40 for validation, 3 skipped (2 with NaN or infinite vertices, ...)``."""
        text = f"{len(self.split('train'))} shapes for training, {len(self.split('val'))} for validation"
        if self.skipped:
            reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self.skipped.items()))
            text += f", {sum(self.skipped.values())} skipped ({reasons})"
        return text


def load_dataset(folder: Path, cache: Path, tick: Callable[[], None] = lambda: None) -> Dataset:
    """Every mesh of a folder (``index.csv`` with columns file and split, where there is one), filled once and cached.

    ``cache``: a folder for the results; a file that changes is filled anew. ``tick`` is called once a mesh. Meshes
    that cannot be used are counted by reason in :attr:`Dataset.skipped`.

    Raises :class:`InputError` when the folder does not exist or holds no usable mesh.
    """
    cache.mkdir(parents=True, exist_ok=True)
    data = Dataset()
    for path, split in mesh_files(folder):
        try:
            data.shapes.append(_cached(path, split, cache))
        except Skipped as reason:
            data.skipped[str(reason)] += 1
        tick()
    if not data.split("train"):
        raise InputError(
            f"{folder}: no usable mesh for training ({data.summary()}). Put closed meshes into it "
            f"({', '.join(SUFFIXES)}), or check the column `split` of its index.csv."
        )
    return data


def mesh_files(folder: Path) -> list[tuple[Path, str]]:
    """(file, split) of a folder's meshes, by name; all are ``train`` where there is no index.csv."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder. Give the folder that holds the meshes to train on.")
    index = folder / "index.csv"
    if index.is_file():
        with index.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        if rows and "file" in rows[0]:
            return [(folder / row["file"], row.get("split") or "train") for row in rows]
        raise InputError(f"{index}: has no column `file`. It needs file and split, or delete it to use every mesh.")
    return [(path, "train") for path in sorted(folder.iterdir()) if path.suffix.lower() in SUFFIXES]


def read_mesh(path: Path) -> Mesh:
    """A mesh file as one :class:`Mesh`; raises :class:`Skipped`."""
    import trimesh

    try:
        loaded: Any = trimesh.load(path, force="mesh", process=False)
        broken = not np.isfinite(loaded.vertices).all()
        loaded.merge_vertices()
        vertices, faces = np.asarray(loaded.vertices, np.float64), np.asarray(loaded.faces, np.int64)
    except Exception as error:  # readers of eight formats raise whatever they like
        raise Skipped("that cannot be read") from error
    if broken:
        raise Skipped("with NaN or infinite vertices")
    if not len(faces):
        raise Skipped("without faces")
    return Mesh(vertices, faces)


def fill(mesh: Mesh) -> Domain:
    """The voxels of a mesh scaled to longest side 2: its surface and what that encloses; raises :class:`Skipped`.

    An open mesh is closed over gaps of up to four voxels. Thin closed parts stay as their surface voxels.
    """
    used = mesh.vertices[np.unique(mesh.faces)]
    low, high = used.min(axis=0), used.max(axis=0)
    extent = high - low
    if not extent.min() > 1e-4 * max(extent.max(), 1e-30):
        raise Skipped("without volume")
    from splatanim.sampling.surface import sample_surface

    scaled = Mesh((mesh.vertices - (low + high) / 2) * (2.0 / extent.max()), mesh.faces)
    points, _ = sample_surface(scaled, _SURFACE_SAMPLES, seed=1, sharp_fraction=0.1)
    cells = np.floor((points + 1.1) / _SPACING).astype(np.int64)
    shell = np.zeros((GRID,) * 3, bool)
    shell[tuple(cells.T)] = True
    filled = ndimage.binary_fill_holes(shell)
    if (filled & ~shell).sum() < 50:
        filled = ndimage.binary_fill_holes(ndimage.binary_closing(shell, iterations=2)) | shell
        if (filled & ~shell).sum() < 0.02 * shell.sum() and _open(scaled):
            raise Skipped("whose surface is open, so that it cannot be filled")
    return domain_of(filled)


def domain_of(filled: Bool[np.ndarray, "x y z"]) -> Domain:
    """The occupied voxels of a grid, moved and scaled so that they span [-1, 1]^3; raises :class:`Skipped`."""
    cells = np.argwhere(filled)
    if len(cells) < FEWEST:
        raise Skipped("that fill too few voxels")
    low, high = cells.min(axis=0), cells.max(axis=0) + 1
    spacing = 2.0 / float((high - low).max())
    return Domain(cells - low, -(high - low) * spacing / 2, spacing)


def preprocess(domain: Domain, name: str, split: str) -> Shape:
    """The exact modes, candidate voxels and surface points of a normalised domain."""
    levels, modes = neumann_modes(domain, min(MODES, len(domain.cells) - 2))
    rng = np.random.default_rng(_seed(name))
    rows = np.sort(rng.choice(len(domain.cells), min(CANDIDATES, len(domain.cells)), replace=False))
    surface = surface_of(domain)
    if len(surface.points) > SURFACE:
        kept = rng.choice(len(surface.points), SURFACE, replace=False)
        surface = Surface(surface.points[kept], surface.normals[kept])
    _, parts = ndimage.label(_grid(domain))
    return Shape(name, split, domain, surface, rows, modes[rows].astype(np.float16), levels, int(parts))


def _open(mesh: Mesh) -> bool:
    """Whether some edge has not exactly two faces."""
    edges = np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    _, counts = np.unique(edges, axis=0, return_counts=True)
    return bool((counts != 2).any())


def _grid(domain: Domain) -> Bool[np.ndarray, "x y z"]:
    grid = np.zeros(domain.cells.max(axis=0) + 1, bool)
    grid[tuple(domain.cells.T)] = True
    return grid


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


def _cached(path: Path, split: str, cache: Path) -> Shape:
    """The shape of a mesh file from the cache, or filled and put there; refusals are cached too."""
    if not path.is_file():
        raise Skipped("named in index.csv but missing")
    key = hashlib.sha256(path.read_bytes() + bytes([_VERSION])).hexdigest()[:16]
    stored = cache / f"{path.stem}-{key}.npz"
    if stored.is_file():
        return _load(stored, path.name, split)
    try:
        shape = preprocess(fill(read_mesh(path)), path.name, split)
    except Skipped as reason:
        _write(stored, skipped=np.array(str(reason)))
        raise
    _store(stored, shape)
    return shape


def _store(path: Path, shape: Shape) -> None:
    _write(
        path,
        cells=shape.domain.cells.astype(np.int16),
        origin=shape.domain.origin,
        spacing=np.array(shape.domain.spacing),
        surface=shape.surface.points.astype(np.float32),
        normals=shape.surface.normals.astype(np.float16),
        rows=shape.rows.astype(np.int32),
        modes=shape.modes,
        levels=shape.levels,
        parts=np.array(shape.parts),
    )


def _write(path: Path, **arrays: np.ndarray) -> None:
    """Write a cache file whole or not at all."""
    partial = path.with_suffix(".partial.npz")
    np.savez(partial, **arrays)  # type: ignore[arg-type]
    partial.replace(path)


def _load(path: Path, name: str, split: str) -> Shape:
    try:
        with np.load(path) as data:
            if "skipped" in data:
                raise Skipped(str(data["skipped"]))
            domain = Domain(data["cells"].astype(np.int64), data["origin"], float(data["spacing"]))
            surface = Surface(data["surface"].astype(np.float64), data["normals"].astype(np.float64))
            rows, modes, levels = data["rows"].astype(np.int64), data["modes"], data["levels"]
            return Shape(name, split, domain, surface, rows, modes, levels, int(data["parts"]))
    except (OSError, KeyError, EOFError) as error:
        raise InputError(f"{path}: this cache file is damaged ({error}). Delete it; it is built again.") from error


def generated(count: int, seed: int) -> Iterator[Shape]:
    """Seeded shapes beside the meshes: trees of capsules, boxes and tori (rotation is left to augmentation)."""
    from splatanim.field.dataset_shapes import occupancy

    for number in range(count):
        rng = np.random.default_rng([seed, number])
        filled = occupancy(rng, GRID)
        yield preprocess(domain_of(filled), f"generated_{seed}_{number}", "train")
