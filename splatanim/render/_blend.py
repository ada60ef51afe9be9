"""Front-to-back blending of sorted splats, tile by tile, sixteen pixels at a time.

Numba does not vectorise this loop by itself, so the step "blend one splat into one 4x4 block of pixels" is written as
LLVM vector operations on <16 x float>, which LLVM lowers to AVX-512, AVX2, SSE or NEON alike. A block's state is the
vectors transmittance, red, green, blue and (where depth is asked for) depth. A pixel that is done keeps its final
transmittance with the sign bit set, which takes it out of all further steps without another mask.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types

from splatanim.render._numba import intrinsic, jit, take_number
from splatanim.render._project import (
    BLUE,
    DEPTH,
    EXTENT_X,
    EXTENT_Y,
    GREEN,
    LOG_OPACITY,
    PACKED_COLUMNS,
    RED,
    TILE,
    P,
    Q,
    R,
    X,
    Y,
)

# Compiled with _numba.py ec45d506ba1a.

LANES = 16
BLOCK = 4  # pixels: a block is 4x4
BLOCKS = TILE // BLOCK
BATCH = 128  # splats gathered at a time: independent loads overlap
LOG2_ALPHA_CUT = -7.994353436858858  # 1/255
ALPHA_MAX = 0.999
TRANSMITTANCE_CUT = 1e-4
# 2^f on [-1/2, 1/2], relative error below 3e-6: lowest power first.
_EXP2 = (0.99999926, 0.69312181, 0.24024745, 0.05591786, 0.0095701)

_INT = ir.IntType(32)
_FLOATS = ir.VectorType(ir.FloatType(), LANES)
_INTS = ir.VectorType(_INT, LANES)
_FLAGS = ("contract", "reassoc", "nsz")
_ONE, _ZERO, _HALF = np.float32(1), np.float32(0), np.float32(0.5)


class Canvas(NamedTuple):
    """What is written: ``rgb`` (H, W, 3), ``alpha`` (H, W), ``depth`` (H, W) or (1, 1), over ``background`` (3,)."""

    rgb: np.ndarray
    alpha: np.ndarray
    depth: np.ndarray
    background: np.ndarray


def _floats(*values: float) -> ir.Constant:
    """A constant vector; one value is repeated."""
    lanes = values * LANES if len(values) == 1 else values
    return ir.Constant(_FLOATS, [ir.Constant(ir.FloatType(), float(np.float32(v))) for v in lanes])


def _ints(value: int) -> ir.Constant:
    return ir.Constant(_INTS, [ir.Constant(_INT, value)] * LANES)


def _spread(builder: Any, scalar: Any) -> Any:
    undefined = ir.Constant(_FLOATS, ir.Undefined)
    return builder.shuffle_vector(builder.insert_element(undefined, scalar, ir.Constant(_INT, 0)), undefined, _ints(0))


def _emit_exp2(builder: Any, exponent: Any) -> Any:
    """2^exponent of a vector in [-8, 0]."""
    whole = builder.fptosi(builder.fsub(exponent, _floats(0.5)), _INTS)  # truncation: rounds half down
    fraction = builder.fsub(exponent, builder.sitofp(whole, _FLOATS))
    value = _floats(_EXP2[-1])
    for coefficient in _EXP2[-2::-1]:
        value = builder.fadd(builder.fmul(value, fraction, flags=_FLAGS), _floats(coefficient), flags=_FLAGS)
    bits = builder.add(builder.bitcast(value, _INTS), builder.shl(whole, _ints(23)))
    return builder.bitcast(bits, _FLOATS)


def _emit_log_alpha(builder: Any, dx: Any, dy: Any, shape: list[Any]) -> Any:
    """log2(alpha) = L - (p dx + q dy)^2 - (r dy)^2."""
    p, q, r, log_opacity = (_spread(builder, value) for value in shape)
    along = builder.fadd(builder.fmul(p, dx, flags=_FLAGS), builder.fmul(q, dy, flags=_FLAGS), flags=_FLAGS)
    across = builder.fmul(r, dy, flags=_FLAGS)
    rest = builder.fsub(log_opacity, builder.fmul(across, across, flags=_FLAGS), flags=_FLAGS)
    return builder.fsub(rest, builder.fmul(along, along, flags=_FLAGS), flags=_FLAGS)


def _emit_block(builder: Any, arguments: Any) -> Any:
    """One splat into one block; returns the sixteen "still alive" bits. Arguments as in :func:`blend_block`."""
    state, origin_x, origin_y, *rest = arguments
    shape, values = rest[:4], rest[4:]
    pointer = builder.inttoptr(state, _FLOATS.as_pointer())
    slots = [builder.gep(pointer, [ir.Constant(_INT, k)]) for k in range(1 + len(values))]
    dx = builder.fadd(_floats(*(float(k % BLOCK) for k in range(LANES))), _spread(builder, origin_x))
    dy = builder.fadd(_floats(*(float(k // BLOCK) for k in range(LANES))), _spread(builder, origin_y))
    log_alpha = _emit_log_alpha(builder, dx, dy, shape)
    before = builder.load(slots[0], align=64)
    seen = builder.and_(
        builder.fcmp_ordered(">=", log_alpha, _floats(LOG2_ALPHA_CUT)),
        builder.fcmp_ordered(">", before, _floats(0.0)),
    )
    alpha = _emit_exp2(builder, builder.select(seen, log_alpha, _floats(0.0)))
    alpha = builder.select(builder.fcmp_ordered("<", alpha, _floats(ALPHA_MAX)), alpha, _floats(ALPHA_MAX))
    alpha = builder.select(seen, alpha, _floats(0.0))
    weight = builder.fmul(alpha, before, flags=_FLAGS)
    after = builder.fsub(before, weight, flags=_FLAGS)
    alive = builder.fcmp_ordered(">", after, _floats(TRANSMITTANCE_CUT))
    weight = builder.select(alive, weight, _floats(0.0))
    done = builder.bitcast(builder.or_(builder.bitcast(before, _INTS), _ints(-(2**31))), _FLOATS)
    builder.store(builder.select(alive, after, done), slots[0], align=64)
    for slot, value in zip(slots[1:], values):
        added = builder.fmul(weight, _spread(builder, value), flags=_FLAGS)
        builder.store(builder.fadd(builder.load(slot, align=64), added, flags=_FLAGS), slot, align=64)
    return builder.zext(builder.bitcast(alive, ir.IntType(LANES)), _INT)


def _signature(value_count: int) -> Any:
    return types.int32(types.intp, *([types.float32] * (6 + value_count)))


@intrinsic
def blend_block(typing_context, state, x, y, p, q, r, log_opacity, red, green, blue):
    """Blend a splat into the block whose state lies at the address ``state`` (64-byte aligned).

    (x, y): first pixel centre minus splat centre; (p, q, r, log_opacity): see ``_project._shape``.
    """

    def codegen(context, builder, signature, arguments):
        return _emit_block(builder, arguments)

    return _signature(3), codegen


@intrinsic
def blend_block_depth(typing_context, state, x, y, p, q, r, log_opacity, red, green, blue, depth):
    """:func:`blend_block` with a fifth state vector: depth."""

    def codegen(context, builder, signature, arguments):
        return _emit_block(builder, arguments)

    return _signature(4), codegen


@jit
def sort_pairs(pairs, scratch, counts):
    """Sort ``pairs`` (depth bits << 32 | row) by depth, stably; returns the one of the two arrays that holds them.

    A radix sort on the depth's offset from the least one, in as many 8-bit passes (at most 3, 24 bits) as that takes.
    """
    least, most = pairs[0], pairs[0]
    for pair in pairs:
        least, most = min(least, pair), max(most, pair)
    origin = least >> np.uint64(32)
    span = (most >> np.uint64(32)) - origin
    shift = np.uint64(32)
    while span >= np.uint64(1 << 24):
        span >>= np.uint64(1)
        shift += np.uint64(1)
    base = origin << np.uint64(32)
    while span > np.uint64(0):
        counts[:] = 0
        for pair in pairs:
            counts[((pair - base) >> shift) & np.uint64(255)] += 1
        total = 0
        for digit in range(256):
            here = counts[digit]
            counts[digit] = total
            total += here
        for pair in pairs:
            digit = ((pair - base) >> shift) & np.uint64(255)
            scratch[counts[digit]] = pair
            counts[digit] += 1
        pairs, scratch = scratch, pairs
        shift += np.uint64(8)
        span >>= np.uint64(8)
    return pairs


@jit
def _block_range(centre, extent):
    """The half-open range of a tile's blocks along one axis; ``centre`` from the tile's first pixel centre."""
    first = np.int32(np.ceil(max(_ZERO, min(np.float32(TILE), centre - extent))))
    last = np.int32(np.floor(max(-_ONE, min(np.float32(TILE - 1), centre + extent))))
    return first // BLOCK, (last + BLOCK) // BLOCK


@jit
def _blend_tile(x0, y0, pairs, packed, state, alive, with_depth):
    """Blend sorted ``pairs`` into ``state`` (blocks, 5, 16) of the tile whose first pixel is (x0, y0)."""
    address = state.ctypes.data
    batch = np.empty((BATCH, PACKED_COLUMNS), np.float32)
    state[:, 0] = _ONE
    state[:, 1:] = _ZERO
    alive[:] = 1
    remaining = BLOCKS * BLOCKS
    origin_x, origin_y = np.float32(x0) + _HALF, np.float32(y0) + _HALF
    for start in range(0, len(pairs), BATCH):
        size = min(BATCH, len(pairs) - start)
        for k in range(size):
            source = np.int64(pairs[start + k] & np.uint64(0xFFFFFFFF))
            for column in range(PACKED_COLUMNS):
                batch[k, column] = packed[source, column]
        for k in range(size):
            s = batch[k]
            x, y = s[X] - origin_x, s[Y] - origin_y
            left, right = _block_range(x, s[EXTENT_X])
            top, bottom = _block_range(y, s[EXTENT_Y])
            for by in range(top, bottom):
                dy = np.float32(by * BLOCK) - y
                for bx in range(left, right):
                    block = by * BLOCKS + bx
                    if alive[block] == 0:
                        continue
                    dx = np.float32(bx * BLOCK) - x
                    place = address + block * (5 * LANES * 4)
                    if with_depth:
                        bits = blend_block_depth(
                            place, dx, dy, s[P], s[Q], s[R], s[LOG_OPACITY], s[RED], s[GREEN], s[BLUE], s[DEPTH]
                        )
                    else:
                        bits = blend_block(place, dx, dy, s[P], s[Q], s[R], s[LOG_OPACITY], s[RED], s[GREEN], s[BLUE])
                    if bits == 0:
                        alive[block] = 0
                        remaining -= 1
            if remaining == 0:
                return


@jit
def _write_tile(x0, y0, state, canvas, with_depth):
    height, width = canvas.alpha.shape
    background = canvas.background
    for block in range(BLOCKS * BLOCKS):
        for lane in range(LANES):
            y = y0 + block // BLOCKS * BLOCK + lane // BLOCK
            x = x0 + block % BLOCKS * BLOCK + lane % BLOCK
            if y >= height or x >= width:
                continue
            transmittance = abs(state[block, 0, lane])
            for channel in range(3):
                canvas.rgb[y, x, channel] = state[block, 1 + channel, lane] + transmittance * background[channel]
            canvas.alpha[y, x] = _ONE - transmittance
            if with_depth:
                canvas.depth[y, x] = state[block, 4, lane] / max(np.float32(1e-10), _ONE - transmittance)


@jit
def blend_tiles(turn, first_row, starts, pairs, packed, canvas, with_depth):
    """Sort and blend the tiles of a band of tile rows that begins at ``first_row``, in company of other threads.

    ``turn`` (1,) int64, shared and 0 at the start, hands out the tiles: a slow or interrupted core takes fewer.
    ``starts`` (tiles + 1,) int64: tile t of the band owns ``pairs[starts[t]:starts[t + 1]]``.
    """
    tile_count = len(starts) - 1
    longest = 0
    for tile in range(tile_count):
        longest = max(longest, starts[tile + 1] - starts[tile])
    scratch = np.empty(longest, np.uint64)
    counts = np.empty(256, np.int64)
    alive = np.empty(BLOCKS * BLOCKS, np.uint8)
    storage = np.empty(BLOCKS * BLOCKS * 5 * LANES + LANES, np.float32)
    shift = (64 - storage.ctypes.data % 64) % 64 // 4  # the vector loads and stores are aligned
    state = storage[shift : shift + BLOCKS * BLOCKS * 5 * LANES].reshape(BLOCKS * BLOCKS, 5, LANES)
    columns = (canvas.alpha.shape[1] + TILE - 1) // TILE
    tile = take_number(turn.ctypes.data)
    while tile < tile_count:
        mine = pairs[starts[tile] : starts[tile + 1]]
        if len(mine) > 1:
            mine = sort_pairs(mine, scratch[: len(mine)], counts)
        y0, x0 = (first_row + tile // columns) * TILE, tile % columns * TILE
        _blend_tile(x0, y0, mine, packed, state, alive, with_depth)
        _write_tile(x0, y0, state, canvas, with_depth)
        tile = take_number(turn.ctypes.data)
