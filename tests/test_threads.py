"""How many threads the libraries take."""

from __future__ import annotations

import os
import subprocess
import sys

import numba
import pytest

from splatanim.threads import numba_threads, one_blas_thread


def test_numbas_number_is_asked_for_without_a_change_of_pytorchs() -> None:
    code = (
        "import torch\n"
        "from splatanim.threads import numba_threads\n"
        "before = torch.get_num_threads()\n"
        "count = numba_threads()\n"
        "print(before, torch.get_num_threads(), count)\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "2"}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    before, after, count = map(int, out.stdout.split())
    assert before == after == 1 and count == 2


def test_numbas_number_is_the_one_in_force() -> None:
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        assert numba_threads() == 1
    finally:
        numba.set_num_threads(before)


def test_blas_has_one_thread_inside() -> None:
    from threadpoolctl import threadpool_info

    def counts() -> list[int]:
        return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

    before = counts()
    if not before:
        pytest.skip("no BLAS that threadpoolctl knows is loaded")
    with one_blas_thread():
        assert set(counts()) == {1}
    assert counts() == before
