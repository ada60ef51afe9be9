"""``splatanim doctor``: what is installed, what is missing and what it would add, and whether the rest works."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from pipelines.doctor_selftest import Check, self_test


@dataclass(frozen=True)
class DoctorConfig:
    """Say what is installed, what each missing part would add, and whether everything works.

    Args:
        json: Print JSON with stable keys instead of text.
        test: Run the self test, some seconds: a small object is read, bound, dropped, drawn and filmed, and its numbers
            are checked. The exit code is 0 where all that is needed is there and the test passes, else 1.
    """

    json: bool = False
    test: bool = True


@dataclass(frozen=True)
class Part:
    """An optional part: the module it is imported as, the package's name, what it adds, and what installs it."""

    module: str
    package: str
    adds: str
    install: str


def _extra(name: str) -> str:
    return f'pip install "splatanim[{name}]"'


#: What ``pip install splatanim`` brings, as modules and packages.
NEEDED = {
    **{name: name for name in ("numpy", "scipy", "numba", "torch", "trimesh", "tyro", "rich", "roma", "einops")},
    **{name: name for name in ("jaxtyping", "beartype", "safetensors", "threadpoolctl", "imageio")},
    "imageio_ffmpeg": "imageio-ffmpeg",
    "PIL": "pillow",
}
OPTIONAL = (
    Part("gsplat", "gsplat", "rendering on an NVIDIA GPU (--backend cuda)", _extra("cuda")),
    Part("viser", "viser", "the viewer in the browser (view)", _extra("viewer")),
    Part("polyscope", "polyscope", "the viewer in a window (view --window)", _extra("viewer")),
    Part("ray", "ray", "batches on a cluster (batch --engine ray)", _extra("ray")),
    Part("cv2", "opencv-python-headless", "tracks and videos (fit, reconstruct)", _extra("captures")),
    Part("pycolmap", "pycolmap", "COLMAP captures (reconstruct) and cameras", _extra("captures")),
    Part("zstandard", "zstandard", ".spz files of version 4", _extra("formats")),
    Part(
        "robust_laplacian", "robust-laplacian", "heat weights on open meshes and points (--weights heat)", _extra("rig")
    ),
    Part("conflictfree", "conflictfree", "training of fields by ConFIG (train-fields)", _extra("train")),
    Part("tetgen", "tetgen", "reference solutions by finite elements (bench)", _extra("fem")),
    Part("lpips", "lpips", "the LPIPS column of evaluations", _extra("lpips")),
    Part(
        "cotracker", "", "tracks by CoTracker3 (fit --tracks); it needs your own checkout", "pip install -e co-tracker"
    ),
    Part(
        "depth_anything_3",
        "",
        "depth by Depth Anything 3 (fit --depth); it needs your own checkout",
        "pip install -e depth-anything-3",
    ),
)


@dataclass(frozen=True)
class Diagnosis:
    """All that was found. ``problems`` are what keeps splatanim from working; the missing optional parts do not."""

    python: str
    machine: str
    cores: int
    needed: dict[str, str]
    optional: dict[str, str]
    missing: tuple[Part, ...]
    gpu: str
    ffmpeg: str
    kernels: str
    checks: tuple[Check, ...]
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        return not self.problems


def diagnose(*, test: bool = True) -> Diagnosis:
    """Look at everything; with ``test`` also run the self test."""
    problems: list[str] = []
    needed = {package: version_of(module, package) for module, package in NEEDED.items()}
    problems += [f"{name} is missing: pip install {name}" for name, version in needed.items() if not version]
    optional = {part.module: version_of(part.module, part.package) for part in OPTIONAL}
    ffmpeg, trouble = _ffmpeg()
    problems += trouble
    kernels, trouble = _kernels() if needed["numba"] else ("numba is missing", [])
    problems += trouble
    checks = tuple(self_test()) if test and not problems else ()
    problems += [f"self test, {check.name}: {check.said}" for check in checks if not check.passed]
    return Diagnosis(
        python=f"{platform.python_implementation()} {platform.python_version()} ({sys.executable})",
        machine=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        needed=needed,
        optional={name: version for name, version in optional.items() if version},
        missing=tuple(part for part in OPTIONAL if not optional[part.module]),
        gpu=_gpu(bool(needed["torch"])),
        ffmpeg=ffmpeg,
        kernels=kernels,
        checks=checks,
        problems=tuple(problems),
    )


def doctor(config: DoctorConfig) -> tuple[str, bool]:
    """The diagnosis as text or JSON, and whether all is well."""
    found = diagnose(test=config.test)
    if config.json:
        return json.dumps({"healthy": found.healthy, **dataclasses.asdict(found)}, indent=2), found.healthy
    return "\n".join(_lines(found)), found.healthy


def version_of(module: str, package: str) -> str:
    """The version of a package, or ``yes`` where it does not say; empty where the module cannot be found."""
    try:
        if importlib.util.find_spec(module) is None:
            return ""
        return importlib.metadata.version(package) if package else "yes"
    except importlib.metadata.PackageNotFoundError:
        return "yes"
    except (ImportError, ValueError):
        return ""


def _gpu(torch_there: bool) -> str:
    if not torch_there:
        return "unknown, as torch is missing"
    import torch

    if not torch.cuda.is_available():
        return "none that torch can use; everything runs on the CPU"
    name = torch.cuda.get_device_name(0)
    if importlib.util.find_spec("gsplat") is None:
        return f"{name}; gsplat would render on it: {_extra('cuda')}"
    return f"{name}; gsplat renders on it"


def _ffmpeg() -> tuple[str, list[str]]:
    try:
        import imageio_ffmpeg

        path = imageio_ffmpeg.get_ffmpeg_exe()
        return f"{imageio_ffmpeg.get_ffmpeg_version()} ({path})", []
    except ImportError:
        return "missing", []  # named among the packages
    except (RuntimeError, OSError, AssertionError) as error:
        return "missing", [f"no ffmpeg that runs ({error}): pip install imageio-ffmpeg, or set IMAGEIO_FFMPEG_EXE"]


def _kernels() -> tuple[str, list[str]]:
    """Where Numba keeps compiled kernels, and how many are there; the first use of one compiles it (seconds)."""
    from splatanim._pushforward import push_forward_kernel

    folder = Path(push_forward_kernel.stats.cache_path or ".")
    cached = {path.name.split("-")[0] for path in _cache_files(folder)}
    text = f"{len(cached)} compiled and kept, beside those of {folder}"
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return text, [
            f"{folder} cannot be written, so every start compiles anew: set NUMBA_CACHE_DIR to a folder of yours"
        ]
    return text, []


def _cache_files(folder: Path) -> list[Path]:
    """Index files of compiled kernels: in every __pycache__ of the packages, or in Numba's own folder."""
    import splatanim

    root = Path(splatanim.__file__).parent
    roots = [root, root.parent / "rigpapr"] if root in folder.parents else [folder.parent]
    return [path for top in roots for path in top.rglob("*.nbi")]


def _lines(found: Diagnosis) -> list[str]:
    lines = [
        f"Python     {found.python}",
        f"machine    {found.machine}, {found.cores} cores",
        f"GPU        {found.gpu}",
        f"ffmpeg     {found.ffmpeg}",
        f"kernels    {found.kernels}",
        f"packages   {', '.join(f'{name} {version}' for name, version in found.needed.items() if version)}",
        f"extras     {', '.join(f'{name} {version}' for name, version in found.optional.items()) or 'none'}",
    ]
    if found.missing:
        lines.append("not here (all optional):")
        width = max(len(part.module) for part in found.missing)
        lines += [f"  {part.module:<{width}}  {part.adds}: {part.install}" for part in found.missing]
    if found.checks:
        lines.append(f"self test ({sum(check.seconds for check in found.checks):.1f} s):")
        lines += [f"  {'ok  ' if check.passed else 'FAIL'}  {check.name:<8} {check.said}" for check in found.checks]
    if found.problems:
        lines += ["What is wrong:", *(f"  {problem}" for problem in found.problems)]
    else:
        lines.append("All that is needed is here" + (" and works." if found.checks else "."))
    return lines
