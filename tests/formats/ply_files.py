"""PLY files made column by column from a seed, by code of their own (not by the writer under test)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

NAMES = {"f4": "float", "f8": "double", "u1": "uchar", "i4": "int", "u4": "uint"}

Columns = dict[str, np.ndarray]


def columns(n: int = 1000, *, degree: int = 3, seed: int = 0) -> Columns:
    """Splats in the unit cube, in Inria order: opacity 2.2, scales 0.03, random rotations and colours."""
    rng = np.random.default_rng(seed)
    rest = 3 * ((degree + 1) ** 2 - 1)
    table: Columns = dict(zip("xyz", rng.uniform(-1, 1, (3, n))))
    table |= {name: np.zeros(n) for name in ("nx", "ny", "nz")}
    table |= {f"f_dc_{i}": rng.normal(size=n) for i in range(3)}
    table |= {f"f_rest_{i}": 0.1 * rng.normal(size=n) for i in range(rest)}
    table |= {"opacity": np.full(n, 2.2)}
    table |= {f"scale_{i}": np.full(n, np.log(0.03)) for i in range(3)}
    quaternions = rng.normal(size=(4, n))
    table |= {f"rot_{i}": q for i, q in enumerate(quaternions / np.linalg.norm(quaternions, axis=0))}
    return {name: column.astype("f4") for name, column in table.items()}


def faces(encoding: str, newline: str, name: str = "face", count: int = 5) -> tuple[str, bytes]:
    """Header lines and data of an element with a list and a scalar, lists of different lengths."""
    lines = [f"element {name} {count}", "property list uchar int vertex_indices", "property float weight"]
    if encoding == "ascii":
        data = "".join(f"{i} {' '.join(['7'] * i)} 0.5{newline}" for i in range(count)).encode()
    else:
        order = ">" if "big" in encoding else "<"
        rows = (bytes([i]) + np.full(i, 7, order + "i4").tobytes() + np.float32(0.5).tobytes() for i in range(count))
        data = b"".join(rows)
    return newline.join(lines) + newline, data


def ply_bytes(
    table: Columns,
    *,
    encoding: str = "binary_little_endian",
    newline: str = "\n",
    comments: tuple[str, ...] = (),
    face_before: bool = False,
    face_after: bool = False,
) -> bytes:
    count = len(next(iter(table.values())))
    order = ">" if "big" in encoding else "<"
    rows = np.empty(count, [(name, order + column.dtype.str[1:]) for name, column in table.items()])
    for name, column in table.items():
        rows[name] = column
    if encoding == "ascii":
        data = "".join(" ".join(repr(float(v)) for v in row) + newline for row in rows.tolist()).encode()
    else:
        data = rows.tobytes()
    lines = ["ply", f"format {encoding} 1.0", *(f"comment {c}" for c in comments)]
    head = newline.join(lines) + newline
    face_head, face_data = faces(encoding, newline)
    tail_head, _ = faces(encoding, newline, "tail" if face_before else "face")
    vertex = [f"element vertex {count}", *(f"property {NAMES[c.dtype.str[1:]]} {n}" for n, c in table.items())]
    head += face_head * face_before + newline.join(vertex) + newline + tail_head * face_after
    return (head + "end_header" + newline).encode() + face_data * face_before + data + face_data * face_after


def save(folder: Path, table: Columns, name: str = "splats.ply", **options: object) -> Path:
    path = folder / name
    path.write_bytes(ply_bytes(table, **options))  # type: ignore[arg-type]
    return path
