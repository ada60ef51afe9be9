"""How many threads the libraries take."""

from __future__ import annotations

import functools
import sys
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


def numba_threads() -> int:
    """Numba's number of threads, without a change to PyTorch's.

    Numba counts its threads when it is first asked, and where its threading layer is OpenMP that sets the whole
    process's number, PyTorch's included: with ``OMP_NUM_THREADS=1`` on two busy cores small tensor operations then
    wait for each other and take up to seventy times as long.
    """
    import numba

    torch = sys.modules.get("torch")
    before = torch.get_num_threads() if torch is not None else 0
    count = numba.get_num_threads()
    if torch is not None and torch.get_num_threads() != before:
        torch.set_num_threads(before)
    return count
