"""The shape of the project: which package may import which, what importing costs, and how long files may grow."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ("splatanim", "rigpapr", "pipelines", "viewers")  # an arrow may only point to the left
HEAVY = ("torch", "numba", "gsplat", "trimesh", "matplotlib", "imageio", "imageio_ffmpeg", "rich", "roma")


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> list[tuple[str, bool]]:
    """(top-level package, whether the import stands at module level) of every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nested = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef))
        for node in ast.walk(function)
    }
    found = []
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [node.module or ""]
        found += [(name.split(".")[0], id(node) not in nested) for name in names]
    return found


@pytest.mark.parametrize("package", [name for name in ORDER if (ROOT / name).is_dir()])
def test_imports_point_one_way(package: str) -> None:
    allowed = ORDER[: ORDER.index(package) + 1]
    wrong = []
    for path in sources(package):
        for name, at_top in imports(path):
            lazy_viewer = name == "viewers" and path.name == "cli.py" and not at_top
            if name in ORDER and name not in allowed and not lazy_viewer:
                wrong.append(f"{path.relative_to(ROOT)} imports {name}")
    assert not wrong


def test_no_source_imports_the_tests() -> None:
    assert not [p for package in ORDER for p in sources(package) if ("tests", True) in imports(p)]


@pytest.mark.parametrize("module", ["splatanim", "splatanim.data", "splatanim.formats", "splatanim.render.camera"])
def test_importing_is_light(module: str) -> None:
    code = f"import sys, {module}; print([m for m in {HEAVY!r} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for package in ORDER
        for path in sources(package)
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > 350
    }
    assert not long


def test_functions_stay_short() -> None:
    long = []
    for package in ORDER:
        for path in sources(package):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno > 80:
                    long.append(f"{path.relative_to(ROOT)}:{node.name}")
    assert not long


def test_public_functions_have_docstrings() -> None:
    bare = []
    for path in sources("splatanim"):
        if path.name.startswith("_") and path.name != "__init__.py":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            named = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if named and not ast.get_docstring(node) and node.end_lineno - node.lineno > 6:
                bare.append(f"{path.relative_to(ROOT)}:{node.name}")
    assert not bare
