"""Every public signature of splatanim is checked while the tests run: dtypes and shapes by jaxtyping, the rest by
beartype. Modules with Numba kernels are left out: the hook would wrap what Numba has to compile."""

from pathlib import Path

from jaxtyping import install_import_hook

import tests.typecheck  # noqa: F401  (the hook looks it up by name)

_ROOT = Path(__file__).parent.parent


def _checked_modules() -> list[str]:
    """Leaf modules alone, as the hook takes a package's name for all that is in it."""
    sources = (path for path in _ROOT.glob("splatanim/**/*.py") if path.name != "__init__.py")
    plain = (path for path in sources if "njit" not in (text := path.read_text()) and "_numba import" not in text)
    return [".".join(path.relative_to(_ROOT).with_suffix("").parts) for path in plain]


install_import_hook(_checked_modules(), "tests.typecheck.checked")
