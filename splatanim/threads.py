"""How many threads the libraries take."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager


@functools.cache
def _controller():
    import scipy.linalg  # noqa: F401  its BLAS counts only once it is loaded
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager:
    """BLAS on one thread inside (ten microseconds): waking a second one costs more than a small matrix does, and while
    it waits for more it keeps a core from our own kernels."""
    return _controller().limit(limits=1, user_api="blas")
