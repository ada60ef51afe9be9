"""Files of the compressed formats, written splat by splat from their descriptions (not by code under test).

Every maker takes the same splats, so that what the readers return can be held against them.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import struct
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from splatanim.data import Splats
from tests.helpers import random_splats

COEFFICIENTS = (0, 3, 8, 15)
HALF = (1, -1, -1)  # signs of x, y, z between RDF and RUB


def scene(count: int = 60, degree: int = 2, seed: int = 7) -> Splats:
    """Splats whose every value the 8-bit formats can hold: no colour or harmonic is cut off."""
    splats = random_splats(count, degree, seed)
    rng = np.random.default_rng(seed + 1)
    sh = splats.sh.clip(-0.9, 0.9)
    sh[:, 0] = rng.uniform(-1.6, 1.6, (count, 3))
    return splats.replace(sh=sh.astype(np.float32), log_scales=splats.log_scales.clip(-6, 0))


def byte(value: float) -> int:
    return int(min(max(round(float(value)), 0), 255))


def rub(splats: Splats) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions, xyzw quaternions and harmonics in RUB, the latter by evaluating the basis at turned directions."""
    from splatanim.rotations import sh_basis

    degree = splats.sh_degree
    directions = np.random.default_rng(0).normal(size=(64, 3))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    # f'(d) = f(R d) for the half turn R, which is its own inverse.
    turned = np.linalg.lstsq(sh_basis(directions, degree), sh_basis(directions * HALF, degree), rcond=None)[0]
    w, x, y, z = splats.quaternions.T.astype(np.float64)
    return (
        splats.means * np.float32(HALF),
        np.stack([x, -y, -z, w], axis=1),
        np.einsum("kj,njc->nkc", turned, splats.sh),
    )


def spz_parts(splats: Splats, version: int) -> list[bytes]:
    """Positions, opacities, colours, scales, rotations, harmonics."""
    means, xyzw, sh = rub(splats)
    parts = [bytearray() for _ in range(6)]
    for k in range(len(splats)):
        for value in means[k]:
            if version == 1:
                parts[0] += struct.pack("<e", value)
            else:
                parts[0] += round(float(value) * 4096).to_bytes(3, "little", signed=True)
        parts[1].append(byte(255 * splats.opacities[k]))
        parts[2] += bytes(byte(255 * (0.15 * v + 0.5)) for v in sh[k, 0])
        parts[3] += bytes(byte(16 * (v + 10)) for v in splats.log_scales[k])
        q = xyzw[k] / np.linalg.norm(xyzw[k])
        if version < 3:
            q = q if q[3] >= 0 else -q
            parts[4] += bytes(byte(127.5 * v + 127.5) for v in q[:3])
        else:
            largest = int(np.abs(q).argmax())
            q = q if q[largest] >= 0 else -q
            word = largest
            for i in range(4):
                if i != largest:
                    word = (word << 10) | (int(q[i] < 0) << 9) | int(511 * abs(q[i]) * 2**0.5 + 0.5)
            parts[4] += struct.pack("<I", word)
        parts[5] += bytes(byte(128 * v + 128) for v in sh[k, 1:].ravel())
    return [bytes(part) for part in parts]


def spz_bytes(splats: Splats, version: int = 3, flags: int = 0) -> bytes:
    head = struct.pack("<4sIIBBBB", b"NGSP", version, len(splats), splats.sh_degree, 12, flags, 0)
    parts = spz_parts(splats, version)
    if version < 4:
        return gzip.compress(head + b"".join(parts), mtime=0)
    import zstandard

    parts = [part for part in parts if part]
    packed = [zstandard.ZstdCompressor().compress(part) for part in parts]
    extension = struct.pack("<II", 0xADBE0002, 4) + b"abcd" if flags & 2 else b""
    start = 32 + len(extension)
    head = head[:15] + bytes([len(parts)]) + struct.pack("<I12x", start)
    table = b"".join(struct.pack("<QQ", len(a), len(b)) for a, b in zip(packed, parts))
    return head + extension + table + b"".join(packed)


def splat_bytes(splats: Splats) -> bytes:
    out = b""
    for k in range(len(splats)):
        colour = [byte(255 * (0.5 + 0.28209479177387814 * v)) for v in splats.sh[k, 0]]
        out += struct.pack("<6f", *splats.means[k], *np.exp(splats.log_scales[k]))
        out += bytes([*colour, byte(255 * splats.opacities[k])]) + bytes(
            byte(128 + 128 * v) for v in splats.quaternions[k]
        )
    return out


def ksplat_harmonics(sh: np.ndarray, by_degree: bool) -> np.ndarray:
    """(K - 1, 3) in file order: degree by degree and in each channel by channel, or channel by channel alone."""
    if not by_degree:
        return sh.T.ravel()
    ends = [k for k in (0, 3, 8, 15) if k <= len(sh)]
    return np.concatenate([np.empty(0), *(sh[a:b].T.ravel() for a, b in itertools.pairwise(ends))])


def ksplat_bytes(splats: Splats, level: int = 0, *, by_degree: bool = True, bucket: int = 8) -> bytes:
    """One section; positions of level 1 and 2 lie in a grid of blocks, some buckets of which are not full."""
    n, block = len(splats), 5.0
    cell = np.floor(splats.means / block).astype(int)
    cells = np.unique(cell, axis=0)
    full, partial = [], []
    for c in cells:
        rows = np.flatnonzero((cell == c).all(axis=1))
        whole = len(rows) // bucket * bucket
        full += [(c, rows[i : i + bucket]) for i in range(0, whole, bucket)]
        partial += [(c, rows[whole:])] if whole < len(rows) else []
    buckets = full + partial if level else []
    order = np.concatenate([rows for _, rows in buckets]) if level else np.arange(n)
    centres = {i: (c + 0.5) * block for i, (c, _) in enumerate(buckets)}
    of = np.concatenate([np.full(len(rows), i) for i, (_, rows) in enumerate(buckets)]) if level else np.zeros(n, int)
    body = b"".join(struct.pack("<I", len(rows)) for _, rows in partial) if level else b""
    body += b"".join(struct.pack("<3f", *centres[i]) for i in range(len(buckets)))
    number, harmonic = ("f", "f") if level == 0 else ("e", "e")
    for row, i in zip(order, of, strict=True):
        if level == 0:
            body += struct.pack("<3f", *splats.means[row])
        else:
            local = (splats.means[row] - centres[int(i)]) / (block / 2) * 32767 + 32767
            body += struct.pack("<3H", *(int(min(max(round(float(v)), 0), 65535)) for v in local))
        body += struct.pack(f"<3{number}4{number}", *np.exp(splats.log_scales[row]), *splats.quaternions[row])
        body += bytes(byte(255 * (0.5 + 0.28209479177387814 * v)) for v in splats.sh[row, 0])
        body += bytes([byte(255 * splats.opacities[row])])
        values = ksplat_harmonics(splats.sh[row, 1:], by_degree)
        if level == 2:
            body += bytes(byte((v + 1.25) / 2.5 * 255) for v in values)
        else:
            body += struct.pack(f"<{len(values)}{harmonic}", *values)
    head = bytes([0, 1, 0, 0]) + struct.pack("<IIII", 1, 1, n, n) + struct.pack("<H2x", level)
    head += struct.pack("<3f2f", 0, 0, 0, -1.25, 1.25)
    section = struct.pack("<IIIIfHxx", n, n, bucket, len(buckets), block, 12 if level else 0)
    section += struct.pack(
        "<IIII", 32767, len(body) if by_degree else 0, len(full) if level else 0, len(partial) if level else 0
    )
    section += struct.pack("<H", splats.sh_degree)
    return head.ljust(4096, b"\0") + section.ljust(1024, b"\0") + body


def order_of_ksplat(splats: Splats, level: int, bucket: int = 8) -> np.ndarray:
    if level == 0:
        return np.arange(len(splats))
    cell = np.floor(splats.means / 5.0).astype(int)
    full, rest = [], []
    for c in np.unique(cell, axis=0):
        rows = np.flatnonzero((cell == c).all(axis=1))
        whole = len(rows) // bucket * bucket
        full.append(rows[:whole])
        rest.append(rows[whole:])
    return np.concatenate(full + rest)


def webp(pixels: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8), "RGBA").save(out, "WEBP", lossless=True, exact=True)
    return out.getvalue()


def sog_files(splats: Splats, version: int = 2) -> dict[str, bytes]:
    """Members of a SOG: meta.json and its images. Codebooks and palette are exact up to 256 steps."""
    n, k = len(splats), splats.sh.shape[1] - 1
    width = int(np.ceil(n**0.5))
    height = -(-n // width)

    def image(values: np.ndarray) -> bytes:
        pixels = np.zeros((height * width, 4), np.uint8)
        pixels[:n] = values
        return webp(pixels.reshape(height, width, 4))

    def coded(values: np.ndarray, low: float, high: float) -> np.ndarray:
        return np.round((values - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)

    logs = np.sign(splats.means) * np.log1p(np.abs(splats.means))
    low, high = logs.min(axis=0).astype(float), logs.max(axis=0).astype(float)
    fixed = np.round((logs - low) / (high - low) * 65535).astype(int)
    opaque = np.full((n, 1), 255)
    quats = np.zeros((n, 4), np.uint8)
    for i, q in enumerate(splats.quaternions.astype(float)):
        largest = int(np.abs(q).argmax())
        q = q if q[largest] >= 0 else -q
        quats[i, :3] = [byte(255 * (v / 2**0.5 + 0.5)) for v in np.delete(q, largest)]
        quats[i, 3] = 252 + largest
    book = lambda a, b: np.linspace(a, b, 256).tolist()  # noqa: E731
    files = {
        "means_l.webp": image(np.concatenate([fixed & 255, opaque], axis=1)),
        "means_u.webp": image(np.concatenate([fixed >> 8, opaque], axis=1)),
        "quats.webp": image(quats),
        "scales.webp": image(np.concatenate([coded(splats.log_scales, -6, 0), opaque], axis=1)),
    }
    logits = splats.raw_opacities
    ends = [-2.0, -2.0, -2.0, float(logits.min())], [2.0, 2.0, 2.0, float(logits.max())]
    alpha = np.round(255 * splats.opacities) if version == 2 else coded(logits, ends[0][3], ends[1][3])
    files["sh0.webp"] = image(np.concatenate([coded(splats.sh[:, 0], -2, 2), alpha[:, None]], axis=1))
    meta: dict = {
        "means": {"mins": low.tolist(), "maxs": high.tolist(), "files": ["means_l.webp", "means_u.webp"]},
        "quats": {"files": ["quats.webp"]},
        "scales": {"files": ["scales.webp"]},
        "sh0": {"files": ["sh0.webp"]},
    }
    if k:
        rows = -(-n // 64)
        palette = np.zeros((rows * 64, k, 4), np.uint8)
        palette[:n, :, :3] = coded(splats.sh[:, 1:], -1, 1)
        palette[..., 3] = 255
        labels = np.arange(n)
        files["shN_centroids.webp"] = webp(palette.reshape(rows, 64 * k, 4))
        files["shN_labels.webp"] = image(np.stack([labels & 255, labels >> 8, labels * 0, labels * 0 + 255], axis=1))
        meta["shN"] = {"files": ["shN_centroids.webp", "shN_labels.webp"]}
    if version == 2:
        meta |= {"version": 2, "count": n}
        meta["scales"]["codebook"], meta["sh0"]["codebook"] = book(-6, 0), book(-2, 2)
        if k:
            meta["shN"] |= {"count": n, "bands": splats.sh_degree, "codebook": book(-1, 1)}
    else:
        meta["means"]["shape"] = [n, 3]
        meta["scales"] |= {"mins": [-6.0] * 3, "maxs": [0.0] * 3}
        meta["sh0"] |= {"mins": ends[0], "maxs": ends[1]}
        if k:
            meta["shN"] |= {"mins": -1.0, "maxs": 1.0}
    return files | {"meta.json": json.dumps(meta).encode()}


def sog_bytes(splats: Splats, version: int = 2) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in sog_files(splats, version).items():
            archive.writestr(name, data)
    return out.getvalue()


def compressed_ply_bytes(splats: Splats, *, colours: bool = True, interleaved: bool = False) -> bytes:
    n, rest = len(splats), 3 * (splats.sh.shape[1] - 1)
    chunks, words = b"", b""
    rgb = 0.5 + 0.28209479177387814 * splats.sh[:, 0]
    for start in range(0, n, 256):
        part = slice(start, start + 256)
        ends = [a[part] for a in (splats.means, splats.log_scales, rgb)]
        lows, highs = ([e.min(axis=0) for e in ends], [e.max(axis=0) for e in ends])
        if not colours:
            lows[2], highs[2] = np.zeros(3), np.ones(3)
        for low, high in list(zip(lows, highs))[: 3 if colours else 2]:
            chunks += struct.pack("<6f", *low, *high)
        for k in range(start, min(start + 256, n)):
            p, s, c = (
                ((v - a) / np.where(b > a, b - a, 1)).clip(0, 1)
                for v, a, b in zip((splats.means[k], splats.log_scales[k], rgb[k]), lows, highs)
            )
            packed = [round(p[0] * 2047) << 21 | round(p[1] * 1023) << 11 | round(p[2] * 2047)]
            q = splats.quaternions[k].astype(float)
            largest = int(np.abs(q).argmax())
            q = q if q[largest] >= 0 else -q
            word = largest
            for v in np.delete(q, largest):
                word = word << 10 | round((v / 2**0.5 + 0.5) * 1023)
            packed.append(word)
            packed.append(round(s[0] * 2047) << 21 | round(s[1] * 1023) << 11 | round(s[2] * 2047))
            r, g, b = (byte(255 * v) for v in c)
            packed.append(r << 24 | g << 16 | b << 8 | byte(255 * splats.opacities[k]))
            words += struct.pack("<4I", *packed)
    columns = [f"{end}_{kind}{axis}" for kind in ("", "scale_") for end in ("min", "max") for axis in "xyz"]
    columns += [f"{e}_{c}" for e in ("min", "max") for c in "rgb"] if colours else []
    lines = ["ply", "format binary_little_endian 1.0"]
    lines += [f"comment Generated by {'GaussForge' if interleaved else 'a test'}"]
    lines += [f"element chunk {-(-n // 256)}", *(f"property float {c}" for c in columns), f"element vertex {n}"]
    lines += [f"property uint packed_{c}" for c in ("position", "rotation", "scale", "color")]
    harmonics = b""
    if rest:
        lines += [f"element sh {n}", *(f"property uchar f_rest_{i}" for i in range(rest))]
        order = splats.sh[:, 1:] if interleaved else splats.sh[:, 1:].transpose(0, 2, 1)
        harmonics = bytes(byte((v / 8 + 0.5) * 256 - 0.5) for v in order.ravel())
    return "\n".join([*lines, "end_header\n"]).encode() + chunks + words + harmonics


def write(folder: Path, name: str, data: bytes) -> Path:
    (folder / name).write_bytes(data)
    return folder / name
