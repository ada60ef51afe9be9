"""Small things that the compiled kernels share: a cached ``jit``, bit casts, fast exponentials.

The kernels release the GIL and are run by plain threads (see :mod:`splatanim.render.cpu`): no threading layer is
started, several callers may render at once, and compiling takes a fraction of what ``parallel=True`` takes.

Numba's disk cache looks at the file of a kernel only: after a change here, touch the files that import from here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic as _intrinsic

# Everything of fast-math except "no NaN, no infinity": the kernels test for both, to skip broken splats.
FAST_BUT_NAN_SAFE = {"contract", "reassoc", "nsz", "arcp"}

LOG2_E = np.float32(1.4426950408889634)

# 2^f on [-1/2, 1/2], relative error below 2e-9: lowest power first.
_E0, _E1, _E2 = np.float32(1.0), np.float32(6.93147206e-1), np.float32(2.40226469e-1)
_E3, _E4 = np.float32(5.55032878e-2), np.float32(9.61848896e-3)
_E5, _E6 = np.float32(1.33999317e-3), np.float32(1.53458119e-4)


intrinsic: Any = _intrinsic  # numba's own type counts the typing context among the arguments of a call


def jit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on the first call, without the GIL; keep the machine code on disk where a folder can be written."""
    options: Any = dict(nogil=True, boundscheck=False, error_model="numpy", fastmath=FAST_BUT_NAN_SAFE)
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba finds no writable cache folder: compile in every process instead
        return njit(**options)(function)


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """For helpers that take arrays: pasted into their caller, where a call would count references per splat."""
    return njit(inline="always")(function)


@intrinsic
def bits_of(typing_context, value):
    """The bits of a float32 as int32; for positive floats they sort as the floats do."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@intrinsic
def float_of(typing_context, bits):
    """The float32 with the given int32 bits."""

    def codegen(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), codegen


@intrinsic
def take_number(typing_context, address):
    """The int64 at ``address``, which is increased by one: each caller, on any thread, gets another number."""

    def codegen(context, builder, signature, arguments):
        pointer = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(ir.IntType(64), 1), "monotonic")

    return types.int64(types.intp), codegen


@jit
def exp2(x):
    """2^x in float32 for x clamped to [-126, 126]."""
    x = min(np.float32(126.0), max(np.float32(-126.0), x))
    whole = np.int32(np.floor(x + np.float32(0.5)))
    f = x - np.float32(whole)
    value = _E0 + f * (_E1 + f * (_E2 + f * (_E3 + f * (_E4 + f * (_E5 + f * _E6)))))
    return float_of(np.int32(bits_of(value) + (whole << np.int32(23))))


@jit
def log2(x):
    """log2 of a positive normal float32, absolute error about 1e-7."""
    bits = bits_of(x) - np.int32(0x3F3504F3)  # sqrt(1/2): mantissas come out in [sqrt(1/2), sqrt(2))
    exponent = bits >> np.int32(23)
    mantissa = float_of(np.int32((bits & np.int32(0x7FFFFF)) + np.int32(0x3F3504F3)))
    s = (mantissa - np.float32(1.0)) / (mantissa + np.float32(1.0))
    ss = s * s
    series = np.float32(2.0) + ss * (np.float32(2 / 3) + ss * (np.float32(2 / 5) + ss * np.float32(2 / 7)))
    return np.float32(exponent) + LOG2_E * s * series
